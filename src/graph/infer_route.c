/* infer_route.c - see infer_route.h. */
#include "graph/infer_route.h"
#include "kernel/slots.h"

void sk_route_infer(sk_graph *g, const sk_node *n)
{
    int64_t experts = g->size[(int)n->letters_in[0][2] & 127];
    double choices = n->attr[0], capacity = n->attr[1];
    if (!(choices >= 1 && choices <= (double)experts))
        sk_graph_fail(g, SK_ECONF, "%s: a token has %g choices among %lld experts (%s)",
                      n->op->name, choices, (long long)experts, n->where);
    else if (!(capacity >= 1 && capacity * (double)experts <= SK_MOST_SLOTS))
        sk_graph_fail(g, SK_ECONF,
                      "%s: %lld experts with room for %g tokens each have %g slots; 1 to %d are "
                      "possible: lower capacity_factor or train.seq (%s)",
                      n->op->name, (long long)experts, capacity, capacity * (double)experts,
                      SK_MOST_SLOTS, n->where);
    else sk_graph_size(g, n->letters_out[0][2], (int64_t)choices);
}

void sk_slots_infer(sk_graph *g, const sk_node *n)
{
    double experts = n->attr[0], capacity = n->attr[1];
    if (!(experts >= 1 && capacity >= 1 && experts * capacity <= SK_MOST_SLOTS)) {
        sk_graph_fail(g, SK_ECONF,
                      "%s: %g experts with room for %g tokens each; both must be at least 1, and "
                      "their product at most %d (%s)",
                      n->op->name, experts, capacity, SK_MOST_SLOTS, n->where);
        return;
    }
    sk_graph_size(g, n->letters_out[0][0], (int64_t)experts);
    sk_graph_size(g, n->letters_out[0][2], (int64_t)capacity);
}
