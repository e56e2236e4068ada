/* route_biased.c - route by scores with a bias for each expert (Wang et al. 2024):
 * the softmax of the logits plus the bias chooses, gates are those of the logits alone.
 *
 * So the loss does not depend on the bias, whose derivative is zero.  A bias with a bias update
 * (sk_tensor.bias_update) gets the load of the experts as its gradient: it falls where too many
 * tokens went and rises elsewhere. */
#include "graph/infer_route.h"
#include "kernel/cpu/router.h"

static void cpu(const sk_args *a) { sk_route(a, a->in[1].data); }

static double flops(const sk_args *a)
{
    return (double)sk_count(&a->in[0]) * (8 + (double)a->out[0].size[2]);
}

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    char *dims = sk_print(g->arena, "%s->%s", y->letters_out[0], y->letters_in[1]);
    if (y->in[1]->bias_update != 0)
        dx[1] = sk_apply(g, "load", .in = {y->out[0]}, .dims = dims, .attr = {y->attr[1]})->out[0];
    if (!dy[1]) return;
    dx[0] = sk_apply(g, "route_grad", .in = {y->in[0], y->out[0], dy[1]},
                     .attr = {y->attr[1], y->attr[2]})
                ->out[0];
}

static const sk_sample samples[] = {
    {.in = {"b2t7e4", "e4"}, .attr = {2, 3, 1}}, {.in = {"b2t7e4", "e4"}, .attr = {2, 3, 0}},
    {.in = {"b3t9e5", "e5"}, .attr = {1, 2, 0}}, {.in = {"b1t4e3", "e3"}, .attr = {3, 4, 1}},
    {.in = {"b1t1e1", "e1"}, .attr = {1, 1, 0}}, {.in = {0}},
};

const sk_op sk_op_route_biased = {
    .name = "route_biased",
    .doc = "route by scores plus a bias that the gates do not see",
    .flags = SK_OP_EXACT,
    .dims = "bt!e!,e!->btk!,btk!",
    .n_in = 2,
    .n_out = 2,
    .types = "ff>4f",
    .stats = 3,
    .infer = sk_route_infer,
    .grad = grad,
    .no_grad = 1,
    .flops = flops,
    .scratch = sk_route_scratch,
    .cpu = cpu,
    .samples = samples,
};
