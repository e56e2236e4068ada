/* route.c - the experts of a token by its logits, and its place in their queues: see
 * kernel/cpu/router.h, and route_biased.c for more than logits. */
#include "graph/infer_route.h"
#include "kernel/cpu/router.h"

static void cpu(const sk_args *a) { sk_route(a, NULL); }

static double flops(const sk_args *a)
{
    return (double)sk_count(&a->in[0]) * (4 + (double)a->out[0].size[2]);
}

/* Slots are whole numbers: only the gates have a gradient. */
static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    if (!dy[1]) return;
    dx[0] = sk_apply(g, "route_grad", .in = {y->in[0], y->out[0], dy[1]},
                     .attr = {y->attr[1], y->attr[2]})
                ->out[0];
}

static const sk_sample samples[] = {
    {.in = {"b2t7e4"}, .attr = {2, 3, 1}}, {.in = {"b2t7e4"}, .attr = {2, 3, 0}},
    {.in = {"b3t9e5"}, .attr = {1, 2, 0}}, {.in = {"b1t4e3"}, .attr = {3, 4, 1}},
    {.in = {"b1t1e1"}, .attr = {1, 1, 0}}, {.in = {0}},
};

const sk_op sk_op_route = {
    .name = "route",
    .doc = "the slots and gates of each token's experts, from logits",
    .flags = SK_OP_EXACT,
    .dims = "bt!e!->btk!,btk!",
    .n_in = 1,
    .n_out = 2,
    .types = "f>4f",
    .stats = 3,
    .infer = sk_route_infer,
    .grad = grad,
    .no_grad = 1,
    .flops = flops,
    .scratch = sk_route_scratch,
    .cpu = cpu,
    .samples = samples,
};
