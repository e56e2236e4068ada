/* grad.c - the backward half of a graph, by walking the forward half from its end.
 *
 * Each op has the rule for itself (sk_op.grad); here several gradients of one tensor are added, and
 * those of a parameter are marked as contributions to it.  The sum of two gradients is on the layer
 * of the node that made the second one, so that in a pipeline they are added before they are sent
 * to the stage before.  Nodes whose results are not used (the gradient of an input) are dropped at
 * the end. */
#include "graph/extra.h"

#include <string.h>

static const sk_op *join_op(void)
{
    for (const sk_op *const *op = sk_op_parts; *op; op++)
        if ((*op)->flags & SK_OP_SUM) return *op;
    return NULL;
}

/* A contribution to a parameter must be a result of a new node: the program accumulates it in
 * place.  Where a rule passes on the gradient that it was given, as that of add does, the
 * contribution is a copy. */
static void into_param(sk_graph *g, sk_tensor *param, sk_tensor *d, int first_new)
{
    sk_node *n = d->from;
    int o = 0;
    if (g->status) return;
    while (n && o < n->n_out && n->out[o] != d) o++;
    if (!n || n->id < first_new || n->into[o]) {
        char *dims = sk_print(g->arena, "%s->%s", d->letters, d->letters);
        n = sk_apply(g, "spread", .in = {d}, .dims = dims);
        o = 0;
    }
    n->into[o] = param;
}

static void receive(sk_graph *g, sk_tensor **d, sk_tensor *x, sk_tensor *dx, int first_new)
{
    if (x->role == SK_PARAM) into_param(g, x, dx, first_new);
    else if (x->role == SK_VALUE && !d[x->id]) d[x->id] = dx;
    else if (x->role == SK_VALUE)
        d[x->id] = sk_apply(g, join_op()->name, .in = {d[x->id], dx})->out[0];
}

/* Which tensors depend on a parameter? */
static char *depends(const sk_graph *g)
{
    char *learns = sk_many(g->arena, char, g->tensors.n + 1);
    for (int i = 0; i < g->tensors.n; i++) learns[i] = g->tensors.v[i]->role == SK_PARAM;
    for (int i = 0; i < g->nodes.n; i++) {
        const sk_node *n = g->nodes.v[i];
        bool any = false;
        for (int k = 0; k < n->n_in; k++) any |= learns[n->in[k]->id];
        for (int o = 0; o < n->n_out; o++) learns[n->out[o]->id] = any;
    }
    return learns;
}

/* A gradient that arrives where the op has no rule for it may end only where no parameter is
 * behind the op: anywhere else the gradients of these parameters would be wrong. */
static bool has_rule(sk_graph *g, const sk_node *y, sk_tensor *const *dy, const char *learns)
{
    unsigned none = y->op->grad ? y->op->no_grad : ~0u;
    for (int o = 0; o < y->n_out; o++)
        if (dy[o] && none >> o & 1 && learns[y->out[o]->id])
            sk_graph_fail(g, SK_ECONF,
                          "%s has no gradient for its result %d, '%s', and the loss needs it for "
                          "the parameters behind it; use other ops (%s)",
                          y->op->name, o, y->out[o]->name, y->where);
    return y->op->grad && !g->status;
}

/* A walk from the end of the forward half to its start. */
typedef struct walk {
    sk_tensor **d; /* gradients of forward tensors */
    const char *learns;
    bool gradients;     /* contributions to parameters are marked as their gradients */
    sk_extra_kind kind; /* of its totals */
    sk_extra_walk extra;
} walk;

static void one_node(sk_graph *g, sk_node *y, walk *w)
{
    sk_tensor **d = w->d;
    sk_tensor *dy[SK_MAX_OUT] = {0}, *dx[SK_MAX_IN] = {0};
    bool any = false;
    for (int o = 0; o < y->n_out; o++) any |= (dy[o] = d[y->out[o]->id]) != NULL;
    if (!any || !has_rule(g, y, dy, w->learns)) return;
    int first_new = g->nodes.n;
    sk_assert(y->phase == SK_FORWARD);
    g->layer = y->layer;
    y->op->grad(g, y, dy, dx);
    for (int i = 0; i < y->n_in && !g->status; i++)
        if (dx[i] && (w->gradients || y->in[i]->role != SK_PARAM))
            receive(g, d, y->in[i], dx[i], first_new);
    for (int i = 0; i < y->n_in && w->extra.kinds && !g->status; i++)
        if (dx[i] && y->in[i]->role == SK_PARAM) sk_extra_operand(&w->extra, g, y, dy, dx, i);
}

/* Backward nodes whose results are used by nobody. */
static void drop_dead(sk_graph *g)
{
    char *used = sk_many(g->arena, char, g->tensors.n + 1);
    int kept = 0;
    for (int i = g->nodes.n - 1; i >= 0; i--) {
        sk_node *n = g->nodes.v[i];
        bool live = n->phase == SK_FORWARD;
        for (int o = 0; o < n->n_out; o++) live |= n->into[o] || used[n->out[o]->id];
        if (!live) {
            g->nodes.v[i] = NULL;
            continue;
        }
        for (int k = 0; k < n->n_in; k++) used[n->in[k]->id] = 1;
    }
    for (int i = 0; i < g->nodes.n; i++) {
        if (!g->nodes.v[i]) continue;
        g->nodes.v[i]->id = kept;
        g->nodes.v[kept++] = g->nodes.v[i];
    }
    g->nodes.n = kept;
}

/* A parameter that is read is updated, so it needs a gradient. */
static void all_learn(sk_graph *g)
{
    char *has = sk_many(g->arena, char, g->tensors.n + 1);
    for (int i = 0; i < g->nodes.n; i++)
        for (int o = 0; o < g->nodes.v[i]->n_out; o++)
            if (g->nodes.v[i]->into[o]) has[g->nodes.v[i]->into[o]->id] = 1;
    for (int i = 0; i < g->nodes.n; i++)
        for (int k = 0; k < g->nodes.v[i]->n_in; k++) {
            const sk_tensor *t = g->nodes.v[i]->in[k];
            if (t->role == SK_PARAM && !has[t->id])
                sk_graph_fail(g, SK_ECONF,
                              "parameter '%s' is read by %s, and the loss has no gradient for it; "
                              "leave it out, or let the loss depend on it (%s)",
                              t->name, g->nodes.v[i]->op->name, g->nodes.v[i]->where);
        }
}

static void mark_output(sk_graph *g, sk_node *n, int o, sk_tensor *seed, sk_tensor **d)
{
    if (n->out[o] == g->loss || n->out[o] == g->weight) n->into[o] = n->out[o];
    sk_tensor *to = n->into[o];
    if (to && (to == g->loss || to == g->aux)) d[n->out[o]->id] = seed;
}

/* The graph's own outputs are summed over micro-batches like gradients.  The gradients of all parts
 * of the loss and of aux start from the same seed. */
static void mark_outputs(sk_graph *g, sk_tensor *seed, sk_tensor **d)
{
    for (int i = 0; i < g->nodes.n; i++)
        for (int o = 0; o < g->nodes.v[i]->n_out; o++) mark_output(g, g->nodes.v[i], o, seed, d);
}

/* All walks go side by side, so that the backward nodes of a layer stand together. */
typedef struct walks {
    walk *v;
    int n;
} walks;

static void walk_back(sk_graph *g, walks *all, int n_forward)
{
    for (int i = n_forward - 1; i >= 0; i--)
        for (int k = 0; k < all->n && !g->status; k++) one_node(g, g->nodes.v[i], &all->v[k]);
}

/* Walks that start from columns of a root of the loss's Hessian, for extras alone. */
static void add_columns(sk_graph *g, walks *all, sk_extra_kind kind, int columns, int n_tensors)
{
    for (int k = 0; k < columns && !g->status; k++) {
        walk *w = &all->v[all->n++];
        *w = (walk){.learns = all->v[0].learns, .kind = kind};
        w->d = sk_many(g->arena, sk_tensor *, n_tensors);
        sk_extra_begin(g, &w->extra, 1u << kind | (g->extras & 1u << SK_EXTRA_TOTALS));
        w->d[g->logits->id] = sk_extra_seed(g, kind, k);
    }
}

/* The first walk makes gradients. */
static void walk_all(sk_graph *g)
{
    const unsigned diagonals = 1u << SK_EXTRA_GGN | 1u << SK_EXTRA_GGN_MC;
    int n_forward = g->nodes.n, n_tensors = g->tensors.n;
    int exact = sk_extra_columns(g, SK_EXTRA_GGN), drawn = sk_extra_columns(g, SK_EXTRA_GGN_MC);
    walks all = {.v = sk_many(g->arena, walk, 1 + exact + drawn), .n = 1};
    walk *w = all.v;
    *w = (walk){.learns = depends(g), .gradients = true, .kind = SK_EXTRA_NORMS};
    w->d = sk_many(g->arena, sk_tensor *, n_tensors);
    mark_outputs(g, sk_input(g, SK_LOSS_SCALE, "", SK_F32), w->d);
    g->phase = SK_BACKWARD;
    sk_extra_begin(g, &w->extra, g->extras & ~diagonals);
    add_columns(g, &all, SK_EXTRA_GGN, exact, n_tensors);
    add_columns(g, &all, SK_EXTRA_GGN_MC, drawn, n_tensors);
    walk_back(g, &all, n_forward);
    for (int k = 0; k < all.n; k++) sk_extra_end(g, &all.v[k].extra, all.v[k].kind);
}

void sk_graph_grad(sk_graph *g)
{
    if (g->status) return;
    if (!g->loss || !join_op()) {
        sk_graph_fail(g, SK_EBUG, "a graph without a loss or without a joining op has no gradient");
        return;
    }
    walk_all(g);
    if (!g->status) drop_dead(g);
    if (!g->status) all_learn(g);
    if (!g->status && !g->keep_cheap) sk_graph_recompute(g);
    g->phase = SK_FORWARD;
}
