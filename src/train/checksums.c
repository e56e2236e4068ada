/* checksums.c - checksums.json, beside the files of a model directory. */
#include "train/checksums.h"
#include "base/hash.h"
#include "base/proc.h"
#include "base/strings.h"
#include "base/threads.h"
#include "tensor/safetensors.h"
#include "tensor/strict.h"
#include "train/companions.h"
#include "train/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEANT "; if the change is meant, remove " SK_CHECKSUMS_FILE

enum { SUMS_BYTES = 64 << 20, PIECE = 1 << 20, MOST_THREADS = 4, LEAST_CHUNKS = 8 };
const sk_chunk_share sk_all_chunks = {0, 1};
static const char first_line[] = "{\"format\":\"skein-checksums\",\"major\":1,\n";

typedef struct files {
    sk_ckpt_file *v;
    int n, cap;
} files;

/* --- writing --- */

typedef struct sums { /* of an open file */
    int fd;
    const char *where;
    sk_chunk_share share;
    const sk_ckpt_file *file;
} sums;

/* Up to three chunks: at, at + of, at + 2 of. */
static sk_status sum_three(const sums *x, int64_t at, unsigned char *buf)
{
    uint32_t crc[3] = {0};
    int64_t n = x->file->n_crc, of = x->share.of, last = at + 2 * of;
    if (last >= n || (last + 1) * SK_ST_CHUNK > x->file->bytes) { /* not three, or not full */
        for (int64_t k = at; k < n && k <= last; k += of) {
            int64_t left = x->file->bytes - k * SK_ST_CHUNK;
            size_t bytes = (size_t)(left < SK_ST_CHUNK ? left : SK_ST_CHUNK);
            SK_TRY(sk_file_pread(x->fd, x->where, buf, bytes, k * SK_ST_CHUNK));
            x->file->crc[k] = sk_crc32c(0, buf, bytes);
        }
        return SK_OK;
    }
    for (int64_t i = 0; i < SK_ST_CHUNK; i += PIECE) {
        for (int j = 0; j < 3; j++)
            SK_TRY(sk_file_pread(x->fd, x->where, buf + j * PIECE, PIECE,
                                 (at + j * of) * SK_ST_CHUNK + i));
        sk_crc32c_three(crc, buf, PIECE, PIECE);
    }
    for (int j = 0; j < 3; j++) x->file->crc[at + j * of] = crc[j];
    return SK_OK;
}

static sk_status sum_share(const sums *x)
{
    sk_status st = SK_OK;
    sk_arena tmp = {0};
    unsigned char *buf = sk_alloc(&tmp, SK_ST_CHUNK);
    for (int64_t k = x->share.part; k < x->file->n_crc && !st; k += 3 * (int64_t)x->share.of)
        st = sum_three(x, k, buf);
    sk_arena_end(&tmp);
    return st;
}

typedef struct summing { /* by threads */
    sums all;
    atomic_bool failed;
} summing;

static void sum_part(void *ctx, int part, int of)
{
    summing *s = ctx;
    sums x = s->all;
    x.share = (sk_chunk_share){x.share.part + part * x.share.of, x.share.of * of};
    if (sum_share(&x)) atomic_store(&s->failed, true);
}

/* The sums of the share's chunks. */
static sk_status sum_chunks(int fd, const char *where, sk_chunk_share share, const sk_ckpt_file *f)
{
    summing s = {.all = {fd, where, share, f}};
    int threads = sk_proc_cores() / share.of;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads < 2 || f->n_crc / share.of < LEAST_CHUNKS) return sum_share(&s.all);
    sk_threads *t = sk_threads_open(threads);
    sk_threads_run(t, sum_part, &s);
    sk_threads_close(t);
    return atomic_load(&s.failed) ? sum_share(&s.all) : SK_OK; /* an error is told by its thread */
}

static sk_status sum_file(sk_arena *a, int dir, const char *name, sk_ckpt_file *out)
{
    int fd = -1;
    *out = (sk_ckpt_file){.name = sk_strdup(a, name)};
    SK_TRY(sk_strict_open(dir, name, name, &fd, &out->bytes));
    out->n_crc = (out->bytes + SK_ST_CHUNK - 1) / SK_ST_CHUNK;
    out->crc = sk_many(a, uint32_t, out->n_crc);
    sk_status st = sum_chunks(fd, name, sk_all_chunks, out);
    close(fd);
    return st;
}

static int by_name(const void *x, const void *y)
{
    return strcmp(((const sk_ckpt_file *)x)->name, ((const sk_ckpt_file *)y)->name);
}

/* Every file of the directory with its sums, by name. */
static sk_status sum_all(sk_arena *a, int dir, DIR *d, const sk_ckpt_file *known, int n_known,
                         files *all)
{
    for (struct dirent *e; (e = readdir(d));) {
        int k = 0;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        sk_ckpt_file *f = sk_push(a, all);
        while (k < n_known && strcmp(known[k].name, e->d_name)) k++;
        if (k < n_known) *f = known[k];
        else SK_TRY(sum_file(a, dir, e->d_name, f));
        if (!f->bytes) all->n--; /* nothing in it can be damaged */
    }
    if (all->n) qsort(all->v, (size_t)all->n, sizeof *all->v, by_name);
    return SK_OK;
}

static sk_status write_sums(sk_arena *a, int dir, const sk_ckpt_file *known, int n_known)
{
    files all = {0};
    sk_out o = {.arena = a};
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0) close(fd);
        return sk_fail(SK_EIO, SK_CHECKSUMS_FILE ": %s", strerror(errno));
    }
    sk_status st = sum_all(a, dir, d, known, n_known, &all);
    closedir(d);
    if (st) return sk_trail(st, SK_HERE);
    sk_out_add(&o, "%s\"files\":[", first_line);
    for (int i = 0; i < all.n; i++) sk_manifest_file_print(&o, &all.v[i], i == 0);
    sk_out_add(&o, "],\n");
    sk_manifest_seal(&o);
    return sk_folder_write(dir, SK_CHECKSUMS_FILE, 0666, o.s, o.n);
}

sk_status sk_checksums_write(int dir, const sk_ckpt_file *known, int n_known)
{
    sk_arena a = {0};
    sk_status st = write_sums(&a, dir, known, n_known);
    sk_arena_end(&a);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

/* --- verifying --- */

static sk_status read_sums(sk_arena *a, const char *where, sk_text text, files *out)
{
    static const sk_strict most = {.depth = 4, .objects = 100000, .values = 1000000};
    json_t *root = NULL;
    if (text.n < sizeof first_line || strncmp(text.s, first_line, sizeof first_line - 1))
        return sk_fail(SK_EDATA, "%s is no list of checksums that this skein reads", where);
    SK_TRY(sk_manifest_sealed(where, text));
    SK_TRY(sk_strict_json(where, text.s, text.n, &most, &root));
    const json_t *list = json_object_get(root, "files");
    sk_status st = json_is_array(list) ? SK_OK : sk_fail(SK_EDATA, "%s lists no files", where);
    for (size_t i = 0; i < json_array_size(list) && !st; i++)
        st = sk_manifest_file_parse(a, where, json_array_get(list, i), sk_push(a, out));
    json_decref(root);
    return st;
}

static sk_status other_size(const char *path, int64_t is, int64_t was)
{
    return sk_fail(SK_EDATA, "%s has %lld bytes, " SK_CHECKSUMS_FILE " says %lld" MEANT, path,
                   (long long)is, (long long)was);
}

/* The share's chunks of a file of this size have their sums. */
static sk_status compare(const char *path, sk_chunk_share share, const sk_ckpt_file *is,
                         const sk_ckpt_file *was)
{
    if (is->bytes != was->bytes) return other_size(path, is->bytes, was->bytes);
    for (int64_t k = share.part; k < is->n_crc; k += share.of) {
        int64_t at = k * SK_ST_CHUNK, left = is->bytes - at;
        if (is->crc[k] == was->crc[k]) continue;
        return sk_fail(SK_EDATA,
                       "%s is damaged, or was changed, in bytes %lld to %lld: the sum is %08" PRIx32
                       ", " SK_CHECKSUMS_FILE " says %08" PRIx32 MEANT,
                       path, (long long)at,
                       (long long)(at + (left < SK_ST_CHUNK ? left : SK_ST_CHUNK)), is->crc[k],
                       was->crc[k]);
    }
    return SK_OK;
}

/* Links are followed, as by all who load a model directory. */
static sk_status hold_file(sk_arena *a, const char *path, sk_chunk_share share,
                           const sk_ckpt_file *was)
{
    sk_ckpt_file is = *was;
    int fd = -1;
    SK_TRY(sk_strict_open(AT_FDCWD, path, path, &fd, &is.bytes));
    is.crc = sk_many(a, uint32_t, is.n_crc);
    sk_status st = is.bytes == was->bytes ? sum_chunks(fd, path, share, &is) : SK_OK;
    close(fd);
    return st ? st : compare(path, share, &is, was);
}

static bool is_tensors(const char *name)
{
    static const char tail[] = ".safetensors";
    size_t n = strlen(name);
    return n >= sizeof tail && !strcmp(name + n - (sizeof tail - 1), tail);
}

typedef struct which { /* files are held to their sums */
    const char *only;  /* NULL: no name is asked for */
    bool tensors, texts;
    sk_chunk_share share;
} which;

static sk_status hold(sk_arena *a, const char *dir, const files *all, const which *w)
{
    for (int i = 0; i < all->n; i++) {
        const char *name = all->v[i].name;
        sk_mark m = sk_arena_mark(a);
        if (w->only ? strcmp(w->only, name) : is_tensors(name) ? !w->tensors : !w->texts) continue;
        SK_TRY(hold_file(a, sk_print(a, "%s/%s", dir, name), w->share, &all->v[i]));
        sk_arena_back(a, m);
    }
    return SK_OK;
}

static bool listed(const files *all, const char *name)
{
    for (int i = 0; i < all->n; i++)
        if (!strcmp(all->v[i].name, name)) return true;
    return false;
}

static bool lists_tensors(const char *dir, const files *all)
{
    bool good = true;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (is_tensors(e->d_name)) good &= listed(all, e->d_name);
    if (d) closedir(d);
    return d && good;
}

/* Nothing is known of a directory without sums: *all is then empty. */
static sk_status read_list(sk_arena *a, const char *dir, files *all)
{
    sk_text text;
    const char *where = sk_print(a, "%s/" SK_CHECKSUMS_FILE, dir);
    if (!sk_is_there(where)) return SK_OK;
    SK_TRY(sk_strict_read(a, AT_FDCWD, where, where, SUMS_BYTES, &text));
    return read_sums(a, where, text, all);
}

static sk_status hold_directory(sk_arena *a, const char *dir, const which *w, files *all)
{
    SK_TRY(read_list(a, dir, all));
    return hold(a, dir, all, w);
}

static sk_status check(const char *dir, const which *w)
{
    sk_arena a = {0};
    files all = {0};
    sk_status st = hold_directory(&a, dir, w, &all);
    sk_arena_end(&a);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

sk_status sk_checksums_check_texts(const char *dir)
{
    return check(dir, &(which){.texts = true, .share = sk_all_chunks});
}

sk_status sk_checksums_check_tensors(const char *dir, sk_chunk_share share)
{
    sk_assert(share.part >= 0 && share.part < share.of);
    return check(dir, &(which){.tensors = true, .share = share});
}

sk_status sk_checksums_verify(const char *dir, const char *only, bool *good)
{
    sk_arena a = {0};
    files all = {0};
    which w = {.only = only, .tensors = true, .texts = true, .share = sk_all_chunks};
    sk_status st = hold_directory(&a, dir, &w, &all);
    *good = !st && all.n && (only ? listed(&all, only) : lists_tensors(dir, &all));
    sk_arena_end(&a);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

static sk_status check_sizes(sk_arena *a, const char *dir)
{
    files all = {0};
    SK_TRY(read_list(a, dir, &all));
    for (int i = 0; i < all.n; i++) {
        const char *path = sk_print(a, "%s/%s", dir, all.v[i].name);
        int64_t bytes;
        int fd = -1;
        SK_TRY(sk_strict_open(AT_FDCWD, path, path, &fd, &bytes));
        close(fd);
        if (bytes != all.v[i].bytes)
            return sk_fail(SK_EDATA, "%s has %lld bytes, and %lld were written", path,
                           (long long)bytes, (long long)all.v[i].bytes);
    }
    return SK_OK;
}

sk_status sk_checksums_check_sizes(const char *dir)
{
    sk_arena a = {0};
    sk_status st = check_sizes(&a, dir);
    sk_arena_end(&a);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

/* --- replacing --- */

static sk_status foreign(const char *dir, const char *why)
{
    return sk_fail(SK_ECREATE,
                   "%s would be replaced, but is not what skein once wrote there: %s; move it "
                   "away, or name another directory to write to",
                   dir, why);
}

/* One file that is there: *n_listed counts those of the list. */
static sk_status own_file(sk_arena *a, const char *dir, int fd, const char *name, const files *all,
                          int *n_listed)
{
    struct stat s;
    sk_ckpt_file is;
    int k = 0;
    if (fstatat(fd, name, &s, AT_SYMLINK_NOFOLLOW))
        return sk_fail(SK_ECREATE, "%s/%s: %s", dir, name, strerror(errno));
    while (k < all->n && strcmp(all->v[k].name, name)) k++;
    if (k == all->n && S_ISREG(s.st_mode) && !s.st_size && sk_companions_name(name)) return SK_OK;
    if (k == all->n || !S_ISREG(s.st_mode))
        return foreign(
            dir, sk_print(a, "'%s' is no file of its " SK_CHECKSUMS_FILE, sk_strict_show(name).s));
    ++*n_listed;
    if (s.st_size != all->v[k].bytes)
        return foreign(dir, sk_print(a, "%s has %lld bytes, " SK_CHECKSUMS_FILE " says %lld", name,
                                     (long long)s.st_size, (long long)all->v[k].bytes));
    if (s.st_size > SK_ST_CHUNK) return SK_OK; /* weights take long to read */
    if (sum_file(a, fd, name, &is) || compare(name, sk_all_chunks, &is, &all->v[k]))
        return foreign(dir, sk_error_line());
    return SK_OK;
}

static sk_status own_files(sk_arena *a, const char *dir, DIR *d, const files *all)
{
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
            !strcmp(e->d_name, SK_CHECKSUMS_FILE))
            continue;
        SK_TRY(own_file(a, dir, dirfd(d), e->d_name, all, &n));
    }
    if (n == all->n) return SK_OK;
    return foreign(
        dir, sk_print(a, SK_CHECKSUMS_FILE " lists %d files, %d of them are there", all->n, n));
}

static bool is_empty(DIR *d)
{
    bool empty = true;
    for (struct dirent *e; empty && (e = readdir(d));)
        empty = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
    rewinddir(d);
    return empty;
}

static sk_status replaceable(sk_arena *a, const char *dir, DIR *d)
{
    files all = {0};
    sk_text text;
    struct stat s;
    if (is_empty(d)) return SK_OK;
    if (fstatat(dirfd(d), SK_CHECKSUMS_FILE, &s, AT_SYMLINK_NOFOLLOW))
        return foreign(dir, "it has no " SK_CHECKSUMS_FILE);
    if (sk_strict_read(a, dirfd(d), SK_CHECKSUMS_FILE, SK_CHECKSUMS_FILE, SUMS_BYTES, &text) ||
        read_sums(a, SK_CHECKSUMS_FILE, text, &all))
        return foreign(dir, sk_error_line());
    return own_files(a, dir, d, &all);
}

sk_status sk_checksums_replaceable(const char *dir)
{
    sk_arena a = {0};
    struct stat s;
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--; /* or lstat() looks through a link */
    const char *path = sk_print(&a, "%.*s", (int)n, dir);
    sk_status st = SK_OK;
    DIR *d = NULL;
    if (lstat(path, &s)) {
        if (errno != ENOENT) st = sk_fail(SK_ECREATE, "%s: %s", path, strerror(errno));
    } else if (!S_ISDIR(s.st_mode))
        st = sk_fail(SK_ECREATE,
                     "%s is there and is not a directory: move it away, or name another to write "
                     "to",
                     path);
    else if (!(d = opendir(path))) st = sk_fail(SK_ECREATE, "%s: %s", path, strerror(errno));
    else st = replaceable(&a, path, d);
    if (d) closedir(d);
    sk_arena_end(&a);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}
