/* act_grad.c - dx = dy f'(x), the gradient of an activation function.  attr[0]: as act's. */
#include "kernel/activation_math.h"
#include "graph/graph.h"

enum { BLOCK = 256 };

#define ONE(f)                                                                                  \
    static void f(const real *x, const real *dy, real *dx, int n)                               \
    {                                                                                           \
        real block[BLOCK];                                                                      \
        for (int i = 0; i < n; i++) block[i] = dy[i] * sk_activate_slope(SK_FORMULA_##f, x[i]); \
        memcpy(dx, block, (size_t)n * sizeof(real));                                            \
    }
SK_FORMULAS(ONE)
#undef ONE

static void cpu(const sk_args *a)
{
#define ONE(f) [SK_FORMULA_##f] = f,
    static void (*const loops[])(const real *, const real *, real *, int) = {SK_FORMULAS(ONE)};
#undef ONE
    sk_formula f = sk_activation_formula(a->attr[0]);
    const real *x = a->in[0].data, *dy = a->in[1].data;
    real *dx = a->out[0].data;
    int64_t from, to;
    sk_share(a, sk_count(&a->out[0]), &from, &to);
    for (; from < to; from += BLOCK)
        loops[f](x + from, dy + from, dx + from, to - from < BLOCK ? (int)(to - from) : BLOCK);
}

static void infer(sk_graph *g, const sk_node *n)
{
    if (sk_activation_formula(n->attr[0]) == SK_N_FORMULAS)
        sk_graph_fail(g, SK_ECONF, "act_grad: %g stands for no activation function (%s)",
                      n->attr[0], n->where);
}

static double flops(const sk_args *a) { return 14 * (double)sk_count(&a->out[0]); }

static const sk_sample samples[] = {
#define ONE(name, formula) {.in = {"b2t3f37", "b2t3f37"}, .attr = {SK_ACT_##name}},
    SK_ACTIVATIONS(ONE)
#undef ONE
        {.in = {"f5", "f5"}, .attr = {SK_ACT_gelu}},
    {.in = {0}},
};

const sk_op sk_op_act_grad = {
    .name = "act_grad",
    .doc = "gradient of an activation function",
    .dims = "*,*->*",
    .n_in = 2,
    .reuse = 1 | 2,
    .infer = infer,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
