/* balance.c - the loss that keeps experts evenly used (Lepikhin et al. 2020, Fedus et al. 2021).
 *
 * Of each sequence: coefficient * T * E * sum over experts of (share of the T first choices) *
 * (mean probability).  It is coefficient * T when all is even.  The first choice is the largest
 * logit, whether the expert was full or not; shares have no gradient.  Sequences are summed by the
 * reduction blocks of b.  Attribute: the coefficient.  One thread does it: a few exponentials per
 * token. */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"

/* Add the probabilities of one token to mass; returns its first choice. */
static int64_t token(const real *logit, int64_t experts, double *mass)
{
    int64_t first = 0;
    double sum = 0;
    for (int64_t e = 1; e < experts; e++) first = logit[e] > logit[first] ? e : first;
    real top = logit[first];
    for (int64_t e = 0; e < experts; e++) sum += (double)sk_exp(logit[e] - top);
    for (int64_t e = 0; e < experts; e++) mass[e] += (double)sk_exp(logit[e] - top) / sum;
    return first;
}

static double sequence(const real *logit, int64_t time, int64_t experts, double *mass)
{
    double *firsts = mass + experts, sum = 0;
    memset(mass, 0, 2 * (size_t)experts * sizeof *mass);
    for (int64_t t = 0; t < time; t++) firsts[token(logit + t * experts, experts, mass)]++;
    for (int64_t e = 0; e < experts; e++) sum += firsts[e] * mass[e];
    return sum * (double)experts / (double)time;
}

static void cpu(const sk_args *a)
{
    const sk_view *x = &a->in[0];
    int64_t time = x->size[1], experts = x->size[2], border[SK_REDUCTION_BLOCKS_MAX + 1];
    real cell[SK_REDUCTION_BLOCKS_MAX], *y = a->out[0].data;
    if (a->part) return;
    int n = sk_view_reduction_blocks(x, 0, border);
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t b = border[i]; b < border[i + 1]; b++)
            sum += sequence((const real *)x->data + b * time * experts, time, experts, a->scratch);
        cell[i] = (real)(a->attr[0] * sum);
    }
    for (int w = 1; w < n; w *= 2)
        for (int i = 0; i < n; i += 2 * w) cell[i] += cell[i + w];
    *y = (a->add & 1 ? *y : 0) + cell[0];
}

static size_t scratch(const sk_args *a) { return 2 * (size_t)a->in[0].size[2] * sizeof(double); }

static double flops(const sk_args *a) { return 10 * (double)sk_count(&a->in[0]); }

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    dx[0] = sk_apply(g, "balance_grad", .in = {y->in[0], dy[0]}, .attr = {y->attr[0]})->out[0];
}

static const sk_sample samples[] = {
    {.in = {"b2t7e4"}, .attr = {0.01}},
    {.in = {"b5t3e5"}, .attr = {1}},
    {.in = {"b1t1e1"}, .attr = {0.5}},
    {.in = {0}},
};

const sk_op sk_op_balance = {
    .name = "balance",
    .doc = "loss of unevenly used experts, from logits",
    .dims = "bt!e!->",
    .n_in = 1,
    .types = "f>f",
    .flags = SK_OP_ADDS | SK_OP_EXACT,
    .stats = 1,
    .grad = grad,
    .flops = flops,
    .scratch = scratch,
    .cpu = cpu,
    .samples = samples,
};
