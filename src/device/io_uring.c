/* io_uring.c - the two queues that io_uring shares with the kernel. */
#include "device/io_uring.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct sk_uring {
    int fd;
    struct io_uring_params p;
    char *rings; /* both queues in one mapping */
    size_t rings_bytes;
    struct io_uring_sqe *sqes;
};

static unsigned *at(const sk_uring *r, unsigned offset)
{
    return (unsigned *)(void *)(r->rings + offset);
}

static unsigned load(const unsigned *p)
{
    return atomic_load_explicit((const _Atomic unsigned *)p, memory_order_acquire);
}

static void store(unsigned *p, unsigned x)
{
    atomic_store_explicit((_Atomic unsigned *)p, x, memory_order_release);
}

static void *map(int fd, size_t bytes, uint64_t at)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, (off_t)at);
    return p == MAP_FAILED ? NULL : p;
}

static bool map_all(sk_uring *r)
{
    size_t sq = r->p.sq_off.array + r->p.sq_entries * sizeof(unsigned);
    size_t cq = r->p.cq_off.cqes + r->p.cq_entries * sizeof(struct io_uring_cqe);
    r->rings_bytes = sq > cq ? sq : cq;
    if (!(r->p.features & IORING_FEAT_SINGLE_MMAP)) return false;
    r->rings = map(r->fd, r->rings_bytes, IORING_OFF_SQ_RING);
    r->sqes = map(r->fd, r->p.sq_entries * sizeof *r->sqes, IORING_OFF_SQES);
    return r->rings && r->sqes;
}

sk_uring *sk_uring_open(int most)
{
    sk_uring *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->fd = (int)syscall(SYS_io_uring_setup, (unsigned)most, &r->p);
    if (r->fd >= 0 && map_all(r)) return r;
    sk_uring_close(r);
    return NULL;
}

void sk_uring_close(sk_uring *r)
{
    if (!r) return;
    if (r->sqes) munmap(r->sqes, r->p.sq_entries * sizeof *r->sqes);
    if (r->rings) munmap(r->rings, r->rings_bytes);
    if (r->fd >= 0) close(r->fd);
    free(r);
}

static long enter(const sk_uring *r, unsigned submit, unsigned wait)
{
    long n;
    do
        n = syscall(SYS_io_uring_enter, r->fd, submit, wait, wait ? IORING_ENTER_GETEVENTS : 0,
                    NULL, 0);
    while (n < 0 && errno == EINTR);
    return n;
}

bool sk_uring_begin(sk_uring *r, int fd, bool write, void *data, unsigned bytes, int64_t where,
                    int tag)
{
    unsigned tail = *at(r, r->p.sq_off.tail), mask = *at(r, r->p.sq_off.ring_mask);
    unsigned i = tail & mask;
    r->sqes[i] = (struct io_uring_sqe){.opcode = write ? IORING_OP_WRITE : IORING_OP_READ,
                                       .fd = fd,
                                       .addr = (uint64_t)(uintptr_t)data,
                                       .len = bytes,
                                       .off = (uint64_t)where,
                                       .user_data = (unsigned)tag};
    at(r, r->p.sq_off.array)[i] = i;
    store(at(r, r->p.sq_off.tail), tail + 1);
    return enter(r, 1, 0) == 1;
}

int sk_uring_end(sk_uring *r, int *done)
{
    unsigned *head = at(r, r->p.cq_off.head), mask = *at(r, r->p.cq_off.ring_mask);
    while (*head == load(at(r, r->p.cq_off.tail)))
        if (enter(r, 0, 1) < 0) return -1;
    const struct io_uring_cqe *all = (const void *)(r->rings + r->p.cq_off.cqes);
    const struct io_uring_cqe *c = &all[*head & mask];
    int tag = (int)c->user_data;
    *done = c->res;
    store(head, *head + 1);
    return tag;
}
