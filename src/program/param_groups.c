/* param_groups.c - which optimizer updates which parameter (optim.groups).
 *
 * A group is a class of parameters or a pattern of their names; the first group that a parameter is
 * in counts.  Classes are told by how the graph reads a parameter, not by names:
 *
 *     embedding   a node looks rows up: it has a letter that no other operand and no result has
 *     matrix      a product sums over some of its letters and leaves others, inside of the model
 *     head        the same, in the last layer
 *     vector      what is left: biases, the weights of norms, scalars
 *     rest        whatever is in no other group
 *
 * A parameter without Kronecker factors is in no group of an optimizer that needs them (K-FAC): it
 * goes on to the next, which is that of the rest. */
#include "base/hash.h"
#include "graph/extra.h"
#include "program/lowering.h"
#include "program/param_groups.h"

#include <fnmatch.h>
#include <string.h>

static const char *const class_names[] = {
    [SK_PARAM_VECTOR] = "vector", [SK_PARAM_MATRIX] = "matrix", [SK_PARAM_EMBEDDING] = "embedding",
    [SK_PARAM_HEAD] = "head",     [SK_PARAM_REST] = "rest",
};

const char *sk_param_class_name(sk_param_class c)
{
    return c < SK_PARAM_N_CLASSES ? class_names[c] : NULL;
}

/* Where a letter of operand k occurs besides. */
static bool in_others(const sk_node *n, int k, char letter)
{
    for (int i = 0; i < n->n_in; i++)
        if (i != k && strchr(n->letters_in[i], letter)) return true;
    return false;
}

static bool in_results(const sk_node *n, char letter)
{
    for (int o = 0; o < n->n_out; o++)
        if (strchr(n->letters_out[o], letter)) return true;
    return false;
}

/* How a node reads its k-th operand, a parameter. */
static sk_param_class class_in(const sk_graph *g, const sk_node *n, int k)
{
    bool summed = false, left = false;
    for (const char *l = n->letters_in[k]; *l; l++) {
        bool other = in_others(n, k, *l), result = in_results(n, *l);
        if (!other && !result) return SK_PARAM_EMBEDDING;
        summed |= other && !result;
        left |= result && !other;
    }
    if (!summed || !left) return SK_PARAM_VECTOR;
    return n->layer == g->n_layers - 1 ? SK_PARAM_HEAD : SK_PARAM_MATRIX;
}

sk_param_class sk_param_class_of(const sk_graph *g, const sk_tensor *t)
{
    sk_param_class most = SK_PARAM_VECTOR; /* a tied one is an embedding */
    for (int i = 0; i < g->nodes.n; i++) {
        const sk_node *n = g->nodes.v[i];
        for (int k = 0; k < n->n_in && n->phase == SK_FORWARD; k++) {
            if (n->in[k] != t) continue;
            sk_param_class c = class_in(g, n, k);
            if (c == SK_PARAM_EMBEDDING) return c;
            if (c > most) most = c;
        }
    }
    return most;
}

static const sk_node *reader_of(const sk_graph *g, const sk_tensor *t, int *operand)
{
    for (int i = 0; i < g->nodes.n; i++)
        for (int k = 0; k < g->nodes.v[i]->n_in && g->nodes.v[i]->phase == SK_FORWARD; k++)
            if (g->nodes.v[i]->in[k] == t && class_in(g, g->nodes.v[i], k) != SK_PARAM_VECTOR) {
                *operand = k;
                return g->nodes.v[i];
            }
    return NULL;
}

/* Kinds stand in line: "012", "102", "12", each letter as often as there is. */
static bool in_line(const char *roles)
{
    char runs[SK_MAX_DIM + 1] = "";
    for (int n = 0; *roles; roles++)
        if (!n || runs[n - 1] != *roles) runs[n++] = *roles, runs[n] = 0;
    return !strcmp(runs, "12") || !strcmp(runs, "012") || !strcmp(runs, "102");
}

bool sk_param_matrix(const sk_graph *g, const sk_tensor *t, char roles[SK_MAX_DIM + 1])
{
    int k = 0, first = 0; /* the kind of the first letter that is no '0': rows */
    const sk_node *n = reader_of(g, t, &k);
    memset(roles, 0, SK_MAX_DIM + 1);
    if (!n) return false;
    bool table = class_in(g, n, k) == SK_PARAM_EMBEDDING;
    for (int d = 0; t->letters[d]; d++) {
        bool other = in_others(n, k, t->letters[d]), result = in_results(n, t->letters[d]);
        int kind = table ? (d ? 2 : 1) : other && result ? 0 : other ? 1 : 2;
        if (kind && !first) first = kind;
        roles[d] = !kind ? '0' : kind == first ? '1' : '2';
    }
    return in_line(roles);
}

bool sk_param_rows_out(const sk_graph *g, const sk_tensor *t)
{
    int k = 0;
    const sk_node *n = reader_of(g, t, &k);
    for (int d = 0; n && t->letters[d]; d++) {
        bool other = in_others(n, k, t->letters[d]), result = in_results(n, t->letters[d]);
        if (!other || !result) return !other && result;
    }
    return false;
}

static bool matches(const sk_graph *g, const sk_tensor *t, const char *match)
{
    for (int c = 0; c < SK_PARAM_N_CLASSES; c++)
        if (!strcmp(match, class_names[c]))
            return c == SK_PARAM_REST || sk_param_class_of(g, t) == (sk_param_class)c;
    return !fnmatch(match, t->name, 0);
}

int sk_param_factors(const sk_graph *g, const sk_tensor *t)
{
    int n = 0;
    for (int i = 0; i < g->tensors.n; i++) {
        const sk_tensor *x = g->tensors.v[i];
        n += x->role == SK_EXTRA && x->of == t && x->extra <= SK_EXTRA_KRON_G;
    }
    return n;
}

/* Does the optimizer, for matrices, take the parameter without being asked to? */
static bool takes(const sk_graph *g, const sk_tensor *t, const sk_optim *o)
{
    char roles[SK_MAX_DIM + 1];
    sk_param_class c = sk_param_class_of(g, t);
    if (c == SK_PARAM_MATRIX) return true;
    bool other = c == SK_PARAM_HEAD || c == SK_PARAM_EMBEDDING;
    return o->every_matrix && other && sk_param_matrix(g, t, roles);
}

static bool is_in(const sk_graph *g, const sk_tensor *t, const sk_param_group *x)
{
    return matches(g, t, x->match) && (!x->matrices || takes(g, t, x->optim));
}

int sk_param_group_asked(const sk_graph *g, const sk_tensor *t, const sk_param_group *v, int n)
{
    for (int i = 0; i < n; i++)
        if (is_in(g, t, &v[i])) return i + 1;
    return 0;
}

int sk_param_group_of(const sk_graph *g, const sk_tensor *t, const sk_param_group *v, int n)
{
    for (int i = 0; i < n; i++)
        if (is_in(g, t, &v[i]) && (!v[i].optim->factors || sk_param_factors(g, t))) return i + 1;
    return 0;
}

int sk_lower_group(const sk_lowering *e, const sk_tensor *t)
{
    return sk_param_group_of(e->g, t, e->opts->groups, e->opts->n_groups);
}

const sk_optim *sk_lower_optim(const sk_lowering *e, const sk_tensor *t)
{
    int i = sk_lower_group(e, t);
    return i ? e->opts->groups[i - 1].optim : e->opts->optim;
}

/* Of all ranks: a stage may have only vectors of a group that has matrices too. */
static bool has_decaying(const sk_lowering *e, int group)
{
    for (int i = 0; i < e->g->tensors.n; i++) {
        const sk_tensor *t = e->g->tensors.v[i];
        if (t->role == SK_PARAM && t->init > 0 && sk_lower_group(e, t) == group) return true;
    }
    return false;
}

void sk_lower_decaying_vectors(sk_lowering *e)
{
    for (int g = 1; g <= e->opts->n_groups; g++) {
        if (!e->opts->groups[g - 1].says_decay || has_decaying(e, g)) continue;
        for (int i = 0; i < e->p->params.n; i++) {
            sk_param_plan *q = &e->p->params.v[i];
            if (q->group == g && q->tensor->bias_update == 0) q->decay = true;
        }
    }
}

uint64_t sk_lower_groups_hash(const sk_compile_opts *o)
{
    uint64_t h = o->n_groups ? SK_HASH_SEED : 0;
    for (int i = 0; i < o->n_groups; i++) {
        const sk_param_group *x = &o->groups[i];
        h = sk_hash(h, x->match, strlen(x->match) + 1);
        h = sk_hash(h, x->optim->name, strlen(x->optim->name) + 1);
        h = sk_hash(h, &x->matrices, sizeof x->matrices);
    }
    return h;
}
