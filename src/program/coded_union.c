/* coded_union.c - sparse gradients summed as what ranks sent: `grads=topk:R feedback union`.
 *
 * Without `union` owners of rows choose once more among the sums (coded_sums.c): 2 k elements leave
 * a rank, whatever the number of ranks, and what was chosen by one rank alone usually waits.  Here
 * every rank gets the whole sum.  What one rank sends and what it keeps of a row are the row, so
 * sum and residuals together are the gradient.  Two ways, and the cheaper one is taken by price:
 *
 *     gathered   codes of all n ranks, (n - 1) times that of one leaves each; decoding adds them in
 *                f32 in the order of ranks.  Over several axes codes are gathered axis by axis
 *     streams    each rank decodes its own code into its gradient, zeros elsewhere, and an
 *                all-reduce adds them: of index-value streams by sparse or sparse_doubling, which
 *                send what ranks have in common once, or dense where that is cheaper
 * (coll/choose.h)
 *
 * Streams are for f32, one axis and CPUs: in narrower types they would round what is sent.  The
 * price expects that ranks choose independently; gradients have more in common than that.  Room is
 * planned for the worst, `rows` of the call: all ranks choose others, or the whole vector. */
#include "coll/execute.h"
#include "program/lowering.h"

bool sk_union_sums(const sk_lowering *e, const sk_param_plan *q)
{
    const sk_codec *c = e->l->union_sums && e->l->shard_axis < 0 ? sk_lower_grads_as(e, q) : NULL;
    return c && c->row_kept;
}

bool sk_union_over(const sk_lowering *e, const sk_param_plan *q, int axis)
{
    const sk_layout *l = e->l;
    if (!sk_union_sums(e, q)) return false;
    if (axis == sk_lower_code_axis(e)) return true;
    return l->mesh.size[axis] > 1 && !l->home[SK_GRAD] && sk_layout_splits(l, axis, e->g->batch) &&
           !sk_layout_local(l, axis) && e->plan.grad_made[q->tensor->id].how[axis] == SK_PARTIAL;
}

typedef struct one { /* a gradient on its way */
    const sk_param_plan *q;
    const sk_codec *codec;
    int whole, code;
    int64_t pieces, elements, rows; /* rows: elements that are sent at most */
} one;

static int axes_of(const sk_lowering *e, const sk_param_plan *q)
{
    int n = 0;
    for (int a = 0; a < e->l->mesh.n; a++) n += sk_union_over(e, q, a);
    return n;
}

static one begin(const sk_lowering *e, const sk_grad_at *v)
{
    const sk_extent *box = &e->p->bufs.v[v->whole].box;
    one x = {.q = &e->p->params.v[v->param], .whole = v->whole, .pieces = 1};
    int64_t row = sk_box_count(box, 1, box->n);
    x.codec = sk_lower_grads_as(e, x.q);
    x.elements = box->size[0] * row;
    x.rows = box->size[0] * x.codec->row_kept(row, x.codec->value);
    return x;
}

/* --- which way --- */

static double price_of(const sk_lowering *e, sk_coll_kind kind, int axis, const sk_call_plan *c,
                       int64_t bytes)
{
    const sk_group *g = &e->p->groups[axis];
    const sk_compile_opts *o = e->opts;
    sk_coll_ask ask;
    double seconds = 0;
    sk_coll_ask_for(kind, g->ranks, g->n, g->me, 0, o->host_of, o->links, &ask);
    ask.any_order = (o->links || o->any_order) && !e->l->canonical;
    sk_call_fill(c, &ask);
    sk_choose(o->costs ? o->costs : &sk_costs_preset, &ask,
              sk_hosts_count(g->ranks, g->n, o->host_of), SK_SUM, bytes, &seconds);
    return seconds;
}

static bool in_streams(const sk_lowering *e, const one *v, int n, int axis)
{
    sk_call_plan sum = {.type = SK_F32}, gather = {.type = SK_U8};
    int64_t code = 0, all = 0;
    if (!n || e->opts->gpu) return false;
    int pin = sk_pins_of(&e->opts->pins, SK_ALLREDUCE, axis), times = e->l->mesh.size[axis];
    if (pin > 0 && sk_coll_parts[pin - 1]->packs) return true;
    for (int i = 0; i < n; i++) {
        const sk_extent *box = &e->p->bufs.v[v[i].whole].box;
        code += box->size[0] * sk_codec_bytes(v[i].codec, sk_box_count(box, 1, box->n));
        all += v[i].elements;
        sum.rows += v[i].rows;
    }
    sum.fill = (double)sum.rows / (double)(all ? all : 1);
    return price_of(e, SK_ALLREDUCE, axis, &sum, all * (int64_t)sizeof(float)) <
           price_of(e, SK_ALLGATHER, axis, &gather, times * code);
}

/* --- the two ways --- */

static void add_streams(sk_lowering *e, one *v, int n, int axis)
{
    int call = -1;
    int64_t all = 0, rows = 0;
    for (int i = 0; i < n; i++) {
        sk_inst *in = sk_lower_inst(e, SK_DO_DECODE);
        in->in[0] = v[i].code;
        in->out[0] = v[i].whole;
        in->pieces = 1;
        in->codec = v[i].codec;
        in->stream = sk_lower_stream(v[i].q);
    }
    for (int i = 0; i < n; i++) {
        if (call < 0)
            call = sk_lower_call(
                e, SK_ALLREDUCE, SK_SUM, SK_F32, axis,
                sk_print(e->p->arena, "union of grads from %s", v[i].q->tensor->name));
        sk_lower_seg(e, call, v[i].whole, v[i].whole, 1, v[i].elements, 1);
        all += v[i].elements;
        rows += v[i].rows;
    }
    e->p->calls.v[call].rows = rows;
    e->p->calls.v[call].fill = (double)rows / (double)(all ? all : 1);
    sk_lower_start(e, call, SK_FLIES_NOT);
}

static void gather_codes(sk_lowering *e, one *v, int n, int axis)
{
    int call = -1, times = e->l->mesh.size[axis];
    for (int i = 0; i < n; i++) {
        if (!sk_union_over(e, v[i].q, axis)) continue;
        if (call < 0)
            call = sk_lower_call(
                e, SK_ALLGATHER, SK_SUM, SK_U8, axis,
                sk_print(e->p->arena, "codes of grads from %s", v[i].q->tensor->name));
        v[i].pieces *= times;
        int came = sk_lower_code(e, v[i].codec, v[i].whole, (int)v[i].pieces);
        const sk_extent box = e->p->bufs.v[came].box;
        sk_lower_rows(e, call, v[i].code, came, &box, 0);
        v[i].code = came;
    }
    if (call >= 0) sk_lower_start(e, call, SK_FLIES_NOT);
}

static void decode_all(sk_lowering *e, const one *v, int n)
{
    for (int i = 0; i < n; i++) {
        sk_inst *in = sk_lower_inst(e, SK_DO_DECODE);
        in->in[0] = v[i].code;
        in->out[0] = v[i].whole;
        in->pieces = v[i].pieces;
        in->codec = v[i].codec;
        in->stream = sk_lower_stream(v[i].q);
    }
}

void sk_sum_unions(sk_lowering *e, const sk_grad_at *v, int n)
{
    one *all = sk_many(e->tmp, one, n + 1), *flat = sk_many(e->tmp, one, n + 1);
    int n_all = 0, n_flat = 0, axis = sk_lower_code_axis(e);
    for (int i = 0; i < n; i++) {
        const sk_param_plan *q = &e->p->params.v[v[i].param];
        if (!sk_union_sums(e, q)) continue;
        one x = begin(e, &v[i]);
        bool plain = axes_of(e, q) == 1 && e->p->bufs.v[v[i].whole].type == SK_F32;
        x.code = sk_lower_encode(e, x.codec, q, x.whole, q->error, false);
        if (plain) flat[n_flat++] = x;
        else all[n_all++] = x;
    }
    if (in_streams(e, flat, n_flat, axis)) add_streams(e, flat, n_flat, axis);
    else
        for (int i = 0; i < n_flat; i++) all[n_all++] = flat[i];
    for (int k = 0; k < e->l->mesh.n; k++)
        gather_codes(e, all, n_all, sk_layout_cutter(e->l, 0, k));
    decode_all(e, all, n_all);
}
