/* read.c - lists of files, whole files with gzip undone, mapped files. */
#include "data/read.h"

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

bool sk_ends(const char *s, const char *tail)
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

static sk_status walk(sk_arena *a, const char *dir, int level, sk_paths *out)
{
    sk_status status = SK_OK;
    DIR *d = opendir(dir);
    if (!d) return sk_fail(SK_EIO, "%s: %s", dir, strerror(errno));
    for (struct dirent *e; !status && (e = readdir(d));) {
        struct stat s;
        if (e->d_name[0] == '.') continue;
        const char *path = sk_print(a, "%s/%s", dir, e->d_name);
        if (stat(path, &s)) continue; /* a dangling link */
        if (S_ISREG(s.st_mode)) *sk_push(a, out) = path;
        if (S_ISDIR(s.st_mode) && level < MAX_LEVELS) status = walk(a, path, level + 1, out);
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

sk_status sk_data_list(sk_arena *a, const char *what, sk_paths *out)
{
    sk_paths all = {0};
    if (sk_is_file(what)) *sk_push(a, &all) = sk_strdup(a, what);
    else if (sk_is_dir(what)) SK_TRY(walk(a, what, 1, &all));
    else if (sk_data_is_glob(what)) SK_TRY(match(a, what, &all));
    if (all.n) qsort(all.v, (size_t)all.n, sizeof *all.v, by_bytes);
    *out = all;
    return SK_OK;
}

/* Is this word one of the name's, cut at '_', '-' and '.'? */
static bool has_word(const char *name, const char *word)
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
    SK_TRY(sk_data_list(a, dir, &all));
    for (int i = 0; i < all.n; i++) {
        const char *name = sk_base_name(all.v[i]);
        if (sk_ends(name, ".bin") && has_word(name, word)) *sk_push(a, out) = all.v[i];
    }
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

/* Room to begin with: the size of a plain file, or what a gzip file says at its end, as far as
 * that can be true (deflate shrinks by at most 1032). */
static sk_status room(int fd, const char *path, int64_t size, int64_t limit, int64_t *out)
{
    uint8_t head[2], tail[4];
    *out = size;
    if (size > 17) {
        SK_TRY(sk_file_pread(fd, path, head, 2, 0));
        SK_TRY(sk_file_pread(fd, path, tail, 4, size - 4));
        int64_t says = (int64_t)tail[0] | (int64_t)tail[1] << 8 | (int64_t)tail[2] << 16 |
                       (int64_t)tail[3] << 24;
        if (head[0] == 0x1f && head[1] == 0x8b) *out = says / 1032 < size ? says : 4 * size;
    }
    if (*out > limit) *out = limit;
    return SK_OK;
}

/* Everything that is left in g, into a text of at most limit bytes. */
static sk_status drain(sk_arena *a, gzFile g, const char *path, int64_t cap, int64_t limit,
                       sk_text *out)
{
    char *s = sk_alloc(a, (size_t)cap + 1);
    int64_t n = 0;
    for (int got = 1; got > 0; n += got) {
        char probe;
        int64_t want = cap - n < GZ_CHUNK ? cap - n : GZ_CHUNK;
        got = want ? gzread(g, s + n, (unsigned)want) : gzread(g, &probe, 1);
        if (got < 0) return sk_fail(SK_EDATA, "%s: damaged: %s", path, gzerror(g, &(int){0}));
        if (want || !got) continue;
        if (n >= limit)
            return sk_fail(SK_EDATA, "%s holds more than the %lld bytes that are read into memory",
                           path, (long long)limit);
        int64_t more = 2 * cap + GZ_CHUNK < limit ? 2 * cap + GZ_CHUNK : limit;
        s = sk_grow(a, s, (size_t)n, (size_t)more + 1);
        s[n] = probe, cap = more;
    }
    *out = (sk_text){.s = s, .n = (size_t)n};
    return SK_OK;
}

sk_status sk_data_read(sk_arena *a, const char *path, int64_t limit, sk_text *out)
{
    int fd = -1;
    int64_t size = 0, cap = 0;
    sk_text text = {0};
    SK_TRY(sk_file_open(path, &fd, &size));
    sk_status status = room(fd, path, size, limit, &cap);
    gzFile g = status ? NULL : gzdopen(fd, "rb");
    if (!g) {
        close(fd);
        return status ? sk_trail(status, SK_HERE) : sk_fail(SK_EIO, "%s: cannot be read", path);
    }
    gzbuffer(g, GZ_CHUNK / 4);
    status = drain(a, g, path, cap, limit, &text);
    int end = gzclose_r(g); /* Z_BUF_ERROR: the packed stream stops in the middle */
    if (status) return sk_trail(status, SK_HERE);
    if (end != Z_OK) return sk_fail(SK_EDATA, "%s: damaged: the packed data ends early", path);
    *out = text;
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
