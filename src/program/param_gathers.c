/* param_gathers.c - sharded weights, gathered for one layer of one task (zero=3, averaged weights).
 *
 * The gather of a layer starts where a layer before it in the task begins, as far ahead as
 * layout.prefetch says.  Behind the last read of the layer its weights are freed, or kept for the
 * backward pass. */
#include "program/lowering.h"

enum { NOT_BEGUN = -1, NOTHING = -2 }; /* instead of a call */

static int *gathering(const sk_lowering *e, int layer) { return &e->gathering[SK_WIDTHS * layer]; }

static void add_use(sk_arena *a, sk_ints *list, int param)
{
    for (int i = 0; i < list->n; i++)
        if (list->v[i] == param) return;
    *sk_push(a, list) = param;
}

/* For every (phase, layer) of this stage, the parameters its nodes read, including clones of
 * recomputed nodes in the backward pass. */
static void index_uses(sk_lowering *e)
{
    sk_program *p = e->p;
    e->plan.uses = sk_many(p->arena, sk_ints, 2 * (e->g->n_layers + 1));
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        if (e->sp->stage[i] != p->stage) continue;
        sk_ints *list = &e->plan.uses[2 * n->layer + (int)n->phase];
        for (int k = 0; k < n->n_in; k++) {
            int q = e->plan.param_of[n->in[k]->id];
            if (q < 0 || n->in[k]->role != SK_PARAM) continue;
            add_use(p->arena, list, q);
            if (n->phase == SK_FORWARD && e->plan.recomputed[n->out[0]->id])
                add_use(p->arena, list + 1, q);
        }
    }
}

void sk_plan_gathers(sk_lowering *e)
{
    int n = SK_WIDTHS * (e->g->n_layers + 1);
    index_uses(e);
    e->gathering = sk_many(e->p->arena, int, n);
    for (int i = 0; i < n; i++) e->gathering[i] = NOT_BEGUN;
}

static const sk_ints *uses_of(const sk_lowering *e, int layer)
{
    return &e->plan.uses[2 * layer + (int)e->at.phase];
}

/* Adds a weight to a layer's call; the first weight creates it. */
static void join_gather(sk_lowering *e, int layer, int param)
{
    sk_program *p = e->p;
    const sk_param_plan *q = &p->params.v[param];
    const sk_codec *codec = sk_lower_weights_as(e, q);
    int *call = gathering(e, layer) + (codec ? SK_CODED : sk_narrow(q->tensor));
    if (*call == NOTHING) {
        *call = sk_lower_call(e, SK_ALLGATHER, SK_SUM, codec ? SK_U8 : q->tensor->type,
                              e->l->shard_axis, sk_print(p->arena, "weights of layer %d", layer));
        p->calls.v[*call].param_set = layer + 1;
    }
    int whole = sk_lower_piece(e, q->tensor, SK_WIRE, &q->used, -1), dst = whole;
    int src = sk_lower_averaged(e, q) ? sk_lower_average(e, param) : q->stored;
    if (codec) {
        src = sk_lower_encode(e, codec, q, src, -1, false);
        dst = sk_lower_code(e, codec, whole, 1);
        sk_lower_then(e, *call, (sk_then){SK_DO_DECODE, dst, whole, 1, codec, sk_lower_stream(q)});
    }
    const sk_extent box = p->bufs.v[dst].box;
    sk_lower_rows(e, *call, src, dst, &box, 0);
    sk_call_plan *c = &p->calls.v[*call];
    c->segs[c->n_segs - 1].param = param + 1;
    sk_lower_have(e, q->tensor, &q->used, whole);
}

/* Is it gathered where a layer reads it? */
static bool comes_in_shards(const sk_lowering *e, const sk_param_plan *q)
{
    return sk_lower_is_cut(e, q) &&
           (sk_lower_sharded(e, SK_SHARD_PARAMS) || sk_lower_averaged(e, q));
}

/* Starts the gather of weights that a layer reads and that are not available. */
static void begin_gather(sk_lowering *e, int layer)
{
    const sk_ints *uses = uses_of(e, layer);
    int *calls = gathering(e, layer);
    if (*calls != NOT_BEGUN) return;
    for (int w = 0; w < SK_WIDTHS; w++) calls[w] = NOTHING;
    for (int k = 0; k < uses->n; k++) {
        const sk_param_plan *q = &e->p->params.v[uses->v[k]];
        if (comes_in_shards(e, q) && sk_lower_find(e, q->tensor, &q->used) < 0)
            join_gather(e, layer, uses->v[k]);
    }
    for (int w = 0; w < SK_WIDTHS; w++)
        if (calls[w] != NOTHING) sk_lower_start(e, calls[w], SK_FLIES_IN_TASK);
}

/* Gathers this layer's weights, and starts the gathers of the next layers of this task. */
static void open_layer(sk_lowering *e)
{
    int at = 0;
    while (at < e->layers.n && e->layers.v[at] != e->at.layer) at++;
    int ahead = e->at.work == SK_WORK_W ? 0 : e->l->prefetch; /* weight halves read few weights */
    for (int k = at; k <= at + ahead && k < e->layers.n; k++) begin_gather(e, e->layers.v[k]);
    e->gathered_layer = e->at.layer;
}

/* A parameter of which this rank has all that kernels see. */
static int not_gathered(sk_lowering *e, int param)
{
    const sk_param_plan *q = &e->p->params.v[param];
    if (!sk_lower_averaged(e, q)) {
        sk_lower_lazy(e, param);
        return q->stored;
    }
    int buf = sk_lower_find(e, q->tensor, &q->used);
    if (buf >= 0) return buf;
    buf = sk_lower_average(e, param);
    sk_lower_have(e, q->tensor, &q->used, buf);
    return buf;
}

/* The buffer with a parameter as kernels see it. */
int sk_lower_gathered(sk_lowering *e, int param)
{
    const sk_param_plan *q = &e->p->params.v[param];
    if (!comes_in_shards(e, q)) return not_gathered(e, param);
    if (e->gathered_layer != e->at.layer) open_layer(e);
    int buf = sk_lower_find(e, q->tensor, &q->used);
    sk_assert(buf >= 0);
    return buf;
}

/* Does a layer whose gather has started rely on this weight (tied: it was available then)? */
static bool awaited(const sk_lowering *e, int param)
{
    for (int i = 0; i < e->layers.n; i++) {
        const sk_ints *uses = uses_of(e, e->layers.v[i]);
        if (*gathering(e, e->layers.v[i]) == NOT_BEGUN) continue;
        for (int k = 0; k < uses->n; k++)
            if (uses->v[k] == param) return true;
    }
    return false;
}

/* The layer is done: its weights are freed, or kept for the backward pass. */
void sk_lower_close_layer(sk_lowering *e)
{
    const sk_ints *uses = uses_of(e, e->at.layer);
    e->gathered_layer = -1;
    if (!sk_lower_sharded(e, SK_SHARD_PARAMS) && e->training) return;
    *gathering(e, e->at.layer) = NOT_BEGUN;
    bool forward = e->training && e->at.work == SK_WORK_F && sk_lower_same_weights(e);
    for (int k = 0; k < uses->n; k++) {
        const sk_tensor *t = e->p->params.v[uses->v[k]].tensor;
        bool saved = forward && sk_is_saved_as(e, t, SK_GATHERED);
        if (!saved && !awaited(e, uses->v[k])) sk_lower_forget(e, t);
    }
}
