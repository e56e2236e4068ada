/* replica_codec.c - what replicas send each other, encoded (sync=NAME:H:codec=CODEC).
 *
 *     changes -> encode -> all-to-all of bytes -> decode and sum: my rows -> encode the sums ->
 *     all-gather of bytes -> decode
 *
 * All replicas decode the same bytes, their own too, so anchors stay alike to the bit.  Tensors
 * that codec_calls.c would not encode as gradients are not encoded here either.
 *
 * With feedback each replica keeps what encoding lost of its change, and of the rows of the sum
 * that it encodes, and adds that to its next change. */
#include "base/hash.h"
#include "program/lowering.h"
#include "tensor/tensor_shard.h"

void sk_plan_change_error(sk_lowering *e, sk_param_plan *q)
{
    if (!e->l->sync[sk_outer_axis(e->l)].feedback || !sk_lower_changes_as(e, q)) return;
    const char *name = sk_print(e->p->arena, "%s" SK_CHANGE_SUFFIX, q->tensor->name);
    q->change_error = sk_lower_kept_state(e, name, q, SK_F32);
    e->p->bufs.v[q->change_error].zero = true;
}

/* Random bits are others than those of the gradient of the step. */
static uint64_t stream_of(const sk_lowering *e, const sk_param_plan *q)
{
    return sk_hash_text(sk_print(e->tmp, "%s.change", q->tensor->name));
}

/* term: the replica, from 0; -1: the sum. */
static int encode(sk_lowering *e, int param, int buf, int error, int term)
{
    const sk_param_plan *q = &e->p->params.v[param];
    int code = sk_lower_encode(e, sk_lower_changes_as(e, q), q, buf, error, term < 0);
    sk_inst *in = &e->p->insts.v[e->p->insts.n - 1];
    in->term = 1 + term;
    in->stream = stream_of(e, q);
    in->layer = q->tensor->layer;
    return code;
}

static void decode(sk_lowering *e, int call, int param, int from, int to, int pieces)
{
    const sk_param_plan *q = &e->p->params.v[param];
    sk_lower_then(
        e, call,
        (sk_then){SK_DO_DECODE, from, to, pieces, sk_lower_changes_as(e, q), stream_of(e, q)});
}

/* One more tensor is in the call: starts it if the bucket is full, or it is the last. */
static void joined(sk_lowering *e, int *call, int param, int64_t *bytes, bool last, sk_flies flies)
{
    *bytes += sk_lower_logical(e, e->p->params.v[param].tensor);
    if (*bytes < sk_lower_bucket(e) && !last) return;
    sk_lower_start(e, *call, flies);
    *call = -1;
    *bytes = 0;
}

void sk_lower_sum_changes(sk_lowering *e, const int *params, int n, sk_flies flies)
{
    int axis = sk_outer_axis(e->l), call = -1;
    int64_t bytes = 0;
    for (int k = 0; k < n; k++) {
        int param = params[k], change = e->changes[param];
        const sk_param_plan q = e->p->params.v[param];
        const sk_group g = e->p->groups[axis];
        int code = encode(e, param, change, q.change_error, g.me);
        int part = e->change_parts[param] = sk_lower_part(e, change, g.me, g.n);
        int came = sk_lower_code(e, sk_lower_changes_as(e, &q), part, g.n);
        if (call < 0)
            call = sk_lower_call(e, SK_ALLTOALL, SK_SUM, SK_U8, axis,
                                 sk_print(e->p->arena, "replicas from %s", q.tensor->name));
        const sk_extent box = e->p->bufs.v[code].box;
        sk_lower_rows(e, call, code, came, &box, 0);
        decode(e, call, param, came, part, g.n);
        joined(e, &call, param, &bytes, k + 1 == n, flies);
    }
}

void sk_lower_share_changes(sk_lowering *e, const int *params, int n, sk_flies flies)
{
    int axis = sk_outer_axis(e->l), call = -1;
    int64_t bytes = 0;
    for (int k = 0; k < n; k++) {
        int param = params[k], change = e->changes[param], error = -1;
        const sk_param_plan q = e->p->params.v[param];
        const sk_group g = e->p->groups[axis];
        if (q.change_error >= 0) {
            error = sk_lower_part(e, q.change_error, g.me, g.n);
            e->p->bufs.v[error].keep = true;
        }
        int code = encode(e, param, e->change_parts[param], error, -1);
        int came = sk_lower_code(e, sk_lower_changes_as(e, &q), change, 1);
        if (call < 0)
            call = sk_lower_call(e, SK_ALLGATHER, SK_SUM, SK_U8, axis,
                                 sk_print(e->p->arena, "sums from %s", q.tensor->name));
        const sk_extent box = e->p->bufs.v[came].box;
        sk_lower_rows(e, call, code, came, &box, 0);
        decode(e, call, param, came, change, 1);
        joined(e, &call, param, &bytes, k + 1 == n, flies);
    }
}
