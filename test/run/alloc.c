/* alloc.c - after the first step nothing is allocated, mapped or started.
 *
 * This program's own malloc, mmap and pthread_create stand before the C
 * library's and count.  Four ranks of two threads run ten steps of a small GPT;
 * over steps 2 to 10 the counts must not move, and the number of threads of the
 * process must stay.  A sanitizer brings its own malloc: then the test is skipped. */
#include "lib/ranks.h"

#include "device/blas_setup.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__has_feature)
#define CLANG_HAS(x) __has_feature(x)
#else
#define CLANG_HAS(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    CLANG_HAS(address_sanitizer) || CLANG_HAS(thread_sanitizer)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

enum { RANKS = 4, THREADS = 2, STEPS = 10 };

static atomic_int counting, mallocs, frees, maps, threads_made;

#if !SANITIZED
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
extern void __libc_free(void *p);

static void count(atomic_int *what) { atomic_fetch_add(what, atomic_load(&counting)); }

void *malloc(size_t n)
{
    count(&mallocs);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    count(&mallocs);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    count(&mallocs);
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    count(&mallocs);
    return __libc_memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    count(&mallocs);
    *out = __libc_memalign(align, n);
    return *out ? 0 : 12;
}

void free(void *p)
{
    if (p) count(&frees);
    __libc_free(p);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
    count(&maps);
    long got = syscall(SYS_mmap, at, n, prot, flags, fd, from);
    return got == -1 ? MAP_FAILED : (void *)got;
}

int pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*life)(void *), void *arg)
{
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *found = next ? NULL : dlsym(RTLD_NEXT, "pthread_create");
    if (found) memcpy(&next, &found, sizeof next);
    count(&threads_made);
    return next(out, attr, life, arg);
}
#endif

/* --- four ranks --- */

typedef struct rank_job {
    const sk_program *p;
    sk_heaps *heaps;
    sk_status status;
    int threads_before, threads_after;
    double loss;
} rank_job;

static sk_status fill(void *ctx, const char *input, sk_dtype type, const sk_extent *box,
                      int64_t step, bool validation, void *to)
{
    (void)ctx, (void)validation;
    int64_t n = 1;
    for (int d = 0; d < box->n; d++) n *= box->size[d];
    for (int64_t i = 0; i < n; i++)
        if (type == SK_I32) ((int32_t *)to)[i] = (int32_t)((i + step + box->at[0]) % 7);
        else ((real *)to)[i] = 1;
    (void)input;
    return SK_OK;
}

static int threads_now(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static sk_status steps(rank_job *j, sk_run *run)
{
    sk_step_out out = {0};
    sk_assert(!sk_run_init(run, 1));
    SK_TRY(sk_run_barrier(run));
    for (int s = 0; s < STEPS; s++) {
        if (s == 1) { /* all ranks have made the first step */
            SK_TRY(sk_run_barrier(run));
            if (j->p->rank == 0) j->threads_before = threads_now(), atomic_store(&counting, 1);
            SK_TRY(sk_run_barrier(run));
        }
        SK_TRY(sk_run_step(run, &(sk_step_in){.step = s, .lr = 1e-3}, &out));
    }
    SK_TRY(sk_run_barrier(run));
    if (j->p->rank == 0) atomic_store(&counting, 0), j->threads_after = threads_now();
    j->loss = out.loss;
    return sk_run_barrier(run);
}

static void *rank_main(void *arg)
{
    rank_job *j = arg;
    sk_arena a = {0};
    sk_run *run = NULL;
    sk_run_opts o = {.fill = fill,
                     .knobs = sk_trial_knobs(&(sk_trial){.clip = 1}, j->p->optim),
                     .timeout_s = 60};
    j->status = sk_run_open(&a, j->p, j->heaps, &o, &run);
    if (!j->status) j->status = steps(j, run);
    if (j->status) {
        printf("rank %d: %s\n", j->p->rank, sk_error());
        sk_heaps_abort(j->heaps, j->status, j->p->rank, sk_error());
    }
    if (run) sk_run_close(run);
    sk_arena_end(&a);
    return NULL;
}

static int one(const char *layout)
{
    sk_arena a = {0};
    sk_trial t = {.batch = 6, .seq = 8, .layout = layout, .threads = THREADS, .clip = 1};
    sk_graph g;
    sk_program **p = NULL;
    sk_heaps *heaps = NULL;
    rank_job jobs[RANKS] = {0};
    pthread_t thread[RANKS];
    int64_t bytes[RANKS];
    int n = 0, wrong = 0;
    t.model = sk_model_preset("tiny", &t.hyper);
    sk_status st = sk_trial_compile(&a, &t, &g, &p, &n);
    for (int r = 0; r < RANKS && !st; r++) bytes[r] = p[r]->heap_bytes;
    if (!st) st = sk_heaps_open(RANKS, bytes, false, 64, &heaps);
    if (st || n != RANKS) return printf("%s: %s\n", layout, sk_error()), 1;
    atomic_store(&mallocs, 0), atomic_store(&frees, 0);
    atomic_store(&maps, 0), atomic_store(&threads_made, 0);
    for (int r = 0; r < RANKS; r++) {
        jobs[r] = (rank_job){.p = p[r], .heaps = heaps};
        pthread_create(&thread[r], NULL, rank_main, &jobs[r]);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < RANKS; r++) wrong += jobs[r].status != SK_OK;
    if (mallocs || frees || maps || threads_made ||
        jobs[0].threads_before != jobs[0].threads_after || jobs[0].threads_before < RANKS * THREADS)
        wrong++;
    if (wrong)
        printf("%s: %d allocations, %d frees, %d mappings, %d threads started after step 1; "
               "threads %d, then %d\n",
               layout, mallocs, frees, maps, threads_made, jobs[0].threads_before,
               jobs[0].threads_after);
    sk_heaps_close(heaps);
    sk_arena_end(&a);
    return wrong != 0;
}

/* Does the counting count at all? */
static int deaf(void)
{
    void *volatile p = NULL;
    atomic_store(&counting, 1);
    free(p = malloc(10));
    void *m = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    atomic_store(&counting, 0);
    munmap(m, 4096);
    if (mallocs && frees && maps) return 0; /* a thread of BLAS may have its part in it */
    printf("one malloc, free and mmap were counted as %d, %d and %d\n", mallocs, frees, maps);
    return 1;
}

int main(void)
{
    static const char *const layouts[] = {"dp=2 tp=2 zero=1", "dp=4 zero=3 micro=2",
                                          "pp=2 dp=2 zero=2 micro=3",
                                          "dp=4 zero=2 micro=2 offload=all:file"};
    enum { N = sizeof layouts / sizeof *layouts };
    int wrong = 0;
    if (SANITIZED) {
        puts("skipped: a sanitizer has its own malloc");
        return 77;
    }
    wrong += deaf();
    wrong += sk_blas_reserve(RANKS * THREADS) != SK_OK; /* each rank does so for its own threads */
    for (int i = 0; i < N; i++) wrong += one(layouts[i]);
    printf("alloc: %d layouts, %d ranks of %d threads, steps 2 to %d: %d allocated\n", N, RANKS,
           THREADS, STEPS, wrong);
    return wrong != 0;
}
