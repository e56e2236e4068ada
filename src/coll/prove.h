/* prove.h - step lists walked without data: are they right, and what do they cost?
 *
 * The lists of all members are walked together.  A cell holds a set of members'
 * contributions to one chunk and the shape of the sum that made it.  Proved are:
 * every send meets its receive, nobody waits for ever, nothing that a round sends
 * is written in that round, SRC is never written, nothing is read before it is
 * written, nor in SRC after its place in DST was, no contribution is added twice, the
 * right chunks with the right contributions end in the right places, and for
 * SK_ORDER_TREE that sums have the shape of the tree.  For up to 64 members. */
#ifndef SK_COLL_PROVE_H
#define SK_COLL_PROVE_H

#include "coll/algorithm.h"

typedef struct sk_proof {
    sk_coll_cost cost; /* counted in the lists; chunks count alike, S / cells each */
    int64_t steps, messages;
} sk_proof;

/* lists[n]: of all members.  A sentence on the first thing that is wrong. */
sk_status sk_prove(const sk_coll *c, const sk_steps *lists, int n, sk_proof *out);
/* Builds the lists of a (its `me` is ignored) and proves them. */
sk_status sk_prove_coll(sk_arena *arena, const sk_coll *c, const sk_coll_ask *a, sk_proof *out);

#endif
