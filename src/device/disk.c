/* disk.c - a file as a memory. */
#include "device/disk.h"
#include "base/strings.h"
#include "device/io_uring.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PAGE = 4096 };

struct sk_disk {
    int fd;
    int64_t bytes;
    char *bounce, *map;
    bool direct;
    sk_uring *ring;
    char *dir;
};

static int64_t pages(int64_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static sk_status failed(const sk_disk *d, const char *what, int error)
{
    return sk_fail(SK_EIO, "the offload file in '%s': cannot %s: %s", d->dir, what,
                   strerror(error));
}

/* --- opening --- */

static int nameless(const char *dir, int more)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | more, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/.offload-XXXXXX", dir) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC | more);
    if (fd >= 0) unlink(path);
    return fd;
}

static sk_status open_file(sk_disk *d)
{
    d->fd = nameless(d->dir, O_DIRECT);
    d->direct = d->fd >= 0;
    if (d->fd < 0 && errno == EINVAL) d->fd = nameless(d->dir, 0);
    return d->fd >= 0 ? SK_OK : failed(d, "open a file there", errno);
}

static int64_t free_bytes(const sk_disk *d)
{
    struct statvfs v = {0};
    return statvfs(d->dir, &v) ? INT64_MAX : (int64_t)(v.f_bavail * v.f_frsize);
}

static sk_status no_space(const sk_disk *d, int error)
{
    sk_arena a = {0};
    if (error != ENOSPC && error != EDQUOT) return failed(d, "get its bytes", error);
    sk_status st =
        sk_fail(SK_EIO,
                "the offload file needs %s a rank in '%s', where %s are free; make space, "
                "name another folder (train.scratch) or offload less",
                sk_bytes(&a, d->bytes), d->dir, sk_bytes(&a, free_bytes(d)));
    sk_arena_end(&a);
    return st;
}

/* A file over the limit would end the process by a signal, without a word. */
static sk_status allowed(const sk_disk *d)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_FSIZE, &most) || most.rlim_cur == RLIM_INFINITY) return SK_OK;
    if ((uint64_t)d->bytes <= (uint64_t)most.rlim_cur) return SK_OK;
    return sk_fail(SK_EIO,
                   "the offload file needs %lld bytes a rank, this process may write %llu; "
                   "raise the limit (ulimit -f) or offload less",
                   (long long)d->bytes, (unsigned long long)most.rlim_cur);
}

static sk_status open_all(sk_disk *d)
{
    SK_TRY(open_file(d));
    SK_TRY(allowed(d));
    if (d->bytes > free_bytes(d)) return no_space(d, ENOSPC); /* others may need what there is */
    int error = posix_fallocate(d->fd, 0, d->bytes);
    if (error == EINVAL ||
        error == EOPNOTSUPP) /* it can promise nothing: a full disk is told late */
        error = ftruncate(d->fd, d->bytes) ? errno : 0;
    if (error) return no_space(d, error);
    d->map = mmap(NULL, (size_t)d->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, d->fd, 0);
    if (d->map == MAP_FAILED) {
        d->map = NULL;
        return failed(d, "map it", errno);
    }
    const char *how = getenv("SKEIN_DISK");
    if (!how || strcmp(how, "plain") != 0) d->ring = sk_uring_open(2 * SK_DISK_SLOTS);
    return SK_OK;
}

sk_status sk_disk_open(const char *dir, int64_t bytes, void *bounce, sk_disk **out)
{
    sk_disk *d = calloc(1, sizeof *d);
    if (d) d->dir = strdup(dir);
    if (!d || !d->dir) {
        free(d);
        return sk_fail(SK_EIO, "no memory for an offload file");
    }
    d->fd = -1;
    d->bytes = pages(bytes);
    d->bounce = bounce;
    sk_status st = open_all(d);
    if (st) {
        sk_disk_close(d);
        return sk_trail(st, SK_HERE);
    }
    *out = d;
    return SK_OK;
}

void sk_disk_close(sk_disk *d)
{
    if (!d) return;
    sk_uring_close(d->ring);
    if (d->map) munmap(d->map, (size_t)d->bytes);
    if (d->fd >= 0) close(d->fd);
    free(d->dir);
    free(d);
}

void *sk_disk_map(const sk_disk *d) { return d->map; }

const char *sk_disk_how(const sk_disk *d)
{
    return d->ring     ? d->direct ? "io_uring, past the page cache" : "io_uring"
           : d->direct ? "reads and writes, past the page cache"
                       : "reads and writes";
}

/* Nothing of the mapping stays in the page cache, where direct reads would not look. */
sk_status sk_disk_settle(sk_disk *d)
{
    if (!d->direct) return SK_OK;
    if (msync(d->map, (size_t)d->bytes, MS_SYNC)) return failed(d, "write it", errno);
    madvise(d->map, (size_t)d->bytes, MADV_DONTNEED);
    int error = posix_fadvise(d->fd, 0, d->bytes, POSIX_FADV_DONTNEED);
    return error ? failed(d, "write it", error) : SK_OK;
}

/* --- copies --- */

typedef struct job {
    sk_disk *d;
    bool write;
    char *data;
    int64_t at, bytes;
} job;

static char *slot(const job *j, int64_t i)
{
    return j->d->bounce + i % SK_DISK_SLOTS * SK_DISK_SLOT;
}

static int64_t part(const job *j, int64_t i)
{
    int64_t left = j->bytes - i * SK_DISK_SLOT;
    return left < SK_DISK_SLOT ? left : SK_DISK_SLOT;
}

static void fill(const job *j, int64_t i)
{
    int64_t n = part(j, i);
    if (!j->write) return;
    memcpy(slot(j, i), j->data + i * SK_DISK_SLOT, (size_t)n);
    memset(slot(j, i) + n, 0, (size_t)(pages(n) - n));
}

static void empty(const job *j, int64_t i)
{
    if (!j->write) memcpy(j->data + i * SK_DISK_SLOT, slot(j, i), (size_t)part(j, i));
}

/* The bytes of one slot from `from` on, however many calls it takes. */
static sk_status plainly(const job *j, int64_t i, int64_t from)
{
    int64_t n = pages(part(j, i));
    while (from < n) {
        off_t at = (off_t)(j->at + i * SK_DISK_SLOT + from);
        char *p = slot(j, i) + from;
        ssize_t did = j->write ? pwrite(j->d->fd, p, (size_t)(n - from), at)
                               : pread(j->d->fd, p, (size_t)(n - from), at);
        if (did < 0 && errno == EINTR) continue;
        if (did <= 0) return failed(j->d, j->write ? "write it" : "read it", did ? errno : EIO);
        from += did;
    }
    return SK_OK;
}

static sk_status one_by_one(const job *j)
{
    for (int64_t i = 0; i * SK_DISK_SLOT < j->bytes; i++) {
        fill(j, i);
        SK_TRY(plainly(j, i, 0));
        empty(j, i);
    }
    return SK_OK;
}

/* What has been begun must end, whatever happens. */
static sk_status end_one(const job *j, sk_status st)
{
    int done = 0, i = sk_uring_end(j->d->ring, &done);
    if (i < 0) return failed(j->d, "wait for io_uring", errno);
    if (st) return st;
    if (done < 0) done = 0; /* tried anew without the ring: a real fault comes again */
    SK_TRY(plainly(j, i, done / PAGE * PAGE)); /* usually nothing is left */
    empty(j, i);
    return SK_OK;
}

/* A slot is free again when the copy that had it has ended, in any order: so all of one round end
 * before a slot is taken twice. */
static sk_status by_ring(const job *j)
{
    int64_t n = (j->bytes + SK_DISK_SLOT - 1) / SK_DISK_SLOT;
    sk_status st = SK_OK;
    for (int64_t i = 0; i < n && !st; i += SK_DISK_SLOTS) {
        int under_way = 0;
        for (int64_t k = i; k < n && k < i + SK_DISK_SLOTS && !st; k++) {
            fill(j, k);
            if (sk_uring_begin(j->d->ring, j->d->fd, j->write, slot(j, k),
                               (unsigned)pages(part(j, k)), j->at + k * SK_DISK_SLOT, (int)k))
                under_way++;
            else st = failed(j->d, "begin with io_uring", errno);
        }
        while (under_way-- > 0) st = end_one(j, st);
    }
    return st;
}

static sk_status copy(sk_disk *d, bool write, char *data, int64_t at, int64_t bytes)
{
    job j = {d, write, data, at, bytes};
    sk_assert(at % PAGE == 0 && at + pages(bytes) <= d->bytes);
    return d->ring ? by_ring(&j) : one_by_one(&j);
}

sk_status sk_disk_read(sk_disk *d, void *to, int64_t at, int64_t bytes)
{
    return copy(d, false, to, at, bytes);
}

sk_status sk_disk_write(sk_disk *d, int64_t at, const void *from, int64_t bytes)
{
    return copy(d, true, (char *)(uintptr_t)from, at, bytes);
}
