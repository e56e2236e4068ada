/* torus.c - a ring along every axis of a mesh: for networks where only neighbours are linked.
 *
 * The 2-D torus all-reduce of Mikami et al. (2018), for any axes: reduce-scatter round the rings
 * of the fastest axis, then round those of the next one on the part that is left, ..., and back by
 * all-gather.  2(n-1)/n S leave a member, as in one ring of all, but in 2 sum(a - 1) rounds
 * instead of 2(n-1).  A ring adds in the order of its members, each chunk from another start, so
 * the order is its own.
 *
 * Chunks are numbered with the slowest axis as the last digit, so a block is always in a row. */
#include "coll/algorithm.h"

typedef struct ring { /* my ring along one axis */
    int n, me;
    int before, after; /* members */
    int first, block;  /* block i is chunks first + i * block, ... */
} ring;

/* The ask's axes, or n as the least uneven product of two. */
static int axes_of(const sk_coll_ask *a, int size[SK_COLL_AXES])
{
    int k = 0, fast = 1;
    for (int j = 0; j < a->n_axes; j++) size[k++] = a->axes[j];
    if (a->n_axes) return k;
    for (int q = 2; q <= a->n / q; q++)
        if (a->n % q == 0) fast = q;
    size[k++] = a->n / fast;
    size[k++] = fast;
    return k;
}

/* Member me + (digit - mine) * stride is on my ring. */
static ring ring_of(const sk_coll_ask *a, const int *size, int k, int axis)
{
    int stride = 1, block = 1, first = 0, n = size[axis];
    for (int j = 0; j < axis; j++) block *= size[j];
    for (int j = k - 1, weight = a->n; j > axis; j--) {
        weight /= size[j];
        first += a->me / stride % size[j] * weight;
        stride *= size[j];
    }
    int me = a->me / stride % n;
    return (ring){
        n,     me,   a->me + ((me + n - 1) % n - me) * stride, a->me + ((me + 1) % n - me) * stride,
        first, block};
}

static int block_at(const ring *r, int i) { return r->first + (i + 2 * r->n) % r->n * r->block; }

/* Block i ends on number i, after a way round that begins behind it. */
static void reduce_ring(sk_steps *s, const ring *r)
{
    for (int t = 1; t < r->n; t++) {
        int out = block_at(r, r->me - t), in = block_at(r, r->me - t - 1);
        sk_steps_send(s, r->after, sk_dst(out), out, r->block);
        sk_steps_recv_sum(s, r->before, sk_dst(in), sk_dst(in), in, r->block);
        sk_steps_next(s);
    }
}

static void gather_ring(sk_steps *s, const ring *r)
{
    for (int t = 1; t < r->n; t++) {
        int out = block_at(r, r->me - t + 1), in = block_at(r, r->me - t);
        sk_steps_send(s, r->after, sk_dst(out), out, r->block);
        sk_steps_recv(s, r->before, sk_dst(in), in, r->block);
        sk_steps_next(s);
    }
}

static void build(sk_steps *s)
{
    int size[SK_COLL_AXES], k = axes_of(&s->ask, size);
    for (int j = k - 1; j >= 0; j--) {
        ring r = ring_of(&s->ask, size, k, j);
        reduce_ring(s, &r);
    }
    for (int j = 0; j < k; j++) {
        ring r = ring_of(&s->ask, size, k, j);
        gather_ring(s, &r);
    }
}

static sk_coll_cost price(const sk_coll_ask *a)
{
    int size[SK_COLL_AXES], k = axes_of(a, size), rounds = 0;
    double share = (double)(a->n - 1) / a->n;
    for (int j = 0; j < k; j++) rounds += 2 * (size[j] - 1);
    return (sk_coll_cost){rounds, 2 * share, share};
}

const sk_coll sk_coll_torus = {
    .name = "torus",
    .doc = "a ring along every axis of a mesh (Mikami et al. 2018)",
    .cost = "2 sum(a_j - 1) a + 2S(n-1)/n b",
    .kinds = 1u << SK_ALLREDUCE,
    .order = SK_ORDER_OWN,
    .build = build,
    .price = price,
};
