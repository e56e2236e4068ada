/* extras.c - the nodes of extras (extra.h), appended while the backward half is written. */
#include "graph/extra.h"
#include "base/strings.h"
#include "kernel/symmetric.h"

#include <ctype.h>
#include <string.h>

static const char *const names[SK_N_EXTRAS + 1] = {
    [SK_EXTRA_KRON_A] = "kron_a",      [SK_EXTRA_KRON_G] = "kron_g",
    [SK_EXTRA_NORMS] = "norms",        [SK_EXTRA_MOMENT] = "second_moment",
    [SK_EXTRA_SAMPLES] = "gradients",  [SK_EXTRA_GGN] = "diag_ggn",
    [SK_EXTRA_GGN_MC] = "diag_ggn_mc", [SK_EXTRA_TOTALS] = "totals",
};

const char *sk_extra_name(sk_extra_kind k) { return names[k]; }

static bool wants(const sk_extra_walk *w, sk_extra_kind k) { return w->kinds >> k & 1; }

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

/* Sharding is by place of a dim, and no layout splits a copy: the operand is gathered along it. */
sk_tensor *sk_read_copied(const sk_graph *g, sk_tensor *t)
{
    sk_node *n = t->from;
    for (int i = 0; i < n->n_in && !g->status; i++)
        if (n->in[i]->from && !strcmp(n->in[i]->from->op->name, "rename"))
            n->in[i] = n->in[i]->from->in[0];
    return t;
}

/* --- contributions --- */

static sk_tensor *extra_of(sk_graph *g, const sk_tensor *param, sk_extra_kind k, const char *dims)
{
    for (int i = 0; i < g->tensors.n; i++) {
        sk_tensor *t = g->tensors.v[i];
        if (t->role == SK_EXTRA && t->of == param && t->extra == (int)k) return t;
    }
    const char *name = sk_extra_name(k);
    if (param) name = sk_print(g->arena, "%s.%s", param->name, name);
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

static bool has_factors(const sk_extra_walk *w, const sk_graph *g, const sk_node *y,
                        const sk_tensor *param)
{
    return w->of[param->id].uses == 1 && y->op->extra && y->op->extra->factors &&
           (!g->factors_of || g->factors_of(g->factors_ctx, param));
}

/* A letter for n columns of packed rows: none that a model, a layout or an optimizer uses, and one
 * for all factors of a size.  0: all are taken. */
static char half_letter(sk_graph *g, int64_t n)
{
    for (const char *c = "3456789:;<=?@#$%&{|}~"; *c; c++) {
        int64_t *size = &g->size[(int)*c & 127];
        if (*size && *size != n) continue;
        *size = n;
        return *c;
    }
    return 0;
}

static void add_packed(sk_graph *g, sk_tensor *t, const sk_tensor *param)
{
    sk_tensor *half = sk_new(g->arena, sk_tensor);
    int64_t n = side_of(g, t, param), dims = (int64_t)strlen(t->letters), rows = dims;
    while (!strchr(param->letters, t->letters[rows - 1])) rows--;
    char letter = half_letter(g, sk_symmetric_half(n));
    if (!letter) return;
    *half = *t;
    half->name = sk_print(g->arena, "%s.packed", t->name);
    half->letters[rows] = letter;
    half->letters[rows + 1] = 0;
    t->packed = half;
}

static void add_factors(const sk_extra_walk *w, sk_graph *g, const sk_node *y, sk_tensor *const *dy,
                        int i)
{
    const sk_tensor *param = y->in[i];
    sk_tensor *f[2] = {0};
    if (!has_factors(w, g, y, param)) return;
    y->op->extra->factors(g, y, dy, i, f);
    for (int k = 0; k < 2 && f[k] && !g->status; k++) {
        if (side_of(g, f[k], param) > SK_FACTOR_MOST) continue;
        contribute(g, param, k ? SK_EXTRA_KRON_G : SK_EXTRA_KRON_A, f[k]);
        if (g->factors_of && !g->status) add_packed(g, f[k]->from->into[0], param);
    }
}

/* --- gradients of single samples --- */

char *sk_rows_marked(sk_graph *g, const char *letters, const char *keep)
{
    char text[2 * SK_MAX_DIM + 1];
    int n = 0;
    for (; *letters; letters++) {
        text[n++] = *letters;
        if (*letters != g->batch && !strchr(keep, *letters)) text[n++] = '!';
    }
    text[n] = 0;
    return sk_strdup(g->arena, text);
}

sk_tensor *sk_sum_samples(sk_graph *g, sk_tensor *t, const char *letters)
{
    char *dims = sk_print(g->arena, "%s->%c%s", t->letters, g->batch, letters);
    sk_node *n = sk_apply(g, "sum", .in = {t}, .dims = dims);
    n->wide = true;
    return n->out[0];
}

static sk_tensor *wide(sk_tensor *t)
{
    t->from->wide = true;
    return t;
}

/* Rows of samples at their places in the batch. */
static sk_tensor *all_rows(sk_graph *g, sk_tensor *t)
{
    char all = sk_letter_copy(g, g->batch);
    char *dims = sk_print(g->arena, "%s->%c%s", t->letters, all, t->letters + 1);
    return sk_apply(g, "sample_rows", .in = {t}, .dims = dims)->out[0];
}

static sk_tensor *norms_of(sk_graph *g, sk_tensor *s)
{
    return wide(
        sk_contract(g, sk_print(g->arena, "%s,%s->%c", s->letters, s->letters, g->batch), s, s));
}

static sk_tensor *moment_of(sk_graph *g, sk_tensor *s)
{
    char *dims = sk_print(g->arena, "%s->%s", s->letters, s->letters + 1);
    return sk_apply(g, "sum_squares", .in = {s}, .dims = dims)->out[0];
}

/* By the op's own way, where only one node reads the parameter, or from the gradients. */
static sk_tensor *by_rule(const sk_extra_walk *w, sk_tensor *(*rule)(SK_EXTRA_ARGS), SK_EXTRA_ARGS)
{
    return rule && w->of[y->in[i]->id].uses == 1 ? rule(g, y, dy, dx, i) : NULL;
}

/* What is asked for that is a sum of squares over samples: the second moment, or a diagonal. */
static int moment_kind(const sk_extra_walk *w)
{
    for (int k = 0; k < SK_N_EXTRAS; k++)
        if ((k == SK_EXTRA_MOMENT || k == SK_EXTRA_GGN || k == SK_EXTRA_GGN_MC) &&
            w->kinds >> k & 1)
            return k;
    return -1;
}

static bool has_sample_rule(sk_graph *g, const sk_node *y, sk_tensor *const *dy, int i)
{
    const char *batch = NULL;
    for (int o = 0; o < y->n_out && !batch; o++)
        batch = dy[o] ? strchr(dy[o]->letters, g->batch) : NULL;
    if (y->op->extra && y->op->extra->sample && batch) return true;
    sk_graph_fail(g, SK_ECONF,
                  y->op->extra && y->op->extra->sample
                      ? "train.backward: %s makes a result without samples from '%s', so that it "
                        "has no gradients of single samples; ask for kron alone (%s)"
                      : "train.backward: op %s has no rule for the gradients of single samples of "
                        "'%s'; ask for kron alone, or use other ops (%s)",
                  y->op->name, y->in[i]->name, y->where);
    return false;
}

/* The gradient by sample, once all nodes that read the parameter gave their part; NULL: not yet. */
static sk_tensor *complete(sk_extra_walk *w, SK_EXTRA_ARGS)
{
    struct sk_extra_param *q = &w->of[y->in[i]->id];
    sk_tensor *s = y->op->extra->sample(g, y, dy, dx, i);
    if (g->status) return NULL;
    q->sum = q->sum ? sk_apply(g, "add", .in = {q->sum, s})->out[0] : s;
    return ++q->got == q->uses && !g->status ? q->sum : NULL;
}

/* Where gradients of samples are not needed for others; the same for all readers of a parameter. */
static sk_gram *gram_of(sk_extra_walk *w, sk_graph *g, const sk_tensor *param)
{
    struct sk_extra_param *q = &w->of[param->id];
    if (!q->planned) q->gram = sk_gram_plan(g, param, q->uses);
    q->planned = true;
    return q->gram;
}

static void add_samples(sk_extra_walk *w, SK_EXTRA_ARGS)
{
    const sk_tensor *param = y->in[i];
    int kind = moment_kind(w);
    if (!has_sample_rule(g, y, dy, i)) return;
    bool norms = wants(w, SK_EXTRA_NORMS) || wants(w, SK_EXTRA_TOTALS);
    bool samples = wants(w, SK_EXTRA_SAMPLES);
    sk_tensor *m = kind >= 0 ? by_rule(w, y->op->extra->moment, g, y, dy, dx, i) : NULL;
    bool needed = samples || (kind >= 0 && !m);
    sk_gram *gram = norms && !needed ? gram_of(w, g, param) : NULL;
    sk_tensor *n = gram ? sk_gram_norms(gram, g, y, dy, i) : NULL;
    needed |= norms && !gram;
    sk_tensor *s = needed ? complete(w, g, y, dy, dx, i) : NULL;
    if (g->status) return;
    if (s && norms && !n) n = norms_of(g, s);
    if (s && kind >= 0 && !m) m = moment_of(g, s);
    if (n && wants(w, SK_EXTRA_TOTALS))
        w->total = w->total ? sk_apply(g, "add", .in = {w->total, n})->out[0] : n;
    if (n && wants(w, SK_EXTRA_NORMS)) contribute(g, param, SK_EXTRA_NORMS, all_rows(g, n));
    if (m) contribute(g, param, (sk_extra_kind)kind, m);
    if (s && samples) contribute(g, param, SK_EXTRA_SAMPLES, all_rows(g, s));
}

/* --- a walk --- */

void sk_extra_begin(sk_graph *g, sk_extra_walk *w, unsigned kinds)
{
    *w = (sk_extra_walk){.kinds = kinds};
    w->of = sk_many(g->arena, struct sk_extra_param, g->tensors.n + 1);
    for (int i = 0; i < g->nodes.n; i++)
        for (int k = 0; k < g->nodes.v[i]->n_in && g->nodes.v[i]->phase == SK_FORWARD; k++)
            w->of[g->nodes.v[i]->in[k]->id].uses++;
}

/* Asked for, and no parameter has them. */
static void no_factors(sk_graph *g)
{
    for (int i = 0; i < g->tensors.n; i++)
        if (g->tensors.v[i]->role == SK_EXTRA && g->tensors.v[i]->extra <= SK_EXTRA_KRON_G) return;
    sk_graph_fail(g, SK_ECONF,
                  "train.backward: no parameter has Kronecker factors: they are for weights that "
                  "one product reads, with at most %d rows a side; leave out kron",
                  SK_FACTOR_MOST);
}

void sk_extra_end(sk_graph *g, const sk_extra_walk *w, sk_extra_kind k)
{
    if (wants(w, SK_EXTRA_KRON_A) && !g->factors_of) no_factors(g);
    if (!w->total || g->status) return;
    g->layer = w->total->layer;
    contribute(g, NULL, k, all_rows(g, w->total));
}

void sk_extra_operand(sk_extra_walk *w, SK_EXTRA_ARGS)
{
    if (y->in[i]->bias_update != 0) return; /* its gradient is not the loss's */
    if (wants(w, SK_EXTRA_KRON_A)) add_factors(w, g, y, dy, i);
    if (w->kinds & ~(1u << SK_EXTRA_KRON_A | 1u << SK_EXTRA_KRON_G))
        add_samples(w, g, y, dy, dx, i);
}

int sk_extra_columns(sk_graph *g, sk_extra_kind k)
{
    const sk_tensor *t = g->logits;
    const sk_node *loss = g->loss->from;
    if (!(g->extras >> k & 1) || g->status) return 0;
    if (!t || !loss->op->extra || !loss->op->extra->curvature) {
        sk_graph_fail(g, SK_ECONF,
                      "train.backward: %s: the loss is made by %s, whose Hessian is not known; "
                      "cross-entropy of logits is needed",
                      sk_extra_name(k), loss->op->name);
        return 0;
    }
    if (k == SK_EXTRA_GGN_MC) return 1;
    int64_t classes = g->size[(int)t->letters[strlen(t->letters) - 1] & 127];
    if (strlen(t->letters) == 2 && classes <= SK_CLASSES_MOST) return (int)classes;
    sk_graph_fail(g, SK_ECONF,
                  "train.backward: diag_ggn takes a backward pass for each class of a sample; here "
                  "logits are \"%s\" with %lld classes, at most \"bv\" and %d are possible; "
                  "diag_ggn_mc is an estimate of it by one backward pass",
                  t->letters, (long long)classes, SK_CLASSES_MOST);
    return 0;
}

sk_tensor *sk_extra_seed(sk_graph *g, sk_extra_kind k, int n)
{
    const sk_node *loss = g->loss->from;
    bool drawn = k == SK_EXTRA_GGN_MC;
    g->layer = g->logits->layer;
    return loss->op->extra->curvature(g, loss, g->logits, drawn ? -1 : n, drawn ? g->draws++ : 0);
}
