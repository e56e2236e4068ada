/* combine.c - the outputs of a token's experts, weighted by its gates and summed.
 *
 * A rank that has some of the experts makes a partial sum. */
#include "graph/graph.h"
#include "kernel/slots.h"

static void cpu(const sk_args *a)
{
    sk_slots_gather(a, &a->in[0], &a->in[1], &a->in[2], &a->out[0]);
}

static size_t scratch(const sk_args *a) { return sk_slots_scratch(&a->in[1]); }

static double flops(const sk_args *a)
{
    return 2 * (double)sk_count(&a->out[0]) * (double)a->in[1].size[2];
}

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    const char *bank = y->letters_in[0];
    double experts = (double)g->size[(int)bank[0] & 127],
           capacity = (double)g->size[(int)bank[2] & 127];
    char *dims = sk_print(g->arena, "bt!c,bt!k!,bt!k!->%cb%cc", bank[0], bank[2]);
    dx[2] = sk_apply(g, "combine_grad_gate", .in = {y->in[0], dy[0], y->in[1]})->out[0];
    dx[0] = sk_apply(g, "combine_grad_rows", .in = {dy[0], y->in[1], y->in[2]}, .dims = dims,
                     .attr = {experts, capacity})
                ->out[0];
}

static const sk_sample samples[] = {
    {.in = {"e4b2x2c8", "b2t5k2%9", "b2t5k2"}},
    {.in = {"e3b3x4c300", "b3t4k3%12", "b3t4k3"}}, /* more than one strip */
    {.in = {"e5b1x3c3", "b1t7k4%15", "b1t7k4"}},
    {.in = {"e1b1x1c1", "b1t1k1%2", "b1t1k1"}},
    {.in = {0}},
};

const sk_op sk_op_combine = {
    .name = "combine",
    .doc = "rows of experts back to their tokens, weighted by gates",
    .dims = "ebxc,bt!k!,bt!k!->btc",
    .n_in = 3,
    .types = "xsf>x",
    .grad = grad,
    .flops = flops,
    .scratch = scratch,
    .cpu = cpu,
    .samples = samples,
};
