/* host.c - what this machine is: files of the kernel, cpuid, and BLAS's own words. */
#include "train/host.h"
#include "base/clock.h"
#include "base/team.h"
#include "device/blas.h"

#include <cblas.h>
#include <ctype.h>
#include <glob.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The text behind "key" and a colon in a file of the kernel; false if it is not there. */
static bool line_of(const char *path, const char *key, char *to, size_t room)
{
    char line[4096];
    bool found = false;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    while (!found && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key))) continue;
        char *s = line + strlen(key);
        s += strspn(s, " \t:");
        s[strcspn(s, "\n")] = 0;
        snprintf(to, room, "%s", s);
        found = true;
    }
    fclose(f);
    return found;
}

static int64_t number_of(const char *path, const char *key, int64_t unit, int64_t otherwise)
{
    char text[64];
    char *end = text;
    if (!line_of(path, key, text, sizeof text)) return otherwise;
    long long x = strtoll(text, &end, 10);
    return end == text || x < 0 || x > INT64_MAX / unit ? otherwise : x * unit;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

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

static int count_cores(void)
{
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN); /* more than 1024 cores */
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
    *out = (sk_host){.cores = count_cores(), .isa = best_isa(), .gpus = count_gpus()};
    if (!line_of("/proc/cpuinfo", "model name", out->cpu, sizeof out->cpu))
        snprintf(out->cpu, sizeof out->cpu, "processor");
    tidy(out->cpu);
    int64_t all = number_of("/proc/meminfo", "MemTotal", 1024, 0);
    int64_t cage = number_of("/sys/fs/cgroup/memory.max", "", 1, INT64_MAX);
    cage = least(cage, number_of("/sys/fs/cgroup/memory/memory.limit_in_bytes", "", 1, INT64_MAX));
    out->memory = least(all, cage);
    out->available = least(number_of("/proc/meminfo", "MemAvailable", 1024, all), cage);
    out->blas = sk_blas_name();
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
