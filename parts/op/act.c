/* act.c - y = f(x), an activation function.
 *
 * attr[0]: which one, a number of graph/activation.h.  Each formula has its own loop, so that the
 * compiler sees one formula at a time. */
#include "graph/activate.h"
#include "graph/graph.h"

static void cpu(const sk_args *a)
{
    const real *x = a->in[0].data;
    real *y = a->out[0].data;
    int64_t from, to;
    sk_share(a, sk_count(&a->out[0]), &from, &to);
    switch (sk_activation_formula(a->attr[0])) {
#define ONE(f)                                                         \
    case SK_FORMULA_##f:                                               \
        _Pragma("omp simd") for (int64_t i = from; i < to; i++) y[i] = \
            sk_activate(SK_FORMULA_##f, x[i]);                         \
        break;
        SK_FORMULAS(ONE)
#undef ONE
    case SK_N_FORMULAS:
        break; /* infer() refuses it */
    }
}

static void infer(sk_graph *g, const sk_node *n)
{
    if (sk_activation_formula(n->attr[0]) == SK_N_FORMULAS)
        sk_graph_fail(g, SK_EBUG, "act: %g stands for no activation function (%s)", n->attr[0],
                      n->where);
}

static double flops(const sk_args *a) { return 8 * (double)sk_count(&a->out[0]); }

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    dx[0] = sk_apply(g, "act_grad", .in = {y->in[0], dy[0]}, .attr = {y->attr[0]})->out[0];
}

static const sk_sample samples[] = {
#define ONE(name, formula) {.in = {"b2t3f37"}, .attr = {SK_ACT_##name}},
    SK_ACTIVATIONS(ONE)
#undef ONE
        {.in = {"f5"}, .attr = {SK_ACT_gelu}},
    {.in = {0}},
};

const sk_op sk_op_act = {
    .name = "act",
    .doc = "an activation function, element by element",
    .dims = "*->*",
    .n_in = 1,
    .flags = SK_OP_CHEAP,
    .reuse = 1,
    .infer = infer,
    .grad = grad,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
