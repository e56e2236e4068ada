/* price.c - totals of a job in closed form. */
#include "plan/price.h"

#include <math.h>
#include <string.h>

static int64_t count(const sk_graph *g, const sk_tensor *t)
{
    sk_shape s = sk_tensor_shape(g, t);
    int64_t n = 1;
    for (int d = 0; d < s.n; d++) n *= s.d[d];
    return n;
}

/* Of the experts of a bank (letter e) a token meets the k that it chose. */
static double met(const sk_graph *g, const sk_tensor *t)
{
    bool bank = strchr(t->letters, 'e') && g->size['e'] > 0;
    return (double)count(g, t) * (bank ? (double)g->size['k'] / (double)g->size['e'] : 1);
}

/* The width times hidden units, or times experts or their groups to choose from. */
static bool hidden_matrix(const sk_tensor *t)
{
    return strchr(t->letters, 'c') && strpbrk(t->letters, "fgu");
}

void sk_price_model(const sk_graph *graph, const sk_hyper *hyper, sk_price *out)
{
    double B = (double)graph->size['b'], s = (double)graph->size['t'];
    double L = (double)hyper->num_hidden_layers, h = (double)hyper->hidden_size;
    double V = (double)hyper->vocab_size, g = 1, H = 0, N = 0;
    double q = hyper->num_attention_heads > 0 /* the width of all queries */
                   ? (double)(hyper->num_attention_heads * sk_hyper_head_dim(hyper))
                   : h;
    *out = (sk_price){0};
    for (int i = 0; i < graph->tensors.n; i++) {
        const sk_tensor *t = graph->tensors.v[i];
        if (t->role != SK_PARAM) continue;
        out->params += count(graph, t);
        N += met(graph, t);
        if (hidden_matrix(t)) H += met(graph, t);
    }
    if (hyper->num_attention_heads > 0 && hyper->num_key_value_heads > 0)
        g = (double)hyper->num_key_value_heads / (double)hyper->num_attention_heads;
    out->active = N;
    out->six_n = B * s * (6 * N + 12 * L * s * q);
    out->foundry = 3 * B * (2 * N * s + 4 * L * q * s * s);
    double layers = B * s * (2 * L * h * q * (1 + g) + H), square = 2 * B * s * s * L * q;
    double head = 6 * B * s * h * V;
    out->hardware = 8 * (layers + square) + head;
    out->full = 6 * (layers + square) + head;
    out->causal = 6 * (layers + square / 2) + head;
}

typedef struct sums { /* of bytes that leave a rank in a step on average */
    double all, axis[SK_MAX_AXES], world, near, sends;
} sums;

/* Members of a list need not send as many bytes: the mean of those that are of one class. */
static int64_t mean_sent(const sk_program *p, const int *class_of, const sk_inst *in)
{
    const sk_call_plan *c = in->act == SK_DO_WAIT ? &p->calls.v[in->call] : NULL;
    int64_t sum = 0, n = 0;
    if (!class_of || !c || !c->sent) return in->wire;
    const sk_group *g = &p->groups[c->group];
    for (int m = 0; m < g->n; m++) {
        bool alike = class_of[g->ranks[m]] == class_of[p->rank];
        n += alike;
        sum += alike ? c->sent[m] : 0;
    }
    return (sum + n / 2) / n;
}

static void add_wire(const sk_program *p, const int *class_of, const sk_inst *in, sums *to)
{
    double wire = sk_inst_average(in, mean_sent(p, class_of, in));
    int group = in->call >= 0 ? p->calls.v[in->call].group : -1;
    to->all += wire;
    if (group < 0 && sk_layout_timed(&p->layout)) to->axis[sk_timed_axis(&p->layout)] += wire;
    else if (group < 0) to->sends += wire;
    else if (group == p->world) to->world += wire;
    else if (p->near && group == p->near) to->near += wire;
    else to->axis[sk_group_axis(p, group)] += wire;
}

/* Of one phase; early: what a step does once is left out. */
static double add_phase(const sk_program *p, const int *class_of, bool early, sums *to)
{
    double flops = 0;
    for (int i = 0; i < p->n_train; i++) {
        const sk_inst *in = &p->insts.v[i];
        if (early && sk_inst_once(in)) continue;
        flops += in->flops * sk_inst_share(in);
        add_wire(p, class_of, in, to);
    }
    return flops;
}

/* Whole bytes of a phase, so many times. */
static void add_whole(const sums *s, int times, sk_price_rank *out)
{
    out->wire += times * llround(s->all);
    out->wire_world += times * llround(s->world);
    out->wire_near += times * llround(s->near);
    out->wire_sends += times * llround(s->sends);
    for (int a = 0; a < SK_MAX_AXES; a++) out->wire_axis[a] += times * llround(s->axis[a]);
}

void sk_price_program(const sk_program *p, const int *class_of, sk_price_rank *out)
{
    sums last = {0}, early = {0};
    *out = (sk_price_rank){.total = sk_device_bytes(p), .insts = p->n_train};
    memcpy(out->bytes, p->kind_bytes, sizeof out->bytes);
    out->flops = add_phase(p, class_of, false, &last);
    add_whole(&last, 1, out);
    if (p->phases < 2) return;
    out->flops += (p->phases - 1) * add_phase(p, class_of, true, &early);
    add_whole(&early, p->phases - 1, out);
}
