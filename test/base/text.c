/* text.c - the ground floor: numbers in words, near names, arenas, permutations, files. */
#include "lib/check.h"

#include "base/file_io.h"
#include "base/rng.h"
#include "base/strings.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static sk_arena arena;

/* --- numbers --- */

static void whole(void)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"-7", -7},
                {"64k", 64000},
                {"64K", 64000},
                {"64KiB", 65536},
                {"2GiB", 2147483648},
                {"2gi", 2147483648},
                {"10m", 10000000},
                {"1.5k", 1500},
                {"1e3", 1000},
                {"5B", 5},
                {"3TiB", 3298534883328},
                {"9223372036854775807", INT64_MAX},
                {"-9223372036854775808", INT64_MIN}};
    static const char *const wrong[] = {
        "",     " 1",     "1 ",   "x",  "k",     "1.5",   "1kk", "12q", "9223372036854775808",
        "1e30", "1e-400", "--1",  "0.", "1GiBB", "1Gi B", "nan", "inf", "1e3.5",
        "0x",   "1,000",  "1_000"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t x = 0;
        bool ok = sk_read_int(good[i].text, &x) && x == good[i].value;
        if (!ok) printf("\"%s\" is read as %lld\n", good[i].text, (long long)x);
        check(ok);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int64_t x = 77;
        bool refused = !sk_read_int(wrong[i], &x);
        if (!refused && strcmp(wrong[i], "0."))
            printf("\"%s\" is read as %lld\n", wrong[i], (long long)x);
        check(refused || !strcmp(wrong[i], "0.")); /* "0." is a number to C */
        check(!refused || x == 77);                /* set only on success */
    }
}

static void reals(void)
{
    double x = 7;
    check(sk_read_real("1e-3", &x) && x == 1e-3);
    check(sk_read_real("-2.5k", &x) && x == -2500);
    check(sk_read_real(".5", &x) && x == 0.5);
    check(sk_read_real("1Mi", &x) && x == 1048576);
    check(!sk_read_real("1e999", &x) && !sk_read_real("nan", &x) && !sk_read_real("-inf", &x));
    check(!sk_read_real("", &x) && !sk_read_real(" 1", &x) && !sk_read_real("1..2", &x));
    check(!sk_read_real("1e308t", &x) && x == 1048576);
    check(!sk_read_plain("1m", &x) && !sk_read_plain("1B", &x) && !sk_read_plain("", &x));
    check(sk_read_plain("-1e-3", &x) && x == -1e-3);
}

/* --- words --- */

static void near_names(void)
{
    static const char *const names[] = {"zero", "micro", "schedule", "dp", "tp"};
    check(!strcmp(sk_nearest("zreo", names, 5), "zero"));
    check(!strcmp(sk_nearest("shedule", names, 5), "schedule"));
    check(!strcmp(sk_nearest("dp", names, 5), "dp"));
    check(!strcmp(sk_nearest("dq", names, 5), "dp"));
    check(!sk_nearest("qqqqqqqq", names, 5));
    check(!sk_nearest("zero", names, 0));
    char *endless = sk_alloc(&arena, 5000);
    memset(endless, 'z', 4999);
    check(!sk_nearest(endless, names, 5));
    const char *huge[] = {endless};
    check(!sk_nearest("zero", huge, 1));
}

static void pretty(void)
{
    check(!strcmp(sk_commas(&arena, 0), "0"));
    check(!strcmp(sk_commas(&arena, 999), "999"));
    check(!strcmp(sk_commas(&arena, 1000), "1,000"));
    check(!strcmp(sk_commas(&arena, -1000), "-1,000"));
    check(!strcmp(sk_commas(&arena, -100), "-100"));
    check(!strcmp(sk_commas(&arena, 4404412), "4,404,412"));
    check(!strcmp(sk_commas(&arena, INT64_MIN), "-9,223,372,036,854,775,808"));
    check(!strcmp(sk_bytes(&arena, 312), "312 B"));
    check(!strcmp(sk_bytes(&arena, 1610612736), "1.5 GiB"));
    sk_out o = {.arena = &arena};
    for (int i = 0; i < 3000; i++) sk_out_add(&o, "%d,", i % 10);
    check(o.n == 6000 && strlen(o.s) == 6000 && !strncmp(o.s + 5990, "5,6,7,8,9,", 10));
}

/* --- error messages --- */

static sk_status inner(const char *what) { return sk_fail(SK_EDATA, "%s is wrong", what); }
static sk_status outer(const char *what)
{
    SK_TRY(inner(what));
    return SK_OK;
}

static void error_messages(void)
{
    check(outer("this") == SK_EDATA);
    check(!strcmp(sk_error_line(), "this is wrong"));
    check(!strncmp(sk_error(), "this is wrong\n  at test/base/text.c:", 36));
    char *last = strrchr(sk_error(), '\n');
    check(last != strchr(sk_error(), '\n') && !strncmp(last, "\n  at ", 6)); /* two frames */
    inner("\x1b[31ma\x7f\xc2\x9b\n\t\xc3\xa9\xc2\xa0"); /* what a terminal would obey */
    check(!strcmp(sk_error_line(), "?[31ma???\\n\t\xc3\xa9\xc2\xa0 is wrong"));
    check(inner("x\n  at y") == SK_EDATA); /* no frame of ours */
    check(!strcmp(sk_error_line(), "x\\n  at y is wrong"));
    sk_fail(SK_EDATA, "%s", "a report\nof two\x1b lines"); /* made as a whole: its lines stay */
    check(!strcmp(sk_error_line(), "a report\nof two? lines"));
    char *essay = sk_alloc(&arena, 5000);
    for (int n = 2000; n < 2100; n++) { /* around the length of the sentence's buffer */
        memset(essay, 'x', 4999);
        essay[n] = 0;
        sk_fail(SK_EDATA, "%s", essay);
        size_t len = strlen(sk_error_line());
        check(len >= 2000 && len <= (size_t)n);
    }
    memset(essay, 'x', 4999);
    for (int i = 0; i < 2000; i++) sk_trail(sk_fail(SK_EDATA, "%s", essay), "nowhere:1");
    check(strlen(sk_error()) < 4096);
    sk_error_set("told elsewhere");
    check(!strcmp(sk_error_line(), "told elsewhere"));
    sk_fail(SK_EDATA, "it said: %s", sk_error()); /* an error message within an error message */
    check(!strcmp(sk_error_line(), "it said: told elsewhere"));
    sk_fail(SK_EDATA, "once more: %s", sk_error_line());
    check(!strcmp(sk_error_line(), "once more: it said: told elsewhere"));
}

/* --- arenas --- */

static bool zeros(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i]) return false;
    return true;
}

static void arenas(void)
{
    sk_arena a = {0};
    bool aligned = true, clean = true;
    for (uint64_t i = 0; i < 2000; i++) {
        size_t n = (size_t)(sk_rng(1, 1, i).a % (i % 10 ? 200 : 40000));
        unsigned char *p = sk_alloc(&a, n);
        aligned &= (uintptr_t)p % (n >= 64 ? 64 : 16) == 0;
        clean &= zeros(p, n);
        memset(p, 0xaa, n);
    }
    check(aligned);
    check(clean);
    unsigned char *big = sk_alloc(&a, 50u << 20);
    check((uintptr_t)big % 64 == 0 && zeros(big, 50u << 20));
    sk_mark m = sk_arena_mark(&a);
    char *first = sk_alloc(&a, 100);
    memset(first, 1, 100);
    sk_alloc(&a, 200u << 20); /* in a block of its own */
    sk_arena_back(&a, m);
    check(sk_alloc(&a, 100) == (void *)first && zeros((unsigned char *)first, 100));
    struct {
        int *v, n, cap;
    } list = {0};
    for (int i = 0; i < 5000; i++) *sk_push(&a, &list) = i;
    bool kept = list.n == 5000;
    for (int i = 0; i < 5000; i++) kept &= list.v[i] == i;
    check(kept);
    check(!strcmp(sk_print(&a, "%s %d", "rank", 7), "rank 7") && !strcmp(sk_strdup(&a, ""), ""));
    sk_arena_end(&a);
    check(!a.top);
}

/* --- random numbers --- */

static void permutations(void)
{
    char *seen = sk_alloc(&arena, 5000);
    for (uint64_t n = 1; n < 5000; n = n < 70 ? n + 1 : n * 3 / 2) {
        bool once = true;
        memset(seen, 0, n);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t x = sk_rng_permute(3, n, i, n);
            once &= x < n && !seen[x]++;
        }
        if (!once) printf("not a permutation of %llu\n", (unsigned long long)n);
        check(once);
    }
    uint64_t huge = UINT64_MAX, one = sk_rng_permute(1, 2, huge - 1, huge);
    check(one < huge && sk_rng_permute(1, 2, 0, huge) != one);
    int moved = 0;
    for (uint64_t i = 0; i < 1000; i++)
        moved += sk_rng_permute(1, 0, i, 1000) != sk_rng_permute(2, 0, i, 1000);
    check(moved > 950); /* another seed, another order */
}

static void draws(void)
{
    double sum = 0, square = 0, flat = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        double x = sk_rng_normal(1, 2, i), u = sk_rng_uniform(1, 3, i);
        sum += x, square += x * x, flat += u;
        if (u < 0 || u >= 1) check_at(SK_HERE, false, "uniform numbers lie in [0, 1)");
    }
    check(fabs(sum / 20000) < 0.03 && fabs(square / 20000 - 1) < 0.05);
    check(fabs(flat / 20000 - 0.5) < 0.01);
    check(sk_rng(1, 2, 3).a == sk_rng(1, 2, 3).a && sk_rng(1, 2, 3).a != sk_rng(1, 3, 2).a);
}

/* --- files --- */

static char dir[64] = "/tmp/skein-base-XXXXXX";
static char *in_dir(const char *name) { return sk_print(&arena, "%s/%s", dir, name); }

static void reading(void)
{
    sk_text t = {.s = "before"};
    int fd = -1;
    int64_t size = 0;
    fails(sk_file_read(&arena, in_dir("missing"), &t), SK_EIO, "No such file");
    fails(sk_file_read(&arena, dir, &t), SK_EIO, "is a directory, not a plain file");
    check(!mkfifo(in_dir("fifo"), 0600));
    fails(sk_file_read(&arena, in_dir("fifo"), &t), SK_EIO, "a special file");
    fails(sk_file_open("/dev/zero", &fd, &size), SK_EIO, "a special file");
    check(!strcmp(t.s, "before") && fd == -1);
    check(!sk_file_write_new(in_dir("empty"), "", 0) && !sk_file_read(&arena, in_dir("empty"), &t));
    check(t.n == 0 && t.s[0] == 0);
    check(!sk_file_write_new(in_dir("some"), "a\0b", 3) &&
          !sk_file_read(&arena, in_dir("some"), &t));
    check(t.n == 3 && !memcmp(t.s, "a\0b", 4)); /* a NUL behind the last byte */
    char two[2];
    check(!sk_file_open(in_dir("some"), &fd, &size) && size == 3);
    check(!sk_file_pread(fd, "some", two, 2, 1) && two[1] == 'b');
    fails(sk_file_pread(fd, "some", two, 2, 2), SK_EDATA, "ends at byte 3, 1 bytes too early");
    close(fd);
}

static void writing(void)
{
    struct stat s;
    sk_text t;
    char *link_name = in_dir("link");
    fails(sk_file_write_new(in_dir("some"), "x", 1), SK_EIO, "exists");
    check(!symlink("nowhere", link_name));
    fails(sk_file_write_new(link_name, "x", 1), SK_EIO, link_name);
    check(!sk_file_replace(in_dir("some"), "new text", 8) &&
          !sk_file_read(&arena, in_dir("some"), &t));
    check(t.n == 8 && !stat(in_dir("some"), &s));
    for (mode_t mask = 0; mask <= 077; mask += 027) { /* the umask alone says who may read it */
        mode_t before = umask(mask);
        check(!sk_file_replace(in_dir("some"), "new text", 8) && !stat(in_dir("some"), &s));
        check((s.st_mode & 0777) == (0666 & ~mask));
        umask(before);
    }
    fails(sk_file_replace(in_dir("no/such/folder"), "x", 1), SK_EIO, "No such file");
    fails(sk_file_replace(dir, "x", 1), SK_EIO, "directory");
    char *name = sk_alloc(&arena, PATH_MAX + 10);
    memset(name, 'n', PATH_MAX + 5);
    fails(sk_file_replace(name, "x", 1), SK_EIO, "name too long");
    fails(sk_dir_make(name), SK_EIO, "name too long");
}

static void folders(void)
{
    check(!sk_dir_make(in_dir("a/b/c")) && sk_is_dir(in_dir("a/b/c")) && !sk_is_file(in_dir("a")));
    check(!sk_dir_make(in_dir("a/b/c/")) && !sk_dir_make(in_dir("a//b")));
    check(sk_is_file(in_dir("some")) && !sk_is_dir(in_dir("some")) && !sk_is_file(in_dir("fifo")));
    fails(sk_dir_make(in_dir("some")), SK_ECREATE, "is not a folder");
    fails(sk_dir_make(in_dir("some/below")), SK_ECREATE, "cannot make the folder");
    check(!sk_dir_sync(dir));
    fails(sk_dir_sync(in_dir("some")), SK_EIO, "Not a directory");
    fails(sk_dir_sync(in_dir("missing")), SK_EIO, "No such file");
}

int main(void)
{
    if (!mkdtemp(dir)) return perror(dir), 1;
    whole();
    reals();
    near_names();
    pretty();
    error_messages();
    arenas();
    permutations();
    draws();
    reading();
    writing();
    folders();
    char *clean = sk_print(&arena, "rm -rf %s", dir);
    check(!system(clean));
    sk_arena_end(&arena);
    printf("base: %d checks, %d failed\n", checks, bad);
    return bad != 0;
}
