/* balance_grad.c - gradient of balance: with p the softmax of a token and n the first choices of
 * its sequence, each logit gets coefficient * E / T * p (n - sum of p n) * dl.
 *
 * Threads own tokens and count the first choices of every sequence they meet. */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"

static int64_t first_choice(const real *logit, int64_t experts)
{
    int64_t first = 0;
    for (int64_t e = 1; e < experts; e++) first = logit[e] > logit[first] ? e : first;
    return first;
}

static void token(const real *logit, const real *firsts, real scale, int64_t experts, real *d)
{
    real top = logit[first_choice(logit, experts)], sum = 0, mean = 0;
    for (int64_t e = 0; e < experts; e++) sum += d[e] = sk_exp(logit[e] - top);
    for (int64_t e = 0; e < experts; e++) d[e] /= sum;
    for (int64_t e = 0; e < experts; e++) mean += d[e] * firsts[e];
    for (int64_t e = 0; e < experts; e++) d[e] *= scale * (firsts[e] - mean);
}

/* Tokens [from, to) of all; those of one sequence. */
static void sequence(const sk_args *a, int64_t from, int64_t to, real *firsts)
{
    int64_t time = a->in[0].size[1], experts = a->in[0].size[2], start = from / time * time;
    const real *logit = a->in[0].data;
    real scale = (real)(a->attr[0] * (double)experts / (double)time) * *(real *)a->in[1].data;
    memset(firsts, 0, (size_t)experts * sizeof *firsts);
    for (int64_t t = start; t < start + time; t++)
        firsts[first_choice(logit + t * experts, experts)]++;
    for (int64_t t = from; t < to; t++)
        token(logit + t * experts, firsts, scale, experts, (real *)a->out[0].data + t * experts);
}

static void cpu(const sk_args *a)
{
    int64_t time = a->in[0].size[1], from, to;
    sk_share(a, a->in[0].size[0] * time, &from, &to);
    while (from < to) {
        int64_t end = (from / time + 1) * time < to ? (from / time + 1) * time : to;
        sequence(a, from, end, a->scratch);
        from = end;
    }
}

static size_t scratch(const sk_args *a) { return (size_t)a->in[0].size[2] * sizeof(real); }

static double flops(const sk_args *a) { return 9 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t7e4", ""}, .attr = {0.01}},
    {.in = {"b5t3e5", ""}, .attr = {1}},
    {.in = {"b1t1e1", ""}, .attr = {0.5}},
    {.in = {0}},
};

const sk_op sk_op_balance_grad = {
    .name = "balance_grad",
    .doc = "gradient of balance with respect to the logits",
    .flags = SK_OP_EXACT,
    .dims = "bt!e!,->bte",
    .n_in = 2,
    .types = "ff>f",
    .flops = flops,
    .scratch = scratch,
    .cpu = cpu,
    .samples = samples,
};
