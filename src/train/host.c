/* host.c - what this machine is: files of the kernel, cpuid, and BLAS's own words. */
#include "train/host.h"
#include "base/clock.h"
#include "base/proc.h"
#include "base/threads.h"
#include "device/blas_setup.h"

#include <cblas.h>
#include <ctype.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz" -> "Intel Xeon Gold 6230" */
static void tidy(char *s)
{
    static const char *const noise[] = {"(R)", "(TM)", "(r)", "(tm)", " CPU", " Processor"};
    for (size_t i = 0; i < sizeof noise / sizeof *noise; i++)
        for (char *p; (p = strstr(s, noise[i]));)
            memmove(p, p + strlen(noise[i]), strlen(p + strlen(noise[i])) + 1);
    s[strcspn(s, "@")] = 0;
    size_t n = strlen(s);
    while (n && isspace((unsigned char)s[n - 1])) s[--n] = 0;
}

static const char *best_isa(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return "AVX-512";
    if (__builtin_cpu_supports("avx2")) return "AVX2";
    if (__builtin_cpu_supports("avx")) return "AVX";
    return "SSE2";
#elif defined(__aarch64__)
    return "NEON";
#else
    return "scalar";
#endif
}

static int count_gpus(void)
{
    glob_t g = {0};
    int n = glob("/dev/nvidia[0-9]*", 0, NULL, &g) ? 0 : (int)g.gl_pathc;
    globfree(&g);
    return n;
}

void sk_host_detect(sk_host *out)
{
    *out = (sk_host){.cores = sk_proc_cores(),
                     .isa = best_isa(),
                     .gpus = count_gpus(),
                     .memory = sk_proc_memory(),
                     .available = sk_proc_available(),
                     .blas = sk_blas_name()};
    if (!sk_proc_line("/proc/cpuinfo", "model name", out->cpu, sizeof out->cpu))
        snprintf(out->cpu, sizeof out->cpu, "processor");
    tidy(out->cpu);
}

/* --- the peak --- */

enum { SIDE = 256, PARTS = 256, SAMPLES = 1 << 14, LEAST = 9, FASTEST = 200 };

typedef struct peak {
    double seconds;
    double rate[PARTS], spread[PARTS]; /* flops per second of each thread */
    float *matrices;                   /* three matrices for each thread */
    double *took;                      /* and SAMPLES times */
} peak;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The rate of one of the fastest products: what the core does while nobody takes it, or shares its
 * units and caches, as the sibling of a virtual core may do most of the time.  By the clock on the
 * wall: on virtual cores the time that a thread had one is at times counted too short, and a peak
 * must never be too high.  The spread is how much longer the median takes. */
static void multiply(void *ctx, int part, int of)
{
    peak *p = ctx;
    (void)of;
    float *a = p->matrices + 3L * SIDE * SIDE * part, *b = a + SIDE * SIDE, *c = b + SIDE * SIDE;
    double *took = p->took + (long)SAMPLES * part;
    for (int i = 0; i < SIDE * SIDE; i++) a[i] = b[i] = 1.0f / (float)(1 + i % 7);
    double begin = sk_now(), warm = begin + 0.2 * p->seconds, end = begin + p->seconds;
    int n = 0;
    for (double now = begin; n < SAMPLES && (n < LEAST || now < end); now = sk_now()) {
        double start = sk_now();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, a, SIDE, b,
                    SIDE, 0, c, SIDE);
        took[n] = fmax(sk_now() - start, 1e-9);
        n += now >= warm; /* caches and the clock of the core have settled */
    }
    qsort(took, (size_t)n, sizeof *took, by_size);
    double best = took[n / FASTEST];
    p->rate[part] = 2.0 * SIDE * SIDE * SIDE / best;
    p->spread[part] = took[n / 2] / best - 1;
}

sk_status sk_host_peak(int threads, double seconds, sk_peak_rate *out)
{
    sk_arena a = {0};
    *out = (sk_peak_rate){0};
    if (threads > PARTS) threads = PARTS;
    SK_TRY(sk_blas_reserve(threads)); /* each calls BLAS for itself: no threads within it */
    peak *p = sk_new(&a, peak);
    p->seconds = seconds;
    p->matrices = sk_many(&a, float, 3L * SIDE * SIDE * threads);
    p->took = sk_many(&a, double, 1L * SAMPLES * threads);
    sk_threads *team = sk_threads_open(threads);
    sk_threads_run(team, multiply, p);
    sk_threads_close(team);
    for (int i = 0; i < threads; i++) {
        out->flops += p->rate[i];
        out->spread = fmax(out->spread, p->spread[i]);
    }
    sk_arena_end(&a);
    return SK_OK;
}

double sk_host_share(int ranks, int threads, int cores)
{
    int busy = ranks * threads;
    return busy > cores ? (double)cores / busy : 1;
}
