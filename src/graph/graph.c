/* graph.c - building a graph. */
#include "graph/graph.h"
#include "base/strings.h"
#include "graph/dims.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const sk_op *sk_op_find(const char *name)
{
    for (const sk_op *const *op = sk_op_parts; *op; op++)
        if (!strcmp((*op)->name, name)) return *op;
    return NULL;
}

void sk_graph_init(sk_graph *g, sk_arena *a)
{
    *g = (sk_graph){.arena = a, .batch = SK_LETTER_BATCH};
}

sk_status sk_graph_fail(sk_graph *g, sk_status code, const char *fmt, ...)
{
    va_list ap;
    if (g->status) return g->status;
    va_start(ap, fmt);
    vsnprintf(g->report, sizeof g->report, fmt, ap);
    va_end(ap);
    return g->status = code;
}

sk_status sk_graph_status(const sk_graph *g)
{
    return g->status ? sk_fail(g->status, "%s", g->report) : SK_OK;
}

void sk_graph_size(sk_graph *g, char letter, int64_t size)
{
    int64_t *s = &g->size[(int)letter & 127];
    if (size < 1)
        sk_graph_fail(g, SK_ECONF,
                      "letter '%c' would have the size %" PRId64 "; at least 1 is needed", letter,
                      size);
    else if (*s && *s != size)
        sk_graph_fail(g, SK_ECONF, "letter '%c' is %" PRId64 " and would also be %" PRId64, letter,
                      *s, size);
    else *s = size;
}

/* Bounds the elements of a tensor, so that bytes of all tensors do not overflow. */
static void not_endless(sk_graph *g, const sk_tensor *t)
{
    const int64_t most = (int64_t)1 << 50;
    double n = 1;
    for (const char *p = t->letters; *p; p++)
        if (g->size[(int)*p & 127]) n *= (double)g->size[(int)*p & 127];
    if (n > (double)most)
        sk_graph_fail(g, SK_ECONF,
                      "'%s' \"%s\" would have %.3g elements, at most %.3g are possible; lower the "
                      "sizes of the model, train.batch or train.seq",
                      t->name, t->letters, n, (double)most);
}

static sk_tensor *tensor(sk_graph *g, const char *name, const char *letters, sk_dtype type,
                         sk_role role)
{
    sk_tensor *t = *sk_push(g->arena, &g->tensors) = sk_new(g->arena, sk_tensor);
    *t = (sk_tensor){
        .name = name, .type = type, .role = role, .id = g->tensors.n - 1, .layer = g->layer};
    snprintf(t->letters, sizeof t->letters, "%s", letters);
    if (strlen(letters) > SK_MAX_DIM)
        sk_graph_fail(g, SK_ECONF, "'%s' has the dims \"%s\"; at most %d are possible", name,
                      letters, SK_MAX_DIM);
    for (const char *p = t->letters; *p; p++) {
        if (strchr(p + 1, *p))
            sk_graph_fail(g, SK_ECONF, "'%s' has the letter '%c' twice in \"%s\"", name, *p,
                          letters);
        if (!g->size[(int)*p & 127] && role != SK_VALUE)
            sk_graph_fail(g, SK_ECONF, "letter '%c' of '%s' has no size yet", *p, name);
    }
    not_endless(g, t);
    return t;
}

sk_tensor *sk_input(sk_graph *g, const char *name, const char *letters, sk_dtype type)
{
    return tensor(g, name, letters, type, SK_INPUT);
}

sk_tensor *sk_param(sk_graph *g, const char *name, const char *letters, double init)
{
    sk_tensor *t = tensor(g, sk_strdup(g->arena, name), letters, SK_F32, SK_PARAM);
    t->init = init;
    return t;
}

sk_tensor *sk_memory(sk_graph *g, const char *name, const char *letters)
{
    return tensor(g, sk_strdup(g->arena, name), letters, SK_F32, SK_MEMORY);
}

sk_tensor *sk_graph_find(const sk_graph *g, const char *name)
{
    for (int i = 0; i < g->tensors.n; i++)
        if (!strcmp(g->tensors.v[i]->name, name)) return g->tensors.v[i];
    return NULL;
}

bool sk_tensor_is_data(const sk_tensor *t)
{
    return t->role == SK_INPUT && strcmp(t->name, SK_LOSS_SCALE) != 0;
}

bool sk_graph_is_sequences(const sk_graph *g)
{
    for (int i = 0; i < g->tensors.n; i++)
        if (sk_tensor_is_data(g->tensors.v[i]) && strchr(g->tensors.v[i]->letters, SK_LETTER_TIME))
            return true;
    return false;
}

sk_shape sk_tensor_shape(const sk_graph *g, const sk_tensor *t)
{
    sk_shape s = {.n = (int)strlen(t->letters)};
    for (int i = 0; i < s.n; i++) s.d[i] = g->size[(int)t->letters[i] & 127];
    return s;
}

/* Results take the type of the first operand that is no integer; statistics are f32. */
static sk_dtype type_of(const sk_node *n, int o)
{
    if (n->op->stats >> o & 1) return SK_F32;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->type != SK_I32) return n->in[i]->type;
    return SK_F32;
}

static void outputs(sk_graph *g, sk_node *n)
{
    for (int o = 0; o < n->n_out; o++) {
        char *name = o ? sk_print(g->arena, "%s.%d.%d", n->op->name, n->id, o)
                       : sk_print(g->arena, "%s.%d", n->op->name, n->id);
        n->out[o] = tensor(g, name, n->letters_out[o], type_of(n, o), SK_VALUE);
        n->out[o]->from = n;
        n->out[o]->layer = n->layer;
    }
}

/* After a mistake every call yields a scalar that nobody will compute. */
static sk_node *harmless(sk_graph *g, sk_node *n)
{
    for (int o = 0; o < SK_MAX_OUT; o++) {
        n->out[o] = sk_new(g->arena, sk_tensor);
        *n->out[o] = (sk_tensor){.name = "(after a mistake)", .from = n};
    }
    return n;
}

static sk_status fill_in(sk_graph *g, sk_node *n, const char *name, const sk_call *call)
{
    n->op = sk_op_find(name);
    if (!n->op) return sk_fail(SK_ECONF, "no operation is called '%s'", name);
    n->n_in = n->op->n_in;
    sk_assert(n->n_in <= SK_MAX_IN && sk_op_outs(n->op) <= SK_MAX_OUT);

    n->n_out = sk_op_outs(n->op);
    memcpy(n->in, call->in, sizeof n->in);
    memcpy(n->attr, call->attr, sizeof n->attr);
    for (int i = 0; i < n->n_in; i++)
        if (!n->in[i]) return sk_fail(SK_ECONF, "%s: operand %d is missing", name, i);
    SK_TRY(sk_dims_bind(g, n, call->dims ? call->dims : n->op->dims));
    return SK_OK;
}

static sk_status all_sized(const sk_graph *g, const sk_node *n)
{
    for (int o = 0; o < n->n_out; o++)
        for (const char *p = n->letters_out[o]; *p; p++)
            if (!g->size[(int)*p & 127])
                return sk_fail(SK_ECONF, "%s: letter '%c' of its result has no size", n->op->name,
                               *p);
    return SK_OK;
}

/* A letter that this op marks '!' and the layout will split, if the op has .split.
 */
static char needs_split(const sk_graph *g, const sk_node *n)
{
    for (const char *p = g->cut; n->op->split && *p; p++)
        if (strchr(n->not_split, *p)) return *p;
    return 0;
}

sk_node *sk_apply_at(sk_graph *g, const char *where, const char *op, sk_call call)
{
    sk_node *n = sk_new(g->arena, sk_node);
    n->where = where;
    n->layer = g->layer;
    n->phase = g->phase;
    if (g->status) return harmless(g, n);
    sk_status bad = fill_in(g, n, op, &call);
    if (!bad && n->op->infer) n->op->infer(g, n);
    if (!bad && !g->status) bad = all_sized(g, n);
    if (bad) sk_graph_fail(g, bad, "%s (%s)", sk_error_line(), where);
    if (g->status) return harmless(g, n);
    if (needs_split(g, n)) {
        /* Also where another axis named a letter of it before. */
        if (g->dealt && strchr(n->not_split, g->dealt)) n->attr[0] = g->zigzag;
        n->op->split(g, needs_split(g, n), n->in, n->attr, n->out);
        return g->status ? harmless(g, n) : n; /* only to hand over its results */
    }
    *sk_push(g->arena, &g->nodes) = n;
    n->id = g->nodes.n - 1;
    if (g->layer >= g->n_layers) g->n_layers = g->layer + 1;
    outputs(g, n);
    return n;
}

bool sk_node_validates(const sk_graph *g, const sk_node *n)
{
    for (int w = 0; w < SK_N_SUMS; w++)
        if (sk_sum_validates(w) && g->sum[w] && n->into[0] == g->sum[w]) return true;
    return false;
}

void sk_graph_sum(sk_graph *g, sk_sum_kind which, sk_tensor *scalar)
{
    sk_node *n = scalar->from;
    int o = 0;
    if (g->status) return;
    while (n && o < n->n_out && n->out[o] != scalar) o++;
    if (!n || o == n->n_out || *scalar->letters || n->into[o] || !(n->op->flags & SK_OP_ADDS)) {
        sk_graph_fail(g, SK_EBUG, "'%s' is no scalar of an op that adds, counted once",
                      scalar->name);
        return;
    }
    if (!g->sum[which]) g->sum[which] = scalar;
    n->into[o] = g->sum[which];
}

char *sk_graph_print(const sk_graph *g, sk_arena *a)
{
    sk_out o = {.arena = a};
    for (int i = 0; i < g->tensors.n; i++) {
        const sk_tensor *t = g->tensors.v[i];
        static const char *const roles[] = {"value", "input", "param", "memory", "extra"};
        if (t->role == SK_VALUE) continue;
        sk_out_add(&o, "%-6s %s \"%s\" %s", roles[t->role], t->name, t->letters,
                   sk_dtype_name(t->type));
        for (const char *p = t->letters; *p; p++)
            sk_out_add(&o, " %c=%" PRId64, *p, g->size[(int)*p & 127]);
        if (t->bias_update != 0) sk_out_add(&o, " bias update %g", t->bias_update);
        sk_out_add(&o, "\n");
    }
    for (int i = 0; i < g->nodes.n; i++) {
        const sk_node *n = g->nodes.v[i];
        sk_out_add(&o, "%c %3d %s", n->phase == SK_FORWARD ? 'F' : 'B', n->layer, n->out[0]->name);
        sk_out_add(&o, " = %s(", n->op->name);
        for (int k = 0; k < n->n_in; k++) sk_out_add(&o, "%s%s", k ? ", " : "", n->in[k]->name);
        sk_out_add(&o, ") \"%s\"", n->dims);
        for (int k = 0; k < SK_MAX_ATTR; k++)
            if (n->attr[k] != 0) sk_out_add(&o, " %g", n->attr[k]);
        for (int k = 0; k < n->n_out; k++)
            if (n->into[k]) sk_out_add(&o, " into %s", n->into[k]->name);
        sk_out_add(&o, "\n");
    }
    return o.s ? o.s : sk_strdup(a, "");
}
