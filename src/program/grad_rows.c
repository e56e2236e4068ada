/* grad_rows.c - gradients of which few rows are not zeros are summed as these rows.
 *
 * A table of words has a gradient in the rows of the words that a rank read, at most as many as it
 * has tokens (SK_OP_ROWS of the node that makes it).  Where these rows of all ranks take at most
 * half the bytes of an all-reduce of the table, ranks gather them, and each adds them up in the
 * order of ranks (coll/nonzero_rows.h): all have the same sums, those of the table to rounding, and
 * for two ranks to the bit.  Nothing is lost, and nobody has to ask for it.
 *
 * Dense are: tables that are sharded or tied, sums over several axes, canonical order (its tree),
 * batches that ranks do not share evenly, gradients that are encoded or offloaded, and GPUs. */
#include "coll/nonzero_rows.h"
#include "program/lowering.h"

#include <string.h>

/* Rows that the nodes of a rank can write; 0: any. */
static int64_t rows_made(const sk_lowering *e, const sk_tensor *t, int n)
{
    int64_t rows = 0;
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *node = e->g->nodes.v[i];
        for (int o = 0; o < node->n_out; o++) {
            if (node->into[o] != t) continue;
            if (!(node->op->flags & SK_OP_ROWS) || !*node->in[1]->letters) return 0;
            const char *ids = node->in[1]->letters;
            if (*ids != e->g->batch || e->g->size[(int)*ids] % (n * e->p->n_micro)) return 0;
            int64_t count = e->g->size[(int)*ids] / n;
            while (*++ids) count *= e->g->size[(int)*ids];
            rows += count;
        }
    }
    return rows;
}

/* The one axis over which it is a partial sum; -1: none or several. */
static int only_axis(const sk_lowering *e, const sk_param_plan *q)
{
    int axis = -1;
    for (int a = 0; a < e->l->mesh.n; a++) {
        if (a == e->l->stage_axis || e->plan.grad_made[q->tensor->id].how[a] != SK_PARTIAL)
            continue;
        if (axis >= 0) return -1;
        axis = a;
    }
    return axis;
}

static bool possible(const sk_lowering *e, const sk_param_plan *q, int axis)
{
    const sk_layout *l = e->l;
    bool plain = strchr(l->split[axis], e->g->batch) && !l->canonical && l->shard_axis < 0 &&
                 !sk_layout_local(l, axis) && !sk_is_timed(e, axis) &&
                 axis != sk_layout_adasum(l) && !l->home[SK_GRAD] && !*l->grads_as;
    return plain && !sk_lower_per_task(e) && !e->opts->gpu && !e->opts->noise && !e->opts->late &&
           q->tensor->role == SK_PARAM && !q->made && q->tie_group < 0;
}

bool sk_grad_rows(const sk_lowering *e, const sk_param_plan *q, int axis, sk_codec *out)
{
    if (axis < 0 || axis != only_axis(e, q) || !possible(e, q, axis)) return false;
    int n = e->l->mesh.size[axis];
    const sk_extent *box = &e->p->bufs.v[q->grad].box;
    int64_t all = sk_box_count(box, 0, box->n), room = n > 1 ? rows_made(e, q->tensor, n) : 0;
    if (!room || box->n != 2 || !all || box->size[0] > UINT32_MAX) return false;
    *out = sk_nonzero_rows(box->size[1], room < box->size[0] ? room : box->size[0]);
    return n * sk_codec_bytes(out, all) <= all * (int64_t)sk_dtype_size(q->tensor->type);
}

/* The buffer as one row. */
static int as_row(sk_lowering *e, int whole)
{
    const sk_buffer b = e->p->bufs.v[whole];
    int64_t n = sk_box_count(&b.box, 0, b.box.n);
    sk_extent box = {.n = 2, .size = {1, n}, .full = {1, n}};
    int row = sk_lower_buffer(e, b.name, NULL, b.kind, b.type, box);
    e->p->bufs.v[row].within = whole;
    e->p->bufs.v[row].keep = b.keep;
    return row;
}

void sk_reduce_grad_rows(sk_lowering *e, const sk_grad_at *v, int n, int axis, sk_flies flies)
{
    int call = -1;
    for (int i = 0; i < n; i++) {
        const sk_param_plan *q = &e->p->params.v[v[i].param];
        sk_codec rows;
        if (!sk_grad_rows(e, q, axis, &rows)) continue;
        sk_codec *c = sk_new(e->p->arena, sk_codec);
        *c = rows;
        if (call < 0)
            call = sk_lower_call(e, SK_ALLGATHER, SK_SUM, SK_U8, axis,
                                 sk_print(e->p->arena, "rows of grads of %s", q->tensor->name));
        int whole = as_row(e, v[i].whole), times = e->l->mesh.size[axis];
        int code = sk_lower_encode(e, c, q, whole, -1, false);
        int came = sk_lower_code(e, c, whole, times);
        const sk_extent box = e->p->bufs.v[came].box;
        sk_lower_rows(e, call, code, came, &box, 0);
        sk_lower_then(e, call, (sk_then){SK_DO_DECODE, came, whole, times, c, sk_lower_stream(q)});
    }
    if (call >= 0) sk_lower_start(e, call, flies);
}
