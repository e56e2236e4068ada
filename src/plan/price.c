/* price.c - totals of a job in closed form. */
#include "plan/price.h"

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

void sk_price_program(const sk_program *p, sk_price_rank *out)
{
    *out = (sk_price_rank){.total = sk_device_bytes(p), .insts = p->n_train};
    memcpy(out->bytes, p->kind_bytes, sizeof out->bytes);
    for (int i = 0; i < p->n_train; i++) {
        const sk_inst *in = &p->insts.v[i];
        int phases = sk_inst_once(in) ? 1 : p->phases;
        int64_t wire = sk_inst_average(in, in->wire) * phases;
        out->flops += in->flops * sk_inst_share(in) * phases;
        out->wire += wire;
        int group = in->call >= 0 ? p->calls.v[in->call].group : -1;
        if (group < 0 && sk_layout_timed(&p->layout))
            out->wire_axis[sk_timed_axis(&p->layout)] += wire;
        else if (group < 0) out->wire_sends += wire;
        else if (group == p->world) out->wire_world += wire;
        else if (p->near && group == p->near) out->wire_near += wire;
        else out->wire_axis[sk_group_axis(p, group)] += wire;
    }
}
