/* xent_z_grad.c - the gradient of xent_loss with z: ds = w dl (1 + 2 z (m + log s)) / s, dt = -w
 * dl.
 */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"

static void cpu(const sk_args *a)
{
    const real *s = a->in[0].data, *w = a->in[1].data, *dl = a->in[2].data, *m = a->in[3].data;
    real *ds = a->out[0].data, *dt = a->out[1].data;
    int64_t from, to;
    sk_share(a, sk_count(&a->in[0]), &from, &to);
    for (int64_t i = from; i < to; i++) {
        real d = w[i] * *dl;
        double lse = (double)m[i] + log((double)s[i]);
        ds[i] = (real)((double)d * (1 + 2 * a->attr[0] * lse) / (double)s[i]);
        dt[i] = -d;
    }
}

static double flops(const sk_args *a) { return 15 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t3", "b2t3", "", "b2t3"}, .positive = true, .attr = {0.25}},
    {.in = {"b67", "b67", "", "b67"}, .positive = true, .attr = {1e-4}},
    {.in = {"", "", "", ""}, .positive = true, .attr = {1}},
    {.in = {0}},
};

const sk_op sk_op_xent_z_grad = {
    .name = "xent_z_grad",
    .doc = "gradient of xent_loss with a z-loss, with respect to its two sums",
    .dims = "*,*,,*->*,*",
    .n_in = 4,
    .n_out = 2,
    .types = "ffff>ff",
    .reuse = 1,
    .stats = 3,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
