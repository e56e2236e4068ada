/* checksums.c - checksums.json, beside the files of a model directory. */
#include "train/checksums.h"
#include "base/hash.h"
#include "base/strings.h"
#include "tensor/safetensors.h"
#include "tensor/strict.h"
#include "train/companions.h"
#include "train/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUMS_BYTES = 64 << 20 };
static const char first_line[] = "{\"format\":\"skein-checksums\",\"major\":1,\n";

typedef struct files {
    sk_ckpt_file *v;
    int n, cap;
} files;

/* --- writing --- */

static sk_status sum_file(sk_arena *a, int dir, const char *name, sk_ckpt_file *out)
{
    int fd = -1;
    sk_status st = SK_OK;
    *out = (sk_ckpt_file){.name = sk_strdup(a, name)};
    SK_TRY(sk_strict_open(dir, name, name, &fd, &out->bytes));
    out->n_crc = (out->bytes + SK_ST_CHUNK - 1) / SK_ST_CHUNK;
    out->crc = sk_many(a, uint32_t, out->n_crc);
    sk_arena tmp = {0};
    unsigned char *buf = sk_alloc(&tmp, SK_ST_CHUNK);
    for (int64_t k = 0; k < out->n_crc && !st; k++) {
        int64_t at = k * SK_ST_CHUNK, left = out->bytes - at;
        size_t n = (size_t)(left < SK_ST_CHUNK ? left : SK_ST_CHUNK);
        st = sk_file_pread(fd, name, buf, n, at);
        if (!st) out->crc[k] = sk_crc32c(0, buf, n);
    }
    sk_arena_end(&tmp);
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

static sk_status compare(const char *path, const sk_ckpt_file *is, const sk_ckpt_file *was)
{
    if (is->bytes != was->bytes)
        return sk_fail(SK_EDATA, "%s has %lld bytes, " SK_CHECKSUMS_FILE " says %lld", path,
                       (long long)is->bytes, (long long)was->bytes);
    for (int64_t k = 0; k < is->n_crc; k++) {
        int64_t at = k * SK_ST_CHUNK, left = is->bytes - at;
        if (is->crc[k] == was->crc[k]) continue;
        return sk_fail(SK_EDATA,
                       "%s is damaged, or was changed, in bytes %lld to %lld: the sum is %08" PRIx32
                       ", " SK_CHECKSUMS_FILE " says %08" PRIx32,
                       path, (long long)at,
                       (long long)(at + (left < SK_ST_CHUNK ? left : SK_ST_CHUNK)), is->crc[k],
                       was->crc[k]);
    }
    return SK_OK;
}

static sk_status hold(sk_arena *a, const char *dir, int fd, const files *all, const char *only)
{
    for (int i = 0; i < all->n; i++) {
        sk_ckpt_file is;
        sk_mark m = sk_arena_mark(a);
        if (only && strcmp(only, all->v[i].name)) continue;
        SK_TRY(sum_file(a, fd, all->v[i].name, &is));
        SK_TRY(compare(sk_print(a, "%s/%s", dir, is.name), &is, &all->v[i]));
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
    static const char tail[] = ".safetensors";
    bool good = true;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n < sizeof tail || strcmp(e->d_name + n - (sizeof tail - 1), tail)) continue;
        good &= listed(all, e->d_name);
    }
    if (d) closedir(d);
    return d && good;
}

static sk_status verify(sk_arena *a, const char *dir, int fd, const char *only, bool *good)
{
    files all = {0};
    sk_text text;
    const char *where = sk_print(a, "%s/" SK_CHECKSUMS_FILE, dir);
    SK_TRY(sk_strict_read(a, fd, SK_CHECKSUMS_FILE, where, SUMS_BYTES, &text));
    SK_TRY(read_sums(a, where, text, &all));
    SK_TRY(hold(a, dir, fd, &all, only));
    *good = only ? listed(&all, only) : lists_tensors(dir, &all);
    return SK_OK;
}

sk_status sk_checksums_verify(const char *dir, const char *only, bool *good)
{
    sk_arena a = {0};
    *good = false;
    if (!sk_is_file(sk_print(&a, "%s/" SK_CHECKSUMS_FILE, dir))) {
        sk_arena_end(&a);
        return SK_OK;
    }
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    sk_status st =
        fd < 0 ? sk_fail(SK_EIO, "%s: %s", dir, strerror(errno)) : verify(&a, dir, fd, only, good);
    if (fd >= 0) close(fd);
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
    if (sum_file(a, fd, name, &is) || compare(name, &is, &all->v[k]))
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
