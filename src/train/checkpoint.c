/* checkpoint.c - the directory of checkpoints: lock, phases of a save, retention, search.
 *
 * The commit protocol is that of databases: shards, fsync; manifest, fsync;
 * fsync of the temporary directory; rename; fsync of the parent.  Leave out any
 * of these and a power cut publishes a torn checkpoint or forgets one that was
 * reported as saved.  Reading is in restore.c. */
#include "train/checkpoint.h"
#include "base/strings.h"
#include "tensor/safetensors.h"
#include "tensor/strict.h"
#include "train/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_BYTES = 256, MOST_TOLD = 8 /* lines about what is not usable */ };

struct sk_ckpt_dir {
    sk_arena arena;
    const char *dir;
    int fd, lock;
    int64_t generation;
    struct {
        int64_t *v;
        int n, cap;
    } good; /* steps committed or deeply verified by this process */
};

/* ---- names ---- */

/* Exactly `width` digits (0: one or more) at *s; moves past them. */
static bool digits(const char **s, int width, int64_t *out)
{
    int n = 0;
    *out = 0;
    while (**s >= '0' && **s <= '9' && n < 18) *out = *out * 10 + (*(*s)++ - '0'), n++;
    return width ? n == width : n > 0;
}

bool sk_ckpt_step(const char *s, int64_t *step)
{
    return !strncmp(s, "step-", 5) && (s += 5, digits(&s, 10, step)) && !*s;
}

static bool nonce(const char *s) { return strspn(s, "0123456789abcdef") == 16 && !s[16]; }

static bool tmp_name(const char *s, int64_t *step, int64_t *generation)
{
    return !strncmp(s, "tmp-", 4) && (s += 4, digits(&s, 10, step)) && !strncmp(s, "-g", 2) &&
           (s += 2, digits(&s, 0, generation)) && *s == '-' && nonce(s + 1);
}

static bool trash_name(const char *s)
{
    int64_t step;
    return !strncmp(s, "trash-", 6) && (s += 6, digits(&s, 10, &step)) && *s == '-' && nonce(s + 1);
}

/* ---- removing ---- */

/* What a run that died has left: only names that skein itself makes. */
static void sweep_orphans(int dir)
{
    int64_t step, generation;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0) close(fd);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (tmp_name(e->d_name, &step, &generation) || trash_name(e->d_name))
            sk_folder_sweep(dir, e->d_name);
        if (!strncmp(e->d_name, "LATEST.tmp-", 11)) unlinkat(dir, e->d_name, 0);
    }
    if (d) closedir(d);
}

/* Out of sight in one move, then removed at leisure. */
static sk_status discard(sk_ckpt_dir *h, const char *name, int64_t step)
{
    char trash[SK_CKPT_NAME];
    snprintf(trash, sizeof trash, "trash-%010" PRId64 "-%016" PRIx64, step, sk_folder_nonce());
    if (renameat(h->fd, name, h->fd, trash))
        return sk_fail(SK_EIO, "%s/%s: moving to the trash: %s", h->dir, name, strerror(errno));
    if (fsync(h->fd)) return sk_fail(SK_EIO, "%s: fsync: %s", h->dir, strerror(errno));
    sk_folder_sweep(h->fd, trash);
    return SK_OK;
}

/* ---- the lock ---- */

/* Read the record in LOCK; what cannot be read is 0 and "". */
static int64_t lock_read(int fd, char text[LOCK_BYTES + 1])
{
    static const char key[] = "{\"generation\":";
    int64_t generation = 0;
    ssize_t n = pread(fd, text, LOCK_BYTES, 0);
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    const char *s = text + sizeof key - 1;
    bool said = !strncmp(text, key, sizeof key - 1) && digits(&s, 0, &generation);
    return said && generation < SK_CKPT_GENERATIONS ? generation : 0;
}

/* The record has a fixed size and is written in place: one sector, old or new. */
static sk_status lock_write(sk_ckpt_dir *h)
{
    char text[LOCK_BYTES + 1], host[65] = "";
    gethostname(host, sizeof host - 1);
    int n = snprintf(text, sizeof text,
                     "{\"generation\":%" PRId64 ",\"host\":\"%s\",\"pid\":%ld,\"start\":%lld}\n",
                     h->generation, sk_strict_file(host) ? host : "?", (long)getpid(),
                     (long long)time(NULL));
    memset(text + n, ' ', (size_t)(LOCK_BYTES - n));
    text[LOCK_BYTES - 1] = '\n';
    if (pwrite(h->lock, text, LOCK_BYTES, 0) != LOCK_BYTES || fsync(h->lock))
        return sk_fail(SK_EIO, "%s/LOCK: %s", h->dir, strerror(errno));
    return SK_OK;
}

/* The newest manifest also knows a generation: LOCK may have been lost or copied away. */
static int64_t newest_generation(const char *dir)
{
    sk_arena a = {0};
    int64_t *steps = NULL, generation = 0;
    int n = 0;
    if (sk_ckpt_list(&a, dir, &steps, &n)) n = 0;
    for (int i = 0; i < n && !generation; i++) {
        sk_ckpt c;
        char *path = sk_print(&a, "%s/step-%010" PRId64, dir, steps[i]);
        if (!sk_ckpt_read(&a, path, &c)) generation = c.state.generation;
    }
    sk_arena_end(&a);
    return generation;
}

static sk_status take_lock(sk_ckpt_dir *h)
{
    char text[LOCK_BYTES + 1];
    h->lock = openat(h->fd, "LOCK", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0666);
    if (h->lock < 0) return sk_fail(SK_ECREATE, "%s/LOCK: %s", h->dir, strerror(errno));
    if (flock(h->lock, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK) return sk_fail(SK_EIO, "%s/LOCK: %s", h->dir, strerror(errno));
        lock_read(h->lock, text);
        return sk_fail(SK_ECREATE,
                       "%s is in use by another run: %s; stop it or choose another directory",
                       h->dir, sk_strict_show(text).s);
    }
    int64_t before = lock_read(h->lock, text), seen = newest_generation(h->dir);
    h->generation = 1 + (before > seen ? before : seen);
    if (h->generation > SK_CKPT_GENERATIONS)
        return sk_fail(SK_EDATA, "%s: a checkpoint there has generation %lld, which no run reaches",
                       h->dir, (long long)seen);
    SK_TRY(lock_write(h));
    return SK_OK;
}

sk_status sk_ckpt_open(const char *dir, sk_ckpt_dir **out)
{
    sk_arena a = {0};
    SK_TRY(sk_dir_make(dir));
    sk_ckpt_dir *h = sk_new(&a, sk_ckpt_dir);
    h->dir = sk_strdup(&a, dir);
    h->arena = a;
    h->lock = -1;
    h->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    sk_status status = h->fd < 0 ? sk_fail(SK_EIO, "%s: %s", dir, strerror(errno)) : take_lock(h);
    if (status) {
        sk_ckpt_close(h);
        return sk_trail(status, SK_HERE);
    }
    sweep_orphans(h->fd);
    *out = h;
    return SK_OK;
}

void sk_ckpt_close(sk_ckpt_dir *h)
{
    sk_arena a = h->arena; /* the home lies in its own arena */
    if (h->lock >= 0) close(h->lock);
    if (h->fd >= 0) close(h->fd);
    sk_arena_end(&a);
}

int64_t sk_ckpt_generation(const sk_ckpt_dir *h) { return h->generation; }

/* ---- saving ---- */

static sk_status preflight(const sk_ckpt_dir *h, int64_t bytes)
{
    struct statvfs v;
    if (!bytes) return SK_OK;
    if (fstatvfs(h->fd, &v)) return sk_fail(SK_EIO, "%s: %s", h->dir, strerror(errno));
    double room = (double)v.f_bavail * (double)v.f_frsize, need = 1.1 * (double)bytes;
    if (room < need)
        return sk_fail(SK_EIO,
                       "%s: %.0f bytes free, a checkpoint needs %.0f: make room or save less",
                       h->dir, room, need);
    return SK_OK;
}

sk_status sk_ckpt_begin(sk_ckpt_dir *h, int64_t step, int64_t bytes, char name[SK_CKPT_NAME])
{
    sk_assert(step >= 0 && step <= SK_CKPT_STEPS);
    SK_TRY(preflight(h, bytes));
    snprintf(name, SK_CKPT_NAME, "tmp-%010" PRId64 "-g%" PRId64 "-%016" PRIx64, step, h->generation,
             sk_folder_nonce());
    if (mkdirat(h->fd, name, 0777))
        return sk_fail(SK_EIO, "%s/%s: %s", h->dir, name, strerror(errno));
    return SK_OK;
}

void sk_ckpt_abandon(sk_ckpt_dir *h, const char *name)
{
    int64_t step, generation;
    if (tmp_name(name, &step, &generation)) sk_folder_sweep(h->fd, name);
}

/* One shard in the making: what goes in, and the share of the manifest about it. */
typedef struct shard {
    sk_arena *arena;
    int dir, rank;
    int64_t step, generation;
    sk_ckpt *about;
    sk_ckpt_report *report;
} shard;

/* Boxes that this rank writes, as tensors of a file and as boxes of the manifest. */
static int collect(shard *s, const sk_tensor_shard *box, int n, sk_st_tensor *t,
                   const sk_tensor_shard **from)
{
    int k = 0;
    int64_t count = 0;
    for (int i = 0; i < n; i++) {
        const sk_tensor_shard *b = &box[i];
        sk_assert(b->n <= SK_SHARD_DIM && sk_manifest_count(b->size, b->n, &count));
        if (!b->mine || !count) continue;
        sk_ckpt_tensor *about = sk_push(s->arena, &s->about->tensors);
        *about = (sk_ckpt_tensor){.name = b->name, .type = b->type, .n = b->n};
        sk_ckpt_box *place = sk_push(s->arena, &about->boxes);
        place->file = s->about->files.n;
        for (int d = 0; d < b->n; d++) {
            about->full[d] = b->full[d];
            place->at[d] = b->at[d];
            place->size[d] = t[k].size[d] = b->size[d];
        }
        t[k].name = sk_manifest_key(s->arena, about, place);
        t[k].type = b->type;
        t[k].n = b->n;
        from[k++] = b;
    }
    return k;
}

static sk_status write_data(sk_st_writer *w, const sk_st_tensor *t, const sk_tensor_shard **from,
                            int n)
{
    for (int i = 0; i < n; i++)
        SK_TRY(sk_st_write(w, from[i]->data, (size_t)(t[i].end - t[i].begin)));
    return SK_OK;
}

static sk_status write_shard(shard *s, char kind, const sk_tensor_shard *box, int n)
{
    sk_arena *a = s->arena;
    sk_st_tensor *t = sk_many(a, sk_st_tensor, n);
    const sk_tensor_shard **from = sk_many(a, const sk_tensor_shard *, n);
    int first = s->about->tensors.n, k = collect(s, box, n, t, from);
    if (!k) return SK_OK;
    sk_st_pair meta[] = {{"format", "skein"},
                         {"skein_format", sk_print(a, "%d.%d", SK_CKPT_MAJOR, SK_CKPT_MINOR)},
                         {"step", sk_print(a, "%" PRId64, s->step)},
                         {"generation", sk_print(a, "%" PRId64, s->generation)},
                         {"writer", sk_print(a, "%d", s->rank)}};
    char *name = sk_print(a, "%c-%05d.safetensors", kind, s->rank);
    sk_st_writer w;
    SK_TRY(sk_st_create(a, s->dir, name, 0666, t, k, meta, 5, &w));
    sk_status status = write_data(&w, t, from, k);
    if (status) sk_st_drop(&w);
    else status = sk_st_finish(&w);
    if (status) return sk_trail(status, SK_HERE);
    for (int i = 0; i < k; i++)
        s->about->tensors.v[first + i].boxes.v[0].begin = w.data + t[i].begin;
    *(sk_ckpt_file *)sk_push(a, &s->about->files) =
        (sk_ckpt_file){.name = name, .bytes = w.bytes, .n_crc = w.n_crc, .crc = w.crc};
    s->report->bytes += w.bytes;
    s->report->n_tensors += k;
    return SK_OK;
}

static void side_name(char out[32], int rank) { snprintf(out, 32, "r-%05d.json", rank); }

static sk_status write_share(shard *s, const sk_ckpt_share *share)
{
    char side[32];
    SK_TRY(write_shard(s, 'm', share->model, share->n_model));
    SK_TRY(write_shard(s, 'o', share->state, share->n_state));
    s->about->state.step = s->step;
    s->about->state.generation = s->generation;
    char *text = sk_manifest_print(s->arena, s->about);
    side_name(side, s->rank);
    SK_TRY(sk_folder_write(s->dir, side, 0666, text, strlen(text)));
    return SK_OK;
}

sk_status sk_ckpt_write_rank(const char *dir, const char *name, int rank,
                             const sk_ckpt_share *share, sk_ckpt_report *report)
{
    sk_arena a = {0};
    sk_ckpt about = {0};
    *report = (sk_ckpt_report){0};
    shard s = {.arena = &a, .rank = rank, .about = &about, .report = report};
    sk_assert(rank >= 0 && rank < SK_CKPT_RANKS && tmp_name(name, &s.step, &s.generation));
    sk_status status = sk_strict_dir(sk_print(&a, "%s/%s", dir, name), &s.dir);
    if (!status) {
        status = write_share(&s, share);
        for (int i = 0; status && i < about.files.n; i++) unlinkat(s.dir, about.files.v[i].name, 0);
        close(s.dir);
    } else status = SK_EIO; /* nobody's data is wrong: the directory was taken away */
    sk_arena_end(&a);
    report->status = (int32_t)status;
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* ---- commit ---- */

/* Put a rank's share into the whole: files are renumbered, tensors joined later. */
static sk_status join(sk_arena *a, sk_ckpt *all, const sk_ckpt *one)
{
    int first = all->files.n;
    for (int i = 0; i < one->files.n; i++)
        *(sk_ckpt_file *)sk_push(a, &all->files) = one->files.v[i];
    for (int i = 0; i < one->tensors.n; i++) {
        sk_ckpt_tensor *t = sk_push(a, &all->tensors);
        *t = one->tensors.v[i];
        for (int k = 0; k < t->boxes.n; k++) t->boxes.v[k].file += first;
    }
    return SK_OK;
}

static bool same_tensor(const sk_ckpt_tensor *x, const sk_ckpt_tensor *y)
{
    return x->type == y->type && x->n == y->n &&
           !memcmp(x->full, y->full, sizeof *x->full * (size_t)x->n);
}

/* Neighbours of one name become one tensor with all boxes; then each must be covered. */
static sk_status merge(sk_arena *a, sk_ckpt *c)
{
    int n = 0;
    sk_manifest_sort(c);
    for (int i = 0; i < c->tensors.n; i++) {
        sk_ckpt_tensor *t = &c->tensors.v[i], *last = n ? &c->tensors.v[n - 1] : NULL;
        if (!last || strcmp(last->name, t->name)) {
            c->tensors.v[n++] = *t;
            continue;
        }
        if (!same_tensor(last, t))
            return sk_fail(SK_EBUG, "checkpoint: ranks disagree about type or sizes of '%s'",
                           t->name);
        for (int k = 0; k < t->boxes.n; k++)
            *(sk_ckpt_box *)sk_push(a, &last->boxes) = t->boxes.v[k];
    }
    c->tensors.n = n;
    for (int i = 0; i < n; i++)
        if (!sk_manifest_covered(&c->tensors.v[i]))
            return sk_fail(
                SK_EBUG,
                "checkpoint: the %d boxes that ranks own of '%s' do not cover it exactly "
                "once",
                c->tensors.v[i].boxes.n, c->tensors.v[i].name);
    return SK_OK;
}

static sk_status gather(sk_arena *a, int dir, int ranks, int64_t step, sk_ckpt *all)
{
    for (int r = 0; r < ranks; r++) {
        char side[32];
        sk_text text;
        sk_ckpt one = {0};
        side_name(side, r);
        SK_TRY(sk_strict_read(a, dir, side, side, SK_MANIFEST_BYTES, &text));
        SK_TRY(sk_manifest_parse(a, side, text, false, &one));
        if (one.state.step != step)
            return sk_fail(SK_EBUG, "checkpoint: rank %d wrote step %lld, not %lld", r,
                           (long long)one.state.step, (long long)step);
        SK_TRY(join(a, all, &one));
    }
    SK_TRY(merge(a, all));
    return SK_OK;
}

/* Is each file there with the size its writer reported? */
static sk_status check_files(int dir, const sk_ckpt *c)
{
    for (int i = 0; i < c->files.n; i++) {
        const sk_ckpt_file *f = &c->files.v[i];
        int fd = -1;
        int64_t size = 0;
        SK_TRY(sk_strict_open(dir, f->name, f->name, &fd, &size));
        close(fd);
        if (size != f->bytes)
            return sk_fail(SK_EDATA, "%s has %lld bytes, the manifest says %lld", f->name,
                           (long long)size, (long long)f->bytes);
    }
    return SK_OK;
}

/* Everything that must be true inside the temporary directory before it gets its name. */
static sk_status complete(sk_arena *a, int dir, int ranks, sk_ckpt *c)
{
    char side[32];
    sk_ckpt proof = {0}; /* what is published can be read */
    SK_TRY(gather(a, dir, ranks, c->state.step, c));
    SK_TRY(check_files(dir, c));
    char *text = sk_manifest_print(a, c);
    SK_TRY(sk_manifest_parse(a, "MANIFEST.json", (sk_text){text, strlen(text)}, true, &proof));
    SK_TRY(sk_folder_write(dir, "MANIFEST.json", 0666, text, strlen(text)));
    for (int r = 0; r < ranks; r++) {
        side_name(side, r);
        unlinkat(dir, side, 0);
    }
    if (fsync(dir))
        return sk_fail(SK_EIO, "checkpoint: fsync of the directory: %s", strerror(errno));
    return SK_OK;
}

static void remember(sk_ckpt_dir *h, int64_t step)
{
    *(int64_t *)sk_push(&h->arena, &h->good) = step;
}

static sk_status commit(sk_arena *a, sk_ckpt_dir *h, const char *name, int ranks, sk_ckpt *c)
{
    bool old = false; /* `name` is now an older checkpoint of the same step */
    char *final = sk_print(a, "step-%010" PRId64, c->state.step);
    int dir = openat(h->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0) return sk_fail(SK_EIO, "%s/%s: %s", h->dir, name, strerror(errno));
    sk_status status = complete(a, dir, ranks, c);
    close(dir);
    if (!status) status = sk_folder_publish(h->fd, name, final, &old);
    if (status) {
        if (!old) sk_folder_sweep(h->fd, name); /* else the swap may not have reached the disk */
        return sk_trail(status, SK_HERE);
    }
    if (old) discard(h, name, c->state.step); /* the new one is safe; this is only tidying */
    remember(h, c->state.step);
    char *line = sk_print(a, "%s\n", final);
    sk_file_replace(sk_print(a, "%s/LATEST", h->dir), line, strlen(line)); /* a hint may fail */
    return SK_OK;
}

sk_status sk_ckpt_commit(sk_ckpt_dir *h, const char *name, int ranks, const sk_ckpt_state *state)
{
    sk_arena a = {0};
    sk_ckpt c = {.state = *state};
    int64_t step = -1, generation = -1;
    sk_assert(tmp_name(name, &step, &generation) && step == state->step);
    sk_assert(generation == h->generation && ranks > 0 && ranks <= SK_CKPT_RANKS);
    c.state.generation = h->generation;
    c.state.ranks = ranks;
    c.state.time = (int64_t)time(NULL);
    sk_status status = commit(&a, h, name, ranks, &c);
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* ---- retention ---- */

static bool is_good(sk_ckpt_dir *h, int64_t step, const char *path)
{
    for (int i = 0; i < h->good.n; i++)
        if (h->good.v[i] == step) return true;
    if (sk_ckpt_verify(path, true)) return false;
    remember(h, step);
    return true;
}

sk_status sk_ckpt_retain(sk_ckpt_dir *h, int64_t keep)
{
    sk_arena a = {0};
    int64_t *steps = NULL, kept = 0;
    int n = 0;
    if (keep <= 0) return SK_OK;
    if (keep < 2) keep = 2;
    sk_status status = sk_ckpt_list(&a, h->dir, &steps, &n);
    for (int i = 0; i < n && !status; i++) {
        char *name = sk_print(&a, "step-%010" PRId64, steps[i]);
        const char *path = sk_print(&a, "%s/%s", h->dir, name);
        if (kept < keep) kept += n > keep && is_good(h, steps[i], path);
        else if (sk_is_file(sk_print(&a, "%s/" SK_MANIFEST_FILE, path))) /* or it is not ours */
            status = discard(h, name, steps[i]);
    }
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* ---- finding ---- */

static int newest_first(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a < b) - (a > b);
}

sk_status sk_ckpt_list(sk_arena *a, const char *dir, int64_t **steps, int *n)
{
    struct {
        int64_t *v;
        int n, cap;
    } list = {0};
    DIR *d = opendir(dir);
    if (!d && errno != ENOENT) return sk_fail(SK_EIO, "%s: %s", dir, strerror(errno));
    for (struct dirent *e; d && (e = readdir(d));) {
        int64_t step = 0;
        if (sk_ckpt_step(e->d_name, &step)) *(int64_t *)sk_push(a, &list) = step;
    }
    if (d) closedir(d);
    if (list.n) qsort(list.v, (size_t)list.n, sizeof *list.v, newest_first);
    *steps = list.v;
    *n = list.n;
    return SK_OK;
}

static sk_status step_path(const char *dir, int64_t step, sk_ckpt_found *out)
{
    int n = snprintf(out->path, sizeof out->path, "%s/step-%010" PRId64, dir, step);
    out->step = step;
    if (n < 0 || (size_t)n >= sizeof out->path) return sk_fail(SK_EIO, "%s: name too long", dir);
    return SK_OK;
}

/* The newest good one of `steps`.  Names without a manifest that can be read (somebody's files, a
 * directory that was emptied) are told and cost no try. */
static sk_status find_newest(sk_arena *a, const char *dir, const int64_t *steps, int n, bool deep,
                             sk_ckpt_found *f)
{
    sk_out why = {.arena = a};
    const char *first = "";
    int tries = 0, i = 0;
    for (; i < n && tries < SK_CKPT_TRIES; i++) {
        sk_ckpt c;
        SK_TRY(step_path(dir, steps[i], f));
        f->skipped = i;
        f->why = why.s ? why.s : "";
        if (!sk_ckpt_verify(f->path, deep)) return SK_OK;
        const char *line =
            sk_print(a, "step %lld is not usable: %s", (long long)steps[i], sk_error_line());
        if (i < MOST_TOLD) sk_out_add(&why, "%s\n", line);
        if (!i) first = line;
        tries += !sk_ckpt_read(a, f->path, &c);
    }
    return sk_fail(SK_EDATA,
                   "%s: none of the newest %d checkpoints is good (%s); start afresh elsewhere or "
                   "name an older step\n%s",
                   dir, i, first, why.s);
}

sk_status sk_ckpt_find(sk_arena *a, const char *dir, int64_t step, bool deep, sk_ckpt_found *out)
{
    sk_ckpt_found f = {.why = ""};
    int64_t *steps = NULL;
    int n = 0;
    if (step >= 0) {
        SK_TRY(step_path(dir, step, &f));
        SK_TRY(sk_ckpt_verify(f.path, deep));
    } else {
        SK_TRY(sk_ckpt_list(a, dir, &steps, &n));
        if (!n) return sk_fail(SK_EDATA, "%s holds no checkpoint", dir);
        SK_TRY(find_newest(a, dir, steps, n, deep, &f));
    }
    *out = f;
    return SK_OK;
}
