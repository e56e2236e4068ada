/* blocks.c - see blocks.h. */
#include "model/blocks.h"
#include "kernel/activation.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

sk_tensor *sk_param_f(sk_graph *g, const char *letters, double init, const char *fmt, ...)
{
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    return sk_param(g, name, letters, init);
}

sk_tensor *sk_dropout(sk_graph *g, sk_tensor *x, double p)
{
    if (p <= 0) return x;
    return sk_apply(g, "dropout", .in = {x}, .attr = {p, (double)g->draws++})->out[0];
}

sk_tensor *sk_biased(sk_graph *g, const char *units, sk_tensor *x, const char *name)
{
    const char *dims = sk_print(g->arena, "%s,%s->%s", x->letters, units, x->letters);
    sk_tensor *b = sk_param(g, name, units, SK_ZEROS);
    return sk_apply(g, "bias", .dims = dims, .in = {x, b})->out[0];
}

static sk_tensor *activate(sk_graph *g, const char *act, sk_tensor *x)
{
    int kind = sk_activation_find(act);
    if (kind < 0) sk_graph_fail(g, SK_ECONF, "the activation function \"%s\" is not known", act);
    if (g->status) return x;
    return sk_apply(g, "act", .in = {x}, .attr = {kind})->out[0];
}

static bool has_formula(const char *act, sk_formula formula)
{
    int kind = sk_activation_find(act);
    return kind > 0 && sk_activation_formula(kind) == formula;
}

sk_tensor *sk_hidden(sk_graph *g, const char *act, sk_tensor *x, const char *bias)
{
    size_t n = strlen(x->letters);
    if (*act && !has_formula(act, SK_FORMULA_GELU_TANH))
        return activate(g, act, sk_biased(g, x->letters + n - 1, x, bias));
    sk_tensor *b = sk_param(g, bias, x->letters + n - 1, SK_ZEROS);
    return sk_apply(g, "bias_gelu", .in = {x, b})->out[0];
}

sk_tensor *sk_gate(sk_graph *g, const char *act, sk_tensor *gate, sk_tensor *up)
{
    if (!*act || has_formula(act, SK_FORMULA_SILU))
        return sk_apply(g, "swiglu", .in = {gate, up})->out[0];
    return sk_apply(g, "mul", .in = {activate(g, act, gate), up})->out[0];
}

sk_tensor *sk_attend(sk_graph *g, sk_tensor *qkv, sk_tensor *pos, int i, sk_mode mode)
{
    if (mode == SK_TRAIN) return sk_apply(g, "attention", .in = {qkv})->out[0];
    sk_tensor *kv = sk_memory(g, sk_print(g->arena, "h.%d.kv", i), "bnhzd");
    return sk_apply(g, "attention_cache", .in = {qkv, kv, pos})->out[0];
}

sk_tensor *sk_blocks(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, sk_mode mode,
                     sk_block *block)
{
    for (int i = 0; i < h->num_hidden_layers; i++) {
        g->layer = i + 1;
        x = block(g, h, x, pos, i, mode);
    }
    g->layer = (int)h->num_hidden_layers + 1;
    return x;
}

void sk_head(sk_graph *g, sk_tensor *x, sk_tensor *head, sk_mode mode)
{
    g->logits = sk_contract(g, "btc,vc->btv", x, head);
    if (mode == SK_TRAIN)
        sk_cross_entropy(g, g->logits, sk_input(g, "targets", "bt", SK_I32),
                         sk_input(g, "weights", "bt", SK_F32));
}

double sk_std_out(const sk_hyper *h)
{
    return h->initializer_range / sqrt(2.0 * (double)h->num_hidden_layers);
}

void sk_heads_check(sk_graph *g, const sk_hyper *h)
{
    if (h->num_attention_heads < 1 || h->hidden_size % h->num_attention_heads)
        sk_graph_fail(g, SK_ECONF, "hidden_size %lld is not a multiple of num_attention_heads %lld",
                      (long long)h->hidden_size, (long long)h->num_attention_heads);
}

void sk_hf_in_layer(sk_arena *a, const char *prefix, int layer, const sk_hf_row *row, sk_hf *out)
{
    out->file_name = sk_print(a, "%s.%d.%s", prefix, layer, row->theirs);
    out->name = sk_print(a, "h.%d.%s", layer, row->ours);
    out->dims = row->dims;
}

void sk_cross_entropy(sk_graph *g, sk_tensor *logits, sk_tensor *targets, sk_tensor *weights)
{
    sk_tensor *top = sk_apply(g, "row_max", .in = {logits})->out[0];
    sk_node *terms =
        sk_apply(g, "xent_terms", .in = {logits, top, targets}, .attr = {g->label_smoothing});
    sk_node *loss = sk_apply(g, "xent_loss", .in = {top, terms->out[0], terms->out[1], weights},
                             .attr = {g->z_loss});
    g->cross_entropy = true;
    g->logits = logits;
    g->loss = loss->out[0];
    g->weight = loss->out[1];
}

void sk_classify(sk_graph *g, sk_tensor *logits, sk_tensor *targets, sk_tensor *weights)
{
    sk_cross_entropy(g, logits, targets, weights);
    if (g->status) return;
    const sk_node *loss = g->loss->from; /* of: largest logit, sum, the target's logit, weight */
    sk_node *right = sk_apply(g, "xent_right", .in = {loss->in[0], loss->in[2], weights});
    if (!g->status) sk_graph_sum(g, SK_SUM_RIGHT, right->out[0]);
}
