/* proc.c - what the kernel says about this host, from its text files. */
#include "base/proc.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

bool sk_proc_line(const char *path, const char *key, char *to, size_t n)
{
    char line[512];
    bool found = false;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    while (!found && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key))) continue;
        const char *rest = line + strlen(key);
        rest += strspn(rest, " \t:");
        snprintf(to, n, "%.*s", (int)strcspn(rest, "\n"), rest);
        found = true;
    }
    fclose(f);
    return found;
}

int64_t sk_proc_number(const char *path, const char *key, int64_t unit)
{
    char text[64], *end = text;
    if (!sk_proc_line(path, key, text, sizeof text)) return INT64_MAX;
    long long x = strtoll(text, &end, 10);
    return end != text && x >= 0 && x < INT64_MAX / unit ? x * unit : INT64_MAX;
}

static int64_t within_group(int64_t bytes)
{
    static const char *const files[] = {"/sys/fs/cgroup/memory.max",
                                        "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (int i = 0; i < 2; i++) {
        int64_t most = sk_proc_number(files[i], "", 1);
        if (most < bytes) bytes = most;
    }
    return bytes;
}

int64_t sk_proc_memory(void)
{
    return within_group(sk_proc_number("/proc/meminfo", "MemTotal", 1024));
}

int64_t sk_proc_available(void)
{
    return within_group(sk_proc_number("/proc/meminfo", "MemAvailable", 1024));
}

int sk_proc_cores(void)
{
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN); /* more than 1024 cores */
}

double sk_proc_age(void)
{
    char line[512];
    struct timespec now;
    unsigned long long ticks = 0;
    if (!sk_proc_line("/proc/self/stat", "", line, sizeof line)) return 0;
    char *field = strrchr(line, ')'); /* the name before it may hold anything */
    for (int i = 2; field && i < 22; i++) field = strchr(field + 1, ' ');
    if (!field || sscanf(field, "%llu", &ticks) != 1) return 0;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec -
           (double)ticks / (double)sysconf(_SC_CLK_TCK);
}
