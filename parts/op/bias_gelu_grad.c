/* bias_gelu_grad.c - dz = dy * gelu'(z) at z = x + b.
 *
 * gelu(z) = z s with s = 1 / (1 + exp(-2u)), hence gelu' = s + z s (1 - s) 2u'. */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"

#define SLOPE ((real)1.5957691216057308) /* 2 sqrt(2/pi) */
#define CUBE  ((real)0.044715)

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    const real *b = a->in[1].data;
    int64_t n = v->size[v->n - 1], from, to;
    sk_share(a, sk_span(v, 0, v->n - 1), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const real *x = (const real *)v->data + r * n, *dy = (const real *)a->in[2].data + r * n;
        real *dz = (real *)a->out[0].data + r * n;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            real z = x[i] + b[i], zz = CUBE * z * z;
            real s = 1 / (1 + sk_exp(-SLOPE * z * (1 + zz)));
            dz[i] = dy[i] * s * (1 + z * (1 - s) * SLOPE * (1 + 3 * zz));
        }
    }
}

static double flops(const sk_args *a) { return 14 * (double)sk_count(&a->out[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t3f8", "f8", "b2t3f8"}},
    {.in = {"b3t2k2f37", "f37", "b3t2k2f37"}},
    {.in = {"f5", "f5", "f5"}},
    {.in = {0}},
};

const sk_op sk_op_bias_gelu_grad = {
    .name = "bias_gelu_grad",
    .doc = "gradient of bias_gelu with respect to x + b",
    .dims = "*f,f,*f->*f",
    .n_in = 3,
    .reuse = 1 << 2, /* not x: a GPU makes dy in the same launch, and reads x meanwhile */
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
