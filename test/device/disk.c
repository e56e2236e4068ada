/* disk.c - a file as a memory: bytes come back as they were written, by io_uring and without
 * it, of any size; what is written through the map is read by copies, and the other way round. */
#include "device/disk.h"
#include "base/rng.h"
#include "lib/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 24 << 20 };

static char *bounce, *data, *back;

static void fill(char *to, int64_t n, uint64_t key)
{
    for (int64_t i = 0; i < n; i++) to[i] = (char)sk_rng(key, 0, (uint64_t)(i / 8)).a;
}

static void sizes(sk_disk *d)
{
    static const int64_t n[] = {1,
                                63,
                                PAGE,
                                PAGE + 1,
                                300000,
                                512 << 10,
                                (512 << 10) + 1,
                                SK_DISK_BOUNCE,
                                SK_DISK_BOUNCE + 777,
                                11 << 20};
    int64_t at = 0;
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        if (at + n[i] > BYTES - PAGE) at = 0;
        fill(data, n[i], i);
        memset(back, 0, (size_t)n[i] + PAGE);
        check(!sk_disk_write(d, at, data, n[i]));
        check(!sk_disk_read(d, back, at, n[i]));
        check(!memcmp(data, back, (size_t)n[i]));
        check(back[n[i]] == 0); /* not one byte more */
        check(!memcmp((char *)sk_disk_map(d) + at, data, (size_t)n[i]));
        at += (n[i] + PAGE - 1) / PAGE * PAGE;
    }
}

/* By turns through the map and by copies, over the same pages. */
static void both_ways(sk_disk *d)
{
    char *map = sk_disk_map(d);
    for (uint64_t k = 0; k < 20; k++) {
        int64_t at = (int64_t)(k % 5) * 3 * PAGE, n = 2 * PAGE + 100;
        fill(data, n, 100 + k);
        if (k & 1) {
            memcpy(map + at, data, (size_t)n);
            check(!sk_disk_settle(d));
            check(!sk_disk_read(d, back, at, n));
        } else {
            check(!sk_disk_write(d, at, data, n));
            memcpy(back, map + at, (size_t)n);
        }
        check(!memcmp(back, data, (size_t)n));
    }
}

static void one(const char *dir)
{
    sk_disk *d = NULL;
    check(!sk_disk_open(dir, BYTES, bounce, &d));
    if (!d) return;
    printf("%s: %s\n", dir, sk_disk_how(d));
    bool zero = true;
    check(!sk_disk_read(d, back, 0, BYTES));
    for (int64_t i = 0; i < BYTES; i++) zero &= !back[i];
    check(zero);
    sizes(d);
    both_ways(d);
    sk_disk_close(d);
}

static void error_messages(const char *dir)
{
    sk_disk *d = NULL;
    struct statvfs v = {0};
    fails(sk_disk_open("/nowhere/at/all", PAGE, bounce, &d), SK_EIO, "cannot open a file there");
    statvfs(dir, &v);
    int64_t free_bytes = (int64_t)(v.f_bavail * v.f_frsize);
    if (free_bytes < (int64_t)4 << 40) /* of larger disks a file this large may be had, or not */
        fails(sk_disk_open(dir, free_bytes + free_bytes / 4 + (1 << 30), bounce, &d), SK_EIO,
              "make space");
    check(!d);
}

/* A folder whose name is long is itself, and not one whose name is the first part of it. */
static void long_name(const char *dir)
{
    char path[600];
    sk_disk *d = NULL;
    snprintf(path, sizeof path, "%s/%0200d-%d", dir, 0, (int)getpid());
    size_t half = strlen(path);
    check(!mkdir(path, 0700));
    snprintf(path + half, sizeof path - half, "/%0200d", 1);
    check(!mkdir(path, 0700));
    check(!sk_disk_open(path, PAGE, bounce, &d));
    sk_disk_close(d);
    rmdir(path);
    path[half] = 0;
    rmdir(path);
}

/* In a child, which a signal would end. */
static void limited(const char *dir)
{
    int how = 0;
    pid_t child = fork();
    if (!child) {
        sk_disk *d = NULL;
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){PAGE, PAGE});
        sk_status st = sk_disk_open(dir, BYTES, bounce, &d);
        _exit(st == SK_EIO && strstr(sk_error(), "ulimit -f") ? 0 : 1);
    }
    check(child > 0 && waitpid(child, &how, 0) == child);
    check(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

int main(void)
{
    const char *dir = getenv("TMPDIR");
    if (!dir || !*dir) dir = "/tmp";
    bounce = aligned_alloc(PAGE, SK_DISK_BOUNCE);
    data = malloc(BYTES);
    back = malloc(BYTES + PAGE);
    one(dir);
    setenv("SKEIN_DISK", "plain", 1);
    one(dir);
    if (!access("/dev/shm", W_OK)) one("/dev/shm");
    unsetenv("SKEIN_DISK");
    if (!access("/dev/shm", W_OK)) one("/dev/shm");
    error_messages(dir);
    long_name(dir);
    limited(dir);
    free(bounce);
    free(data);
    free(back);
    printf("disk: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
