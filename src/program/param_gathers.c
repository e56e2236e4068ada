/* param_gathers.c - sharded weights, gathered for one layer of one task (zero=3, averaged weights).
 *
 * The gather of a layer starts where a layer before it in the task begins, as far ahead as
 * layout.prefetch says.  Behind the last read of the layer its weights are freed, or kept for the
 * backward pass. */
#include "program/lowering.h"

static sk_level_calls *calls_of(const sk_lowering *e, int layer)
{
    return &e->gathers[SK_WIDTHS * layer];
}

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
    index_uses(e);
    e->gathering = sk_many(e->tmp, char, e->g->n_layers + 1);
    e->gathers = sk_many(e->tmp, sk_level_calls, SK_WIDTHS * (e->g->n_layers + 1));
}

static const sk_ints *uses_of(const sk_lowering *e, int layer)
{
    return &e->plan.uses[2 * layer + (int)e->at.phase];
}

/* Encoded on its way, which is over one axis. */
static void join_coded(sk_lowering *e, int layer, int param, const sk_codec *codec, int src,
                       int whole)
{
    sk_program *p = e->p;
    const sk_param_plan *q = &p->params.v[param];
    int *call = &calls_of(e, layer)[SK_CODED].call[0][e->l->shard_axis];
    if (!*call) {
        *call = 1 + sk_lower_call(e, SK_ALLGATHER, SK_SUM, SK_U8, e->l->shard_axis,
                                  sk_print(p->arena, "weights of layer %d", layer));
        p->calls.v[*call - 1].param_set = layer + 1;
    }
    src = sk_lower_encode(e, codec, q, src, -1, false);
    int dst = sk_lower_code(e, codec, whole, 1);
    sk_lower_then(e, *call - 1, (sk_then){SK_DO_DECODE, dst, whole, 1, codec, sk_lower_stream(q)});
    const sk_extent box = p->bufs.v[dst].box;
    sk_lower_rows(e, *call - 1, src, dst, &box, 0);
    sk_call_plan *c = &p->calls.v[*call - 1];
    c->segs[c->n_segs - 1].param = param + 1;
}

/* Adds a weight to a layer's calls; the first weight creates them. */
static void join_gather(sk_lowering *e, int layer, int param)
{
    const sk_param_plan *q = &e->p->params.v[param];
    const sk_codec *codec = sk_lower_weights_as(e, q);
    int whole = sk_lower_piece(e, q->tensor, SK_WIRE, &q->used, -1);
    int src = sk_lower_averaged(e, q) ? sk_lower_average(e, param) : q->stored;
    if (codec) join_coded(e, layer, param, codec, src, whole);
    else
        sk_lower_join_levels(e, &calls_of(e, layer)[sk_narrow(q->tensor)], q, src, whole, layer + 1,
                             sk_print(e->p->arena, "weights of layer %d", layer));
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
    if (e->gathering[layer]) return;
    e->gathering[layer] = 1;
    for (int k = 0; k < uses->n; k++) {
        const sk_param_plan *q = &e->p->params.v[uses->v[k]];
        if (comes_in_shards(e, q) && sk_lower_find(e, q->tensor, &q->used) < 0)
            join_gather(e, layer, uses->v[k]);
    }
    for (int w = 0; w < SK_WIDTHS; w++)
        sk_lower_start_level(e, &calls_of(e, layer)[w], 0, SK_FLIES_IN_TASK);
}

/* Shards over two axes: the second part waits for the first. */
static void end_gather(sk_lowering *e, int layer)
{
    for (int w = 0; w < SK_WIDTHS; w++)
        sk_lower_start_level(e, &calls_of(e, layer)[w], 1, SK_FLIES_IN_TASK);
}

/* Gathers this layer's weights, and starts the gathers of the next layers of this task. */
static void open_layer(sk_lowering *e)
{
    int at = 0;
    while (at < e->layers.n && e->layers.v[at] != e->at.layer) at++;
    int ahead = e->at.work == SK_WORK_W ? 0 : e->l->prefetch; /* weight halves read few weights */
    for (int k = at; k <= at + ahead && k < e->layers.n; k++) begin_gather(e, e->layers.v[k]);
    for (int k = at; (k == at || k < at + ahead) && k < e->layers.n; k++)
        end_gather(e, e->layers.v[k]);
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
        if (!e->gathering[e->layers.v[i]]) continue;
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
    e->gathering[e->at.layer] = 0;
    bool forward = e->training && e->at.work == SK_WORK_F && sk_lower_same_weights(e);
    for (int k = 0; k < uses->n; k++) {
        const sk_tensor *t = e->p->params.v[uses->v[k]].tensor;
        bool saved = forward && sk_is_saved_as(e, t, SK_GATHERED);
        if (!saved && !awaited(e, uses->v[k])) sk_lower_forget(e, t);
    }
}
