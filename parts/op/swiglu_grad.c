/* swiglu_grad.c - da = dy b s (1 + a (1 - s)), db = dy a s, where s = 1 / (1 + exp(-a)). */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"

static void cpu(const sk_args *a)
{
    const real *gate = a->in[0].data, *up = a->in[1].data, *dy = a->in[2].data;
    real *d_gate = a->out[0].data, *d_up = a->out[1].data;
    int64_t from, to;
    sk_share(a, sk_count(&a->out[0]), &from, &to);
#pragma omp simd
    for (int64_t i = from; i < to; i++) {
        real s = 1 / (1 + sk_exp(-gate[i])), d = dy[i];
        d_up[i] = d * gate[i] * s;
        d_gate[i] = d * up[i] * s * (1 + gate[i] * (1 - s));
    }
}

static double flops(const sk_args *a) { return 11 * (double)sk_count(&a->out[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t3f8", "b2t3f8", "b2t3f8"}},
    {.in = {"f67", "f67", "f67"}},
    {.in = {0}},
};

const sk_op sk_op_swiglu_grad = {
    .name = "swiglu_grad",
    .doc = "gradient of swiglu with respect to both inputs",
    .dims = "*,*,*->*,*",
    .n_in = 3,
    .n_out = 2,
    .reuse = 1 | 2 | 4,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
