/* load.c - how much more than its share each expert was chosen: E * its choices - all choices.
 *
 * Counted are all slots of route, also of choices whose expert was full.  Times E, because the
 * share itself need not be a whole number: so the result is one, exact in f32 to 2^24, and shards
 * of a batch add up in any order.  Beyond, sums go by reduction blocks like all others.
 *
 * The call names the letters, as in "btk->g".  Attribute: the capacity of an expert.  Threads own
 * experts and look at every slot. */
#include "graph/graph.h"
#include "kernel/slots.h"
#include "kernel/cpu/vecmath.h"

typedef struct strip {
    const sk_view *slot;
    int64_t capacity, experts; /* of all */
    int64_t first, n;          /* experts of mine */
} strip;

static void one_cell(const void *how, int64_t from, int64_t to, real *y)
{
    const strip *s = how;
    int64_t count[SK_SUM_COLUMNS] = {0}, all = 0, row = sk_span(s->slot, 1, s->slot->n);
    for (int64_t i = from * row; i < to * row; i++) {
        int64_t e = sk_slot_expert(s->slot, i, s->capacity, s->experts);
        all += e >= 0;
        if (e >= s->first && e < s->first + s->n) count[e - s->first]++;
    }
    for (int64_t c = 0; c < s->n; c++) y[c] = (real)(s->experts * count[c] - all);
}

static void cpu(const sk_args *a)
{
    const sk_view *out = &a->out[0];
    int64_t border[SK_REDUCTION_BLOCKS_MAX + 1], from, to;
    int cells = sk_view_reduction_blocks(&a->in[0], 0, border);
    real sum[SK_SUM_COLUMNS];
    sk_share(a, out->size[0], &from, &to);
    for (; from < to; from += SK_SUM_COLUMNS) {
        int64_t n = to - from < SK_SUM_COLUMNS ? to - from : SK_SUM_COLUMNS;
        strip s = {&a->in[0], (int64_t)a->attr[0], out->full[0], out->at[0] + from, n};
        sk_sum_blocks(one_cell, &s, border, cells, sum, n);
        sk_sum_put((real *)out->data + from, sum, n, a->add & 1);
    }
}

static void infer(sk_graph *g, const sk_node *n)
{
    if (!(n->attr[0] >= 1 && n->attr[0] <= SK_MOST_SLOTS))
        sk_graph_fail(g, SK_ECONF, "load: an expert has room for %g tokens; 1 to %d is needed (%s)",
                      n->attr[0], SK_MOST_SLOTS, n->where);
}

static double flops(const sk_args *a) { return 2 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t7k2%12"}, .dims = "btk->e", .fresh = "e4", .attr = {3}},
    {.in = {"b5t3k1%12"}, .dims = "btk->e", .fresh = "e5", .attr = {2}}, /* 10, 11 are no slots */
    {.in = {"b1t1k1%1"}, .dims = "btk->e", .fresh = "e1", .attr = {1}},
    {.in = {"b3t40k2%600"}, .dims = "btk->e", .fresh = "e300", .attr = {2}},
    {.in = {0}},
};

const sk_op sk_op_load = {
    .name = "load",
    .doc = "choices of each expert beyond its share, times the number of experts",
    .n_in = 1,
    .types = "s>f",
    .flags = SK_OP_ADDS | SK_OP_EXACT,
    .stats = 1,
    .infer = infer,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
