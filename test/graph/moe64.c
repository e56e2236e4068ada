/* Mixtures of experts, in float64: routing against its definition, places and ties by hand, what is
 * sent comes back, balance and two levels where the answer is known, sums that do not depend on
 * how experts are cut, a bias that chooses and does not weigh, and two layers together: the
 * gradient of loss plus aux against central differences. */
#include "lib/check.h"

#include "base/rng.h"
#include "model/blocks.h"
#include "model/experts.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = 1 << 12 };

static sk_arena arena;

static sk_view view(int n, const int64_t *size)
{
    sk_view v = {.type = SK_F32, .n = n};
    for (int d = 0; d < n; d++) v.size[d] = v.full[d] = size[d];
    sk_view_dense(&v);
    v.data = sk_many(&arena, real, sk_count(&v) + 1);
    return v;
}

#define VIEW(...) \
    view((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

static real *at(const sk_view *v, int64_t i) { return (real *)v->data + i; }

static void fill(const sk_view *v, uint64_t stream)
{
    for (int64_t i = 0; i < sk_count(v); i++) *at(v, i) = sk_rng_normal(3, stream, (uint64_t)i);
}

static void run(const char *name, sk_args a, int threads)
{
    const sk_op *op = sk_op_find(name);
    a.n_in = op->n_in;
    a.n_out = sk_op_outs(op);
    a.of = threads;
    for (a.part = 0; a.part < threads; a.part++) {
        a.scratch = sk_alloc(&arena, sk_op_scratch(op, &a) + 8);
        sk_op_run_cpu(op, &a);
    }
}

/* ---- routing */

/* The r-th choice of a token: so many experts are before it, larger or equal and first. */
static int64_t choice(const real *logit, int64_t experts, int64_t r)
{
    for (int64_t e = 0; e < experts; e++) {
        int64_t before = 0;
        for (int64_t o = 0; o < experts; o++)
            before += logit[o] > logit[e] || (logit[o] == logit[e] && o < e);
        if (before == r) return e;
    }
    return -1;
}

static real gate_of(const real *logit, int64_t experts, int64_t e, int64_t choices)
{
    real sum = 0; /* over the first `choices`, or all */
    for (int64_t r = 0; r < choices; r++) sum += exp(logit[choice(logit, experts, r)]);
    return exp(logit[e]) / sum;
}

static void route_case(int64_t time, int64_t experts, int64_t choices, int64_t room, bool among,
                       bool ties)
{
    sk_view x = VIEW(2, time, experts), slot = VIEW(2, time, choices),
            gate = VIEW(2, time, choices);
    double drops = 0, counted = 0;
    fill(&x, 1);
    for (int64_t i = 0; ties && i < sk_count(&x); i++) *at(&x, i) = floor(*at(&x, i));
    sk_args a = {.in = {x}, .out = {slot, gate}};
    a.attr[0] = (double)choices, a.attr[1] = (double)room, a.attr[2] = among;
    run("route", a, 3);
    for (int64_t b = 0; b < 2; b++) {
        int64_t queue[64] = {0};
        for (int64_t r = 0; r < choices; r++)
            for (int64_t t = 0; t < time; t++) {
                const real *logit = at(&x, (b * time + t) * experts);
                int64_t i = (b * time + t) * choices + r, e = choice(logit, experts, r);
                real want = gate_of(logit, experts, e, among ? choices : experts);
                int64_t place = queue[e]++;
                drops += place >= room;
                check(*at(&slot, i) == (real)(place < room ? e * room + place : -1 - e));
                check(fabs(*at(&gate, i) - want) < 1e-12);
            }
    }
    sk_args d = {.in = {slot}, .out = {{.data = &counted, .type = SK_F32}}};
    run("drops", d, 2);
    check(counted == drops && (drops > 0) == (room * experts < time * choices || room < time / 2));
}

/* Four tokens, three experts, room for one: first choices before second ones, then by time. */
static void by_hand(void)
{
    sk_view x = VIEW(1, 4, 3), slot = VIEW(1, 4, 2), gate = VIEW(1, 4, 2);
    static const real logits[] = {2, 1, 0, /**/ 0, 1, 2, /**/ 5, 5, 5, /**/ NAN, NAN, NAN};
    static const real want[] = {0, 1, /**/ 2, -2, /**/ -1, -2, /**/ -1, -2};
    memcpy(x.data, logits, sizeof logits);
    sk_args a = {.in = {x}, .out = {slot, gate}, .attr = {2, 1, 1}};
    run("route", a, 1);
    for (int i = 0; i < 8; i++) check(*at(&slot, i) == want[i]);
    check(*at(&gate, 4) == 0.5 && fabs(*at(&gate, 0) - 1 / (1 + exp(-1))) < 1e-15);
}

/* ---- a bias that chooses */

/* Choices are those of route by softmax + bias; gates those of the logits alone. */
static void biased_case(int64_t time, int64_t experts, int64_t choices, int64_t room, bool among)
{
    sk_view x = VIEW(2, time, experts), score = VIEW(2, time, experts), bias = VIEW(experts);
    sk_view slot = VIEW(2, time, choices), gate = VIEW(2, time, choices);
    sk_view want = VIEW(2, time, choices), load = VIEW(experts);
    int64_t count[64] = {0}, differ = 0;
    fill(&x, 11);
    for (int64_t e = 0; e < experts; e++) *at(&bias, e) = 0.2 * (double)(e % 3) - 0.1;
    for (int64_t i = 0; i < sk_count(&x); i++)
        *at(&score, i) = gate_of(at(&x, i / experts * experts), experts, i % experts, experts) +
                         *at(&bias, i % experts);
    sk_args a = {.in = {x, bias}, .out = {slot, gate}};
    a.attr[0] = (double)choices, a.attr[1] = (double)room, a.attr[2] = among;
    run("route_biased", a, 3);
    a.in[0] = score, a.out[0] = want, a.out[1] = VIEW(2, time, choices);
    run("route", a, 1);
    for (int64_t i = 0; i < sk_count(&slot); i++) {
        const real *logit = at(&x, i / choices * experts);
        int64_t e = choice(at(&score, i / choices * experts), experts, i % choices);
        real sum = 0;
        for (int64_t r = 0; r < (among ? choices : experts); r++)
            sum += exp(logit[among ? choice(at(&score, i / choices * experts), experts, r) : r]);
        check(*at(&slot, i) == *at(&want, i));
        check(fabs(*at(&gate, i) - exp(logit[e]) / sum) < 1e-12);
        differ += e != choice(logit, experts, i % choices);
        count[e]++;
    }
    check(differ > 0 || choices == experts); /* or the test would see nothing */
    sk_args d = {.in = {slot}, .out = {load}, .attr = {(double)room}};
    run("load", d, 2);
    for (int64_t e = 0; e < experts; e++)
        check(*at(&load, e) == (real)(experts * count[e] - 2 * time * choices));
}

/* A bias that overrules logits far apart: gates are still numbers. */
static void overruled(void)
{
    sk_view x = VIEW(1, 2, 3), bias = VIEW(3), slot = VIEW(1, 2, 2), gate = VIEW(1, 2, 2);
    static const real logits[] = {900, 0, -900, /**/ 900, 899, 0}, biases[] = {-5, 0, 2};
    static const real want[] = {4, 2, /**/ 5, 3}; /* room for 2 */
    memcpy(x.data, logits, sizeof logits);
    memcpy(bias.data, biases, sizeof biases);
    for (int among = 0; among < 2; among++) {
        sk_args a = {.in = {x, bias}, .out = {slot, gate}, .attr = {2, 2, among}};
        run("route_biased", a, 1);
        for (int i = 0; i < 4; i++) check(*at(&slot, i) == want[i] && isfinite(*at(&gate, i)));
        check(*at(&gate, 1) == among && *at(&gate, 0) == 0);
        check(among ? *at(&gate, 3) == 1 : fabs(*at(&gate, 3) - 1 / (1 + exp(1))) < 1e-12);
    }
}

/* ---- sent and brought back */

static void there_and_back(void)
{
    sk_view logit = VIEW(2, 9, 4), x = VIEW(2, 9, 5), bank = VIEW(4, 2, 3, 5), y = VIEW(2, 9, 5);
    sk_view slot = VIEW(2, 9, 2), gate = VIEW(2, 9, 2);
    fill(&logit, 2);
    fill(&x, 3);
    run("route", (sk_args){.in = {logit}, .out = {slot, gate}, .attr = {2, 3, 1}}, 1);
    run("dispatch", (sk_args){.in = {x, slot}, .out = {bank}}, 2);
    run("combine", (sk_args){.in = {bank, slot, gate}, .out = {y}}, 2);
    for (int64_t i = 0; i < sk_count(&y); i++) {
        int64_t t = i / 5;
        real share = 0;
        for (int64_t k = 0; k < 2; k++)
            share += *at(&slot, 2 * t + k) < 0 ? 0 : *at(&gate, 2 * t + k);
        check(fabs(*at(&y, i) - share * *at(&x, i)) < 1e-14);
    }
}

/* Slots that no router makes must not lead anywhere. */
static void no_slots(void)
{
    static const real odd[] = {-1, -1e300, 1e300, (real)INFINITY, (real)NAN, 12, 1e8, -0.5};
    sk_view x = VIEW(1, 4, 3), slot = VIEW(1, 4, 2), gate = VIEW(1, 4, 2), bank = VIEW(4, 1, 3, 3);
    sk_view y = VIEW(1, 4, 3), d = VIEW(1, 4, 4);
    memcpy(slot.data, odd, sizeof odd);
    fill(&x, 4);
    fill(&bank, 5);
    run("combine", (sk_args){.in = {bank, slot, gate}, .out = {y}}, 1);
    run("combine_grad_gate", (sk_args){.in = {bank, x, slot}, .out = {gate}}, 1);
    run("route_grad", (sk_args){.in = {d, slot, gate}, .out = {d}, .attr = {3, 1}}, 1);
    run("dispatch", (sk_args){.in = {x, slot}, .out = {bank}}, 1);
    for (int64_t i = 0; i < sk_count(&bank); i++) check(*at(&bank, i) == 0);
    for (int64_t i = 0; i < 12; i++) check(*at(&y, i) == 0);
    for (int64_t i = 0; i < 8; i++) check(*at(&gate, i) == 0);
}

/* ---- balance and two levels */

static double balance_of(const sk_view *x, double coef)
{
    real y = 0;
    run("balance", (sk_args){.in = {*x}, .out = {{.data = &y, .type = SK_F32}}, .attr = {coef}}, 3);
    return y;
}

static void known_balance(void)
{
    sk_view x = VIEW(3, 8, 4);
    for (int64_t i = 0; i < 96; i++) *at(&x, i) = i / 4 % 4 == i % 4 ? 30 : 0;
    check(fabs(balance_of(&x, 0.5) - 3 * 0.5 * 8) < 1e-9); /* even: T a sequence */
    for (int64_t i = 0; i < 96; i++) *at(&x, i) = i % 4 == 2 ? 30 : 0;
    check(fabs(balance_of(&x, 0.5) - 3 * 0.5 * 8 * 4) < 1e-9); /* all to one: E times that */
    for (int64_t i = 0; i < 96; i++) *at(&x, i) = 0;
    check(fabs(balance_of(&x, 1) - 3 * 8) < 1e-9); /* ties go to the first, even probabilities */
}

static void known_levels(void)
{
    sk_view u = VIEW(2), x = VIEW(6), y = VIEW(6);
    static const real groups[] = {1, 1 + 1.0986122886681098}; /* 1 : 3 */
    memcpy(u.data, groups, sizeof groups);
    for (int i = 0; i < 6; i++) *at(&x, i) = i < 3 ? 7 : log((double)(i - 2)); /* 1 : 2 : 3 */
    run("two_level", (sk_args){.in = {u, x}, .out = {y}}, 1);
    for (int i = 0; i < 6; i++) {
        double want = i < 3 ? 0.25 / 3 : 0.75 * (i - 2) / 6;
        check(fabs(exp(*at(&y, i)) - want) < 1e-12);
    }
}

/* ---- canonical order */

static sk_view piece(const sk_view *v, int64_t from, int64_t to) /* of the first dim */
{
    sk_view p = *v;
    p.at[0] = from;
    p.size[0] = to - from;
    p.data = at(v, from * sk_span(v, 1, v->n));
    return p;
}

static bool same(const sk_view *x, const sk_view *y)
{
    return !memcmp(x->data, y->data, (size_t)sk_count(x) * sizeof(real));
}

static void add(const sk_view *to, const sk_view *x)
{
    for (int64_t i = 0; i < sk_count(to); i++) *at(to, i) += *at(x, i);
}

/* y of the experts [from, to) as `ranks` ranks would make it, a power of two. */
static sk_view gathered(const sk_view *bank, const sk_view *slot, const sk_view *gate, int ranks)
{
    sk_view y[8];
    for (int r = 0; r < ranks; r++) {
        int64_t n = bank->size[0];
        y[r] = VIEW(1, 40, 7);
        sk_view mine = piece(bank, n * r / ranks, n * (r + 1) / ranks);
        run("combine", (sk_args){.in = {mine, *slot, *gate}, .out = {y[r]}}, 1 + r);
    }
    for (int w = 1; w < ranks; w *= 2)
        for (int r = 0; r < ranks; r += 2 * w) add(&y[r], &y[r + w]);
    return y[0];
}

static void cut_experts(void)
{
    sk_view bank = VIEW(8, 1, 5, 7), slot = VIEW(1, 40, 6), gate = VIEW(1, 40, 6);
    fill(&bank, 6);
    fill(&gate, 7);
    for (int64_t i = 0; i < 240; i++) *at(&slot, i) = floor(40 * sk_rng_uniform(3, 8, (uint64_t)i));
    sk_view fast = gathered(&bank, &slot, &gate, 1);
    bank.cells[0] = 8;
    sk_view one = gathered(&bank, &slot, &gate, 1);
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        sk_view many = gathered(&bank, &slot, &gate, ranks);
        check(same(&one, &many));
    }
    check(!same(&one, &fast)); /* or the test would see nothing */
}

static void cut_sequences(void)
{
    sk_view x = VIEW(8, 5, 4);
    fill(&x, 9);
    double fast = balance_of(&x, 0.3);
    x.cells[0] = 8;
    double one = balance_of(&x, 0.3), half[2];
    for (int i = 0; i < 2; i++) {
        sk_view p = piece(&x, 4 * i, 4 * i + 4);
        half[i] = balance_of(&p, 0.3);
    }
    check(one == half[0] + half[1] && fabs(one - fast) < 1e-12);
}

/* ---- two layers together */

typedef struct setting {
    bool among;
    int64_t groups, choices;
    double factor, speed;
} setting;

static sk_tensor *layer(sk_graph *g, const sk_hyper *h, sk_tensor *x, int i, bool among)
{
    g->layer = i + 1;
    sk_experts m = sk_experts_route(g, h, x, i, SK_TRAIN, among);
    sk_tensor *w = sk_param_f(g, "fec", 0.5, "in.%d", i),
              *out = sk_param_f(g, "cef", 0.5, "out.%d", i);
    sk_tensor *y = sk_contract(g, "ebxc,fec->ebxf", sk_experts_send(g, m, x), w);
    y = sk_apply(g, "swiglu", .in = {y, y})->out[0];
    y = sk_experts_collect(g, m, sk_contract(g, "ebxf,cef->ebxc", y, out));
    return sk_apply(g, "add", .in = {x, y})->out[0];
}

static void model(sk_graph *g, const setting *s)
{
    sk_hyper h = {.num_local_experts = 4,
                  .num_experts_per_tok = s->choices,
                  .expert_groups = s->groups,
                  .capacity_factor = s->factor,
                  .router_aux_loss_coef = 0.3,
                  .router_bias_update_speed = s->speed,
                  .initializer_range = 1};
    sk_graph_init(g, &arena);
    sk_graph_size(g, 'b', 2);
    sk_graph_size(g, 't', 5);
    sk_graph_size(g, 'c', 3);
    sk_graph_size(g, 'f', 4);
    sk_graph_size(g, 'v', 6);
    sk_experts_sizes(g, &h, SK_TRAIN);
    sk_tensor *wte = sk_param(g, "wte", "vc", 1);
    sk_tensor *x =
        sk_apply(g, "embedding", .in = {wte, sk_input(g, "tokens", "bt", SK_I32)})->out[0];
    for (int i = 0; i < 2; i++) x = layer(g, &h, x, i, s->among);
    g->layer = 3;
    sk_cross_entropy(g, sk_contract(g, "btc,vc->btv", x, wte), sk_input(g, "targets", "bt", SK_I32),
                     sk_input(g, "weights", "bt", SK_F32));
    sk_graph_grad(g);
}

static void *memory_of(const sk_graph *g, const sk_tensor *t)
{
    sk_shape s = sk_tensor_shape(g, t);
    int64_t n = 1;
    for (int d = 0; d < s.n; d++) n *= s.d[d];
    real *x = sk_many(&arena, real, n + 1);
    for (int64_t i = 0; i < n && t->role != SK_VALUE; i++) {
        double u = sk_rng_normal(5, sk_rng(1, 1, (uint64_t)t->id).a, (uint64_t)i);
        if (t->type == SK_I32) ((int32_t *)(void *)x)[i] = (int32_t)(fabs(u) * 2) % 6;
        else x[i] = !strcmp(t->name, "loss_scale") ? 1 : t->role == SK_PARAM ? u : 0.5 + fabs(u);
    }
    return x;
}

static void evaluate(const sk_graph *g, void **data)
{
    for (int k = 0; k < g->nodes.n; k++) {
        const sk_node *n = g->nodes.v[k];
        sk_args a = {.dims = n->dims};
        for (int i = 0; i < n->n_in + n->n_out; i++) {
            const sk_tensor *t = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
            sk_shape s = sk_tensor_shape(g, t);
            sk_view v = {.type = t->type, .n = s.n, .data = data[t->id]};
            for (int d = 0; d < s.n; d++) v.size[d] = v.full[d] = s.d[d];
            sk_view_dense(&v);
            *(i < n->n_in ? &a.in[i] : &a.out[i - n->n_in]) = v;
        }
        memcpy(a.attr, n->attr, sizeof a.attr);
        run(n->op->name, a, 1);
    }
}

/* What flows into a tensor, element i. */
static double total(const sk_graph *g, void **data, const sk_tensor *into, int64_t i)
{
    double sum = 0;
    for (int k = 0; k < g->nodes.n; k++)
        for (int o = 0; o < g->nodes.v[k]->n_out; o++)
            if (into && g->nodes.v[k]->into[o] == into)
                sum += ((real *)data[g->nodes.v[k]->out[o]->id])[i];
    return sum;
}

static double objective(const sk_graph *g, void **data)
{
    evaluate(g, data);
    return total(g, data, g->loss, 0) + total(g, data, g->aux, 0);
}

static void param_gradient(const sk_graph *g, void **data, const sk_tensor *p)
{
    sk_shape s = sk_tensor_shape(g, p);
    int64_t n = 1;
    double h = 1e-5, got[256];
    for (int d = 0; d < s.n; d++) n *= s.d[d];
    for (int64_t i = 0; i < n; i++) got[i] = total(g, data, p, i);
    for (int64_t i = 0; i < n; i++) {
        real *x = (real *)data[p->id] + i, was = *x;
        *x = was + h;
        double up = objective(g, data);
        *x = was - h;
        double slope = (up - objective(g, data)) / (2 * h);
        *x = was;
        bool right = fabs(got[i] - slope) < 1e-6 * (1 + fabs(slope));
        if (!right) printf("%s[%d]: %.9g, %.9g is right\n", p->name, (int)i, got[i], slope);
        check(right);
    }
    evaluate(g, data);
}

/* A router bias does not get the derivative, which is zero, but the load: what slots say. */
static void load_gradient(const sk_graph *g, void **data, const sk_tensor *bias, int64_t choices)
{
    const sk_node *route = NULL;
    int64_t count[4] = {0}, all = 2 * 5 * choices, room = g->size['x'];
    for (int k = 0; k < g->nodes.n; k++)
        if (g->nodes.v[k]->n_in > 1 && g->nodes.v[k]->in[1] == bias) route = g->nodes.v[k];
    check(route && route->phase == SK_FORWARD);
    for (int64_t i = 0; route && i < all; i++) {
        int64_t s = (int64_t)((real *)data[route->out[0]->id])[i];
        count[s < 0 ? -1 - s : s / room]++;
    }
    for (int64_t e = 0; e < 4; e++) check(total(g, data, bias, e) == (double)(4 * count[e] - all));
}

static void together(setting s)
{
    sk_graph g;
    void *data[MOST];
    int n_aux = 0;
    model(&g, &s);
    check(!sk_graph_status(&g));
    if (g.status) return;
    for (int i = 0; i < g.tensors.n; i++) data[i] = memory_of(&g, g.tensors.v[i]);
    double value = objective(&g, data);
    check(isfinite(value) && total(&g, data, g.aux, 0) > 2 * 0.3 * 10 * 0.5);
    check((total(&g, data, g.drops, 0) > 0) == (s.factor > 0));
    for (int k = 0; k < g.nodes.n; k++) n_aux += g.nodes.v[k]->into[0] == g.aux;
    check(n_aux == 2 && g.aux == g.sum[SK_SUM_AUX] && g.loss == g.sum[SK_SUM_LOSS]);
    for (int i = 0; i < g.tensors.n; i++)
        if (g.tensors.v[i]->bias_update != 0) load_gradient(&g, data, g.tensors.v[i], s.choices);
        else if (g.tensors.v[i]->role == SK_PARAM) param_gradient(&g, data, g.tensors.v[i]);
}

/* ---- refused */

static sk_status refused(sk_hyper h)
{
    sk_graph g;
    sk_graph_init(&g, &arena);
    sk_graph_size(&g, 't', 8);
    sk_experts_sizes(&g, &h, SK_TRAIN);
    return sk_graph_status(&g);
}

static void refusals(void)
{
    sk_graph g;
    fails(refused((sk_hyper){.num_experts_per_tok = 1}), SK_ECONF, "num_local_experts is 0");
    fails(refused((sk_hyper){.num_local_experts = 2, .num_experts_per_tok = 3}), SK_ECONF,
          "num_experts_per_tok is 3");
    fails(refused((sk_hyper){.num_local_experts = 4, .num_experts_per_tok = 1, .expert_groups = 3}),
          SK_ECONF, "expert_groups 3");
    fails(refused(
              (sk_hyper){.num_local_experts = 4, .num_experts_per_tok = 1, .capacity_factor = NAN}),
          SK_ECONF, "capacity_factor");
    fails(refused((sk_hyper){
              .num_local_experts = 4, .num_experts_per_tok = 1, .router_bias_update_speed = -0.1}),
          SK_ECONF, "router_bias_update_speed is -0.1");
    sk_graph_init(&g, &arena);
    sk_graph_size(&g, 'b', 1);
    sk_graph_size(&g, 't', 2);
    sk_graph_size(&g, 'g', 4);
    sk_tensor *x = sk_input(&g, "x", "btg", SK_F32);
    sk_apply(&g, "route", .in = {x}, .attr = {1, 1e8, 0});
    fails(sk_graph_status(&g), SK_ECONF, "capacity_factor or train.seq");
    sk_graph_init(&g, &arena);
    sk_graph_size(&g, 'b', 1);
    x = sk_input(&g, "x", "b", SK_F32);
    sk_graph_sum(&g, SK_SUM_AUX, sk_apply(&g, "relu", .in = {x})->out[0]);
    fails(sk_graph_status(&g), SK_EBUG, "is no scalar");
}

int main(void)
{
    for (int ties = 0; ties < 2; ties++) {
        route_case(9, 4, 2, 3, true, ties);
        route_case(9, 4, 2, 9, false, ties);
        route_case(12, 5, 1, 1, false, ties);
        route_case(7, 3, 3, 7, true, ties);
    }
    biased_case(9, 4, 2, 3, true);
    biased_case(9, 4, 2, 3, false);
    biased_case(12, 5, 1, 1, false);
    biased_case(7, 3, 3, 7, true);
    overruled();
    by_hand();
    there_and_back();
    no_slots();
    known_balance();
    known_levels();
    cut_experts();
    cut_sequences();
    together((setting){true, 0, 2, 0, 0});
    together((setting){false, 0, 1, 0.5, 0});
    together((setting){true, 2, 2, 0.5, 0});
    together((setting){false, 2, 3, 0, 0});
    together((setting){true, 0, 2, 0, 0.1});
    together((setting){false, 2, 1, 0.5, 0.1});
    refusals();
    sk_arena_end(&arena);
    printf("moe: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
