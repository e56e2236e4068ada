/* codec_calls.c - compressed edges: tensors encoded on their way (coll/codec.h).
 *
 *     weights   my shard -> encode -> all-gather of bytes -> decode, my own too: all ranks compute
 *               with the same values
 *     gradients all rows -> encode -> all-to-all of bytes -> decode and sum: my rows; where every
 *               rank wants all of them -> encode the sums -> all-gather of bytes -> decode
 *
 * Rows of dim 0 are encoded one by one, so a split along dim 0 is the same before and after
 * encoding.  Tensors of one dim, and those that would not become smaller, are not encoded.
 *
 * What encoding loses of a gradient may be kept and added to the next one (error feedback, Seide et
 * al. 2014).  A gradient is a sum of one term per rank, and so is the error: its tensor has one
 * more dim, in front, with an entry for each term.  Only their sum matters, so another layout may
 * have another number of terms. */
#include "base/hash.h"
#include "program/lowering.h"
#include "tensor/tensor_shard.h"

#include <string.h>

/* --- which tensors are encoded --- */

/* The plan has its own copy of a codec: with its value. */
static sk_status find_codec(sk_lowering *e, const char *text, const sk_codec **out)
{
    sk_codec *c = sk_new(e->p->arena, sk_codec);
    *out = NULL;
    if (!*text) return SK_OK;
    SK_TRY(sk_codec_read(text, c));
    *out = c;
    return SK_OK;
}

static sk_status codecs_fit(const sk_layout *l, const sk_codec *weights, const sk_codec *grads)
{
    if (weights && weights->sums_only)
        return sk_fail(SK_ECONF,
                       "layout: weights=%s would leave ranks with weights that they cannot compute "
                       "with; '%s' is for gradients (grads=%s), weights need one such as int8",
                       l->weights_as, weights->name, l->weights_as);
    if (grads && grads->needs_feedback && !l->feedback)
        return sk_fail(SK_ECONF,
                       "layout: grads=%s loses most of every gradient; add 'feedback' (... with "
                       "feedback), which sends later what was not sent",
                       l->grads_as);
    if (grads && grads->no_feedback && l->feedback)
        return sk_fail(SK_ECONF,
                       "layout: grads=%s with feedback: what it loses at random is more than most "
                       "gradients, and kept for the next step it grows; leave out feedback, or "
                       "take a codec that is nearer, as q4",
                       l->grads_as);
    return SK_OK;
}

/* Factors are made of the gradients of the whole step, in units that do not change from step to
 * step. */
static sk_status low_rank_fits(const sk_lowering *e, const sk_codec *c)
{
    const sk_layout *l = e->l;
    if (!c || !c->low_rank) return SK_OK;
    if (l->shard_axis >= 0 && l->shard >= SK_SHARD_GRADS)
        return sk_fail(SK_ECONF,
                       "layout: grads=%s factors gradients of the whole step, and zero=%d reduces "
                       "them in every micro-batch; zero=1 goes with it",
                       l->grads_as, (int)l->shard);
    if (e->plan.schedule->async)
        return sk_fail(SK_ECONF,
                       "layout: grads=%s factors gradients of the whole step, and schedule %s "
                       "updates within a step; take another, as 1f1b",
                       l->grads_as, l->schedule);
    for (int i = 0; i < e->g->tensors.n; i++)
        if (e->g->tensors.v[i]->role == SK_PARAM && e->g->tensors.v[i]->type == SK_F16)
            return sk_fail(SK_ECONF,
                           "layout: grads=%s keeps what it owes from step to step, and the scale "
                           "of the loss changes with f16; take train.dtype=bf16, or another codec",
                           l->grads_as);
    return SK_OK;
}

sk_status sk_choose_codecs(sk_lowering *e)
{
    const sk_layout *l = e->l;
    SK_TRY(find_codec(e, l->weights_as, &e->plan.weights_as));
    SK_TRY(find_codec(e, l->grads_as, &e->plan.grads_as));
    int outer = sk_outer_axis(l);
    if (outer >= 0) SK_TRY(find_codec(e, l->sync[outer].codec, &e->plan.changes_as));
    SK_TRY(codecs_fit(l, e->plan.weights_as, e->plan.grads_as));
    SK_TRY(low_rank_fits(e, e->plan.grads_as));
    if (l->own_grads) SK_TRY(find_codec(e, e->opts->optim->sent_as, &e->plan.sent_as));
    for (int i = 0; i < e->g->tensors.n; i++)
        e->plan.narrow_model |=
            e->g->tensors.v[i]->role == SK_PARAM && sk_narrow(e->g->tensors.v[i]);
    return SK_OK;
}

int sk_lower_code_axis(const sk_lowering *e) { return sk_layout_code_axis(e->l, e->g->batch); }

/* Weights that stay f32 in a model of narrower ones are those that rounding would harm. */
static bool shrinks(const sk_lowering *e, const sk_codec *c, const sk_tensor *t, const sk_state *s,
                    int axis, sk_dtype type)
{
    sk_extent box = sk_shard_of(e->g, e->l, t->letters, s, e->p->coord, -1, e->p->n_micro);
    int64_t row = sk_box_count(&box, 1, box.n), size = (int64_t)sk_dtype_size(type);
    if (!c || c->low_rank || axis < 0 || e->l->mesh.size[axis] < 2 || box.n < 2 ||
        t->bias_update != 0 || t->role == SK_EXTRA)
        return false;
    if (t->type == SK_F32 && e->plan.narrow_model) return false;
    return sk_codec_bytes(c, row) < row * size;
}

const sk_codec *sk_lower_weights_as(const sk_lowering *e, const sk_param_plan *q)
{
    const sk_codec *c = e->plan.weights_as;
    const sk_tensor *t = q->tensor;
    return sk_lower_is_cut(e, q) && shrinks(e, c, t, &q->used, sk_lower_code_axis(e), t->type)
               ? c
               : NULL;
}

const sk_codec *sk_lower_grads_as(const sk_lowering *e, const sk_param_plan *q)
{
    int axis = sk_lower_code_axis(e);
    if (axis < 0 || e->plan.grad_made[q->tensor->id].how[axis] != SK_PARTIAL) return NULL;
    if (e->l->shard_axis >= 0 && !sk_lower_is_cut(e, q)) return NULL;
    const sk_codec *c = e->plan.grads_as;
    return shrinks(e, c, q->tensor, &q->used, axis, q->tensor->type) ? c : NULL;
}

const sk_codec *sk_lower_changes_as(const sk_lowering *e, const sk_param_plan *q)
{
    const sk_codec *c = e->plan.changes_as;
    return shrinks(e, c, q->tensor, &q->update, sk_outer_axis(e->l), SK_F32) ? c : NULL;
}

/* --- instructions --- */

int sk_lower_code(sk_lowering *e, const sk_codec *c, int buf, int times)
{
    const sk_buffer b = e->p->bufs.v[buf];
    int64_t bytes = sk_codec_bytes(c, sk_box_count(&b.box, 1, b.box.n));
    sk_extent box = {.n = 2,
                     .size = {times * b.box.size[0], bytes},
                     .at = {times > 1 ? 0 : b.box.at[0]},
                     .full = {times > 1 ? times * b.box.size[0] : b.box.full[0], bytes}};
    const char *name = sk_print(e->p->arena, "%s.%s", b.name, c->name);
    return sk_lower_buffer(e, name, NULL, SK_WIRE, SK_U8, box);
}

uint64_t sk_lower_stream(const sk_param_plan *q) { return sk_hash_text(q->tensor->name); }

int sk_lower_encode(sk_lowering *e, const sk_codec *c, const sk_param_plan *q, int buf, int error,
                    bool adds)
{
    int code = sk_lower_code(e, c, buf, 1);
    sk_inst *in = sk_lower_inst(e, SK_DO_ENCODE);
    in->in[0] = buf;
    in->out[0] = code;
    in->in[1] = in->out[1] = error;
    in->adds_error = adds;
    in->term = adds ? 0 : 1 + q->term;
    in->stream = sk_lower_stream(q);
    in->codec = c;
    return code;
}

/* --- error feedback --- */

/* Which term of the sum this rank's gradient is, and of how many: one for each coordinate along the
 * axes over which it is partial, and for each stage that has the weight. */
static int part_of_sum(const sk_lowering *e, const sk_param_plan *q, const sk_stages *stages,
                       int *n)
{
    int at = 0;
    *n = 1;
    for (int a = 0; a < e->l->mesh.n; a++) {
        int size = e->l->mesh.size[a], here = e->p->coord[a];
        if (a == e->l->stage_axis) {
            size = here = 0;
            for (int s = 0; s < e->l->mesh.size[a]; s++) {
                if (!sk_stages_has(stages, s)) continue;
                size++;
                here += s < e->p->stage;
            }
        } else if (e->plan.grad_made[q->tensor->id].how[a] != SK_PARTIAL) continue;
        at = at * size + here;
        *n *= size;
    }
    return at;
}

/* Of the ranks that have the same term, the first along each axis. */
static bool tells(const sk_lowering *e, const sk_param_plan *q)
{
    for (int a = 0; a < e->l->mesh.n; a++)
        if (a != e->l->stage_axis && q->used.how[a] == SK_REPLICATE && e->p->coord[a] &&
            e->plan.grad_made[q->tensor->id].how[a] != SK_PARTIAL)
            return false;
    return true;
}

void sk_plan_coded(sk_lowering *e, sk_param_plan *q, const sk_stages *stages)
{
    int n = 0, at = q->term = part_of_sum(e, q, stages, &n);
    if (!e->l->feedback) return;
    const sk_tensor *t = q->tensor;
    sk_extent of = sk_shard_of(e->g, e->l, t->letters, &q->used, e->p->coord, -1, e->p->n_micro);
    sk_extent box = {.n = of.n + 1, .size = {1}, .at = {at}, .full = {n}};
    sk_assert(box.n <= SK_MAX_DIM);
    for (int d = 0; d < of.n; d++) {
        box.size[d + 1] = of.size[d];
        box.at[d + 1] = of.at[d];
        box.full[d + 1] = of.full[d];
    }
    const char *name = sk_print(e->p->arena, "%s" SK_ERROR_SUFFIX, t->name);
    q->error = sk_lower_buffer(e, name, NULL, SK_OPTIM, SK_F32, box);
    q->tells = tells(e, q);
    e->p->bufs.v[q->error].keep = true;
    e->p->bufs.v[q->error].zero = true;
}
