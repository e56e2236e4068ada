/* heap.c - the memory that the ranks of one host share, and the board.
 *
 * All heaps are one mapping, each on a 2 MiB boundary: a memfd when several
 * ranks will be processes.  A memfd is not bound by the size of /dev/shm and
 * leaves no name behind; the descriptor is closed at once, since ranks inherit
 * the mapping.  The pages are reserved here: later, running out would be a
 * SIGBUS.  Threads of one process, or a single rank, share nothing with another
 * process and get private memory instead, in huge pages, on first touch: a
 * process then starts in milliseconds whatever its plan.
 *
 * Pages of shared memory are small by default (shmem_enabled=never), which costs
 * faults and TLB misses with every peer's heap, so full 2 MiB stretches are made
 * huge with MADV_COLLAPSE (Linux 6.1).  That works without privilege; it takes
 * 0.4 to 2 s per GiB and is given up after COLLAPSE_S, or at the first refusal. */
#include "comm/heap.h"
#include "base/clock.h"
#include "base/proc.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

#define HUGE       ((size_t)2 << 20)
#define COLLAPSE_S 0.5

enum { QUIET, TELLING, TOLD }; /* states of the abort word */

typedef struct board {
    _Alignas(SK_FLAG_ROOM) atomic_int word, stop;
    int code, rank; /* these and the story: valid once the word is TOLD */
    char story[SK_STORY];
} board;

typedef struct rank_part {
    sk_line line;
    sk_bell bell;
} rank_part;

struct sk_heaps {
    sk_arena arena;
    int n, cores;
    void *room; /* the reserved addresses, and the mapping inside them */
    size_t room_bytes;
    char **base;
    int64_t *bytes;
    char *control;
    size_t control_bytes;
    board *board;
    rank_part *parts;
    sk_slot *slots;
    sk_pair *pairs;
    void *extra;
};

static size_t round_up(size_t x, size_t to) { return (x + to - 1) / to * to; }

/* --- reserving --- */

/* The kernel would kill somebody rather than refuse, so look before asking. */
static sk_status check_memory(sk_arena *a, int n, int64_t need)
{
    int64_t has = sk_proc_available();
    if (need <= has) return SK_OK;
    return sk_fail(SK_EIO,
                   "heaps: %d ranks need %s (%lld bytes), this host can give %s; use more hosts, "
                   "a smaller micro-batch, or shard or recompute more",
                   n, sk_bytes(a, need), (long long)need, sk_bytes(a, has));
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
 * 511 more small ones.  Best effort. */
static void make_huge(int fd, char *map, size_t at, size_t bytes, double until)
{
    madvise(map + at, round_up(bytes, HUGE), MADV_HUGEPAGE);
    for (size_t i = 0; fd >= 0 && i + HUGE <= bytes; i += HUGE) {
        if (sk_now() > until || reserve(fd, at + i, 4096)) return;
        if (madvise(map + at + i, HUGE, MADV_COLLAPSE)) return;
    }
}

/* Addresses on a 2 MiB boundary, then the mapping into them. */
static sk_status map_heaps(sk_heaps *h, int fd, size_t total, char **map)
{
    h->room_bytes = total + HUGE;
    h->room =
        mmap(NULL, h->room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (h->room == MAP_FAILED) {
        h->room = NULL;
        return sk_fail(SK_EIO, "heaps: no %zu bytes of addresses: %s", total, strerror(errno));
    }
    *map = (char *)round_up((size_t)h->room, HUGE);
    int flags = MAP_FIXED | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED);
    if (mmap(*map, total, PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED)
        return sk_fail(SK_EIO, "heaps: cannot map %zu bytes for %d ranks: %s", total, h->n,
                       strerror(errno));
    return SK_OK;
}

static sk_status fill_heaps(sk_heaps *h, int fd, size_t total)
{
    char *map = NULL;
    SK_TRY(map_heaps(h, fd, total, &map));
    double until = sk_now() + COLLAPSE_S;
    size_t at = 0;
    for (int r = 0; r < h->n; r++) {
        size_t bytes = (size_t)h->bytes[r];
        h->base[r] = map + at;
        make_huge(fd, map, at, bytes, until);
        int err = bytes ? reserve(fd, at, bytes) : 0;
        if (err)
            return sk_fail(SK_EIO,
                           "heaps: rank %d of %d needs %s (%zu bytes, %zu for all), the kernel "
                           "refused: %s; use more hosts, a smaller micro-batch, or shard more",
                           r, h->n, sk_bytes(&h->arena, h->bytes[r]), bytes, total, strerror(err));
        at += round_up(bytes + 1, HUGE);
    }
    return SK_OK;
}

static sk_status open_heaps(sk_heaps *h, bool shared)
{
    size_t total = 0;
    int64_t need = 0;
    for (int r = 0; r < h->n; r++) {
        if (h->bytes[r] < 0 || h->bytes[r] > INT64_MAX / 4 - need)
            return sk_fail(SK_EBUG, "heaps: rank %d asks for %lld bytes", r,
                           (long long)h->bytes[r]);
        need += h->bytes[r];
        total += round_up((size_t)h->bytes[r] + 1, HUGE);
    }
    SK_TRY(check_memory(&h->arena, h->n, need));
    shared = shared && h->n > 1;
    int fd = shared ? memfd_create("skein", MFD_CLOEXEC) : -1;
    if (shared && (fd < 0 || ftruncate(fd, (off_t)total))) {
        int err = errno;
        if (fd >= 0) close(fd);
        return sk_fail(SK_EIO, "heaps: no memfd of %zu bytes: %s", total, strerror(err));
    }
    sk_status st = fill_heaps(h, fd, total);
    if (fd >= 0) close(fd);
    return st;
}

/* --- the control area --- */

static sk_status open_control(sk_heaps *h, size_t extra_bytes)
{
    size_t n = (size_t)h->n, parts = round_up(sizeof(board), SK_FLAG_ROOM);
    size_t slots = parts + n * sizeof(rank_part);
    size_t pairs = slots + n * SK_COMM_GROUPS * sizeof(sk_slot);
    size_t extra = round_up(pairs + n * n * sizeof(sk_pair), 4096);
    h->control_bytes = extra + extra_bytes;
    h->control = mmap(NULL, h->control_bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (h->control == MAP_FAILED) {
        h->control = NULL;
        return sk_fail(SK_EIO, "heaps: no %zu bytes for the board of %d ranks: %s",
                       h->control_bytes, h->n, strerror(errno));
    }
    h->board = (board *)(void *)h->control;
    h->parts = (rank_part *)(void *)(h->control + parts);
    h->slots = (sk_slot *)(void *)(h->control + slots);
    h->pairs = (sk_pair *)(void *)(h->control + pairs);
    h->extra = h->control + extra;
    for (int r = 0; r < h->n; r++) {
        atomic_store(&h->parts[r].line.step, -1);
        atomic_store(&h->parts[r].line.waits_for, -1);
    }
    return SK_OK;
}

sk_status sk_heaps_open(int n_ranks, const int64_t *bytes, bool shared, size_t extra_bytes,
                        sk_heaps **out)
{
    sk_assert(n_ranks > 0);
    sk_arena a = {0};
    sk_heaps *h = sk_new(&a, sk_heaps);
    h->arena = a;
    h->n = n_ranks;
    h->cores = sk_proc_cores();
    h->base = sk_many(&h->arena, char *, n_ranks);
    h->bytes = sk_many(&h->arena, int64_t, n_ranks);
    memcpy(h->bytes, bytes, (size_t)n_ranks * sizeof *bytes);
    sk_status st = open_control(h, extra_bytes);
    if (!st) st = open_heaps(h, shared);
    if (st) {
        sk_heaps_close(h);
        return sk_trail(st, SK_HERE);
    }
    *out = h;
    return SK_OK;
}

void sk_heaps_close(sk_heaps *h)
{
    if (!h) return;
    if (h->room) munmap(h->room, h->room_bytes);
    if (h->control) munmap(h->control, h->control_bytes);
    sk_arena a = h->arena; /* h itself lies in it */
    sk_arena_end(&a);
}

void *sk_heap_base(const sk_heaps *h, int rank) { return h->base[rank]; }
int64_t sk_heap_bytes(const sk_heaps *h, int rank) { return h->bytes[rank]; }
void *sk_heaps_extra(const sk_heaps *h) { return h->extra; }
sk_line *sk_heaps_line(const sk_heaps *h, int rank) { return &h->parts[rank].line; }
sk_bell *sk_heaps_bell(const sk_heaps *h, int rank) { return &h->parts[rank].bell; }
int sk_heaps_ranks(const sk_heaps *h) { return h->n; }
bool sk_heaps_crowded(const sk_heaps *h) { return h->n > h->cores; }

sk_slot *sk_heaps_slot(const sk_heaps *h, int rank, int group)
{
    return &h->slots[(size_t)rank * SK_COMM_GROUPS + (size_t)group];
}

sk_pair *sk_heaps_pair(const sk_heaps *h, int from, int to)
{
    return &h->pairs[(size_t)from * (size_t)h->n + (size_t)to];
}

/* --- bells --- */

/* Seconds in a futex are cut to what a lost wake-up may cost; none is known to be lost. */
void sk_bell_sleep(sk_bell *b, unsigned seen, double seconds)
{
    struct timespec t = {.tv_nsec = (long)(1e9 * (seconds < 0.02 ? seconds : 0.02))};
    syscall(SYS_futex, &b->ring, FUTEX_WAIT, seen, &t, NULL, 0);
}

void sk_bell_ring(sk_bell *b)
{
    if (!atomic_load(&b->asleep)) return;
    atomic_fetch_add(&b->ring, 1);
    syscall(SYS_futex, &b->ring, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* --- the abort word --- */

/* Only atomics, memcpy and futex calls: a signal handler may call it. */
bool sk_heaps_abort(sk_heaps *h, sk_status code, int rank, const char *story)
{
    board *b = h->board;
    int quiet = QUIET;
    if (!atomic_compare_exchange_strong(&b->word, &quiet, TELLING)) return false;
    size_t n = strlen(story);
    if (n >= sizeof b->story) n = sizeof b->story - 1;
    memcpy(b->story, story, n);
    b->story[n] = 0;
    b->code = (int)code;
    b->rank = rank;
    atomic_store(&b->word, TOLD);
    for (int r = 0; r < h->n; r++) sk_bell_ring(sk_heaps_bell(h, r));
    return true;
}

bool sk_heaps_quiet(const sk_heaps *h)
{
    return atomic_load_explicit(&h->board->word, memory_order_relaxed) == QUIET;
}

/* A rank killed in the middle of its story leaves TELLING for ever: wait for it, but not long. */
bool sk_heaps_aborted(const sk_heaps *h, sk_status *code, int *rank, const char **story)
{
    const board *b = h->board;
    int word = atomic_load(&b->word);
    if (word == QUIET) return false;
    for (double end = sk_now() + 0.1; word != TOLD && sk_now() < end; word = atomic_load(&b->word))
        sched_yield();
    bool told = word == TOLD;
    if (code) *code = told ? (sk_status)b->code : SK_EPEER;
    if (rank) *rank = told ? b->rank : -1;
    if (story) *story = told ? b->story : "a rank died while it was telling why";
    return true;
}

void sk_heaps_ask_stop(sk_heaps *h) { atomic_store(&h->board->stop, 1); }
bool sk_heaps_stop_asked(const sk_heaps *h) { return atomic_load(&h->board->stop) != 0; }
