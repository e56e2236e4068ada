/* folder.c - directories that appear at once, complete and synced. */
#include "train/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

uint64_t sk_folder_nonce(void)
{
    uint64_t x = 0;
    if (getrandom(&x, sizeof x, 0) != sizeof x) { /* only uniqueness matters */
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        x = (uint64_t)t.tv_nsec << 32 ^ (uint64_t)t.tv_sec ^ (uint64_t)getpid() << 16;
    }
    return x;
}

void sk_folder_sweep(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0) close(fd);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) unlinkat(fd, e->d_name, 0);
    if (d) closedir(d);
    unlinkat(parent, name, AT_REMOVEDIR);
}

sk_status sk_folder_write(int dir, const char *name, mode_t mode, const char *text, size_t n)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode), e = 0;
    if (fd < 0) return sk_fail(SK_EIO, "cannot create %s: %s", name, strerror(errno));
    while (n && !e) {
        ssize_t put = write(fd, text, n);
        if (put > 0) text += put, n -= (size_t)put;
        else if (put == 0 || errno != EINTR) e = put ? errno : ENOSPC;
    }
    if (!e && fsync(fd)) e = errno;
    if (close(fd) && !e) e = errno;
    if (!e) return SK_OK;
    unlinkat(dir, name, 0);
    return sk_fail(SK_EIO, "%s: %s", name, strerror(e));
}

sk_status sk_folder_publish(int parent, const char *tmp, const char *final, bool *old)
{
    int failed = renameat2(parent, tmp, parent, final, RENAME_NOREPLACE);
    *old = false;
    if (failed && errno == EEXIST) {
        failed = renameat2(parent, tmp, parent, final, RENAME_EXCHANGE);
        *old = !failed;
    } else if (failed && (errno == EINVAL || errno == ENOSYS)) {
        failed = renameat(parent, tmp, parent, final); /* refuses a directory that holds files */
    }
    if (failed) return sk_fail(SK_EIO, "renaming %s to %s: %s", tmp, final, strerror(errno));
    if (fsync(parent))
        return sk_fail(SK_EIO, "%s: fsync of its parent: %s", final, strerror(errno));
    return SK_OK;
}
