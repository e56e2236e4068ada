/* heap.c - the memory that the ranks of one host share.
 *
 * All heaps are one mapping, each on a 2 MiB boundary: a memfd when several
 * ranks will be processes.  A memfd is not bound by the size of /dev/shm and
 * leaves no name behind; ranks that are forked inherit the mapping, others get
 * the descriptor from the first of them and map the same bytes (comm/boot.c).  The pages are
 * reserved here: later, running out would be a SIGBUS.  Threads of one process, or a single rank,
 * share nothing with another process and get private memory instead, in huge pages, on first touch:
 * a process then starts in milliseconds whatever its plan.
 *
 * Pages of shared memory are small by default (shmem_enabled=never), which costs
 * faults and TLB misses with every peer's heap, so full 2 MiB stretches are made
 * huge with MADV_COLLAPSE (Linux 6.1).  That works without privilege; it takes
 * 0.4 to 2 s per GiB and is given up after COLLAPSE_S, or at the first refusal. */
#include "comm/heap.h"
#include "base/clock.h"
#include "base/proc.h"
#include "base/strings.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

#define HUGE       ((size_t)2 << 20)
#define COLLAPSE_S 0.5

static size_t round_up(size_t x, size_t to) { return (x + to - 1) / to * to; }

/* --- reserving --- */

/* The kernel would kill somebody rather than refuse, so look before asking. */
static sk_status check_memory(sk_arena *a, int n, int64_t need)
{
    int64_t has = sk_proc_available();
    if (need <= has) return SK_OK;
    return sk_fail(
        SK_EIO,
        "heaps: %d rank%s need%s %s (%lld bytes), this host can give %s; use more hosts, "
        "a smaller micro-batch, or shard or recompute more",
        n, sk_plural(n), n == 1 ? "s" : "", sk_bytes(a, need), (long long)need, sk_bytes(a, has));
}

/* Make bytes from `at` really there.  0, or errno.  fd < 0: private memory comes when touched. */
static int reserve(int fd, size_t at, size_t bytes)
{
    int rc = 0;
    if (fd < 0) return 0;
    do rc = fallocate(fd, 0, (off_t)at, (off_t)bytes);
    while (rc && errno == EINTR);
    return rc ? errno : 0;
}

/* One small page in each stretch, then collapse: that gives a zeroed huge page at once, without
 * 511 more small ones.  What is skipped belongs to another heap.  Best effort. */
static void make_huge(int fd, char *map, size_t at, size_t skip, size_t bytes, double until)
{
    bool small =
        bytes <= HUGE / 2; /* clearing the rest of the page would take longer than it saves */
    madvise(map + at, round_up(bytes, HUGE), small ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    for (size_t i = round_up(skip, HUGE); fd >= 0 && i + HUGE <= bytes; i += HUGE) {
        if (sk_now() > until || reserve(fd, at + i, 4096)) return;
        if (madvise(map + at + i, HUGE, MADV_COLLAPSE)) return;
    }
}

/* Addresses on a 2 MiB boundary, then the mapping into them. */
static sk_status map_heaps(sk_heaps *h, int fd, size_t total, char **map)
{
    h->reserved_bytes = total + HUGE;
    h->reserved = mmap(NULL, h->reserved_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (h->reserved == MAP_FAILED) {
        h->reserved = NULL;
        return sk_fail(SK_EIO, "heaps: no %zu bytes of addresses: %s", total, strerror(errno));
    }
    *map = (char *)round_up((size_t)h->reserved, HUGE);
    int flags = MAP_FIXED | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED);
    if (mmap(*map, total, PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED)
        return sk_fail(SK_EIO, "heaps: cannot map %zu bytes for %d ranks: %s", total, h->n,
                       strerror(errno));
    return SK_OK;
}

/* Bytes of the heap of rank r on this host. */
static size_t here(const sk_heaps_ask *q, int r)
{
    return q->here && !q->here[r] ? 0 : (size_t)q->bytes[r];
}

/* Bytes that the heap of rank r takes in the mapping.  A plan of no bytes has a place too. */
static size_t stride(const sk_heaps_ask *q, int r)
{
    return q->here && !q->here[r] ? 0 : round_up((size_t)q->bytes[r] + 1, HUGE);
}

static void place(sk_heaps *h, const sk_heaps_ask *q, char *map)
{
    for (int r = 0; r < h->n; r++) {
        if (stride(q, r)) h->base[r] = map;
        map += stride(q, r);
    }
}

/* The first bytes of a heap that need no memory of its own here. */
static size_t elsewhere(const sk_heaps_ask *q, int r)
{
    size_t alias = sk_heap_alias_bytes(q, r),
           ghost = q->aliases.ghost ? (size_t)q->aliases.ghost[r] : 0;
    return !here(q, r) ? 0 : alias > ghost ? alias : ghost;
}

static sk_status fill(sk_heaps *h, const sk_heaps_ask *q, int fd, char *map, size_t total)
{
    double until = sk_now() + COLLAPSE_S;
    size_t at = 0;
    for (int r = 0; r < h->n; r++) {
        size_t bytes = here(q, r), skip = elsewhere(q, r);
        if (bytes) make_huge(fd, map, at, skip, bytes, until);
        int err = bytes > skip ? reserve(fd, at + skip, bytes - skip) : 0;
        if (err)
            return sk_fail(SK_EIO,
                           "heaps: rank %d of %d needs %s (%zu bytes, %zu for all), the kernel "
                           "refused: %s; use more hosts, a smaller micro-batch, or shard more",
                           r, h->n, sk_bytes(&h->arena, (int64_t)(bytes - skip)), bytes - skip,
                           total, sk_control_block_refusal(err));
        at += stride(q, r);
    }
    return SK_OK;
}

/* What the heaps of this host take: in the plan, in the mapping, and is there an alias? */
static sk_status measure(sk_heaps *h, const sk_heaps_ask *q, int64_t *need, size_t *total,
                         bool *aliased)
{
    *need = 0;
    *total = 0;
    *aliased = false;
    for (int r = 0; r < h->n; r++) {
        if (q->bytes[r] < 0 || q->bytes[r] > INT64_MAX / 4 - *need)
            return sk_fail(SK_EBUG, "heaps: rank %d asks for %lld bytes", r,
                           (long long)q->bytes[r]);
        *need += (int64_t)here(q, r) - (int64_t)elsewhere(q, r);
        *total += stride(q, r);
        *aliased |= sk_heap_aliased(q, r);
        h->n_here += stride(q, r) > 0;
    }
    return sk_heap_aliases_check(q);
}

static sk_status new_heaps(sk_heaps *h, const sk_heaps_ask *q, int *fd)
{
    size_t total = 0;
    int64_t need = 0;
    char *map = NULL;
    bool aliased = false;
    SK_TRY(measure(h, q, &need, &total, &aliased));
    SK_TRY(check_memory(&h->arena, h->n_here, need));
    bool shared = (q->shared && h->n_here > 1) || aliased; /* only a file can be mapped twice */
    *fd = shared ? memfd_create("skein", MFD_CLOEXEC) : -1;
    if (shared && (*fd < 0 || ftruncate(*fd, (off_t)total)))
        return sk_fail(SK_EIO, "heaps: no memfd of %zu bytes: %s", total,
                       sk_control_block_refusal(errno));
    SK_TRY(map_heaps(h, *fd, total, &map));
    place(h, q, map);
    SK_TRY(sk_heap_aliases_map(h, q, *fd, map));
    return fill(h, q, *fd, map, total);
}

static sk_status old_heaps(sk_heaps *h, const sk_heaps_ask *q, int fd)
{
    size_t total = 0;
    int64_t need = 0;
    char *map = NULL;
    bool aliased = false;
    struct stat st = {0};
    SK_TRY(measure(h, q, &need, &total, &aliased));
    if (fstat(fd, &st) || (size_t)st.st_size != total)
        return sk_fail(SK_EBUG, "heaps: %lld bytes were handed over, %zu are needed",
                       (long long)st.st_size, total);
    SK_TRY(map_heaps(h, fd, total, &map));
    place(h, q, map);
    SK_TRY(sk_heap_aliases_map(h, q, fd, map));
    madvise(map, total, MADV_HUGEPAGE);
    return SK_OK;
}

/* --- opening --- */

static sk_heaps *blank(const sk_heaps_ask *q)
{
    sk_assert(q->n_ranks > 0);
    sk_arena a = {0};
    sk_heaps *h = sk_new(&a, sk_heaps);
    h->arena = a;
    h->fd = -1;
    h->n = q->n_ranks;
    h->cores = q->cores > 0 ? q->cores : sk_proc_cores();
    h->base = sk_many(&h->arena, char *, h->n);
    h->bytes = sk_many(&h->arena, int64_t, h->n);
    h->alias_of = sk_many(&h->arena, int, h->n);
    h->alias_bytes = sk_many(&h->arena, int64_t, h->n);
    memcpy(h->bytes, q->bytes, (size_t)h->n * sizeof *h->bytes);
    return h;
}

/* *out only if all went well. */
static sk_status settle(sk_heaps *h, sk_status st, sk_heaps **out)
{
    if (!st) *out = h;
    else sk_heaps_close(h);
    return st;
}

sk_status sk_heaps_make(const sk_heaps_ask *q, int *heap_fd, sk_heaps **out)
{
    sk_heaps *h = blank(q);
    *heap_fd = -1;
    sk_status st = sk_control_block_make(h, q->extra_bytes);
    if (!st) st = new_heaps(h, q, heap_fd);
    if (st && *heap_fd >= 0) {
        close(*heap_fd);
        *heap_fd = -1;
    }
    SK_TRY(settle(h, st, out));
    return SK_OK;
}

sk_status sk_heaps_map(const sk_heaps_ask *q, int control_block_fd, int heap_fd, sk_heaps **out)
{
    sk_heaps *h = blank(q);
    sk_status st = sk_control_block_map(h, control_block_fd, true);
    if (!st) st = old_heaps(h, q, heap_fd);
    SK_TRY(settle(h, st, out));
    return SK_OK;
}

sk_status sk_heaps_open(int n_ranks, const int64_t *bytes, bool shared, size_t extra_bytes,
                        sk_heaps **out)
{
    return sk_heaps_open_aliased(n_ranks, bytes, (sk_heap_aliases){0}, shared, extra_bytes, out);
}

sk_status sk_heaps_open_aliased(int n_ranks, const int64_t *bytes, sk_heap_aliases aliases,
                                bool shared, size_t extra_bytes, sk_heaps **out)
{
    sk_heaps_ask q = {.n_ranks = n_ranks,
                      .bytes = bytes,
                      .shared = shared,
                      .aliases = aliases,
                      .extra_bytes = extra_bytes};
    int fd = -1;
    SK_TRY(sk_heaps_make(&q, &fd, out));
    if (fd >= 0) close(fd);
    return SK_OK;
}

void sk_heaps_close(sk_heaps *h)
{
    if (!h) return;
    if (h->reserved) munmap(h->reserved, h->reserved_bytes);
    if (h->head) munmap(h->head, h->control_block_bytes);
    if (h->fd >= 0) close(h->fd);
    sk_arena a = h->arena; /* h itself lies in it */
    sk_arena_end(&a);
}

void *sk_heap_base(const sk_heaps *h, int rank) { return h->base[rank]; }
char *const *sk_heap_bases(const sk_heaps *h) { return h->base; }
int64_t sk_heap_bytes(const sk_heaps *h, int rank) { return h->bytes[rank]; }
int sk_heaps_ranks(const sk_heaps *h) { return h->n; }
bool sk_heaps_crowded(const sk_heaps *h) { return h->n_here > h->cores; }
