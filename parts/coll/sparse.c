/* sparse.c - an all-reduce of index-value streams, chunk by chunk: a union of rows.
 *
 * SparCML (Renggli et al. 2019), Kylix (Zhao and Canny 2013).  Every chunk is added by its owner in
 * the order of the tree and then gathered, so the bits are those of every other way and the
 * algorithm may be chosen freely.  Cells are streams: rows that are not zero with their numbers, or
 * all rows where that is shorter (coll/sparse_stream.h, coll/execute_stream.c).  The switch to
 * dense is made for every sum by itself, so nobody has to know the density.
 *
 * A row is what one index stands for: the `inner` of the segment, a word's vector in the gradient
 * of an embedding.  With r rows of `inner` floats, m of them not zero, a stream is shorter
 * while m (4 + 4 inner) < r 4 inner; with rows of one float that is a density of one half.  The way
 * back is the denser one: the owner sends the union of what all sent, so with n members that give
 * different rows the gain ends near density 1/n.
 *
 * Without degrees the owners of chunks hear from everybody at once.  `sparse:4x2` goes in rounds:
 * chunks are added by four neighbours, then by two such blocks, and gathered the same way back
 * (the nested butterfly of Kylix): few messages, and what four neighbours have in common goes on
 * once.  All degrees but the last are powers of two, for the order of the tree.
 *
 * Price: that of streams of which the caller knows how full they are (sk_coll_ask.fill), else that
 * of dense ones, the most it can be (and 16 bytes a chunk). */
#include "coll/algorithm.h"
#include "coll/sparse_stream.h"

static bool can(const sk_coll_ask *a)
{
    return a->n <= SK_STREAM_MOST && (!a->degrees || sk_degrees_tree(a->degrees, a->n));
}

static int count(const sk_coll_ask *a)
{
    int k = 0;
    while (sk_degree(a->degrees, k)) k++;
    return k;
}

static void build(sk_steps *s)
{
    int size[SK_COLL_DEGREES], k = count(&s->ask);
    for (int i = 0; i < k; i++) size[k - 1 - i] = sk_degree(s->ask.degrees, i);
    if (k) sk_steps_by_axes(s, size, k);
    else sk_steps_direct(s);
}

/* A round of degree d on chunks that m members have added: what of the vector a member sends. */
static double round_sent(const sk_coll_ask *a, int m, int d)
{
    return (double)(d - 1) / d / m * sk_stream_share(a, m);
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    int k = count(a), ways = a->kind == SK_ALLREDUCE ? 2 : 1;
    double down = a->degrees ? 0 : round_sent(a, 1, a->n), adds = down * sk_stream_adding(a, a->n);
    double up = (double)(a->n - 1) / a->n * sk_stream_share(a, a->n);
    for (int i = 0, m = 1, d; i < k; m *= d, i++) {
        d = sk_degree(a->degrees, i);
        down += round_sent(a, m, d);
        adds += round_sent(a, m, d) * sk_stream_adding(a, d);
    }
    if (a->kind == SK_ALLGATHER) up = (double)(a->n - 1) / a->n * sk_stream_share(a, 1);
    return (sk_coll_cost){.rounds = ways * (k ? k : 1),
                          .sent = (a->kind != SK_ALLGATHER) * down +
                                  (a->kind != SK_REDUCE_SCATTER) * up,
                          .summed = (a->kind != SK_ALLGATHER) * adds + sk_stream_packing(a)};
}

const sk_coll sk_coll_sparse = {
    .name = "sparse",
    .doc = "direct, or by degrees (:4x2), in streams without rows of zeros (Renggli et al. 2019)",
    .cost = "2 a + at most 2S(n-1)/n b; k degrees: 2k a",
    .kinds = 1u << SK_ALLREDUCE | 1u << SK_REDUCE_SCATTER | 1u << SK_ALLGATHER,
    .order = SK_ORDER_TREE,
    .can = can,
    .build = build,
    .price = price,
    .packs = true,
    .degrees = true,
};
