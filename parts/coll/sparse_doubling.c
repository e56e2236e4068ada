/* sparse_doubling.c - an all-reduce of whole index-value streams in log n rounds: a union of rows.
 *
 * The list is that of `butterfly`, with or without degrees, and its cells are streams: in round i a
 * member sends the union of what 2^i members have (SSAR_Recursive_double of SparCML, Renggli et al.
 * 2019).  Where members give the same rows that is log n times what one gives; where all give
 * others, what n - 1 give, or dense vectors from the round on in which that is shorter.
 *
 * For n = 2^k, and for degrees that make n and are powers of two but for the last, sums are in the
 * order of the tree. */
#include "coll/algorithm.h"
#include "coll/sparse_stream.h"

static bool can(const sk_coll_ask *a)
{
    int64_t product = sk_degrees_product(a->degrees);
    return !a->degrees || (product <= a->n && a->n <= 2 * product);
}

static bool tree(const sk_coll_ask *a)
{
    return a->degrees ? sk_degrees_tree(a->degrees, a->n) : sk_power_of_two(a->n);
}

/* A folded pair counts as two members from the first round on. */
static sk_coll_cost price(const sk_coll_ask *a)
{
    int rounds = 0, fold = sk_butterfly_corners(a) != a->n, m = 1 + fold;
    double sent = fold * (sk_stream_share(a, 1) + sk_stream_share(a, a->n));
    double summed = fold * sk_stream_share(a, 1) * sk_stream_adding(a, 2) + sk_stream_packing(a);
    for (int d; (d = sk_butterfly_degree(a, rounds)); rounds++, m *= d) {
        sent += (d - 1) * sk_stream_share(a, m);
        summed += (d - 1) * sk_stream_share(a, m) * sk_stream_adding(a, d);
    }
    return (sk_coll_cost){rounds + 2 * fold, sent, summed};
}

const sk_coll sk_coll_sparse_doubling = {
    .name = "sparse_doubling",
    .doc = "butterfly, also by degrees (:4x2), in streams without rows of zeros; any n",
    .cost = "as butterfly at most; k of S in each stream: log n a + between k log n and k(n-1) b",
    .kinds = 1u << SK_ALLREDUCE,
    .order = SK_ORDER_OWN,
    .can = can,
    .build = sk_steps_butterfly,
    .price = price,
    .packs = true,
    .degrees = true,
    .tree = tree,
};
