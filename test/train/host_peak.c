/* The peak that is kept of this host: the highest, by all writers at once; bad files are told and
 * replaced, and a place that cannot be written costs nothing but the keeping. */
#include "base/file_io.h"
#include "base/hash.h"
#include "base/strings.h"
#include "train/host_peak.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int checks, bad;
static sk_arena arena;
static char folder[] = "/tmp/skein-peak-XXXXXX";

static void check(bool good, const char *what)
{
    checks++;
    if (!good) bad++, printf("wrong: %s\n", what);
}

static const char *path_of(void) /* of the file, by looking for it */
{
    static char path[256];
    glob_t g;
    *path = 0;
    if (!glob(sk_print(&arena, "%s/skein/peak-*.txt", folder), 0, NULL, &g)) {
        snprintf(path, sizeof path, "%s", g.gl_pathv[0]);
        check(g.gl_pathc == 1, "one file, and nothing temporary beside it");
        globfree(&g);
    }
    return path;
}

static void highest(void)
{
    sk_kept_peak k = sk_host_peak_find(&arena, 1);
    check(k.flops == 0 && !k.times && !k.why, "nothing is there at first, and nothing is wrong");
    check(!*path_of(), "looking writes nothing");
    k = sk_host_peak_keep(&arena, 1, 100e9);
    check(k.flops == 100e9 && k.times == 1 && !k.why, "the first");
    k = sk_host_peak_keep(&arena, 1, 90e9);
    check(k.flops == 100e9 && k.times == 2, "a lower one changes nothing but the count");
    k = sk_host_peak_keep(&arena, 1, 120e9);
    check(k.flops == 120e9 && k.times == 3, "a higher one holds");
    k = sk_host_peak_keep(&arena, 2, 200e9);
    check(k.flops == 200e9 && k.times == 1, "another number of cores has its own");
    k = sk_host_peak_find(&arena, 1);
    check(k.flops == 120e9 && k.times == 3 && !k.why, "all of it is found again");
    check(sk_host_peak_of(&arena, 1).flops == 120e9, "what is kept is not measured");
    check(sk_host_busy(3, 4, 16) == 12 && sk_host_busy(5, 4, 16) == 16, "cores at once");
}

/* Writers that would all lose something if they read, merged and wrote side by side. */
static void together(void)
{
    enum { WRITERS = 6, EACH = 10 };
    for (int w = 0; w < WRITERS; w++) {
        if (fork()) continue;
        for (int i = 0; i < EACH; i++)
            if (sk_host_peak_keep(&arena, 3 + w % 2, 1e9 * (w * EACH + i + 1)).why) _exit(1);
        _exit(0);
    }
    for (int w = 0, status = 0; w < WRITERS; w++)
        check(wait(&status) > 0 && !status, "a writer among others");
    sk_kept_peak three = sk_host_peak_find(&arena, 3), four = sk_host_peak_find(&arena, 4);
    check(!three.why && three.times == WRITERS * EACH / 2, "no writer was lost");
    check(three.flops == 50e9 && four.flops == 60e9, "the highest of each number of cores");
    check(sk_host_peak_find(&arena, 1).flops == 120e9, "nor what was there before");
    path_of();
}

static void write_file(const char *s, size_t n)
{
    const char *path = path_of();
    unlink(path);
    check(!sk_file_write_new(path, s, n), "a file of the test");
}

/* With the right sum, so that only what is in it can be wrong. */
static void summed(const char *body)
{
    const char *s = sk_print(&arena, "%ssum %08x\n", body, sk_crc32c(0, body, strlen(body)));
    write_file(s, strlen(s));
}

static void refused(const char *what)
{
    sk_kept_peak k = sk_host_peak_find(&arena, 1);
    checks++;
    if (k.flops == 0 && k.why && strstr(k.why, "measured again")) return;
    bad++;
    printf("%s is taken for %g flops (%s)\n", what, k.flops, k.why ? k.why : "no word");
}

static void bad_files(void)
{
    sk_text good;
    sk_file_read(&arena, path_of(), &good);
    const char *head = sk_print(&arena, "%.*s\n", (int)strcspn(good.s, "\n"), good.s);
    for (size_t n = 0; n < good.n; n++) write_file(good.s, n), refused("a file that was cut");
    for (size_t i = 0; i < good.n; i++) {
        char *s = sk_print(&arena, "%s", good.s);
        s[i] ^= 1 << i % 7;
        write_file(s, good.n);
        refused("a file with a wrong bit");
    }
    write_file(sk_print(&arena, "%sx", good.s), good.n + 1);
    refused("a file with more behind it");
    summed("skein peak 1, another host, Some Processor, AVX2, 2 cores, OpenBLAS 0.3.0 Haswell\n"
           "1 1e+11 3\n");
    refused("a file of another host");
    check(strstr(sk_host_peak_find(&arena, 1).why, "another host") != NULL, "told which");
    static const char *const lines[] = {"1 1e+13 3\n",
                                        "1 -1e+11 3\n",
                                        "1 nan 3\n",
                                        "1 inf 3\n",
                                        "1 0 3\n",
                                        "0 1e+11 3\n",
                                        "1 1e+11 0\n",
                                        "1 1e+11\n",
                                        "1 1e+11 3 4\n",
                                        "x\n",
                                        "\n",
                                        "-1 1e+11 3\n",
                                        " 1 1e+11 3",
                                        "1 1e+11 99999999999999999999\n",
                                        "1 1e+11 3\n1 1e+11 3\n",
                                        "2 1e+11 3\n1 1e+11 3\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        summed(sk_print(&arena, "%s%s", head, lines[i]));
        refused(lines[i]);
    }
    size_t huge = 1 << 20;
    write_file(memset(sk_alloc(&arena, huge), '1', huge), huge);
    refused("a long file");
    sk_kept_peak k = sk_host_peak_keep(&arena, 1, 110e9);
    check(k.flops == 110e9 && k.times == 1 && !k.why, "what is kept next replaces it");
    check(!sk_host_peak_find(&arena, 1).why, "and is good");
}

static void no_place(void)
{
    const char *path = path_of();
    unlink(path);
    mkdir(path, 0700);
    refused("a folder in its place");
    sk_kept_peak k = sk_host_peak_keep(&arena, 1, 70e9);
    check(k.flops == 70e9 && k.why && strstr(k.why, "cannot be stored"), "nor can it be written");
    rmdir(path);
    setenv("XDG_CACHE_HOME", "/proc/none", 1);
    k = sk_host_peak_keep(&arena, 1, 80e9);
    check(k.flops == 80e9 && k.why && strstr(k.why, "/proc/none"), "no such place");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    check(!sk_host_peak_find(&arena, 1).why, "no home, nothing kept");
    k = sk_host_peak_keep(&arena, 1, 80e9);
    check(k.flops == 80e9 && k.why && strstr(k.why, "HOME"), "no home, nothing to keep it in");
}

int main(void)
{
    if (!mkdtemp(folder)) return 1;
    setenv("XDG_CACHE_HOME", folder, 1);
    highest();
    together();
    bad_files();
    no_place();
    (void)!system(sk_print(&arena, "rm -rf %s", folder));
    sk_arena_end(&arena);
    printf("%d checks, %d wrong\n", checks, bad);
    return bad ? 1 : 0;
}
