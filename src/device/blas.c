/* blas.c - waking the BLAS that this processor deserves. */
#include "device/blas.h"
#include "base/proc.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    const char *core = better();
    if (!core || getenv("OPENBLAS_CORETYPE") || !is_fallback(openblas_get_corename())) return;
    setenv("OPENBLAS_CORETYPE", core, 1);
    sk_proc_restart(argv); /* if it cannot, go on: slower, not wrong */
}

/* OpenBLAS exports these and declares them nowhere; another BLAS has neither. */
extern void *blas_memory_alloc(int place) __attribute__((weak));
extern void blas_memory_free(void *buffer) __attribute__((weak));

void sk_blas_reserve(int callers)
{
    void *buffer[32]; /* the smallest build of OpenBLAS has room for 50 */
    int n = callers < 32 ? callers : 32;
    openblas_set_num_threads(1);
    if (!blas_memory_alloc || !blas_memory_free) return;
    for (int i = 0; i < n; i++) buffer[i] = blas_memory_alloc(0);
    for (int i = 0; i < n; i++) blas_memory_free(buffer[i]);
}

const char *sk_blas_name(void)
{
    static char name[96];
    const char *config = openblas_get_config(), *end = strchr(config, ' ');
    end = end ? strchr(end + 1, ' ') : NULL;
    snprintf(name, sizeof name, "%.*s %s", end ? (int)(end - config) : 40, config,
             openblas_get_corename());
    return name;
}
