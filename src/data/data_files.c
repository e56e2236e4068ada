/* data_files.c - lists of files, whole files with gzip undone, mapped files. */
#include "data/data_files.h"
#include "base/strings.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { MAX_LEVELS = 8, MAX_FILES = 1 << 20, GZ_CHUNK = 1 << 20 };

bool sk_ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && !strcmp(s + n - m, tail);
}

const char *sk_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

bool sk_data_is_glob(const char *what) { return strpbrk(what, "*?[") != NULL; }

bool sk_data_has(const char *dir, const char *name)
{
    sk_arena a = {0};
    bool yes = sk_is_there(sk_print(&a, "%s/%s", dir, name));
    sk_arena_end(&a);
    return yes;
}

static int by_bytes(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

typedef struct place { /* a directory on the way from the first */
    dev_t dev;
    ino_t ino;
    int level;
    const struct place *up;
} place;

static sk_status walk(sk_arena *a, const char *dir, const place *up, sk_paths *out)
{
    struct stat s;
    sk_status status = SK_OK;
    DIR *d = opendir(dir);
    if (!d) return sk_fail(SK_EIO, "%s: %s", dir, strerror(errno));
    if (fstat(dirfd(d), &s)) {
        int e = errno;
        closedir(d);
        return sk_fail(SK_EIO, "%s: %s", dir, strerror(e));
    }
    place here = {s.st_dev, s.st_ino, up ? up->level + 1 : 1, up};
    bool back = false; /* a link that leads back: its files are listed already */
    for (const place *p = up; p && !back; p = p->up)
        back = p->dev == here.dev && p->ino == here.ino;
    for (struct dirent *e; !back && !status && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        const char *path = sk_print(a, "%s/%s", dir, e->d_name);
        if (stat(path, &s)) continue; /* a dangling link */
        if (S_ISREG(s.st_mode)) *sk_push(a, out) = path;
        if (S_ISDIR(s.st_mode) && here.level < MAX_LEVELS) status = walk(a, path, &here, out);
        if (out->n > MAX_FILES) status = sk_fail(SK_EDATA, "%s: over %d files", dir, MAX_FILES);
    }
    closedir(d);
    return status;
}

static sk_status match(sk_arena *a, const char *pattern, sk_paths *out)
{
    glob_t g = {0};
    int rc = glob(pattern, 0, NULL, &g);
    for (size_t i = 0; !rc && i < g.gl_pathc; i++)
        if (sk_is_file(g.gl_pathv[i])) *sk_push(a, out) = sk_strdup(a, g.gl_pathv[i]);
    globfree(&g);
    if (rc && rc != GLOB_NOMATCH) return sk_fail(SK_EIO, "%s: cannot be searched", pattern);
    return SK_OK;
}

/* The names that `what` means, sorted; a file may be there under several. */
static sk_status names_of(sk_arena *a, const char *what, sk_paths *out)
{
    sk_paths all = {0};
    if (sk_is_file(what)) *sk_push(a, &all) = sk_strdup(a, what);
    else if (sk_is_dir(what)) SK_TRY(walk(a, what, NULL, &all));
    else if (sk_data_is_glob(what)) SK_TRY(match(a, what, &all));
    if (all.n) qsort(all.v, (size_t)all.n, sizeof *all.v, by_bytes);
    *out = all;
    return SK_OK;
}

typedef struct named { /* the file behind a name */
    dev_t dev;
    ino_t ino;
    int at;
} named;

static int by_file(const void *x, const void *y)
{
    const named *p = x, *q = y;
    if (p->dev != q->dev) return p->dev < q->dev ? -1 : 1;
    if (p->ino != q->ino) return p->ino < q->ino ? -1 : 1;
    return p->at - q->at;
}

/* One name of each file, the first; the others are counted. */
static void once(sk_paths *p)
{
    sk_arena a = {0};
    int n = 0, known = 0;
    named *all = sk_many(&a, named, p->n);
    for (int i = 0; i < p->n; i++) {
        struct stat s;
        if (stat(p->v[i], &s)) continue; /* gone: who reads it will say so */
        all[known++] = (named){s.st_dev, s.st_ino, i};
    }
    if (known) qsort(all, (size_t)known, sizeof *all, by_file);
    for (int i = 1; i < known; i++)
        if (all[i].dev == all[i - 1].dev && all[i].ino == all[i - 1].ino) p->v[all[i].at] = NULL;
    for (int i = 0; i < p->n; i++)
        if (p->v[i]) p->v[n++] = p->v[i];
    p->again = p->n - n;
    p->n = n;
    sk_arena_end(&a);
}

sk_status sk_data_list(sk_arena *a, const char *what, sk_paths *out)
{
    SK_TRY(names_of(a, what, out));
    once(out);
    return SK_OK;
}

const char *sk_paths_repeated(sk_arena *a, const sk_paths *p)
{
    if (!p->again) return "";
    return sk_print(a, " · %d more name%s of the same file%s", p->again, sk_plural(p->again),
                    sk_plural(p->n));
}

bool sk_data_has_word(const char *name, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = name; *p; p += strspn(p, "_-.")) {
        size_t m = strcspn(p, "_-.");
        if (m == n && !strncmp(p, word, n)) return true;
        p += m;
    }
    return false;
}

sk_status sk_data_shards(sk_arena *a, const char *dir, bool validation, sk_paths *out)
{
    const char *word = validation ? "val" : "train";
    const char *one = sk_print(a, "%s/%s.bin", dir, word);
    sk_paths all = {0};
    *out = (sk_paths){0};
    if (!sk_is_dir(dir)) return SK_OK;
    if (sk_is_file(one)) {
        *sk_push(a, out) = one;
        return SK_OK;
    }
    SK_TRY(names_of(a, dir, &all));
    for (int i = 0; i < all.n; i++) {
        const char *name = sk_base_name(all.v[i]);
        if (sk_ends_with(name, ".bin") && sk_data_has_word(name, word)) *sk_push(a, out) = all.v[i];
    }
    once(out); /* of these: val may be a link to train */
    return SK_OK;
}

bool sk_data_has_shards(const char *dir, bool validation)
{
    sk_arena a = {0};
    sk_paths files = {0};
    bool some = !sk_data_shards(&a, dir, validation, &files) && files.n;
    sk_arena_end(&a);
    return some;
}

bool sk_data_is_tokens(const char *dir)
{
    return sk_data_has_shards(dir, false) || sk_data_has_shards(dir, true);
}

/* Is it gzip?  And the capacity to begin with: the size of a plain file, or what a gzip file says
 * at its end, unless that is much: it need not be true, and the capacity grows with what is
 * unpacked. */
static sk_status first_capacity(int fd, const char *path, int64_t size, bool *gz, int64_t *out)
{
    uint8_t head[2], tail[4];
    *out = size, *gz = false;
    if (size < 2) return SK_OK;
    SK_TRY(sk_file_pread(fd, path, head, 2, 0));
    *gz = head[0] == 0x1f && head[1] == 0x8b;
    if (!*gz || size < 18) return SK_OK;
    SK_TRY(sk_file_pread(fd, path, tail, 4, size - 4));
    int64_t says =
        (int64_t)tail[0] | (int64_t)tail[1] << 8 | (int64_t)tail[2] << 16 | (int64_t)tail[3] << 24;
    *out = says / 16 < size ? says : 4 * size;
    return SK_OK;
}

static sk_status too_large(const char *path, int64_t limit)
{
    return sk_fail(SK_EDATA, "%s holds more than the %lld bytes that are read into memory", path,
                   (long long)limit);
}

typedef struct unpacking { /* s has room for cap + 2 bytes: one that shows that cap is too small,
                              and a NUL */
    sk_arena *arena;
    const char *path;
    int fd;
    int64_t at, size, n, cap, limit;
    char *s;
    uint8_t *in;
    z_stream z;
} unpacking;

/* Input and room for the next inflate(). */
static sk_status provide(unpacking *u)
{
    if (!u->z.avail_in && u->at < u->size) {
        int64_t left = u->size - u->at, n = left < GZ_CHUNK ? left : GZ_CHUNK;
        SK_TRY(sk_file_pread(u->fd, u->path, u->in, (size_t)n, u->at));
        u->z.next_in = u->in, u->z.avail_in = (unsigned)n, u->at += n;
    }
    if (u->n > u->cap) {
        if (u->cap >= u->limit) return too_large(u->path, u->limit);
        u->cap = 2 * u->cap + GZ_CHUNK < u->limit ? 2 * u->cap + GZ_CHUNK : u->limit;
        u->s = sk_grow(u->arena, u->s, (size_t)u->n, (size_t)u->cap + 2);
    }
    int64_t left = u->cap + 1 - u->n;
    u->z.next_out = (uint8_t *)u->s + u->n;
    u->z.avail_out = (unsigned)(left < GZ_CHUNK ? left : GZ_CHUNK);
    return SK_OK;
}

/* All of the packed data: one stream of gzip or several, and nothing behind them.  (gzread() of
 * zlib drops what follows the last.) */
static sk_status inflate_all(unpacking *u)
{
    for (bool first = true;;) {
        SK_TRY(provide(u));
        unsigned had = u->z.avail_out;
        int rc = inflate(&u->z, Z_NO_FLUSH);
        u->n += had - u->z.avail_out;
        bool over = !u->z.avail_in && u->at == u->size; /* of the file */
        bool early = over && u->z.avail_out;
        if (rc == Z_STREAM_END && over) break;
        if (rc == Z_STREAM_END) inflateReset(&u->z), first = false;
        else if ((rc == Z_OK || rc == Z_BUF_ERROR) && !early) continue;
        else if (!first && !u->z.total_out)
            return sk_fail(SK_EDATA, "%s: damaged: bytes after the end of the compressed data",
                           u->path);
        else
            return sk_fail(SK_EDATA, "%s: damaged: %s", u->path,
                           rc == Z_MEM_ERROR ? "no memory to unpack it"
                           : u->z.msg        ? u->z.msg
                                             : "the compressed data end early");
    }
    return u->n > u->limit ? too_large(u->path, u->limit) : SK_OK;
}

static sk_status unpack(unpacking *u)
{
    sk_arena scratch = {0};
    u->in = sk_alloc(&scratch, GZ_CHUNK);
    sk_status status = inflateInit2(&u->z, 15 + 16) == Z_OK /* gzip, any window */
                           ? inflate_all(u)
                           : sk_fail(SK_EIO, "%s: no memory to unpack it", u->path);
    inflateEnd(&u->z);
    sk_arena_end(&scratch);
    return status;
}

sk_status sk_data_read(sk_arena *a, const char *path, int64_t limit, sk_text *out)
{
    bool gz = false;
    unpacking u = {.arena = a, .path = path, .limit = limit};
    SK_TRY(sk_file_open(path, &u.fd, &u.size));
    sk_status status = first_capacity(u.fd, path, u.size, &gz, &u.cap);
    if (!status && !gz && u.size > limit) status = too_large(path, limit);
    if (!status) {
        if (u.cap > limit) u.cap = limit;
        u.s = sk_alloc(a, (size_t)u.cap + 2);
        u.n = gz ? 0 : u.size;
        status = gz ? unpack(&u) : sk_file_pread(u.fd, path, u.s, (size_t)u.size, 0);
    }
    close(u.fd);
    if (status) return sk_trail(status, SK_HERE);
    u.s[u.n] = 0;
    *out = (sk_text){.s = u.s, .n = (size_t)u.n};
    return SK_OK;
}

size_t sk_data_peek(const char *path, void *to, size_t n)
{
    int fd = -1;
    int64_t size = 0;
    if (sk_file_open(path, &fd, &size)) return 0;
    gzFile g = gzdopen(fd, "rb");
    if (!g) {
        close(fd);
        return 0;
    }
    int got = gzread(g, to, (unsigned)n);
    gzclose_r(g);
    return got > 0 ? (size_t)got : 0;
}

sk_status sk_data_map(sk_arena *a, const char *path, sk_mapped **out)
{
    int fd = -1;
    int64_t size = 0;
    struct stat s = {0};
    SK_TRY(sk_file_open(path, &fd, &size));
    void *at = size && !fstat(fd, &s) ? mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0)
                                      : MAP_FAILED;
    if (at == MAP_FAILED) {
        int e = errno;
        close(fd);
        if (!size) return sk_fail(SK_EDATA, "%s is empty", path);
        return sk_fail(SK_EIO, "%s: cannot map %lld bytes: %s", path, (long long)size, strerror(e));
    }
    *out = sk_new(a, sk_mapped);
    **out = (sk_mapped){sk_strdup(a, path), fd, at, size, s.st_mtim};
    return SK_OK;
}

void sk_mapped_close(const sk_mapped *m)
{
    munmap((void *)(uintptr_t)m->bytes, (size_t)m->size);
    close(m->fd);
}

sk_status sk_mapped_same(const sk_mapped *m)
{
    struct stat s;
    if (fstat(m->fd, &s)) return sk_fail(SK_EIO, "%s: %s", m->path, strerror(errno));
    if (s.st_size != m->size || s.st_mtim.tv_sec != m->written.tv_sec ||
        s.st_mtim.tv_nsec != m->written.tv_nsec)
        return sk_fail(SK_EDATA,
                       "%s was written to while it is in use: %lld bytes now, %lld when opened; "
                       "the order of samples would change",
                       m->path, (long long)s.st_size, (long long)m->size);
    return SK_OK;
}

/* The length of the UTF-8 character at s, 0 if there is none. */
static size_t one(const uint8_t *s, size_t n)
{
    if (s[0] < 0x80) return 1;
    size_t len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || len > n) return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (s[0] == 0xe0 && s[1] < 0xa0) return 0; /* overlong */
    if (s[0] == 0xed && s[1] > 0x9f) return 0; /* surrogates */
    if (s[0] == 0xf0 && s[1] < 0x90) return 0; /* overlong */
    if (s[0] == 0xf4 && s[1] > 0x8f) return 0; /* past U+10FFFF */
    return len;
}

size_t sk_utf8_length(const char *s)
{
    uint8_t c = (uint8_t)*s;
    return c < 0xc2 || c > 0xf4 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
}

size_t sk_utf8_span(const char *s, size_t n)
{
    size_t at = 0;
    for (size_t len = 1; at < n && len; at += len) len = one((const uint8_t *)s + at, n - at);
    return at;
}
