/* proc.c - what the kernel says about this host, from its text files. */
#include "base/proc.h"
#include "base/clock.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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

bool sk_proc_screen(int fd)
{
    const char *term = getenv("TERM");
    return isatty(fd) && term && *term && strcmp(term, "dumb");
}

bool sk_proc_colour(int fd)
{
    const char *no = getenv("NO_COLOR");
    return sk_proc_screen(fd) && !(no && *no);
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

int64_t sk_proc_space(void)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_AS, &most) || most.rlim_cur >= INT64_MAX) return INT64_MAX;
    int64_t used = sk_proc_number("/proc/self/statm", "", sysconf(_SC_PAGESIZE));
    int64_t all = (int64_t)most.rlim_cur;
    if (used == INT64_MAX) return all; /* no /proc: at most this */
    return used < all ? all - used : 0;
}

int64_t sk_proc_files(int64_t need)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &most)) return INT64_MAX;
    if (most.rlim_cur < (rlim_t)need && most.rlim_cur < most.rlim_max) {
        most.rlim_cur = most.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &most)) getrlimit(RLIMIT_NOFILE, &most);
    }
    return most.rlim_cur < INT64_MAX ? (int64_t)most.rlim_cur : INT64_MAX;
}

int sk_proc_cores(void)
{
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN); /* more than 1024 cores */
}

void sk_proc_streams(void)
{
    for (int fd = 0; fd < 3; fd++) /* open() takes the lowest number that is free */
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0) return;
}

#define BEGAN "SKEIN_BEGAN" /* set for the next image only */

static double began;

void sk_proc_begin(void)
{
    const char *before = getenv(BEGAN);
    began = before ? strtod(before, NULL) : sk_now();
    unsetenv(BEGAN);
}

void sk_proc_restart(char **argv)
{
    char text[32];
    snprintf(text, sizeof text, "%.6f", began);
    setenv(BEGAN, text, 1);
    execv("/proc/self/exe", argv);
    unsetenv(BEGAN);
}

double sk_proc_age(void) { return began > 0 ? sk_now() - began : 0; }
