/* fuzz.c - what the fuzzers of parsers share. */
#include "lib/fuzz.h"

#include <endian.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64];

static int drop(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    (void)s, (void)kind, (void)at;
    return remove(path);
}

static void clean(void) { nftw(dir, drop, 8, FTW_DEPTH | FTW_PHYS); }

const char *fuzz_dir(void)
{
    if (*dir) return dir;
    snprintf(dir, sizeof dir, "%s/skein-fuzz-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    sk_assert(mkdtemp(dir));
    atexit(clean);
    return dir;
}

const char *fuzz_file(const char *name, const void *data, size_t n)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    sk_assert(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    close(fd);
    return path;
}

char *fuzz_text(sk_arena *a, const uint8_t *data, size_t n)
{
    char *s = sk_alloc(a, n + 1);
    if (n) memcpy(s, data, n);
    return s;
}

void fuzz_printable(const char *line)
{
    for (const unsigned char *s = (const unsigned char *)line; *s; s++) {
        sk_assert((*s >= 0x20 && *s != 0x7f) || *s == '\n' || *s == '\t');
        sk_assert(*s != 0xc2 || s[1] < 0x80 || s[1] >= 0xa0); /* U+0080 to U+009F */
    }
}

void fuzz_refused(sk_status st, sk_status other)
{
    if (!st) return;
    if (st != SK_ECONF && st != SK_EDATA && st != other)
        fprintf(stderr, "exit code %d: %s\n", (int)st, sk_error());
    sk_assert(st == SK_ECONF || st == SK_EDATA || st == other);
    sk_assert(*sk_error_line());
    fuzz_printable(sk_error_line());
}

bool fuzz_halves(const uint8_t *data, size_t n, sk_text *first, sk_text *second)
{
    uint32_t cut = 0;
    if (n < 4) return false;
    memcpy(&cut, data, 4);
    size_t k = le32toh(cut) % (n - 3);
    *first = (sk_text){(const char *)data + 4, k};
    *second = (sk_text){(const char *)data + 4 + k, n - 4 - k};
    return true;
}
