/* inside.h - one rank's end of the communication; private to comm/. */
#ifndef SK_COMM_INSIDE_H
#define SK_COMM_INSIDE_H

#include "comm/heap.h"

enum { SK_ONE_SHOT = 1024 }; /* elements of an all-reduce below which everybody sums for itself */

typedef struct sk_member { /* a group, and my counts in it */
    sk_group group;
    uint64_t hash, posted, waited;
} sk_member;

struct sk_comm {
    sk_arena arena;
    sk_heaps *heaps;
    int rank, n_ranks, n_groups;
    bool crowded; /* more ranks than cores: do not spin */
    double timeout_s;
    sk_line *line;
    sk_member *groups;
    char *base;
    int64_t bytes;
    const sk_coll_call **calls; /* per member, of the collective at hand */
    const void **src;
    void **dst;
    _Alignas(64) char scratch[SK_ONE_SHOT * 8];
};

/* --- wait.c --- */

/* After sk_fail: put my story on the board, or drop it if somebody else was first. */
sk_status sk_comm_tell(sk_comm *c, sk_status code);
/* Somebody else told the story: SK_EPEER without words. */
sk_status sk_comm_hushed(void);
/* Until *flag, raised by the rank `peer`, is at least `least`. */
sk_status sk_await(sk_comm *c, const atomic_ullong *flag, uint64_t least, int peer);

static inline bool sk_reached(const atomic_ullong *flag, uint64_t least)
{
    return atomic_load_explicit(flag, memory_order_acquire) >= least;
}

/* A count that I alone raise. */
static inline uint64_t sk_own_count(const atomic_ullong *flag)
{
    return atomic_load_explicit(flag, memory_order_relaxed);
}

/* --- shapes --- */

static inline int64_t sk_share(int64_t n, int i, int p) { return n * i / p; }
static inline int64_t sk_seg_count(const sk_seg *s) { return s->outer * s->n * s->inner; }
int64_t sk_call_count(const sk_coll_call *call); /* elements of all segments */
/* Is [at, at + count * size) inside my heap? */
bool sk_inside(const sk_comm *c, int64_t at, int64_t count, size_t size);

/* --- shm.c: the work of one member, directly in the heaps; all have posted --- */

void sk_shm_work(sk_comm *c, const sk_group *g, const sk_coll_call *call);
void sk_shm_end(sk_comm *c, const sk_coll_call *call); /* after all are done */

#endif
