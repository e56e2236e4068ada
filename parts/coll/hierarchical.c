/* hierarchical.c - by axes: first among the ranks of a host, then between hosts.
 *
 * BlueConnect (Cho et al. 2019), the 2-D torus of Mikami et al. (2018), Horovod's hierarchical
 * all-reduce.  The list, its bytes and the order of its sums: coll/step_axes.c.  Fast axes that are
 * no powers of two are declined, for that order. */
#include "coll/algorithm.h"

/* The ask's axes, or n as the least uneven product with a power of two. */
static int axes_of(const sk_coll_ask *a, int size[SK_COLL_AXES])
{
    int k = 0, fast = 1;
    for (int j = 0; j < a->n_axes; j++)
        if (a->axes[j] != 1) size[k++] = a->axes[j];
    if (a->n_axes) return k;
    while (a->n % (2 * fast) == 0 && 2 * fast + a->n / (2 * fast) < fast + a->n / fast) fast *= 2;
    if (a->n / fast > 1) size[k++] = a->n / fast;
    if (fast > 1) size[k++] = fast;
    return k;
}

static bool can(const sk_coll_ask *a)
{
    int size[SK_COLL_AXES], k = axes_of(a, size);
    for (int j = 1; j < k; j++)
        if (!sk_power_of_two(size[j])) return false;
    return true;
}

static void build(sk_steps *s)
{
    int size[SK_COLL_AXES], k = axes_of(&s->ask, size);
    sk_steps_by_axes(s, size, k);
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    int size[SK_COLL_AXES], k = axes_of(a, size);
    double share = (double)(a->n - 1) / a->n;
    if (a->kind == SK_ALLREDUCE) return (sk_coll_cost){2 * k, 2 * share, share};
    return (sk_coll_cost){k, share, a->kind == SK_REDUCE_SCATTER ? share : 0};
}

const sk_coll sk_coll_hierarchical = {
    .name = "hierarchical",
    .doc = "axis by axis, all to all inside each; fast axes powers of two (Cho et al. 2019)",
    .cost = "2k a + 2S(n-1)/n b, k axes; one way: half of it",
    .kinds = 1u << SK_ALLREDUCE | 1u << SK_REDUCE_SCATTER | 1u << SK_ALLGATHER,
    .order = SK_ORDER_TREE,
    .can = can,
    .build = build,
    .price = price,
};
