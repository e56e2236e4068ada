/* act.c - y = f(x), an activation function.
 *
 * attr[0]: which one, a number of kernel/activation.h.  Each formula has its own loop, so that the
 * compiler sees one formula at a time, and goes through a small block, because y may be x. */
#include "kernel/activation_math.h"
#include "graph/graph.h"

enum { BLOCK = 256 };

#define ONE(f)                                                                    \
    static void f(const real *x, real *y, int n)                                  \
    {                                                                             \
        real block[BLOCK];                                                        \
        for (int i = 0; i < n; i++) block[i] = sk_activate(SK_FORMULA_##f, x[i]); \
        memcpy(y, block, (size_t)n * sizeof(real));                               \
    }
SK_FORMULAS(ONE)
#undef ONE

static void cpu(const sk_args *a)
{
#define ONE(f) [SK_FORMULA_##f] = f,
    static void (*const loops[])(const real *, real *, int) = {SK_FORMULAS(ONE)};
#undef ONE
    sk_formula f = sk_activation_formula(a->attr[0]);
    const real *x = a->in[0].data;
    real *y = a->out[0].data;
    int64_t from, to;
    sk_share(a, sk_count(&a->out[0]), &from, &to);
    for (; from < to; from += BLOCK)
        loops[f](x + from, y + from, to - from < BLOCK ? (int)(to - from) : BLOCK);
}

static void infer(sk_graph *g, const sk_node *n)
{
    if (sk_activation_formula(n->attr[0]) == SK_N_FORMULAS)
        sk_graph_fail(g, SK_ECONF, "act: %g stands for no activation function (%s)", n->attr[0],
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
