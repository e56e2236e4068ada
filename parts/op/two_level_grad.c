/* two_level_grad.c - with s the sum of dy over a group: dx = dy - s softmax(x) inside of the group,
 * du = s - (sum of all s) softmax(u). */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"

/* d = w - scale * softmax(x); d may be w. */
static void less_softmax(const real *x, const real *w, real scale, int64_t n, real *d)
{
    real top = sk_largest(x, n), sum = 0;
    for (int64_t i = 0; i < n; i++) sum += sk_exp(x[i] - top);
    for (int64_t i = 0; i < n; i++) d[i] = w[i] - scale * (sk_exp(x[i] - top) / sum);
}

static void cpu(const sk_args *a)
{
    int64_t groups = a->in[0].size[a->in[0].n - 1], experts = a->in[1].size[a->in[1].n - 1];
    int64_t in_group = experts / groups, from, to;
    sk_share(a, sk_span(&a->in[0], 0, a->in[0].n - 1), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const real *u = (const real *)a->in[0].data + r * groups;
        real *du = (real *)a->out[0].data + r * groups, all = 0;
        for (int64_t k = 0; k < groups; k++) {
            int64_t at = r * experts + k * in_group;
            const real *x = (const real *)a->in[1].data + at;
            const real *dy = (const real *)a->in[2].data + at;
            du[k] = 0;
            for (int64_t i = 0; i < in_group; i++) du[k] += dy[i];
            less_softmax(x, dy, du[k], in_group, (real *)a->out[1].data + at);
            all += du[k];
        }
        less_softmax(u, du, all, groups, du);
    }
}

static double flops(const sk_args *a)
{
    return 5 * (double)(sk_count(&a->in[0]) + sk_count(&a->in[1]));
}

static const sk_sample samples[] = {
    {.in = {"b2t3u2", "b2t3e6", "b2t3e6"}},
    {.in = {"b3u4", "b3e4", "b3e4"}},
    {.in = {"u1", "e5", "e5"}},
    {.in = {0}},
};

const sk_op sk_op_two_level_grad = {
    .name = "two_level_grad",
    .doc = "gradient of two_level with respect to both inputs",
    .flags = SK_OP_EXACT,
    .dims = "*u!,*e!,*e!->*u,*e",
    .n_in = 3,
    .n_out = 2,
    .types = "fff>ff",
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
