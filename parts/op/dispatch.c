/* dispatch.c - copies each token's row to the slots that route gave it; slots without a token are
 * zero.
 *
 * The bank is "ebxc", experts first: so each expert's rows of all sequences are contiguous for one
 * matrix product, and a layout that splits both b and e over one axis splits this node along b and
 * the experts along e, which is the all-to-all of Lepikhin et al. 2020 (GShard).  Attributes:
 * experts, capacity of each in a sequence. */
#include "graph/infer_route.h"
#include "kernel/slots.h"

static void cpu(const sk_args *a) { sk_slots_scatter(a, &a->in[0], &a->in[1], NULL, &a->out[0]); }

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    dx[0] = sk_apply(g, "dispatch_grad", .in = {dy[0], y->in[1]})->out[0];
}

static const sk_sample samples[] = {
    {.in = {"b2t5c8", "b2t5k2%9"}, .attr = {4, 2}}, /* 8 is no slot; some are taken twice */
    {.in = {"b3t4c37", "b3t4k1%12"}, .attr = {3, 4}},
    {.in = {"b1t1c1", "b1t1k1%2"}, .attr = {1, 1}},
    {.in = {0}},
};

const sk_op sk_op_dispatch = {
    .name = "dispatch",
    .doc = "rows of tokens to the slots of their experts",
    .dims = "bt!c,bt!k!->ebxc",
    .n_in = 2,
    .types = "xs>x",
    .infer = sk_slots_infer,
    .grad = grad,
    .cpu = cpu,
    .samples = samples,
};
