/* kinds.h - the kinds of collectives: one row each, from which everything else is derived.
 *
 * A row of SK_COLL_KINDS says which rows of a tensor a member gives (src) and gets (dst), and whose
 * contributions a result is made of.  Checks, proofs, buffer layouts, the work in shared memory and
 * prices read the row; they do not list kinds.  Adding a kind is a row here, and algorithms in
 * parts/coll that can do it.  For a segment (coll/call.h) on a group of p:
 *
 *     all-reduce       src, dst: [outer][n][inner] on all; dst may equal src
 *     reduce-scatter   src: whole, dst: my part, dense [outer][mine][inner]; dst may be my place
 *                      inside src when outer is 1
 *     all-gather       src: my part, dense, dst: whole; src may be my place inside dst when
 *                      outer is 1
 *     broadcast        src: whole on the root (ignored elsewhere), dst: whole; dst may equal src
 *     reduce           src: whole on all, dst: whole on the root (ignored elsewhere)
 *     gather           src: my part, dst: whole on the root;  the mirror of scatter
 *     scatter          src: whole on the root, dst: my part
 *     all-to-all       src: whole; part j of it goes to member j.  dst: what came from member 0,
 *                      then from member 1 ..., each dense [outer][mine][inner].  Never in place
 *     exchange         an all-to-all of a segment with `swap`: a tensor
 *                      [outer][n][mid][n2][inner] that is split along one of n and n2, and is
 *                      split along the other afterwards.  src: dense, my part of the first and
 *                      all of the second; dst: dense, all of the first and my part of the
 *                      second; the dims keep their order.  Each dim has a cut of its own.
 *                      Never in place
 *     all-to-all-v     the same, but how much goes to whom is known only when it runs: n is the
 *                      capacity of one block in rows of `inner` elements, src and dst are
 *                      [p][n][inner], and counts[j] (call->counts, p numbers of 64 bits in the
 *                      heap) rows of block j go to member j; how many rows came is written to the
 *                      p numbers behind them
 *
 *     scan             src, dst: [outer][n][inner] on all; dst of member i is the sum over members
 *                      0 to i (a prefix sum); dst may equal src */
#ifndef SK_COLL_KINDS_H
#define SK_COLL_KINDS_H

#include <stdbool.h>

/* SK_MEAN: the sum, divided by the number of members that it is over, in the type summed in.
 * SK_ADASUM: a sum that forgets what two gradients have in common (parts/coll/adasum.c); needs
 * such an algorithm. */
typedef enum sk_reduce {
    SK_SUM,
    SK_MAXIMUM,
    SK_MINIMUM,
    SK_MEAN,
    SK_ADASUM,
    SK_N_REDUCES
} sk_reduce;

/* What one member has of an operand. */
typedef enum sk_operand {
    SK_OPERAND_WHOLE, /* all rows */
    SK_OPERAND_PART,  /* the rows that are this member's */
    SK_OPERAND_ROOT,  /* all rows on the root, nothing elsewhere */
    SK_OPERAND_BLOCKS /* a block for, or from, each member */
} sk_operand;

/* Whose contributions a result is made of. */
typedef enum sk_origin {
    SK_FROM_ALL,   /* a reduction over all members */
    SK_FROM_ROOT,  /* a copy of the root's */
    SK_FROM_OWNER, /* a copy from the member whose part, or block, it is */
    SK_FROM_FIRST  /* a reduction over members 0 to me */
} sk_origin;

/* `copied`: DST of a step list begins as a copy of SRC (of the root's, if there is one).
 * `counts`: how many rows go to whom is known only when the call runs (sk_coll_call.counts).
 *
 *       kind, name, src (SK_OPERAND_), dst, result (SK_FROM_), copied, counts */
#define SK_COLL_KINDS(K)                                                   \
    K(SK_ALLREDUCE, "allreduce", WHOLE, WHOLE, ALL, true, false)           \
    K(SK_REDUCE_SCATTER, "reduce_scatter", WHOLE, PART, ALL, false, false) \
    K(SK_ALLGATHER, "allgather", PART, WHOLE, OWNER, false, false)         \
    K(SK_BROADCAST, "broadcast", ROOT, WHOLE, ROOT, true, false)           \
    K(SK_REDUCE, "reduce", WHOLE, ROOT, ALL, false, false)                 \
    K(SK_GATHER, "gather", PART, ROOT, OWNER, false, false)                \
    K(SK_SCATTER, "scatter", ROOT, PART, ROOT, false, false)               \
    K(SK_ALLTOALL, "alltoall", BLOCKS, BLOCKS, OWNER, false, false)        \
    K(SK_ALLTOALLV, "alltoallv", BLOCKS, BLOCKS, OWNER, false, true)       \
    K(SK_SCAN, "scan", WHOLE, WHOLE, FIRST, true, false)

typedef enum sk_coll_kind {
#define SK_KIND_NUMBER(kind, ...) kind,
    SK_COLL_KINDS(SK_KIND_NUMBER)
#undef SK_KIND_NUMBER
        SK_N_COLLS
} sk_coll_kind;

typedef struct sk_kind_row {
    sk_operand src, dst;
    sk_origin origin;
    bool copied, counts;
} sk_kind_row;

extern const sk_kind_row sk_kind_rows[SK_N_COLLS];
extern const char *const sk_coll_names[SK_N_COLLS]; /* "allreduce" ... as on the command line */
/* A sk_coll_kind by its name, with or without '-' and '_' in it; SK_N_COLLS: there is none. */
int sk_kind_find(const char *name);

/* Does the kind add?  If not, the order of sums means nothing and every algorithm gives the same
 * bits. */
static inline bool sk_kind_sums(sk_coll_kind k)
{
    return sk_kind_rows[k].origin == SK_FROM_ALL || sk_kind_rows[k].origin == SK_FROM_FIRST;
}
/* Members whose sources member i's result is made of: the first so many.  Kinds that add only. */
static inline int sk_kind_terms(sk_coll_kind k, int i, int n)
{
    return sk_kind_rows[k].origin == SK_FROM_FIRST ? i + 1 : n;
}
static inline bool sk_kind_rooted(sk_coll_kind k)
{
    return sk_kind_rows[k].src == SK_OPERAND_ROOT || sk_kind_rows[k].dst == SK_OPERAND_ROOT;
}
/* Has this member anything to give, to get? */
static inline bool sk_kind_gives(sk_coll_kind k, bool root)
{
    return root || sk_kind_rows[k].src != SK_OPERAND_ROOT;
}
static inline bool sk_kind_gets(sk_coll_kind k, bool root)
{
    return root || sk_kind_rows[k].dst != SK_OPERAND_ROOT;
}
static inline bool sk_kind_blocks(sk_coll_kind k)
{
    return sk_kind_rows[k].src == SK_OPERAND_BLOCKS;
}
/* Are chunks the members' parts or blocks?  If not, an algorithm cuts where it likes. */
static inline bool sk_kind_cut(sk_coll_kind k)
{
    return sk_kind_rows[k].src == SK_OPERAND_PART || sk_kind_rows[k].dst == SK_OPERAND_PART ||
           sk_kind_blocks(k);
}

#endif
