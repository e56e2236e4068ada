/* checkpoint_dir.c - the directory of checkpoints: names, lock, retention, search. */
#include "train/checkpoint_dir.h"
#include "base/strings.h"
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
#include <time.h>
#include <unistd.h>

enum { LOCK_BYTES = 256, MOST_TOLD = 8 /* lines about what is not usable */ };

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

bool sk_ckpt_tmp_name(const char *s, int64_t *step, int64_t *generation)
{
    return !strncmp(s, "tmp-", 4) && (s += 4, digits(&s, 10, step)) && !strncmp(s, "-g", 2) &&
           (s += 2, digits(&s, 0, generation)) && *s == '-' && nonce(s + 1);
}

static bool trash_name(const char *s)
{
    int64_t step;
    return !strncmp(s, "trash-", 6) && (s += 6, digits(&s, 10, &step)) && *s == '-' && nonce(s + 1);
}

/* What a run that died has left: only names that skein itself makes. */
static void sweep_orphans(int dir)
{
    int64_t step, generation;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0) close(fd);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (sk_ckpt_tmp_name(e->d_name, &step, &generation) || trash_name(e->d_name))
            sk_folder_sweep(dir, e->d_name);
        if (!strncmp(e->d_name, "LATEST.tmp-", 11)) unlinkat(dir, e->d_name, 0);
    }
    if (d) closedir(d);
}

/* Out of sight in one move, then removed at leisure. */
sk_status sk_ckpt_discard(sk_ckpt_dir *h, const char *name, int64_t step)
{
    char trash[SK_CKPT_NAME];
    snprintf(trash, sizeof trash, "trash-%010" PRId64 "-%016" PRIx64, step, sk_folder_nonce());
    if (renameat(h->fd, name, h->fd, trash))
        return sk_fail(SK_EIO, "%s/%s: moving to the trash: %s", h->dir, name, strerror(errno));
    if (fsync(h->fd)) return sk_fail(SK_EIO, "%s: fsync: %s", h->dir, strerror(errno));
    sk_folder_sweep(h->fd, trash);
    return SK_OK;
}

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
    sk_arena a = h->arena; /* the struct lies in its own arena */
    if (h->lock >= 0) close(h->lock);
    if (h->fd >= 0) close(h->fd);
    sk_arena_end(&a);
}

int64_t sk_ckpt_generation(const sk_ckpt_dir *h) { return h->generation; }

void sk_ckpt_remember(sk_ckpt_dir *h, int64_t step)
{
    *(int64_t *)sk_push(&h->arena, &h->good) = step;
}

static bool is_good(sk_ckpt_dir *h, int64_t step, const char *path)
{
    for (int i = 0; i < h->good.n; i++)
        if (h->good.v[i] == step) return true;
    if (sk_ckpt_verify(path, true)) return false;
    sk_ckpt_remember(h, step);
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
            status = sk_ckpt_discard(h, name, steps[i]);
    }
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

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
    const char *report =
        sk_print(a,
                 "%s: none of the newest %d checkpoints is good (%s); start afresh elsewhere or "
                 "name an older step\n%s",
                 dir, i, first, why.s);
    return sk_fail(SK_EDATA, "%s", report);
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
