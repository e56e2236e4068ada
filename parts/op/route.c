/* route.c - to which experts a token goes, and where it stands in their queues.
 *
 * A token chooses the k experts with the largest logits (of equals the first).  An expert has room
 * for so many tokens of a sequence.  Places are given to first choices before second ones, among
 * them by time (Lepikhin et al. 2020, Fedus et al. 2021), so that a decision depends on nothing
 * outside of the sequence, hence not on the layout.  The slot is expert * room + place; a choice
 * that finds its expert full has the slot -1 - expert.  The gate is the expert's share in the
 * softmax of all logits, or of the chosen ones only (Jiang et al. 2024, Mixtral).
 *
 * Attributes: choices of a token, room of an expert, 1 for the softmax of the chosen ones.
 * Threads own tokens; each makes the choices of all tokens of its sequences, which is a matter of
 * comparisons, and the exponentials of its own. */
#include "base/zigzag.h"
#include "graph/graph.h"
#include "graph/slots.h"
#include "tensor/vecmath.h"

static void infer(sk_graph *g, const sk_node *n)
{
    int64_t experts = g->size[(int)n->letters_in[0][2] & 127];
    double choices = n->attr[0], room = n->attr[1];
    if (choices < 1 || choices > (double)experts)
        sk_graph_fail(g, SK_ECONF, "route: a token has %g choices among %lld experts (%s)", choices,
                      (long long)experts, n->where);
    else if (room < 1 || room * (double)experts > SK_MOST_SLOTS)
        sk_graph_fail(g, SK_ECONF,
                      "route: %lld experts with room for %g tokens each have %g slots; 1 to %d are "
                      "possible: lower capacity_factor or train.seq (%s)",
                      (long long)experts, room, room * (double)experts, SK_MOST_SLOTS, n->where);
    else sk_graph_size(g, n->letters_out[0][2], (int64_t)choices);
}

static int32_t best(const real *logit, int64_t experts, const int32_t *taken, int64_t n)
{
    int32_t top = -1;
    for (int32_t e = 0; e < experts; e++) {
        bool free = true;
        for (int64_t k = 0; k < n; k++) free &= taken[k] != e;
        if (free && (top < 0 || logit[e] > logit[top])) top = e;
    }
    return top;
}

static void gates(const real *logit, int64_t experts, const int32_t *chosen, int64_t choices,
                  bool among_chosen, real *gate)
{
    real top = logit[chosen[0]], sum = 0;
    for (int64_t k = 0; k < choices; k++) gate[k] = sk_exp(logit[chosen[k]] - top);
    for (int64_t k = 0; k < choices && among_chosen; k++) sum += gate[k];
    for (int64_t e = 0; e < experts && !among_chosen; e++) sum += sk_exp(logit[e] - top);
    for (int64_t k = 0; k < choices; k++) gate[k] /= sum;
}

/* Tokens [from, to) of one sequence; `chosen` and `queue` are room to work. */
static void sequence(const sk_args *a, int64_t b, int64_t from, int64_t to, int32_t *chosen,
                     int32_t *queue)
{
    int64_t time = a->in[0].size[1], experts = a->in[0].size[2], choices = a->out[0].size[2];
    const real *logit = (const real *)a->in[0].data + b * time * experts;
    real *slot = (real *)a->out[0].data + b * time * choices;
    real *gate = (real *)a->out[1].data + b * time * choices;
    int64_t room = (int64_t)a->attr[1];
    for (int64_t t = 0; t < time; t++)
        for (int64_t k = 0; k < choices; k++)
            chosen[t * choices + k] = best(logit + t * experts, experts, chosen + t * choices, k);
    for (int64_t t = from; t < to; t++)
        gates(logit + t * experts, experts, chosen + t * choices, choices, a->attr[2] != 0,
              gate + t * choices);
    memset(queue, 0, (size_t)experts * sizeof *queue);
    for (int64_t k = 0; k < choices; k++)
        for (int64_t at = 0; at < time; at++) {
            int64_t t = sk_zigzag_index(at, time, a->in[0].zigzag[1]);
            int64_t i = t * choices + k, e = chosen[i], place = queue[e]++;
            if (t >= from && t < to) slot[i] = (real)(place < room ? e * room + place : -1 - e);
        }
}

static void cpu(const sk_args *a)
{
    int64_t time = a->in[0].size[1], from, to;
    int32_t *queue = a->scratch, *chosen = queue + a->in[0].size[2];
    sk_share(a, a->in[0].size[0] * time, &from, &to);
    while (from < to) {
        int64_t b = from / time, end = (b + 1) * time < to ? (b + 1) * time : to;
        sequence(a, b, from - b * time, end - b * time, chosen, queue);
        from = end;
    }
}

static size_t scratch(const sk_args *a)
{
    return (size_t)(a->in[0].size[1] * a->out[0].size[2] + a->in[0].size[2]) * sizeof(int32_t);
}

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
    .dims = "bt!e!->btk!,btk!",
    .n_in = 1,
    .n_out = 2,
    .stats = 3,
    .infer = infer,
    .grad = grad,
    .flops = flops,
    .scratch = scratch,
    .cpu = cpu,
    .samples = samples,
};
