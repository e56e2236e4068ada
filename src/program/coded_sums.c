/* coded_sums.c - sums over the ranks of an axis of what is encoded: rows go to their owners by an
 * all-to-all of bytes, who decode and sum them; where every rank needs the sums, these are encoded
 * once more and gathered.  For gradients (grad_reduce.c) and for what an optimizer sends
 * (sent_state.c). */
#include "program/lowering.h"

void sk_join_coded(sk_lowering *e, int *call, const sk_coded *x)
{
    int n = e->l->mesh.size[x->axis];
    if (*call < 0)
        *call = sk_lower_call(e, SK_ALLTOALL, SK_SUM, SK_U8, x->axis,
                              sk_print(e->p->arena, "grads from %s", x->q->tensor->name));
    int code = sk_lower_encode(e, x->codec, x->q, x->from, x->q->error, false),
        came = sk_lower_code(e, x->codec, x->part, n);
    const sk_extent box = e->p->bufs.v[code].box;
    sk_lower_rows(e, *call, code, came, &box, 0);
    sk_lower_then(e, *call,
                  (sk_then){SK_DO_DECODE, came, x->part, n, x->codec, sk_lower_stream(x->q)});
}

sk_coded sk_coded_whole(sk_lowering *e, sk_coded x)
{
    const sk_group *g = &e->p->groups[x.axis];
    x.part = sk_lower_part(e, x.whole, g->me, g->n);
    x.error = -1;
    if (x.q->error < 0) return x;
    const sk_buffer part = e->p->bufs.v[x.part], w = e->p->bufs.v[x.whole];
    sk_extent box = e->p->bufs.v[x.q->error].box;
    int64_t row = sk_box_count(&w.box, 1, w.box.n) * (int64_t)sizeof(real);
    box.at[1] = part.box.at[0];
    box.size[1] = part.box.size[0];
    x.error = sk_lower_buffer(e, e->p->bufs.v[x.q->error].name, NULL, SK_OPTIM, SK_F32, box);
    e->p->bufs.v[x.error].within = x.q->error;
    e->p->bufs.v[x.error].part_at = (part.box.at[0] - w.box.at[0]) * row;
    e->p->bufs.v[x.error].keep = true;
    return x;
}

/* The owner of a row adds the error of encoding the sum to the error of its own term. */
void sk_sum_coded(sk_lowering *e, const sk_coded *v, int n)
{
    int there = -1, back = -1;
    for (int i = 0; i < n; i++) sk_join_coded(e, &there, &v[i]);
    if (there >= 0) sk_lower_start(e, there, SK_FLIES_NOT);
    for (int i = 0; i < n; i++) {
        const sk_coded *x = &v[i];
        if (back < 0)
            back = sk_lower_call(e, SK_ALLGATHER, SK_SUM, SK_U8, x->axis,
                                 sk_print(e->p->arena, "sums from %s", x->q->tensor->name));
        int code = sk_lower_encode(e, x->codec, x->q, x->part, x->error, true);
        int came = sk_lower_code(e, x->codec, x->whole, 1);
        const sk_extent box = e->p->bufs.v[came].box;
        sk_lower_rows(e, back, code, came, &box, 0);
        sk_lower_then(e, back,
                      (sk_then){SK_DO_DECODE, came, x->whole, 1, x->codec, sk_lower_stream(x->q)});
    }
    if (back >= 0) sk_lower_start(e, back, SK_FLIES_NOT);
}
