/* dot.c - the sum of products of two tensors of one shape over the letters that the result lacks:
 * "mn,mn->", "emn,emn->e", "men,men->e".
 *
 * contract.c can do the same, but rounds long sums more, and on a GPU a thread makes each result;
 * here blocks of a GPU share a sum.  Products are added in double, in an order that no number of
 * threads changes; in canonical order the sums of reduction blocks of the first letter that goes
 * are rounded and added in pairs. */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"
#include "kernel/letters.h"

enum { LANES = 8 };

static double products(const real *x, const real *y, int64_t n, int64_t step)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; step == 1 && i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += (double)x[i + k] * (double)y[i + k];
    for (; i < n; i++) sum += (double)x[i * step] * (double)y[i * step];
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

typedef struct one_result {
    const real *x, *y; /* its first elements */
    sk_walk outer;     /* without the last dim, which has n elements, `step` apart */
    int64_t n, step;
    int64_t inner; /* elements of one place along the first letter that goes */
} one_result;

/* Places [from, to) of that letter. */
static void one_cell(const void *how, int64_t from, int64_t to, real *z)
{
    const one_result *r = how;
    int64_t end = to * r->inner, n = r->n;
    double sum = 0;
    for (int64_t i = from * r->inner, next; i < end; i = next) {
        next = (i / n + 1) * n < end ? (i / n + 1) * n : end;
        int64_t at = sk_walk_at(&r->outer, i / n) + i % n * r->step;
        sum += products(r->x + at, r->y + at, next - i, r->step);
    }
    *z = (real)sum;
}

static void cpu(const sk_args *a)
{
    const real *x = a->in[0].data, *y = a->in[1].data;
    real *z = a->out[0].data;
    sk_reduction r = sk_reduction_of(a);
    int64_t from, to, border[SK_REDUCTION_BLOCKS_MAX + 1] = {0, 1};
    int cells = r.first < 0 ? 1 : sk_view_reduction_blocks(&a->in[0], r.first, border);
    one_result one = {.outer = r.go, .n = 1, .inner = 1};
    if (one.outer.n) one.n = r.go.size[--one.outer.n], one.step = r.go.step[one.outer.n];
    if (r.first >= 0 && r.n_go) one.inner = r.n_go / a->in[0].size[r.first];
    sk_share(a, r.n_stay, &from, &to);
    for (int64_t o = from; o < to; o++) {
        int64_t base = sk_walk_at(&r.stay, o);
        one.x = x + base, one.y = y + base;
        if (!r.n_go) z[o] = 0;
        else sk_sum_blocks(one_cell, &one, border, cells, &z[o], 1);
    }
}

static void infer(sk_graph *g, const sk_node *n)
{
    bool fits = !strcmp(n->letters_in[0], n->letters_in[1]);
    for (const char *p = n->letters_out[0]; *p; p++) fits &= strchr(n->letters_in[0], *p) != NULL;
    if (!fits)
        sk_graph_fail(
            g, SK_ECONF,
            "dot: \"%s\" needs two operands with the same letters, and a result with some "
            "of them (%s)",
            n->dims, n->where);
}

static double flops(const sk_args *a) { return 2 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"m5n7", "m5n7"}, .dims = "mn,mn->"},
    {.in = {"m67n301", "m67n301"}, .dims = "mn,mn->"},
    {.in = {"e3m5n17", "e3m5n17"}, .dims = "emn,emn->e"},
    {.in = {"m4e3n9", "m4e3n9"}, .dims = "men,men->e"},
    {.in = {"m5n7", "m5n7"}, .dims = "mn,mn->n"},
    {.in = {"m1", "m1"}, .dims = "m,m->"},
    {.in = {0}},
};

const sk_op sk_op_dot = {
    .name = "dot",
    .doc = "the sum of products of two tensors alike over the letters missing in the result",
    .n_in = 2,
    .types = "ff>f",
    .infer = infer,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
