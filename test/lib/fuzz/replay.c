/* replay.c - a fuzzer without libFuzzer: every input of a corpus, then mutations of them.
 *
 *     fuzz_NAME test/corpus/NAME [MUTATIONS]
 *
 * Mutations are drawn by number, so they are the same every time.  The input that is being tried
 * lies in a file; after a crash the file is still there, and its name was the first line. */
#include "base/rng.h"
#include "lib/fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MUTATIONS = 2000, MOST_BYTES = 1 << 16 };

/* What parsers stumble over. */
static const char *const words[] = {"0",
                                    "-1",
                                    "1e308",
                                    "9223372036854775807",
                                    "9223372036854775808",
                                    "4294967296",
                                    "1e-400",
                                    "nan",
                                    "null",
                                    "true",
                                    "\"\"",
                                    "{}",
                                    "[]",
                                    "[",
                                    "{",
                                    "}",
                                    "]",
                                    ",",
                                    ":",
                                    "\n",
                                    "=",
                                    "\\u0000",
                                    "\xc2\x9b",
                                    "\x1b[",
                                    "%s%n",
                                    "../",
                                    "65536",
                                    "2147483648",
                                    "999999999999",
                                    " "};
enum { N_WORDS = sizeof words / sizeof *words };

typedef struct inputs {
    sk_text *v;
    int n, cap;
} inputs;

typedef struct mutant {
    uint64_t number, drawn; /* of the mutant; numbers drawn for it */
    size_t n;
    char s[MOST_BYTES];
} mutant;

#if defined(__SANITIZE_ADDRESS__)
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "max_allocation_size_mb=64"; }
static void limit_memory(void) { sk_assert(FUZZ_MEMORY == 64 << 20); }
#elif defined(__SANITIZE_THREAD__)
static void limit_memory(void) {}
#else
/* What the process has now, and a few allocations of that size. */
static void limit_memory(void)
{
    long long kib = 0;
    char line[128];
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "VmData: %lld kB", &kib) != 1) continue;
    if (f) fclose(f);
    const rlim_t bytes = 1024 * (rlim_t)kib + 4 * (rlim_t)FUZZ_MEMORY;
    sk_assert(kib > 0 && !setrlimit(RLIMIT_DATA, &(struct rlimit){bytes, bytes}));
}
#endif

/* --- the inputs --- */

static int by_name(const struct dirent **x, const struct dirent **y)
{
    return strcmp((*x)->d_name, (*y)->d_name);
}

static bool read_all(sk_arena *a, const char *corpus, inputs *out)
{
    struct dirent **names = NULL;
    int n = scandir(corpus, &names, NULL, by_name);
    for (int i = 0; i < n; i++) {
        sk_text t = {0};
        if (*names[i]->d_name != '.') {
            if (sk_file_read(a, sk_print(a, "%s/%s", corpus, names[i]->d_name), &t)) return false;
            sk_assert(t.n <= MOST_BYTES);
            *(sk_text *)sk_push(a, out) = t;
        }
        free(names[i]);
    }
    free(names);
    return out->n > 0;
}

/* --- mutations --- */

static size_t draw(mutant *m, size_t n) /* below n */
{
    return n ? (size_t)(sk_rng(18, m->number, m->drawn++).a % n) : 0;
}

/* The bytes [at, at + old) become these. */
static void replace(mutant *m, size_t at, size_t old, const char *s, size_t n)
{
    char copy[MOST_BYTES];
    if (m->n - old + n > MOST_BYTES) return;
    memcpy(copy, s, n); /* it may be a part of the mutant itself */
    memmove(m->s + at + n, m->s + at + old, m->n - at - old);
    memcpy(m->s + at, copy, n);
    m->n += n - old;
}

static void number_of(mutant *m, const char *word)
{
    size_t from = draw(m, m->n);
    while (from < m->n && !strchr("0123456789", m->s[from])) from++;
    size_t n = 0;
    while (from + n < m->n && m->s[from + n] && strchr("0123456789.e-", m->s[from + n])) n++;
    replace(m, from, n, word, strlen(word));
}

static void change(mutant *m, const inputs *all)
{
    const char *word = words[draw(m, N_WORDS)];
    const sk_text *other = &all->v[draw(m, (size_t)all->n)];
    size_t at = draw(m, m->n), n = draw(m, m->n - at < 64 ? m->n - at : 64);
    size_t from = draw(m, other->n);
    switch (draw(m, 8)) {
    case 0:
        if (m->n) m->s[at] = (char)(m->s[at] ^ 1 << draw(m, 8));
        break;
    case 1:
        if (m->n) m->s[at] = (char)draw(m, 256);
        break;
    case 2:
        replace(m, at, n, "", 0);
        break;
    case 3:
        replace(m, at, 0, m->s + at, n);
        break;
    case 4:
        replace(m, at, 0, word, strlen(word));
        break;
    case 5:
        replace(m, at, m->n - at, other->s + from, other->n - from);
        break;
    case 6:
        replace(m, at, n, other->s + from, other->n - from < n ? other->n - from : n);
        break;
    default:
        number_of(m, word);
    }
}

static void mutate(mutant *m, const inputs *all)
{
    const sk_text *from = &all->v[draw(m, (size_t)all->n)];
    m->n = from->n;
    memcpy(m->s, from->s, from->n);
    for (size_t i = draw(m, 5) + 1; i > 0; i--) change(m, all);
}

/* --- running --- */

/* A copy of exactly n bytes, so that a sanitizer sees who reads past them. */
static void run(char *tried, const char *s, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);
    sk_assert(copy);
    memcpy(tried, s, n);
    memcpy(copy, s, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
}

static char *open_tried(void)
{
    const char *path = fuzz_file("tried", "", 0);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    sk_assert(fd >= 0 && !ftruncate(fd, MOST_BYTES));
    char *to = mmap(NULL, MOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    sk_assert(to != MAP_FAILED);
    close(fd);
    printf("inputs are tried from %s\n", path);
    fflush(stdout);
    return to;
}

/* A parser that refuses a file closes it. */
static int open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

int main(int argc, char **argv)
{
    static mutant m;
    sk_arena a = {0};
    inputs all = {0};
    uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : MUTATIONS;
    if (argc < 2 || !read_all(&a, argv[1], &all)) {
        fprintf(stderr, "usage: %s CORPUS [MUTATIONS]; the corpus holds at least one file\n",
                *argv);
        return 64;
    }
    char *tried = open_tried();
    limit_memory();
    int before = open_files();
    for (int i = 0; i < all.n; i++) run(tried, all.v[i].s, all.v[i].n);
    for (m.number = 0; m.number < n; m.number++) {
        m.drawn = 0;
        mutate(&m, &all);
        memset(tried, 0, MOST_BYTES);
        run(tried, m.s, m.n);
    }
    sk_assert(open_files() == before);
    printf("%d inputs and %llu mutations of them\n", all.n, (unsigned long long)n);
    sk_arena_end(&a);
    return 0;
}
