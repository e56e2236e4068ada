/* blas.c - waking the BLAS that this processor deserves. */
#include "device/blas.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    execv("/proc/self/exe", argv); /* if it cannot, go on: slower, not wrong */
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
