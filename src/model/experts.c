/* experts.c - see experts.h. */
#include "model/experts.h"

#include <math.h>

static void check(sk_graph *g, const sk_hyper *h)
{
    long long experts = h->num_local_experts, choices = h->num_experts_per_tok;
    if (experts < 1)
        sk_graph_fail(g, SK_ECONF, "num_local_experts is %lld; at least 1 is needed", experts);
    if (choices < 1 || choices > experts)
        sk_graph_fail(g, SK_ECONF, "num_experts_per_tok is %lld; 1 to %lld are possible", choices,
                      experts);
    if (h->expert_groups < 0 || (h->expert_groups && experts % h->expert_groups))
        sk_graph_fail(g, SK_ECONF, "num_local_experts %lld is not a multiple of expert_groups %lld",
                      experts, (long long)h->expert_groups);
    if (!(h->capacity_factor >= 0))
        sk_graph_fail(g, SK_ECONF, "capacity_factor is %g; 0 (room for all) or more is needed",
                      h->capacity_factor);
    if (!(h->router_bias_update_speed >= 0 && h->router_bias_update_speed < 1))
        sk_graph_fail(g, SK_ECONF,
                      "router_bias_update_speed is %g; 0 (no bias) or less than 1 is needed, 0.001 "
                      "is usual",
                      h->router_bias_update_speed);
}

/* The capacity of an expert in a sequence: its even share of all choices times the factor.  A token
 * chooses an expert at most once, so a capacity of `time` never drops a choice. */
static int64_t capacity(const sk_hyper *h, int64_t time, sk_mode mode)
{
    double share = (double)h->num_experts_per_tok * (double)time / (double)h->num_local_experts;
    double places = ceil(h->capacity_factor * share);
    if (mode == SK_DECODE || h->capacity_factor == 0 || places > (double)time) return time;
    return places < 1 ? 1 : (int64_t)places;
}

void sk_experts_sizes(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    check(g, h);
    if (g->status) return;
    sk_graph_size(g, 'e', h->num_local_experts);
    sk_graph_size(g, 'g', h->num_local_experts);
    sk_graph_size(g, 'k', h->num_experts_per_tok);
    sk_graph_size(g, 'x', capacity(h, g->size['t'], mode));
    if (h->expert_groups) sk_graph_size(g, 'u', h->expert_groups);
}

/* One level of gates, or two. */
static sk_tensor *logits(sk_graph *g, const sk_hyper *h, sk_tensor *x, int i)
{
    double std = h->initializer_range;
    sk_tensor *y = sk_contract(g, "btc,cg->btg", x, sk_param_f(g, "cg", std, "h.%d.router.w", i));
    if (!h->expert_groups) return y;
    sk_tensor *w = sk_param_f(g, "cu", std, "h.%d.router.groups", i);
    return sk_apply(g, "two_level", .in = {sk_contract(g, "btc,cu->btu", x, w), y})->out[0];
}

/* With a bias or without. */
static sk_node *route(sk_graph *g, const sk_hyper *h, sk_tensor *y, int i, bool among_chosen)
{
    double choices = (double)h->num_experts_per_tok, places = (double)g->size['x'];
    double among = among_chosen ? 1 : 0, speed = h->router_bias_update_speed;
    if (speed == 0) return sk_apply(g, "route", .in = {y}, .attr = {choices, places, among});
    sk_tensor *bias = sk_param_f(g, "g", SK_ZEROS, "h.%d.router.bias", i);
    bias->bias_update = speed;
    return sk_apply(g, "route_biased", .in = {y, bias}, .attr = {choices, places, among});
}

sk_experts sk_experts_route(sk_graph *g, const sk_hyper *h, sk_tensor *x, int i, sk_mode mode,
                            bool among_chosen)
{
    sk_tensor *y = logits(g, h, x, i);
    sk_node *n = route(g, h, y, i, among_chosen);
    if (mode == SK_TRAIN) {
        double coef = h->router_aux_loss_coef;
        sk_graph_sum(g, SK_SUM_DROPS, sk_apply(g, "drops", .in = {n->out[0]})->out[0]);
        if (coef > 0)
            sk_graph_sum(g, SK_SUM_AUX, sk_apply(g, "balance", .in = {y}, .attr = {coef})->out[0]);
    }
    return (sk_experts){n->out[0], n->out[1]};
}

sk_tensor *sk_experts_send(sk_graph *g, sk_experts m, sk_tensor *x)
{
    double experts = (double)g->size['e'], places = (double)g->size['x'];
    return sk_apply(g, "dispatch", .in = {x, m.slot}, .attr = {experts, places})->out[0];
}

sk_tensor *sk_experts_collect(sk_graph *g, sk_experts m, sk_tensor *rows)
{
    return sk_apply(g, "combine", .in = {rows, m.slot, m.gate})->out[0];
}

int sk_experts_routers(const sk_hyper *h)
{
    return 1 + (h->expert_groups != 0) + (h->router_bias_update_speed != 0);
}

const sk_hf_row *sk_experts_router(const sk_hyper *h, const sk_experts_names *names, int k)
{
    if (!k) return &names->router;
    return k == 1 && h->expert_groups ? &names->groups : &names->bias;
}

const sk_hf_key sk_experts_keys[] = {
    {"num_local_experts", "num_local_experts"},
    {"num_experts_per_tok", "num_experts_per_tok"},
    {"n_shared_experts", "n_shared_experts"},
    {"expert_groups", "expert_groups"},
    {"capacity_factor", "capacity_factor"},
    {"router_bias_update_speed", "router_bias_update_speed"},
    {0},
};
