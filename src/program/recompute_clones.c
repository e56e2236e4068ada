/* recompute_clones.c - recomputation as ordinary nodes: the graph of this rank's stage, expanded.
 *
 * For every forward result that is recomputed (plan.recomputed) and that a backward node of the
 * stage needs, the expanded graph has a clone of the node that makes it.  The clone belongs to the
 * backward phase; it has the name, attributes, layer, chunk and states of the original, so that
 * dropout draws the same numbers and sharding is not propagated again.  Its operands are clones
 * too, or saved tensors.  Backward nodes read clones instead of originals:
 *
 *     forward    x -> norm -> t -> product -> y
 *     backward   x -> norm' -> t' -> product' -> y', and dy, y' -> ...
 *
 * Later passes see ordinary nodes: for a clone too, a sharded weight is gathered, a partial sum is
 * reduced, operands travel around a ring.  A clone is written where its first reader in the task
 * needs it (reshard.c), so that its life is short.
 *
 * A region (regions.c) is recomputed in two ways: in its backward half, the clones of wide results,
 * slice by slice (region.again); and as a region of clones, if a node outside
 * needs a result of it.
 *
 * The given graph is shared by ranks and by the search for a layout, and is not changed.  Backward
 * nodes of the stage and their results are copied; forward nodes and other stages are shared.  Ids
 * of originals do not change; clones have higher ids. */
#include "program/lowering.h"

#include <string.h>

typedef struct clones {
    sk_lowering *e;
    sk_graph *g;           /* expanded */
    sk_node **of, **whole; /* given node -> its clone; -> its clone in a region of clones */
    const sk_node **equal; /* given tensor -> a backward node with the same value */
    char *passed;          /* by given node: it runs earlier in the backward pass */
    sk_ints *list;         /* the nodes of the current chunk, in their new order */
    sk_ints origin;        /* by clone: the node that it is a clone of */
    sk_ints tensor_origin; /* by result of a clone */
    sk_ints region;        /* by clone: 1 + its region, or 0 */
} clones;

/* --- the graph --- */

static void copy_backward(clones *x, int i)
{
    sk_arena *a = x->e->p->arena;
    sk_node *n = sk_new(a, sk_node);
    *n = *x->g->nodes.v[i];
    for (int o = 0; o < n->n_out; o++) {
        sk_tensor *t = sk_new(a, sk_tensor);
        *t = *n->out[o];
        t->from = n;
        n->out[o] = x->g->tensors.v[t->id] = t;
    }
    x->g->nodes.v[i] = n;
}

static void *copied(sk_arena *a, const void *from, size_t bytes)
{
    return bytes ? memcpy(sk_alloc(a, bytes), from, bytes) : NULL;
}

static void copy_graph(clones *x)
{
    const sk_lowering *e = x->e;
    const sk_graph *given = e->p->graph;
    sk_arena *a = e->p->arena;
    sk_graph *g = x->g = sk_new(a, sk_graph);
    *g = *given;
    g->arena = a;
    g->nodes.v = copied(a, given->nodes.v, sizeof *g->nodes.v * (size_t)given->nodes.n);
    g->tensors.v = copied(a, given->tensors.v, sizeof *g->tensors.v * (size_t)given->tensors.n);
    g->nodes.cap = g->nodes.n;
    g->tensors.cap = g->tensors.n;
    for (int i = 0; i < given->nodes.n; i++)
        if (given->nodes.v[i]->phase == SK_BACKWARD && e->sp->stage[i] == e->p->stage)
            copy_backward(x, i);
}

/* --- clones --- */

/* Of a forward node with these operands; `region`: 1 + the region that it runs in, or 0. */
static sk_node *add_clone(clones *x, const sk_node *of, sk_tensor *const *in, int region)
{
    sk_arena *a = x->e->p->arena;
    sk_node *n = sk_new(a, sk_node);
    *n = *of;
    n->id = x->g->nodes.n;
    n->phase = SK_BACKWARD;
    memcpy(n->in, in, sizeof *in * (size_t)n->n_in);
    for (int o = 0; o < n->n_out; o++) {
        sk_tensor *t = sk_new(a, sk_tensor);
        *t = *of->out[o];
        t->id = x->g->tensors.n;
        t->from = n;
        n->out[o] = *sk_push(a, &x->g->tensors) = t;
        n->into[o] = NULL;
        *sk_push(x->e->tmp, &x->tensor_origin) = of->out[o]->id;
    }
    *sk_push(a, &x->g->nodes) = n;
    *sk_push(x->e->tmp, &x->origin) = of->id;
    *sk_push(x->e->tmp, &x->region) = region;
    *sk_push(x->e->tmp, x->list) = n->id;
    return n;
}

static int place_of(const sk_tensor *t)
{
    int o = 0;
    while (t->from->out[o] != t) o++;
    return o;
}

static int region_of(const clones *x, const sk_node *n)
{
    return x->e->plan.region_of ? x->e->plan.region_of[n->id] : 0;
}

static sk_tensor *instead(clones *x, sk_tensor *t);

static sk_node *clone(clones *x, const sk_node *of)
{
    sk_tensor *in[SK_MAX_IN];
    if (x->of[of->id]) return x->of[of->id];
    for (int k = 0; k < of->n_in; k++) in[k] = instead(x, of->in[k]);
    return x->of[of->id] = add_clone(x, of, in, region_of(x, of));
}

static bool only_adds(const sk_node *n)
{
    for (int o = 0; o < n->n_out; o++)
        if (!n->into[o]) return false;
    return true;
}

static sk_node *clone_whole(clones *x, const sk_node *of, int region)
{
    sk_tensor *in[SK_MAX_IN];
    for (int k = 0; k < of->n_in; k++) {
        const sk_node *from = of->in[k]->from;
        const sk_node *near = from ? x->whole[from->id] : NULL;
        in[k] = near ? near->out[place_of(of->in[k])] : instead(x, of->in[k]);
    }
    return x->whole[of->id] = add_clone(x, of, in, region);
}

/* All nodes of a region, but those that add to a sum: they must not add twice. */
static void clone_region(clones *x, int of)
{
    sk_lowering *e = x->e;
    const sk_ints forward = e->plan.regions.v[of - 1].nodes[SK_FORWARD];
    sk_region r = e->plan.regions.v[of - 1];
    r.nodes[SK_FORWARD] = r.nodes[SK_BACKWARD] = r.again = (sk_ints){0};
    *sk_push(e->tmp, &e->plan.regions) = r;
    int region = e->plan.regions.n;
    for (int i = 0; i < forward.n; i++) {
        const sk_node *n = e->p->graph->nodes.v[forward.v[i]];
        if (only_adds(n)) continue;
        int id = clone_whole(x, n, region)->id;
        *sk_push(e->tmp, &e->plan.regions.v[region - 1].nodes[SK_BACKWARD]) = id;
    }
}

/* The backward node that computes the same value as a cheap forward one, if it runs before. */
static const sk_node *equal_before(const clones *x, const sk_tensor *t)
{
    const sk_node *equal = x->equal[t->id];
    return equal && x->passed[equal->id] ? equal : NULL;
}

/* What a node of the backward pass reads instead of a tensor of the given graph. */
static sk_tensor *instead(clones *x, sk_tensor *t)
{
    const sk_node *from = t->from, *equal;
    if (!from || !x->e->plan.recomputed[t->id]) return x->g->tensors.v[t->id];
    if (region_of(x, from) && !x->e->plan.wide[t->id]) {
        if (!x->whole[from->id]) clone_region(x, region_of(x, from));
        return x->whole[from->id]->out[place_of(t)];
    }
    if (!x->of[from->id] && (equal = equal_before(x, t))) return x->g->tensors.v[equal->out[0]->id];
    return clone(x, from)->out[place_of(t)];
}

static void rewire_chunk(clones *x, sk_ints *all)
{
    const sk_ints old = *all;
    *all = (sk_ints){0};
    x->list = all;
    for (int i = 0; i < old.n; i++) {
        const sk_node *given = x->e->p->graph->nodes.v[old.v[i]];
        for (int k = 0; k < given->n_in; k++)
            x->g->nodes.v[given->id]->in[k] = instead(x, given->in[k]);
        *sk_push(x->e->tmp, all) = given->id;
        x->passed[given->id] = 1;
    }
}

/* --- properties of originals, copied for clones --- */

/* A copy of an array by node or tensor, with what clones have of their originals behind it.  The
 * array itself may be one that all ranks share. */
static void *extended(sk_arena *a, const void *array, size_t size, int n, const sk_ints *origins)
{
    if (!array) return NULL;
    char *out = sk_alloc_n(a, size, (size_t)(n + origins->n + 1));
    if (n) memcpy(out, array, size * (size_t)n);
    for (int i = 0; i < origins->n; i++)
        memcpy(out + size * (size_t)(n + i), out + size * (size_t)origins->v[i], size);
    return out;
}

static void extend_nodes(clones *x)
{
    sk_lowering *e = x->e;
    sk_sharding *sp = e->sp;
    const sk_ints *of = &x->origin;
    int n = e->p->graph->nodes.n;
    sp->node = extended(e->p->arena, sp->node, sizeof *sp->node, n, of);
    sp->chunk = extended(e->p->arena, sp->chunk, sizeof *sp->chunk, n, of);
    sp->stage = extended(e->p->arena, sp->stage, sizeof *sp->stage, n, of);
    e->plan.region_of = extended(e->tmp, e->plan.region_of, sizeof *e->plan.region_of, n, of);
    e->plan.moved = extended(e->tmp, e->plan.moved, sizeof *e->plan.moved, n, of);
    for (int i = 0; e->plan.region_of && i < x->region.n; i++)
        e->plan.region_of[n + i] = x->region.v[i];
}

static void extend_tensors(clones *x)
{
    sk_lowering *e = x->e;
    const sk_ints *of = &x->tensor_origin;
    int n = e->p->graph->tensors.n;
    sk_stages *read_by = extended(e->tmp, e->plan.read_by, sizeof *read_by, n, of);
    sk_stages *forward = extended(e->tmp, e->plan.read_forward, sizeof *forward, n, of);
    e->sp->made = extended(e->p->arena, e->sp->made, sizeof *e->sp->made, n, of);
    e->plan.as_part = extended(e->tmp, e->plan.as_part, sizeof *e->plan.as_part, n, of);
    e->plan.grad_made = extended(e->tmp, e->plan.grad_made, sizeof *e->plan.grad_made, n, of);
    e->plan.recomputed = extended(e->tmp, e->plan.recomputed, sizeof *e->plan.recomputed, n, of);
    e->plan.wide = extended(e->tmp, e->plan.wide, sizeof *e->plan.wide, n, of);
    for (int i = n; i < x->g->tensors.n; i++) {
        read_by[i] = sk_stages_one(e->p->stage); /* clones go to no other stage */
        forward[i] = (sk_stages){0};
        e->plan.recomputed[i] = 0;
    }
    e->plan.read_by = read_by;
    e->plan.read_forward = forward;
}

/* Clones that the backward half of a region computes, the last first. */
static void list_again(clones *x, sk_region *r)
{
    for (int i = r->nodes[SK_FORWARD].n - 1; i >= 0; i--)
        if (x->of[r->nodes[SK_FORWARD].v[i]])
            *sk_push(x->e->tmp, &r->again) = x->of[r->nodes[SK_FORWARD].v[i]]->id;
}

void sk_clone_recomputed(sk_lowering *e)
{
    clones x = {.e = e};
    int any = 0, nodes = e->g->nodes.n;
    for (int i = 0; i < e->g->tensors.n; i++) any |= e->plan.recomputed[i];
    if (!any) return;
    copy_graph(&x);
    x.of = sk_many(e->tmp, sk_node *, nodes + 1);
    x.whole = sk_many(e->tmp, sk_node *, nodes + 1);
    x.equal = sk_many(e->tmp, const sk_node *, e->g->tensors.n + 1);
    x.passed = sk_many(e->tmp, char, nodes + 1);
    for (int i = 0; i < e->g->tensors.n; i++)
        if (e->plan.recomputed[i] == SK_BY_BACKWARD)
            x.equal[i] = sk_backward_equal(e, e->g->tensors.v[i]->from);
    sk_ints *lists = copied(e->tmp, e->plan.of_chunk, sizeof *lists * 2 * (size_t)e->sp->n_chunks);
    for (int c = e->sp->n_chunks - 1; c >= 0; c--)
        if (e->plan.place[c] == e->p->stage) rewire_chunk(&x, &lists[2 * c + 1]);
    e->plan.of_chunk = lists;
    for (int i = 0; i < e->plan.regions.n; i++) list_again(&x, &e->plan.regions.v[i]);
    extend_nodes(&x);
    extend_tensors(&x);
    e->g = e->p->expanded = x.g;
}
