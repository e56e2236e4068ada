/* two_level.c - the gates of a tree of experts (Jordan and Jacobs 1994).
 *
 * Experts stand in equal groups, one after the other.  A group is chosen by the softmax of the
 * groups' logits, an expert of it by the softmax of the group's experts; the result is the
 * logarithm of the product, so that it can stand where logits of one level do. */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"

static void infer(sk_graph *g, const sk_node *n)
{
    const char *u = n->letters_in[0], *e = n->letters_in[1];
    int64_t groups = g->size[(int)u[strlen(u) - 1] & 127];
    int64_t experts = g->size[(int)e[strlen(e) - 1] & 127];
    if (experts % groups)
        sk_graph_fail(g, SK_ECONF, "two_level: %lld experts do not stand in %lld equal groups (%s)",
                      (long long)experts, (long long)groups, n->where);
}

static real log_sum(const real *x, int64_t n)
{
    real top = sk_largest(x, n), sum = 0;
    for (int64_t i = 0; i < n; i++) sum += sk_exp(x[i] - top);
    return top + (real)log((double)sum);
}

static void cpu(const sk_args *a)
{
    int64_t groups = a->in[0].size[a->in[0].n - 1], experts = a->in[1].size[a->in[1].n - 1];
    int64_t in_group = experts / groups, from, to;
    sk_share(a, sk_span(&a->in[0], 0, a->in[0].n - 1), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const real *u = (const real *)a->in[0].data + r * groups;
        real all = log_sum(u, groups);
        for (int64_t k = 0; k < groups; k++) {
            int64_t at = r * experts + k * in_group;
            const real *x = (const real *)a->in[1].data + at;
            real *y = (real *)a->out[0].data + at, shift = u[k] - all - log_sum(x, in_group);
            for (int64_t i = 0; i < in_group; i++) y[i] = x[i] + shift;
        }
    }
}

static double flops(const sk_args *a)
{
    return 4 * (double)(sk_count(&a->in[0]) + sk_count(&a->in[1]));
}

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    sk_node *d = sk_apply(g, "two_level_grad", .in = {y->in[0], y->in[1], dy[0]});
    dx[0] = d->out[0];
    dx[1] = d->out[1];
}

static const sk_sample samples[] = {
    {.in = {"b2t3u2", "b2t3e6"}},
    {.in = {"b3u4", "b3e4"}},
    {.in = {"u1", "e5"}},
    {.in = {0}},
};

const sk_op sk_op_two_level = {
    .name = "two_level",
    .doc = "logarithms of two levels of gates: groups of experts, experts of a group",
    .flags = SK_OP_EXACT,
    .dims = "*u!,*e!->*e",
    .n_in = 2,
    .types = "ff>f",
    .infer = infer,
    .grad = grad,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
