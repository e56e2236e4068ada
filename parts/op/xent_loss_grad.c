/* xent_loss_grad.c - ds = w dl / s, dt = -w dl. */
#include "graph/graph.h"

static void cpu(const sk_args *a)
{
    const real *s = a->in[0].data, *w = a->in[1].data, *dl = a->in[2].data;
    real *ds = a->out[0].data, *dt = a->out[1].data;
    int64_t from, to;
    sk_share(a, sk_count(&a->in[0]), &from, &to);
    for (int64_t i = from; i < to; i++) {
        real d = w[i] * *dl;
        ds[i] = d / s[i];
        dt[i] = -d;
    }
}

static const sk_sample samples[] = {
    {.in = {"b2t3", "b2t3", ""}, .positive = true},
    {.in = {"b67", "b67", ""}, .positive = true},
    {.in = {"", "", ""}, .positive = true},
    {.in = {0}},
};

const sk_op sk_op_xent_loss_grad = {
    .name = "xent_loss_grad",
    .doc = "gradient of xent_loss with respect to its two sums",
    .dims = "*,*,->*,*",
    .n_in = 3,
    .n_out = 2,
    .types = "fff>ff",
    .reuse = 1,
    .stats = 3,
    .cpu = cpu,
    .samples = samples,
};
