/* butterfly.c - recursive doubling for any n and any degrees: surplus members are folded into a
 * neighbour.
 *
 * After the split-phase all-reduce of GASPI: short vectors, few rounds, and between
 * start and test the caller computes.  In a round of degree d the members of a block of d sums give
 * each other all they have; `butterfly:4x2` joins four neighbours, then two such blocks (the degree
 * vector of Zhao and Canny 2013; recursive multiplying).  Without degrees every round joins two.
 * High degrees are few rounds, and d - 1 vectors in each.
 *
 * With corners, the product of the degrees, fewer than n: of the first 2 (n - corners) members the
 * odd ones give their vector to the even one before them, and get the sum at the end.  So any
 * product from n / 2 to n will do.  The pairs shift the blocks, so that sums are then not those of
 * the tree; where the product is n and all degrees but the last are powers of two they are. */
#include "coll/algorithm.h"

static bool can(const sk_coll_ask *a)
{
    int64_t product = sk_degrees_product(a->degrees);
    return !a->degrees || (product <= a->n && a->n <= 2 * product);
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    int rounds = 0, moved = 0, fold = sk_butterfly_corners(a) != a->n;
    for (int d; (d = sk_butterfly_degree(a, rounds)); rounds++) moved += d - 1;
    return (sk_coll_cost){rounds + 2 * fold, moved + 2 * fold, moved + fold};
}

static bool tree(const sk_coll_ask *a) { return sk_degrees_tree(a->degrees, a->n); }

const sk_coll sk_coll_butterfly = {
    .name = "butterfly",
    .doc = "recursive doubling, or by degrees (:4x2), the surplus folded; any n (GASPI)",
    .cost = "(log n + 2) a + S (log n + 2) b; degrees d: 1 a + (d - 1) S b each",
    .kinds = 1u << SK_ALLREDUCE,
    .order = SK_ORDER_OWN,
    .can = can,
    .build = sk_steps_butterfly,
    .price = price,
    .degrees = true,
    .tree = tree,
};
