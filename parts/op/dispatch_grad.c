/* dispatch_grad.c - each token's gradient: the sum of the rows of its slots. */
#include "graph/graph.h"
#include "kernel/slots.h"

static void cpu(const sk_args *a) { sk_slots_gather(a, &a->in[0], &a->in[1], NULL, &a->out[0]); }

static size_t scratch(const sk_args *a) { return sk_slots_scratch(&a->in[1]); }

static double flops(const sk_args *a)
{
    return (double)sk_count(&a->out[0]) * (double)a->in[1].size[2];
}

static const sk_sample samples[] = {
    {.in = {"e4b2x2c8", "b2t5k2%9"}},
    {.in = {"e3b3x4c300", "b3t4k3%12"}}, /* more than one strip */
    {.in = {"e1b1x1c1", "b1t1k1%2"}},
    {.in = {0}},
};

const sk_op sk_op_dispatch_grad = {
    .name = "dispatch_grad",
    .doc = "gradient of dispatch with respect to the rows of tokens",
    .dims = "ebxc,bt!k!->btc",
    .n_in = 2,
    .types = "xs>x",
    .flops = flops,
    .scratch = scratch,
    .cpu = cpu,
    .samples = samples,
};
