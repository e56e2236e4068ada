/* blas_setup.c - waking the BLAS that this processor deserves. */
#include "device/blas_setup.h"
#include "base/proc.h"

#include <cblas.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS "OPENBLAS_NUM_THREADS"
#define BUFFER  (128LL << 20) /* of OpenBLAS, for a caller */
#define SMALL   (24LL << 20)  /* that is asked for later in small pieces */

/* Kernels that OpenBLAS uses where it does not know the processor. */
static int is_fallback(const char *core)
{
    return !strcmp(core, "Prescott") || !strcmp(core, "Core2") || !strcmp(core, "Generic");
}

static const char *better(void)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
    return NULL;
}

void sk_blas_wake(char **argv)
{
    const char *core = better(), *threads = getenv(THREADS);
    bool slow = core && !getenv("OPENBLAS_CORETYPE") && is_fallback(openblas_get_corename());
    bool tight = sk_proc_space() < INT64_MAX && openblas_get_num_threads() > 1 &&
                 !(threads && !strcmp(threads, "1"));
    if (slow) setenv("OPENBLAS_CORETYPE", core, 1);
    if (tight) setenv(THREADS, "1", 1);
    if (slow || tight) sk_proc_restart(argv); /* if it cannot, go on: slower, not wrong */
}

/* A buffer, and the stacks of two threads: of the team that calls, and of one beside it. */
static int64_t each(void)
{
    pthread_attr_t usual;
    size_t stack = 0;
    pthread_attr_init(&usual);
    pthread_attr_getstacksize(&usual, &stack);
    pthread_attr_destroy(&usual);
    return BUFFER + 2 * (int64_t)stack;
}

static atomic_int reserved; /* callers that have their buffers */

sk_status sk_blas_fits(int callers, int64_t beside)
{
    int more = callers - atomic_load(&reserved);
    int64_t left = sk_proc_space(), need = more * each() + beside + SMALL;
    if (more <= 0 || need <= left) return SK_OK;
    return sk_fail(SK_EIO,
                   "memory: ulimit -v leaves %lld MiB of address space, %lld MiB are needed, "
                   "%lld MiB for each of %d thread%s that call%s BLAS; raise ulimit -v%s",
                   (long long)left >> 20, ((long long)need >> 20) + 1, (long long)each() >> 20,
                   more, more > 1 ? "s" : "", more > 1 ? "" : "s",
                   more > 1 ? ", or take fewer threads" : "");
}

/* OpenBLAS exports these and declares them nowhere; another BLAS has neither. */
extern void *blas_memory_alloc(int place) __attribute__((weak));
extern void blas_memory_free(void *buffer) __attribute__((weak));

sk_status sk_blas_reserve(int callers)
{
    void *buffer[32]; /* the smallest build of OpenBLAS has room for 50 */
    int n = callers < 32 ? callers : 32;
    SK_TRY(sk_blas_fits(callers, 0));
    if (callers > atomic_load(&reserved)) atomic_store(&reserved, callers);
    openblas_set_num_threads(1);
    if (!blas_memory_alloc || !blas_memory_free) return SK_OK;
    for (int i = 0; i < n; i++) buffer[i] = blas_memory_alloc(0);
    for (int i = 0; i < n; i++) blas_memory_free(buffer[i]);
    return SK_OK;
}

static char blas_name[96];

static void find_name(void)
{
    const char *config = openblas_get_config(), *end = strchr(config, ' ');
    end = end ? strchr(end + 1, ' ') : NULL;
    snprintf(blas_name, sizeof blas_name, "%.*s %s", end ? (int)(end - config) : 40, config,
             openblas_get_corename());
}

const char *sk_blas_name(void) /* ranks may be threads */
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_name);
    return blas_name;
}
