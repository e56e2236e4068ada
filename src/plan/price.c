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

/* A hidden layer with a gate has three matrices, one without two. */
static double hidden_matrices(const sk_graph *g, double layers)
{
    int n = 0;
    for (int i = 0; i < g->tensors.n; i++) {
        const sk_tensor *t = g->tensors.v[i];
        n += t->role == SK_PARAM && strlen(t->letters) == 2 && strchr(t->letters, 'f') != NULL;
    }
    return n / layers;
}

void sk_price_model(const sk_graph *graph, const sk_hyper *hyper, sk_price *out)
{
    double B = (double)graph->size['b'], s = (double)graph->size['t'];
    double L = (double)hyper->num_hidden_layers;
    double h = (double)hyper->hidden_size, f = (double)hyper->intermediate_size;
    double V = (double)hyper->vocab_size, g = 1;
    *out = (sk_price){0};
    for (int i = 0; i < graph->tensors.n; i++)
        if (graph->tensors.v[i]->role == SK_PARAM) out->params += count(graph, graph->tensors.v[i]);
    double N = (double)out->params;
    if (hyper->num_attention_heads > 0 && hyper->num_key_value_heads > 0)
        g = (double)hyper->num_key_value_heads / (double)hyper->num_attention_heads;
    if (f <= 0) f = 4 * h;
    out->six_n = B * s * (6 * N + 12 * L * s * h);
    out->foundry = 3 * B * (2 * N * s + 4 * L * h * s * s);
    if (h <= 0 || L <= 0) return;
    double unit = B * s * L * h * h, hidden = f / h * hidden_matrices(graph, L) / 2;
    double fixed = 1 + g + hidden + V / (2 * L * h);
    out->hardware = 96 * unit * (1 + s / (6 * h) + V / (16 * L * h));
    out->full = 12 * unit * (fixed + s / h);
    out->causal = 12 * unit * (fixed + s / (2 * h));
}

void sk_price_program(const sk_program *p, sk_price_rank *out)
{
    *out = (sk_price_rank){.total = p->own_bytes, .insts = p->n_train};
    memcpy(out->bytes, p->kind_bytes, sizeof out->bytes);
    for (int i = 0; i < p->n_train; i++) {
        const sk_inst *in = &p->insts.v[i];
        out->flops += in->flops;
        out->wire += in->wire;
        int group = in->call >= 0 ? p->calls.v[in->call].group : -1;
        if (group < 0) out->wire_sends += in->wire;
        else if (group < p->layout.mesh.n) out->wire_axis[group] += in->wire;
        else if (group == p->world) out->wire_world += in->wire;
        else out->wire_axis[p->layout.stage_axis] += in->wire;
    }
}
