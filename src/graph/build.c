/* build.c - the phrases that models share. */
#include "graph/build.h"

#include <stdarg.h>
#include <stdio.h>

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

sk_tensor *sk_attend(sk_graph *g, sk_tensor *qkv, sk_tensor *pos, int i, sk_mode mode)
{
    if (mode == SK_TRAIN) return sk_apply(g, "attention", .in = {qkv})->out[0];
    sk_tensor *kv = sk_memory(g, sk_print(g->arena, "h.%d.kv", i), "bnhzd");
    return sk_apply(g, "attention_cache", .in = {qkv, kv, pos})->out[0];
}

void sk_cross_entropy(sk_graph *g, sk_tensor *logits, sk_tensor *targets, sk_tensor *weights)
{
    sk_tensor *top = sk_apply(g, "row_max", .in = {logits})->out[0];
    sk_node *terms = sk_apply(g, "xent_terms", .in = {logits, top, targets});
    sk_node *loss = sk_apply(g, "xent_loss", .in = {top, terms->out[0], terms->out[1], weights});
    g->logits = logits;
    g->loss = loss->out[0];
    g->weight = loss->out[1];
}
