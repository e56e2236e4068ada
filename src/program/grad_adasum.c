/* grad_adasum.c - gradients of the ranks along an axis, joined by Adasum (reduce=adasum).
 *
 * Adasum (Maleki et al. 2020) is a tree of joins of two vectors, and each join is a sum of both
 * with weights that depend on three products (coll/adasum_kernel.h).  So the result is a sum of all
 * the gradients, whose weights depend on the products of all pairs and on nothing else:
 *
 *     all-to-all of rows       a rank has some rows of all n gradients
 *     products                 n (n + 1) / 2 numbers a tensor, in double: of these rows
 *     all-reduce of products   over the axis, and over the axes that shard the tensor: of the
 * tensor adasum                   the rank's rows of the result all-gather               unless the
 * optimizer sees these rows alone (zero=1 over this axis)
 *
 * These are the bytes of an all-reduce.  The products are those of the whole tensor, however it is
 * sharded, which lists of steps along one axis could not know.
 *
 * A gradient is a sum over tokens here, and the update divides by the tokens of all ranks.  Adasum
 * joins mean gradients.  It keeps a common factor, so that the result of sums is multiplied by n:
 * divided by all tokens it is the join of n g / tokens, which are the mean gradients of ranks that
 * have as many tokens each.  Other axes are summed before. */
#include "program/lowering.h"

bool sk_adasum_joins(const sk_lowering *e, const sk_param_plan *q)
{
    int axis = sk_layout_adasum(e->l);
    const sk_tensor *t = q->tensor;
    return axis >= 0 && t->role == SK_PARAM && t->bias_update == 0 &&
           e->plan.grad_made[t->id].how[axis] == SK_PARTIAL;
}

bool sk_adasum_scatters(const sk_lowering *e, const sk_param_plan *q)
{
    return e->l->shard_axis >= 0 && e->l->shard_axis == sk_layout_adasum(e->l) &&
           sk_adasum_joins(e, q) && sk_lower_is_cut(e, q);
}

typedef struct joined { /* a gradient, and this rank's rows */
    const sk_param_plan *q;
    int of, came, products, rows;
} joined;

typedef struct joins {
    sk_lowering *e;
    joined *v;
    int n, axis;
    const sk_group *group;
} joins;

static joined plan_one(joins *x, const sk_grad_at *at)
{
    sk_lowering *e = x->e;
    const sk_param_plan *q = &e->p->params.v[at->param];
    bool scatters = sk_adasum_scatters(e, q);
    int64_t n = x->group->n, pairs = n * (n + 1) / 2;
    joined j = {.q = q, .of = scatters ? at->whole : at->piece, .rows = at->piece};
    if (!scatters) j.rows = sk_lower_part(e, j.of, x->group->me, x->group->n);
    const sk_buffer b = e->p->bufs.v[j.rows];
    int64_t rows = n * b.box.size[0], row = sk_box_count(&b.box, 1, b.box.n);
    sk_extent all = {.n = 2, .size = {rows, row}, .full = {rows, row}};
    sk_extent numbers = {.n = 1, .size = {pairs}, .full = {pairs}};
    j.came =
        sk_lower_buffer(e, sk_print(e->p->arena, "%s of all", b.name), NULL, SK_WIRE, b.type, all);
    j.products = sk_lower_buffer(e, sk_print(e->p->arena, "%s products", b.name), NULL, SK_WIRE,
                                 SK_F64, numbers);
    return j;
}

static void start_all(sk_lowering *e, const int *calls)
{
    for (int w = 0; w < SK_WIDTHS; w++)
        if (calls[w] >= 0) sk_lower_start(e, calls[w], SK_FLIES_NOT);
}

/* Rows to the ranks that join them, or back. */
static void move_rows(joins *x, sk_coll_kind kind, const char *what)
{
    sk_lowering *e = x->e;
    int calls[SK_WIDTHS] = {-1, -1, -1};
    for (int i = 0; i < x->n; i++) {
        const joined *j = &x->v[i];
        const sk_tensor *t = j->q->tensor;
        bool there = kind == SK_ALLTOALL;
        int *call = &calls[sk_narrow(t)];
        if (!there && sk_adasum_scatters(e, j->q)) continue;
        if (*call < 0)
            *call = sk_lower_call(e, kind, SK_SUM, t->type, x->axis,
                                  sk_print(e->p->arena, "%s from %s", what, t->name));
        const sk_extent box = e->p->bufs.v[j->of].box;
        sk_lower_rows(e, *call, there ? j->of : j->rows, there ? j->came : j->of, &box, 0);
    }
    start_all(e, calls);
}

/* An axis over which ranks have products of some rows, or of a shard. */
static bool adds_products(const joins *x, const sk_param_plan *q, int axis)
{
    return axis == x->axis || (axis != x->e->l->stage_axis && x->e->l->mesh.size[axis] > 1 &&
                               q->update.how[axis] == SK_SPLIT);
}

static void add_products(joins *x, int axis)
{
    sk_lowering *e = x->e;
    int call = -1;
    for (int i = 0; i < x->n; i++) {
        const joined *j = &x->v[i];
        if (!adds_products(x, j->q, axis)) continue;
        if (call < 0)
            call = sk_lower_call(e, SK_ALLREDUCE, SK_SUM, SK_F64, axis,
                                 sk_print(e->p->arena, "products from %s", j->q->tensor->name));
        sk_lower_seg(e, call, j->products, j->products, 1, e->p->bufs.v[j->products].box.size[0],
                     1);
    }
    if (call >= 0) sk_lower_start(e, call, SK_FLIES_NOT);
}

static void put(joins *x, sk_act act, const joined *j)
{
    sk_inst *in = sk_lower_inst(x->e, act);
    in->in[0] = j->came;
    in->in[1] = act == SK_DO_ADASUM ? j->products : -1;
    in->out[0] = act == SK_DO_ADASUM ? j->rows : j->products;
    in->pieces = x->group->n;
}

void sk_join_adasum(sk_lowering *e, const sk_grad_at *v, int n, bool tied)
{
    joins x = {.e = e, .v = sk_many(e->tmp, joined, n + 1), .axis = sk_layout_adasum(e->l)};
    if (x.axis < 0) return;
    x.group = &e->p->groups[x.axis];
    for (int i = 0; i < n; i++) {
        const sk_param_plan *q = &e->p->params.v[v[i].param];
        if (sk_adasum_joins(e, q) && (q->tie_group >= 0) == tied) x.v[x.n++] = plan_one(&x, &v[i]);
    }
    move_rows(&x, SK_ALLTOALL, "grads");
    for (int i = 0; i < x.n; i++) put(&x, SK_DO_PRODUCTS, &x.v[i]);
    for (int axis = 0; axis < e->l->mesh.n; axis++) add_products(&x, axis);
    for (int i = 0; i < x.n; i++) put(&x, SK_DO_ADASUM, &x.v[i]);
    move_rows(&x, SK_ALLGATHER, "joined grads");
}
