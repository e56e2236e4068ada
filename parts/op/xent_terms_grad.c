/* xent_terms_grad.c - d logit = exp(logit - m) ds, and dt more at the target; with attr e (label
 * smoothing) (1 - e) dt there, and e / V of dt for each of the V words. */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    const real *m = a->in[1].data, *ds = a->in[3].data, *dt = a->in[4].data;
    const int32_t *target = a->in[2].data;
    int64_t n = v->size[v->n - 1], first = v->at[v->n - 1], from, to;
    double e = a->attr[0];
    sk_share(a, sk_count(&a->in[1]), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const real *x = (const real *)v->data + r * n;
        real *dx = (real *)a->out[0].data + r * n, shift = m[r], scale = ds[r];
        int64_t at = target[r] - first;
        if (e != 0) {
            real more = dt[r] * (real)(e / (double)v->full[v->n - 1]);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) dx[i] = sk_exp(x[i] - shift) * scale + more;
            if (at >= 0 && at < n) dx[at] += dt[r] * (real)(1 - e);
            continue;
        }
#pragma omp simd
        for (int64_t i = 0; i < n; i++) dx[i] = sk_exp(x[i] - shift) * scale;
        if (at >= 0 && at < n) dx[at] += dt[r];
    }
}

static double flops(const sk_args *a) { return 4 * (double)sk_count(&a->in[0]); }

static void shape(const sk_args *a, sk_kernel_shape *s)
{
    (void)a;
    s->kind = SK_KERNEL_LOSS;
}

static const sk_sample samples[] = {
    {.in = {"b2t3v8", "b2t3", "b2t3%8", "b2t3", "b2t3"}},
    {.in = {"b3v37", "b3", "b3%37", "b3", "b3"}},
    {.in = {"v5", "", "%5", "", ""}},
    {.in = {"b3v37", "b3", "b3%37", "b3", "b3"}, .attr = {0.1}},
    {.in = {0}},
};

const sk_op sk_op_xent_terms_grad = {
    .name = "xent_terms_grad",
    .doc = "gradient of xent_terms with respect to the logits",
    .dims = "*v,*,*,*,*->*v",
    .n_in = 5,
    .types = "xfiff>x",
    .reuse = 1,
    .flops = flops,
    .shape = shape,
    .cpu = cpu,
    .samples = samples,
};
