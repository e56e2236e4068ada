/* host.c - what this machine is: files of the kernel, cpuid, and BLAS's own words. */
#include "train/host.h"
#include "base/clock.h"
#include "base/proc.h"
#include "base/team.h"
#include "device/blas.h"

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

void sk_host_look(sk_host *out)
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

enum { SIDE = 256, PARTS = 256 };

typedef struct peak {
    double seconds;
    double flops[PARTS]; /* per second, of each thread */
    float *room;         /* three matrices for each thread */
} peak;

static void multiply(void *ctx, int part, int of)
{
    peak *p = ctx;
    (void)of;
    float *a = p->room + 3L * SIDE * SIDE * part, *b = a + SIDE * SIDE, *c = b + SIDE * SIDE;
    for (int i = 0; i < SIDE * SIDE; i++) a[i] = b[i] = 1.0f / (float)(1 + i % 7);
    double best = INFINITY, now = sk_now(), end = now + p->seconds;
    while (now < end) { /* the best of many: a machine has other things to do */
        double start = now;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, a, SIDE, b,
                    SIDE, 0, c, SIDE);
        now = sk_now();
        best = fmin(best, now - start);
    }
    p->flops[part] = 2.0 * SIDE * SIDE * SIDE / best;
}

double sk_host_peak(int threads, double seconds)
{
    sk_arena a = {0};
    peak *p = sk_new(&a, peak);
    if (threads > PARTS) threads = PARTS;
    p->seconds = seconds;
    p->room = sk_many(&a, float, 3L * SIDE * SIDE * threads);
    sk_team *team = sk_team_open(threads);
    sk_team_run(team, multiply, p);
    sk_team_close(team);
    double sum = 0;
    for (int i = 0; i < threads; i++) sum += p->flops[i];
    sk_arena_end(&a);
    return sum;
}
