/* call.h - collectives of a communicator: described in the heap, started, waited for.
 *
 * An operation is a list of segments (sk_seg) that lies in the caller's heap.
 * A segment is a buffer seen as [outer][n][inner] elements; the middle dim is
 * cut over the group of p: member i owns [n*i/p, n*(i+1)/p), its part.  With a grid
 * (`cut`) the n rows are whole reduction blocks of a logical dim, and parts are what
 * sk_tree_part() of base/reduction_blocks.h deals to the members: some may be empty.
 *
 * What a kind takes and gives: coll/kinds.h.
 *
 * Sums are taken in the order of a binary tree over the group's members, ((0 1)
 * (2 3)) ((4 5) 6), in f32 for bf16 and f16.  So every rank gets the same bits, and the
 * algorithms marked SK_ORDER_TREE (coll/algorithm.h) give these bits on one host and on
 * many, whatever the size.
 *
 * sk_comm_start() only announces (split phase); sk_comm_wait() does the work and
 * returns when every member is done with my buffers.  Starts and waits on one
 * group happen in the same order on all its members; at most SK_COMM_FLIGHT are
 * in flight on a group.  What goes over a wire needs progress calls: sk_comm_progress()
 * (comm/comm.h) between two pieces of work, sk_comm_test() to see whether a call is done. */
#ifndef SK_COLL_CALL_H
#define SK_COLL_CALL_H

#include "coll/kinds.h"
#include "comm/comm.h"
/* Rows that are the reduction blocks [from, to) of a logical dim: block c of it is the rows
 * [full*c/cells, full*(c+1)/cells). */
typedef struct sk_grid {
    int64_t full;
    int32_t cells, from, to; /* blocks; cells 0: there are none, the rows are cut evenly */
    int32_t none;            /* no padding: grids are compared as bytes */
} sk_grid;

/* Which dim of an exchange is split before, and which after. */
typedef enum sk_swap { SK_NO_SWAP, SK_SWAP_N_N2, SK_SWAP_N2_N } sk_swap;

/* All but src and dst is the same on all members. */
typedef struct sk_seg {
    int64_t src, dst; /* byte offsets in this rank's heap */
    int64_t outer, n, inner;
    sk_grid cut;     /* of n */
    sk_swap swap;    /* all-to-all only; without it the rest is not looked at */
    int64_t mid, n2; /* between n and inner */
    sk_grid cut2;    /* of n2 */
} sk_seg;

/* One collective of the program, in the heap from before the first step, so that peers can read it.
 */
typedef struct sk_coll_call {
    int64_t id; /* tells calls apart: a hash of what it is; members must agree */
    sk_coll_kind kind;
    sk_reduce reduce;
    sk_dtype type;
    int32_t group, n_segs; /* group: index in the table given to sk_comm_open */
    int32_t algorithm; /* index in sk_coll_parts (coll/algorithm.h); -1: directly in the heaps */
    int32_t root;      /* broadcast, reduce, gather, scatter: a member, not a rank */
    int32_t common;    /* all-gather in place, directly in the heaps: dst is one memory on all
                          members (sk_heap_aliases), nothing is copied, they only meet */
    int64_t workspace,
        workspace_bytes; /* scratch in this rank's heap: sk_coll_workspace() says how much */
    int64_t counts;      /* all-to-all-v: where the 2p counts lie in this rank's heap */
    uint64_t degrees;    /* of the rounds of its algorithm (sk_degree); 0: the usual ones */
    int64_t rows;        /* most rows of `inner` elements that are not zero in what a member gives:
                            the room of sparse streams; 0: any number */
    sk_seg segs[];
} sk_coll_call;

sk_status sk_comm_start(sk_comm *c, const sk_coll_call *call); /* call lies in my heap */
sk_status sk_comm_wait(sk_comm *c, const sk_coll_call *call);
/* Over, if it is executed; in the heaps: all members have come, so wait() begins at once. */
sk_status sk_comm_test(sk_comm *c, const sk_coll_call *call, bool *done);
double
sk_comm_finished_at(const sk_comm *c); /* when what was waited for last was over; 0: in that wait */
/* What a library's own collective is asked for (sk_wire.native).  counts: elements of each member's
 * part; of everything, counts[0] alone, for kinds that are not cut into parts.  src may be dst, or
 * what is said above inside it, where the result is not a part. */
typedef struct sk_native_call {
    sk_coll_kind kind;
    sk_reduce reduce;
    sk_dtype type;
    int root, n;
    const int *ranks; /* of the group, in order */
    const void *src;
    void *dst;
    const int64_t *counts;
} sk_native_call;

#endif
