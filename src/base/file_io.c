/* file_io.c - whole files in one call, and writing that survives a crash. */
#include "base/file_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

sk_status sk_file_open(const char *path, int *fd, int64_t *size)
{
    struct stat s;
    int f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f < 0) return sk_fail(SK_EIO, "%s: %s", path, strerror(errno));
    if (fstat(f, &s)) {
        int e = errno;
        close(f);
        return sk_fail(SK_EIO, "%s: %s", path, strerror(e));
    }
    if (!S_ISREG(s.st_mode)) {
        close(f);
        return sk_fail(SK_EIO, "%s is %s, not a plain file", path,
                       S_ISDIR(s.st_mode) ? "a directory" : "a special file");
    }
    *fd = f;
    *size = s.st_size;
    return SK_OK;
}

sk_status sk_file_pread(int fd, const char *path, void *to, size_t n, int64_t at)
{
    char *p = to;
    while (n) {
        ssize_t got = pread(fd, p, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return sk_fail(SK_EIO, "%s: %s", path, strerror(errno));
        if (!got)
            return sk_fail(SK_EDATA, "%s ends at byte %lld, %zu bytes too early", path,
                           (long long)at, n);
        p += got, at += got, n -= (size_t)got;
    }
    return SK_OK;
}

sk_status sk_file_read(sk_arena *a, const char *path, sk_text *out)
{
    int fd = -1;
    int64_t size = 0;
    SK_TRY(sk_file_open(path, &fd, &size));
    char *s = sk_alloc(a, (size_t)size + 1);
    sk_status status = sk_file_pread(fd, path, s, (size_t)size, 0);
    close(fd);
    if (status) return sk_trail(status, SK_HERE);
    *out = (sk_text){.s = s, .n = (size_t)size};
    return SK_OK;
}

static sk_status write_all(int fd, const char *path, const char *p, size_t n)
{
    while (n) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return sk_fail(SK_EIO, "%s: %s", path, strerror(errno));
        p += put, n -= (size_t)put;
    }
    if (fsync(fd)) return sk_fail(SK_EIO, "%s: fsync: %s", path, strerror(errno));
    return SK_OK;
}

sk_status sk_file_write_new(const char *path, const void *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return sk_fail(SK_EIO, "%s: %s", path, strerror(errno));
    sk_status status = write_all(fd, path, data, n);
    if (close(fd) && !status) status = sk_fail(SK_EIO, "%s: %s", path, strerror(errno));
    if (status) unlink(path);
    return status;
}

sk_status sk_file_replace(const char *path, const void *data, size_t n)
{
    char tmp[PATH_MAX], dir[PATH_MAX];
    int len = snprintf(tmp, sizeof tmp, "%s.tmp-%ld", path, (long)getpid());
    if (len < 0 || (size_t)len >= sizeof tmp)
        return sk_fail(SK_EIO, "%.80s...: name too long", path);
    unlink(tmp);
    SK_TRY(sk_file_write_new(tmp, data, n));
    if (rename(tmp, path)) {
        int e = errno;
        unlink(tmp);
        return sk_fail(SK_EIO, "%s: %s", path, strerror(e));
    }
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (slash) *slash = 0;
    SK_TRY(sk_dir_sync(slash ? (slash == dir ? "/" : dir) : "."));
    return SK_OK;
}

bool sk_file_is_temporary(const char *entry, const char *name)
{
    size_t n = strlen(name);
    if (strncmp(entry, name, n) || strncmp(entry + n, ".tmp-", 5)) return false;
    const char *pid = entry + n + 5;
    return *pid && !pid[strspn(pid, "0123456789")];
}

void sk_file_remove_temporaries(const char *dir, const char *const *names)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        for (int i = 0; names[i]; i++)
            if (sk_file_is_temporary(e->d_name, names[i])) unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
}

sk_status sk_file_own(const char *path, int more, int *fd)
{
    struct stat s;
    int how = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | more;
    int f = open(path, how & ~O_TRUNC, 0666), e = errno;
    if (f < 0 && e == ELOOP)
        return sk_fail(SK_ECREATE,
                       "%s is a symbolic link, and what it leads to would be written over; remove "
                       "it, or choose another directory",
                       path);
    if (f < 0 && e != ENXIO) return sk_fail(SK_ECREATE, "%s: %s", path, strerror(e));
    if (f < 0 || fstat(f, &s) || !S_ISREG(s.st_mode)) { /* ENXIO: a FIFO without a reader */
        if (f >= 0) close(f);
        return sk_fail(SK_ECREATE, "%s is there and is not a plain file", path);
    }
    if ((more & O_TRUNC) && ftruncate(f, 0)) {
        e = errno;
        close(f);
        return sk_fail(SK_EIO, "%s: %s", path, strerror(e));
    }
    *fd = f;
    return SK_OK;
}

sk_status sk_dir_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return sk_fail(SK_EIO, "%s: %s", path, strerror(errno));
    int bad = fsync(fd), e = errno;
    close(fd);
    return bad ? sk_fail(SK_EIO, "%s: fsync: %s", path, strerror(e)) : SK_OK;
}

sk_status sk_dir_make(const char *path)
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    if (n >= sizeof part) return sk_fail(SK_EIO, "%.80s...: name too long", path);
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] && part[i] != '/') continue;
        char keep = part[i];
        part[i] = 0;
        if (mkdir(part, 0777) && errno != EEXIST)
            return sk_fail(SK_ECREATE, "cannot make the folder %s: %s", part, strerror(errno));
        part[i] = keep;
    }
    if (!sk_is_dir(path)) return sk_fail(SK_ECREATE, "%s is there and is not a folder", path);
    return SK_OK;
}

static bool has_type(const char *path, mode_t type)
{
    struct stat s;
    return !stat(path, &s) && (s.st_mode & S_IFMT) == type;
}

bool sk_is_there(const char *path)
{
    struct stat s;
    return !lstat(path, &s);
}

bool sk_is_file(const char *path) { return has_type(path, S_IFREG); }
bool sk_is_dir(const char *path) { return has_type(path, S_IFDIR); }
