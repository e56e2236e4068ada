/* bias_gelu.c - y = gelu(x + b), the tanh form (Hendrycks and Gimpel 2016).
 *
 * 0.5 z (1 + tanh(u)) = z / (1 + exp(-2u)) with u = sqrt(2/pi) (z + 0.044715 z^3): one exp, one
 * division. */
#include "graph/extra.h"
#include "kernel/cpu/vecmath.h"

#define SLOPE ((real)1.5957691216057308) /* 2 sqrt(2/pi) */
#define CUBE  ((real)0.044715)

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    const real *restrict b = a->in[1].data;
    int64_t n = v->size[v->n - 1], from, to;
    sk_share(a, sk_span(v, 0, v->n - 1), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const real *restrict x = (const real *)v->data + r * n;
        real *restrict y = (real *)a->out[0].data + r * n;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            real z = x[i] + b[i];
            y[i] = z / (1 + sk_exp(-SLOPE * (z + CUBE * z * z * z)));
        }
    }
}

static double flops(const sk_args *a) { return 8 * (double)sk_count(&a->out[0]); }

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    char *dims = sk_print(g->arena, "%s->%s", y->letters_out[0], y->letters_in[1]);
    dx[0] = sk_apply(g, "bias_gelu_grad", .in = {y->in[0], y->in[1], dy[0]})->out[0];
    dx[1] = sk_apply(g, "sum", .in = {dx[0]}, .dims = dims)->out[0];
}

static sk_tensor *sample(SK_EXTRA_ARGS)
{
    (void)dy;
    return sk_sum_samples(g, dx[0], y->letters_in[i]);
}

static const sk_extra_rules extra = {.sample = sample};

static const sk_sample samples[] = {
    {.in = {"b2t3f8", "f8"}},
    {.in = {"b3t2k2f37", "f37"}},
    {.in = {"f5", "f5"}},
    {.in = {0}},
};

const sk_op sk_op_bias_gelu = {
    .name = "bias_gelu",
    .doc = "gelu(x + b), tanh form",
    .dims = "*f,f->*f",
    .n_in = 2,
    .flags = SK_OP_CHEAP,
    .grad = grad,
    .extra = &extra,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
