/* extras.c - the nodes of extras (extra.h), appended while the backward half is written. */
#include "graph/extra.h"

#include <ctype.h>
#include <string.h>

static const char *const names[SK_N_EXTRAS + 1] = {
    [SK_EXTRA_KRON_A] = "kron_a",
    [SK_EXTRA_KRON_G] = "kron_g",
};

const char *sk_extra_name(sk_extra_kind k) { return names[k]; }

static bool wants(const sk_graph *g, sk_extra_kind k) { return g->extras >> k & 1; }

/* --- letters --- */

char sk_letter_copy(sk_graph *g, char letter)
{
    char *copy = &g->copy_of[(int)letter & 127];
    char other = (char)(islower((unsigned char)letter) ? toupper(letter) : tolower(letter));
    if (*copy) return *copy;
    if (!g->size[(int)other & 127]) *copy = other;
    for (char c = 'z'; c >= 'A' && !*copy; c--)
        if (isalpha((unsigned char)c) && !g->size[(int)c]) *copy = c;
    if (!*copy) {
        sk_graph_fail(g, SK_ECONF,
                      "train.backward needs a second letter for '%c', and the model uses all 52; "
                      "leave train.backward out",
                      letter);
        return letter;
    }
    sk_graph_size(g, *copy, g->size[(int)letter & 127]);
    return *copy;
}

sk_tensor *sk_with_copies(sk_graph *g, sk_tensor *t, const char *letters)
{
    char from[2 * SK_MAX_DIM + 1], to[2 * SK_MAX_DIM + 1];
    int n = 0;
    for (const char *p = t->letters; *p; p++) {
        bool copied = strchr(letters, *p) != NULL;
        from[n] = *p;
        to[n++] = copied ? sk_letter_copy(g, *p) : *p;
        if (copied) from[n] = to[n] = '!', n++;
    }
    from[n] = to[n] = 0;
    if (!*letters || g->status) return t;
    char *dims = sk_print(g->arena, "%s->%s", from, to);
    return sk_apply(g, "rename", .in = {t}, .dims = dims)->out[0];
}

/* --- contributions --- */

static sk_tensor *extra_of(sk_graph *g, const sk_tensor *param, sk_extra_kind k, const char *dims)
{
    for (int i = 0; i < g->tensors.n; i++) {
        sk_tensor *t = g->tensors.v[i];
        if (t->role == SK_EXTRA && t->of == param && t->extra == (int)k) return t;
    }
    char *name = sk_print(g->arena, "%s.%s", param->name, sk_extra_name(k));
    sk_tensor *t = sk_param(g, name, dims, 0);
    t->role = SK_EXTRA;
    t->of = param;
    t->extra = (int)k;
    return t;
}

static void contribute(sk_graph *g, const sk_tensor *param, sk_extra_kind k, sk_tensor *value)
{
    if (!g->status) value->from->into[0] = extra_of(g, param, k, value->letters);
}

/* --- Kronecker factors --- */

static int64_t side_of(const sk_graph *g, const sk_tensor *f, const sk_tensor *param)
{
    int64_t n = 1;
    for (const char *p = f->letters; *p; p++)
        if (!strchr(param->letters, *p)) n *= g->size[(int)*p & 127];
    return n;
}

static bool has_factors(const sk_graph *g, const sk_node *y, const sk_tensor *param)
{
    int uses = 0;
    for (int i = 0; i < g->nodes.n; i++)
        for (int k = 0; k < g->nodes.v[i]->n_in && g->nodes.v[i]->phase == SK_FORWARD; k++)
            uses += g->nodes.v[i]->in[k] == param;
    return uses == 1 && y->op->extra && y->op->extra->factors &&
           (!g->factors_of || g->factors_of(g->factors_ctx, param));
}

static void add_factors(sk_graph *g, const sk_node *y, sk_tensor *const *dy, int i)
{
    const sk_tensor *param = y->in[i];
    sk_tensor *f[2] = {0};
    if (!has_factors(g, y, param)) return;
    y->op->extra->factors(g, y, dy, i, f);
    for (int k = 0; k < 2 && f[k] && !g->status; k++) {
        if (side_of(g, f[k], param) > SK_FACTOR_MOST) continue;
        contribute(g, param, k ? SK_EXTRA_KRON_G : SK_EXTRA_KRON_A, f[k]);
    }
}

void sk_extra_operand(sk_graph *g, const sk_node *y, sk_tensor *const *dy, int i)
{
    if (y->in[i]->bias_update != 0) return; /* its gradient is not the loss's */
    if (wants(g, SK_EXTRA_KRON_A)) add_factors(g, y, dy, i);
}
