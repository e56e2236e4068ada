/* combine_grad_rows.c - the gradient of each expert's row: its token's, times the gate.
 *
 * Attributes as of dispatch: experts, capacity. */
#include "graph/infer_route.h"
#include "kernel/slots.h"

static void cpu(const sk_args *a)
{
    sk_slots_scatter(a, &a->in[0], &a->in[1], &a->in[2], &a->out[0]);
}

static const sk_sample samples[] = {
    {.in = {"b2t5c8", "b2t5k2%9", "b2t5k2"}, .attr = {4, 2}},
    {.in = {"b3t4c37", "b3t4k3%12", "b3t4k3"}, .attr = {3, 4}},
    {.in = {"b1t1c1", "b1t1k1%2", "b1t1k1"}, .attr = {1, 1}},
    {.in = {0}},
};

const sk_op sk_op_combine_grad_rows = {
    .name = "combine_grad_rows",
    .doc = "gradient of combine with respect to the rows of experts",
    .dims = "bt!c,bt!k!,bt!k!->ebxc",
    .n_in = 3,
    .types = "xsf>x",
    .infer = sk_slots_infer,
    .cpu = cpu,
    .samples = samples,
};
