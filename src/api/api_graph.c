/* api_graph.c - a model of the caller's own, kept as the list of its calls.
 *
 * What can be said of a call alone (names, ops, types, operands of another graph) is
 * checked when it is made.  Letters and sizes are checked when the list is played
 * into a graph, under a layout and with a batch: sk_graph_replay(). */
#include "api/handles.h"
#include "base/strings.h"
#include "model/blocks.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 200 };

/* In any locale. */
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* --- mistakes --- */

static void *mistake(skein_graph *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void *mistake(skein_graph *g, const char *fmt, ...)
{
    va_list ap;
    if (!g || g->status) return NULL;
    va_start(ap, fmt);
    vsnprintf(g->why, sizeof g->why, fmt, ap);
    va_end(ap);
    g->status = SK_ECONF;
    return NULL;
}

/* May something be added? */
static bool open_for(skein_graph *g)
{
    if (!g || g->status) return false;
    if (g->used) mistake(g, "graph %s: a job uses it already, it cannot change any more", g->name);
    return !g->used;
}

int skein_graph_status(const skein_graph *g)
{
    SK_NEED(g);
    return g->status ? (int)sk_fail(g->status, "%s", g->why) : SK_OK;
}

/* --- open and close --- */

int skein_graph_open(const char *name, skein_graph **out)
{
    SK_NEED(name);
    SK_NEED(out);
    if (!*name || strlen(name) >= SK_NAME)
        return (int)sk_fail(SK_EUSAGE,
                            "skein_graph_open: the name has %zu bytes; 1 to %d are needed",
                            strlen(name), SK_NAME - 1);
    sk_arena a = {0};
    skein_graph *g = sk_new(&a, skein_graph);
    g->name = sk_strdup(&a, name);
    g->arena = a;
    atomic_store(&g->refs, 1);
    *out = g;
    return SK_OK;
}

void sk_graph_hold(skein_graph *g) { atomic_fetch_add(&g->refs, 1); }

void skein_graph_close(skein_graph *g)
{
    if (!g || atomic_fetch_sub(&g->refs, 1) > 1) return;
    sk_arena a = g->arena; /* g itself lies in it */
    sk_arena_end(&a);
}

/* --- letters --- */

void skein_graph_size(skein_graph *g, char letter, int64_t size)
{
    if (!open_for(g)) return;
    if (!is_letter(letter)) {
        mistake(g, "graph %s: a letter is needed for a dim, not character %d", g->name, letter);
        return;
    }
    if (letter == 'b' || letter == 't') {
        mistake(g, "graph %s: letter '%c' is sized by train.%s of the job", g->name, letter,
                letter == 'b' ? "batch" : "seq");
        return;
    }
    int64_t *s = &g->sizes[(int)letter];
    if (size < 1 || (*s && *s != size))
        mistake(g, "graph %s: letter '%c' would be %lld%s", g->name, letter, (long long)size,
                size < 1 ? "; at least 1 is needed" : " and has another size already");
    else *s = size;
}

void skein_graph_layer(skein_graph *g, int layer)
{
    const int most = 1 << 16;
    if (!open_for(g)) return;
    if (layer < 0 || layer > most) mistake(g, "graph %s: layer %d; 0 to %d", g->name, layer, most);
    else g->layer = layer;
}

/* --- records --- */

static sk_build_record *record(skein_graph *g, sk_record_of of, const char *name, int n_out)
{
    int at = g->records.n;
    sk_build_record *r = sk_push(&g->arena, &g->records);
    r->of = of;
    r->name = sk_strdup(&g->arena, name);
    r->where = sk_print(&g->arena, "graph %s, call %d: %s", g->name, at + 1, name);
    r->layer = g->layer;
    for (int o = 0; o < n_out; o++) {
        r->out[o] = sk_new(&g->arena, skein_tensor);
        *r->out[o] = (skein_tensor){.graph = g, .record = at, .result = o};
    }
    return r;
}

/* A name that files and messages can have, and that no other leaf has. */
static bool good_leaf(skein_graph *g, const char *name, const char *letters)
{
    if (!open_for(g)) return false;
    if (!name || !letters) return mistake(g, "graph %s: name or letters are NULL", g->name);
    size_t n = strlen(name);
    bool good = n > 0 && n < NAME_BYTES;
    for (const char *p = name; good && *p; p++) good = *p > ' ' && *p <= '~';
    if (!good)
        return mistake(g,
                       "graph %s: \"%.40s\" is no name; 1 to %d visible ASCII characters are "
                       "needed",
                       g->name, name, NAME_BYTES - 1);
    for (const char *p = letters; *p; p++)
        if (!is_letter(*p) || p - letters >= SK_MAX_DIM)
            return mistake(g, "graph %s: '%s' has the dims \"%.20s\"; up to %d letters are needed",
                           g->name, name, letters, SK_MAX_DIM);
    if (!strcmp(name, "loss_scale"))
        return mistake(g, "graph %s: 'loss_scale' is the name of an input of skein's own", g->name);
    for (int i = 0; i < g->records.n; i++)
        if (g->records.v[i].of <= SK_OF_PARAM && !strcmp(g->records.v[i].name, name))
            return mistake(g, "graph %s: there are two tensors '%s'", g->name, name);
    return true;
}

skein_tensor *skein_input(skein_graph *g, const char *name, const char *letters, skein_dtype type)
{
    if (!good_leaf(g, name, letters)) return NULL;
    if (type != SKEIN_F32 && type != SKEIN_I32)
        return mistake(g, "graph %s: input '%s' has type %d; SKEIN_F32 or SKEIN_I32 is needed",
                       g->name, name, (int)type);
    sk_build_record *r = record(g, SK_OF_INPUT, name, 1);
    r->letters = sk_strdup(&g->arena, letters);
    r->type = r->out[0]->type = (sk_dtype)type;
    return r->out[0];
}

skein_tensor *skein_param(skein_graph *g, const char *name, const char *letters, double init)
{
    if (!good_leaf(g, name, letters)) return NULL;
    bool constant = init == SKEIN_ZEROS || init == SKEIN_ONES;
    if (!isfinite(init) || (init < 0 && !constant))
        return mistake(g,
                       "graph %s: parameter '%s' has init %g; a deviation, SKEIN_ZEROS or "
                       "SKEIN_ONES is needed",
                       g->name, name, init);
    sk_build_record *r = record(g, SK_OF_PARAM, name, 1);
    r->letters = sk_strdup(&g->arena, letters);
    r->init = init;
    return r->out[0];
}

/* Is that operand one of this graph, and of the kind that the op reads? */
static bool good_operand(skein_graph *g, const char *op, int i, const skein_tensor *t, char type)
{
    if (!t) return mistake(g, "graph %s: %s: operand %d is NULL", g->name, op, i);
    if (t->graph != g)
        return mistake(g, "graph %s: %s: operand %d is of another graph", g->name, op, i);
    const sk_build_record *from = &g->records.v[t->record];
    if (from->of == SK_OF_OP && from->layer > g->layer)
        return mistake(g,
                       "graph %s: %s: layer %d reads a result of layer %d (%s); layers must rise",
                       g->name, op, g->layer, from->layer, from->name);
    bool ids = t->type == SK_I32;
    if (type != 's' && ids != (type == 'i'))
        return mistake(g, "graph %s: %s: operand %d has %s, it needs %s", g->name, op, i,
                       ids ? "ids (SKEIN_I32)" : "numbers", ids ? "numbers" : "SKEIN_I32");
    return true;
}

static char operand_type(const sk_op *op, int i)
{
    return op->types && (int)strlen(op->types) > i ? op->types[i] : 'x';
}

static const sk_op *known_op(skein_graph *g, const char *name)
{
    const char *names[256];
    int n = 0;
    const sk_op *op = name ? sk_op_find(name) : NULL;
    if (op) return op;
    for (; n < 256 && sk_op_parts[n]; n++) names[n] = sk_op_parts[n]->name;
    const char *near = name ? sk_nearest(name, names, n) : NULL;
    return mistake(g, "graph %s: no op is called '%.40s'%s%s%s; skein list op shows them", g->name,
                   name ? name : "(NULL)", near ? " (did you mean '" : "", near ? near : "",
                   near ? "'?)" : "");
}

skein_tensor *skein_apply(skein_graph *g, const char *op, const char *dims, int n_in,
                          skein_tensor *const in[], int n_attr, const double attr[])
{
    if (!open_for(g)) return NULL;
    const sk_op *o = known_op(g, op);
    if (!o) return NULL;
    if (n_in != o->n_in || !in || n_attr < 0 || n_attr > SK_MAX_ATTR || (n_attr && !attr))
        return mistake(g,
                       "graph %s: %s: %d operands and %d numbers; it takes %d operands and up "
                       "to %d numbers",
                       g->name, op, in ? n_in : 0, n_attr, o->n_in, SK_MAX_ATTR);
    for (int i = 0; i < n_attr; i++)
        if (!isfinite(attr[i]))
            return mistake(g, "graph %s: %s: number %d is %g; a finite one is needed", g->name, op,
                           i, attr[i]);
    if (o->changes)
        return mistake(g, "graph %s: %s changes its operands, which no training does", g->name, op);
    for (int i = 0; i < n_in; i++)
        if (!good_operand(g, op, i, in[i], operand_type(o, i))) return NULL;
    sk_build_record *r = record(g, SK_OF_OP, op, sk_op_outs(o));
    r->op = o;
    r->dims = dims ? sk_strdup(&g->arena, dims) : NULL;
    for (int i = 0; i < n_in; i++) r->in[i] = in[i];
    for (int i = 0; i < n_attr; i++) r->attr[i] = attr[i];
    return r->out[0];
}

skein_tensor *skein_result(skein_tensor *first, int i)
{
    if (!first) return NULL;
    skein_graph *g = first->graph;
    const sk_build_record *r = &g->records.v[first->record];
    if (i >= 0 && i < SK_MAX_OUT && r->out[i]) return r->out[i];
    return mistake(g, "graph %s: %s has no result %d", g->name, r->name, i);
}

skein_tensor *skein_contract(skein_graph *g, const char *dims, skein_tensor *a, skein_tensor *b)
{
    skein_tensor *const in[] = {a, b};
    return skein_apply(g, "contract", dims, 2, in, 0, NULL);
}

static bool first_loss(skein_graph *g)
{
    if (!open_for(g)) return false;
    if (g->lost) return mistake(g, "graph %s: it has two losses", g->name);
    return g->lost = true;
}

void skein_cross_entropy(skein_graph *g, skein_tensor *logits, skein_tensor *targets,
                         skein_tensor *weights)
{
    const char *me = "skein_cross_entropy";
    if (!first_loss(g) || !good_operand(g, me, 0, logits, 'x') ||
        !good_operand(g, me, 1, targets, 'i') || !good_operand(g, me, 2, weights, 'x'))
        return;
    sk_build_record *r = record(g, SK_OF_ENTROPY, me, 0);
    r->in[0] = logits;
    r->in[1] = targets;
    r->in[2] = weights;
}

void skein_loss(skein_graph *g, skein_tensor *sum, skein_tensor *weight)
{
    const char *me = "skein_loss";
    if (!first_loss(g) || !good_operand(g, me, 0, sum, 'x') || !good_operand(g, me, 1, weight, 'x'))
        return;
    sk_build_record *r = record(g, SK_OF_LOSS, me, 0);
    r->in[0] = sum;
    r->in[1] = weight;
}

/* --- playing the list --- */

typedef struct replay {
    sk_graph *g;
    sk_tensor *(*made)[SK_MAX_OUT]; /* by record */
} replay;

static sk_tensor *made(const replay *p, const skein_tensor *t)
{
    return p->made[t->record][t->result];
}

/* What is counted must be a scalar that its op can add up over micro-batches. */
static void count(const replay *p, sk_sum_kind which, const sk_build_record *r, sk_tensor *t)
{
    const sk_node *n = t->from;
    bool good = n && n->op && !*t->letters && n->op->flags & SK_OP_ADDS;
    for (int o = 0; good && o < n->n_out; o++) good = n->out[o] != t || !n->into[o];
    if (p->g->status) return;
    if (good) sk_graph_sum(p->g, which, t);
    else
        sk_graph_fail(p->g, SK_ECONF,
                      "%s: '%s' \"%s\" is no scalar of its own that an op such as sum adds up",
                      r->where, t->name, t->letters);
}

/* Where a layout deals time in zigzag, rows are loaded run by run: time comes last, behind the
 * batch. */
static sk_tensor *play_input(const replay *p, const sk_build_record *r)
{
    const char *dealt = p->g->dealt ? strchr(r->letters, p->g->dealt) : NULL;
    if (dealt && (dealt[1] || strlen(r->letters) > 2))
        sk_graph_fail(
            p->g, SK_ECONF,
            "%s: the layout splits '%c', which must be the last of at most two dims of an "
            "input, and this one has \"%s\"",
            r->where, p->g->dealt, r->letters);
    return sk_input(p->g, r->name, r->letters, r->type);
}

static void play_one(const replay *p, const sk_build_record *r, sk_tensor **out)
{
    sk_tensor *in[SK_MAX_IN] = {0};
    sk_call call = {.dims = r->dims};
    for (int i = 0; i < SK_MAX_IN; i++)
        if (r->in[i]) in[i] = call.in[i] = made(p, r->in[i]);
    memcpy(call.attr, r->attr, sizeof call.attr);
    p->g->layer = r->layer;
    switch (r->of) {
    case SK_OF_INPUT:
        out[0] = play_input(p, r);
        break;
    case SK_OF_PARAM:
        out[0] = sk_param(p->g, r->name, r->letters, r->init);
        break;
    case SK_OF_OP:
        memcpy(out, sk_apply_at(p->g, r->where, r->op->name, call)->out, sizeof p->made[0]);
        break;
    case SK_OF_ENTROPY:
        sk_cross_entropy(p->g, in[0], in[1], in[2]);
        break;
    case SK_OF_LOSS:
        count(p, SK_SUM_LOSS, r, in[0]);
        count(p, SK_SUM_WEIGHT, r, in[1]);
        break;
    }
}

void sk_graph_replay(sk_graph *g, void *graph)
{
    const skein_graph *from = graph;
    replay p = {.g = g, .made = sk_alloc_n(g->arena, sizeof *p.made, (size_t)from->records.n + 1)};
    for (int c = 0; c < 128; c++)
        if (from->sizes[c]) sk_graph_size(g, (char)c, from->sizes[c]);
    for (int i = 0; i < from->records.n; i++) play_one(&p, &from->records.v[i], p.made[i]);
}
