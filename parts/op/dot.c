/* dot.c - the sum of products of two tensors of one shape over the letters that the result lacks:
 * "mn,mn->", "emn,emn->e", "men,men->e".
 *
 * contract.c can do the same, but rounds long sums more, and on a GPU a thread makes each result;
 * here blocks of a GPU share a sum.  Products are added in double, in an order that no number of
 * threads changes. */
#include "graph/graph.h"
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

/* The last dim that goes is in the inner loop. */
static void cpu(const sk_args *a)
{
    const real *x = a->in[0].data, *y = a->in[1].data;
    real *z = a->out[0].data;
    sk_reduction r = sk_reduction_of(a);
    int64_t from, to, n = 1, step = 0;
    sk_walk outer = r.go;
    if (outer.n) n = outer.size[--outer.n], step = outer.step[outer.n];
    sk_share(a, r.n_stay, &from, &to);
    for (int64_t o = from; o < to; o++) {
        int64_t base = sk_walk_at(&r.stay, o);
        double sum = 0;
        for (int64_t i = 0; n && i < r.n_go / n; i++) {
            int64_t at = base + sk_walk_at(&outer, i);
            sum += products(x + at, y + at, n, step);
        }
        z[o] = (real)sum;
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
