/* residual.c - y = x + h + bias: the end of a transformer block, in one pass over memory. */
#include "graph/extra.h"

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    const real *b = a->in[2].data;
    int64_t n = v->size[v->n - 1], from, to;
    sk_share(a, sk_span(v, 0, v->n - 1), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const real *x = (const real *)v->data + r * n, *h = (const real *)a->in[1].data + r * n;
        real *y = (real *)a->out[0].data + r * n;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = x[i] + h[i] + b[i];
    }
}

static double flops(const sk_args *a) { return 2 * (double)sk_count(&a->out[0]); }

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    char *dims = sk_print(g->arena, "%s->%s", y->letters_out[0], y->letters_in[2]);
    dx[0] = dx[1] = dy[0];
    dx[2] = sk_apply(g, "sum", .in = {dy[0]}, .dims = dims)->out[0];
}

/* Only its bias has letters of its own; what is added has those of the result. */
static sk_tensor *sample(SK_EXTRA_ARGS)
{
    (void)dx;
    return sk_sum_samples(g, dy[0], y->letters_in[i]);
}

static const sk_extra_rules extra = {.sample = sample};

static const sk_sample samples[] = {
    {.in = {"b2t3c8", "b2t3c8", "c8"}},
    {.in = {"b3t2k2c37", "b3t2k2c37", "c37"}},
    {.in = {"c5", "c5", "c5"}},
    {.in = {0}},
};

const sk_op sk_op_residual = {
    .name = "residual",
    .doc = "x + h + bias",
    .dims = "*c,*c,c->*c",
    .n_in = 3,
    .reuse = 1 | 2,
    .grad = grad,
    .extra = &extra,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
