/* route_grad.c - from the gradients of gates to those of logits.
 *
 * With g the softmax and d its gradient (zero at experts not chosen), each logit gets
 * g (d - sum of g d).  Among the chosen only, the others get nothing.  The slot tells the expert
 * even of a choice whose expert was full (kernel/cpu/router.h).  Attributes: capacity, 1 for the
 * chosen only. */
#include "graph/graph.h"
#include "kernel/slots.h"
#include "kernel/cpu/vecmath.h"

/* The softmax of those logits that count, into p. */
static void softmax(const real *logit, real *p, int64_t n, const int64_t *chosen, int64_t choices,
                    bool among_chosen)
{
    real top = (real)-INFINITY, sum = 0;
    for (int64_t e = 0; e < n; e++) p[e] = among_chosen ? (real)-INFINITY : logit[e];
    for (int64_t k = 0; k < choices; k++)
        if (chosen[k] >= 0) p[chosen[k]] = logit[chosen[k]];
    for (int64_t e = 0; e < n; e++) top = p[e] > top ? p[e] : top;
    for (int64_t e = 0; e < n; e++) sum += p[e] = p[e] == (real)-INFINITY ? 0 : sk_exp(p[e] - top);
    for (int64_t e = 0; e < n && sum > 0; e++) p[e] /= sum;
}

static void token(const sk_args *a, int64_t i, int64_t *chosen)
{
    const sk_view *slot = &a->in[1];
    int64_t experts = a->out[0].size[a->out[0].n - 1], choices = slot->size[slot->n - 1];
    const real *logit = (const real *)a->in[0].data + i * experts;
    const real *d = (const real *)a->in[2].data + i * choices;
    real *p = (real *)a->out[0].data + i * experts, mean = 0, *own = (real *)(chosen + choices);
    for (int64_t k = 0; k < choices; k++)
        chosen[k] = sk_slot_expert(slot, i * choices + k, (int64_t)a->attr[0], experts);
    softmax(logit, p, experts, chosen, choices, a->attr[1] != 0);
    for (int64_t k = 0; k < choices; k++) {
        own[k] = chosen[k] < 0 ? 0 : p[chosen[k]] * d[k];
        mean += own[k];
    }
    for (int64_t e = 0; e < experts; e++) p[e] *= -mean;
    for (int64_t k = 0; k < choices; k++)
        if (chosen[k] >= 0) p[chosen[k]] += own[k];
}

static void cpu(const sk_args *a)
{
    int64_t from, to;
    sk_share(a, sk_span(&a->out[0], 0, a->out[0].n - 1), &from, &to);
    for (int64_t i = from; i < to; i++) token(a, i, a->scratch);
}

static size_t scratch(const sk_args *a)
{
    return (size_t)a->in[1].size[a->in[1].n - 1] * (sizeof(int64_t) + sizeof(real));
}

static double flops(const sk_args *a) { return 6 * (double)sk_count(&a->out[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t7e4", "b2t7k2%12", "b2t7k2"}, .attr = {3, 1}},
    {.in = {"b2t7e4", "b2t7k2%12", "b2t7k2"}, .attr = {3, 0}},
    {.in = {"b3t4e5", "b3t4k1%12", "b3t4k1"}, .attr = {2, 0}}, /* 10 and 11 are no slots */
    {.in = {"e3", "k2%6", "k2"}, .attr = {2, 1}},
    {.in = {0}},
};

const sk_op sk_op_route_grad = {
    .name = "route_grad",
    .doc = "gradient of route's gates with respect to the logits",
    .flags = SK_OP_EXACT,
    .dims = "*e!,*k!,*k!->*e",
    .n_in = 3,
    .types = "fsf>f",
    .flops = flops,
    .scratch = scratch,
    .cpu = cpu,
    .samples = samples,
};
