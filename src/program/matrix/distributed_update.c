/* distributed_update.c - whole matrices, distributed to owners (matrix_placement.c).
 *
 * With sharded optimizer state (ZeRO), or where tensor parallelism cuts the matrix, every rank has
 * a shard of each direction.  To gather them would bring all matrices to all ranks, S bytes to each
 * of n.  Here each matrix goes to one owner along the axis: one all-to-all brings shards to owners,
 * owners work, and another one takes shards of the steps back.  2 S / n bytes leave a rank, and the
 * work is divided too.
 *
 *     sent   [owner][block]   this rank's shards, those of one owner after the other
 *     held   [source][block]  the shards of my matrices, then of their steps
 *
 * Where ranks along the axis all have the matrix (data parallelism without ZeRO), nothing has to go
 * to owners, and all would do the same work.  The owner's result goes to all others:
 *
 *     held   [owner][block]   directions of all matrices; each owner's block becomes steps, and one
 *                             all-gather brings S (n - 1) / n bytes to each rank
 *
 * Blocks are as long as the longest needs, so owners are chosen by work, the largest matrix first
 * to whom has least (LPT).  At most MOST_OWNERS ranks along the axis own something: each owner has
 * a program of its own (classes.c). */
#include "program/param_groups.h"
#include "program/matrix/matrix_update.h"

enum { ALIGN = 64 }; /* bytes; shards begin so, as memory is laid out */

typedef struct item {
    int param, owner;
    int64_t at;    /* bytes, in the block */
    int64_t bytes; /* of the largest shard */
    double work;
    int sent; /* the shard in `sent` */
} item;

typedef struct deal {
    sk_lowering *e;
    int axis, n; /* ranks along it */
    sk_dtype type;
    int sums; /* totals that the passes read; -1: none */
    item *v;
    int items;
    int64_t block; /* elements */
    int sent, held;
} deal;

bool sk_is_distributed_shard(const sk_lowering *e, const sk_param_plan *q)
{
    return q->update.how[e->matrices->axis] == SK_SPLIT;
}

/* An owner can have only factors that are brought to it, or that all ranks have. */
bool sk_is_distributed(const sk_lowering *e, const sk_param_plan *q)
{
    if (!sk_matrix_kind_of(e, q)->distributed) return false;
    if (sk_is_distributed_shard(e, q)) return sk_matrix_factors_distributed(e, q);
    for (int side = 0; side < 2; side++) {
        int i = sk_matrix_factor(e, q, side);
        if (i >= 0 && e->p->params.v[i].update.how[e->matrices->axis] == SK_SPLIT) return false;
    }
    return true;
}

/* The shard of a direction that the rank at place k along the axis has. */
static sk_extent shard_at(const deal *d, const sk_param_plan *q, int k)
{
    int coord[SK_MAX_AXES];
    for (int a = 0; a < SK_MAX_AXES; a++) coord[a] = d->e->p->coord[a];
    coord[d->axis] = k;
    return sk_shard_of(d->e->g, d->e->l, q->tensor->letters, &q->update, coord, -1,
                       d->e->p->n_micro);
}

static int64_t bytes_of(const deal *d, const sk_extent *box)
{
    return sk_box_count(box, 0, box->n) * (int64_t)sk_dtype_size(d->type);
}

/* A product of a matrix with its smaller side: rows times columns times the smaller; where both
 * sides have factors, also the cubes of these. */
static double work_of(const deal *d, const sk_param_plan *q)
{
    char roles[SK_MAX_DIM + 1];
    double size[3] = {1, 1, 1};
    sk_param_matrix(d->e->g, q->tensor, roles);
    for (int i = 0; roles[i]; i++)
        size[roles[i] - '0'] *= (double)d->e->g->size[(int)q->tensor->letters[i] & 127];
    double square = size[0] * size[1] * size[2] * (size[1] < size[2] ? size[1] : size[2]);
    if (!q->optim->exact) return square;
    return square + size[0] * (size[1] * size[1] * size[1] + size[2] * size[2] * size[2]);
}

static item item_of(const deal *d, int param)
{
    const sk_param_plan *q = &d->e->p->params.v[param];
    item x = {.param = param, .owner = -1};
    for (int k = 0; k < d->n; k++) {
        sk_extent box = shard_at(d, q, k);
        int64_t bytes = (bytes_of(d, &box) + ALIGN - 1) / ALIGN * ALIGN;
        if (bytes > x.bytes) x.bytes = bytes;
    }
    return x;
}

/* The heaviest that has no owner yet; the first of equal ones. */
static item *heaviest(const deal *d)
{
    item *best = NULL;
    for (int i = 0; i < d->items; i++)
        if (d->v[i].owner < 0 && (!best || d->v[i].work > best->work)) best = &d->v[i];
    return best;
}

static void choose_owners(deal *d)
{
    int owners = d->e->matrices->owners;
    double *work = sk_many(d->e->tmp, double, owners);
    int64_t *bytes = sk_many(d->e->tmp, int64_t, owners), longest = 0;
    for (item *x; (x = heaviest(d));) {
        int to = 0;
        for (int k = 1; k < owners; k++)
            if (work[k] < work[to]) to = k;
        x->owner = to;
        x->at = bytes[to];
        work[to] += x->work;
        bytes[to] += x->bytes;
        if (bytes[to] > longest) longest = bytes[to];
    }
    d->block = longest / (int64_t)sk_dtype_size(d->type);
}

static int blocks(const deal *d, const char *name)
{
    sk_extent box = {.n = 2, .size = {d->n, d->block}, .full = {d->n, d->block}};
    return sk_lower_buffer(d->e, name, NULL, SK_WIRE, d->type, box);
}

/* A shard as a part of `in`, in the block of k. */
static int part_of(const deal *d, const item *x, int in, int k, const sk_extent *box)
{
    sk_program *p = d->e->p;
    const sk_tensor *t = p->params.v[x->param].tensor;
    int b = sk_lower_buffer(d->e, sk_print(p->arena, "%s.direction", t->name), t, SK_WIRE, d->type,
                            *box);
    p->bufs.v[b].within = in;
    p->bufs.v[b].part_at = k * d->block * (int64_t)sk_dtype_size(d->type) + x->at;
    return b;
}

static void exchange(const deal *d, int from, int to, const char *what)
{
    int call = sk_lower_call(d->e, SK_ALLTOALL, SK_SUM, d->type, d->axis, what);
    sk_lower_seg(d->e, call, from, to, 1, d->n, d->block);
    sk_lower_start(d->e, call, SK_FLIES_NOT);
}

/* Shards of all ranks come together over the axis; part[n]: each of them. */
static sk_matrix_shard collect(const deal *d, const item *x, int *part)
{
    const sk_param_plan *q = &d->e->p->params.v[x->param];
    sk_matrix_shard to = {.state = q->update};
    to.state.how[d->axis] = SK_REPLICATE;
    const char *name = sk_print(d->e->p->arena, "%s of all", q->tensor->name);
    to.buf = sk_lower_buffer(d->e, name, q->tensor, SK_WIRE, d->type,
                             sk_lower_box(d->e, q->tensor, &to.state, -1));
    for (int k = 0; k < d->n; k++) {
        sk_extent box = shard_at(d, q, k);
        part[k] = part_of(d, x, d->held, k, &box);
        if (bytes_of(d, &box)) sk_lower_move(d->e, SK_DO_PASTE, part[k], to.buf);
    }
    return to;
}

/* My matrix: its direction and factors come together, and the step is cut again. */
static void own(const deal *d, const item *x, const deal *factors)
{
    sk_param_plan *q = &d->e->p->params.v[x->param];
    int *part = sk_many(d->e->tmp, int, d->n), *of_factor = sk_many(d->e->tmp, int, d->n);
    sk_matrix_shard to = collect(d, x, part), factor[2];
    sk_matrix_factors(d->e, q, factor);
    d->e->at.every = factors->items ? d->e->p->params.v[factors->v[0].param].every : 0;
    for (int i = 0; i < factors->items; i++)
        for (int side = 0; side < 2; side++)
            if (factors->v[i].param == sk_matrix_factor(d->e, q, side))
                factor[side] = collect(factors, &factors->v[i], of_factor);
    d->e->at.every = 0;
    int step = sk_matrix_step(d->e, q, &to, factor, sk_matrix_kind_of(d->e, q)->cut);
    for (int k = 0; k < d->n; k++)
        if (d->e->p->bufs.v[part[k]].bytes) sk_lower_move(d->e, SK_DO_SLICE, step, part[k]);
}

static void pass(const deal *d, int which)
{
    for (int i = 0; i < d->items; i++)
        sk_matrix_pass(d->e, d->v[i].param, which, d->v[i].sent, d->sums);
}

/* Factors that ZeRO shards, to the owners of their matrices. */
static deal deal_factors(const deal *m)
{
    sk_lowering *e = m->e;
    deal d = {.e = e, .axis = m->axis, .n = m->n, .type = SK_F32};
    int64_t *bytes = sk_many(e->tmp, int64_t, m->n), longest = 0;
    d.v = sk_many(e->tmp, item, 2 * m->items + 1);
    for (int i = 0; i < 2 * m->items; i++) {
        int factor = sk_matrix_factor(e, &e->p->params.v[m->v[i / 2].param], i % 2);
        if (!sk_matrix_factor_cut(e, factor)) continue;
        item *x = &d.v[d.items++];
        *x = item_of(&d, factor);
        x->owner = m->v[i / 2].owner;
        x->at = bytes[x->owner];
        bytes[x->owner] += x->bytes;
        if (bytes[x->owner] > longest) longest = bytes[x->owner];
    }
    d.block = longest / (int64_t)sizeof(real);
    return d;
}

static void send_factors(deal *d)
{
    sk_lowering *e = d->e;
    if (!d->items) return;
    e->at.every = e->p->params.v[d->v[0].param].every; /* all are of one group */
    d->sent = blocks(d, "factors");
    d->held = blocks(d, "factors of my matrices");
    sk_lower_inst(e, SK_DO_ZERO)->out[0] = d->sent;
    for (int i = 0; i < d->items; i++) {
        const sk_param_plan *q = &e->p->params.v[d->v[i].param];
        sk_extent box = shard_at(d, q, e->p->coord[d->axis]);
        d->v[i].sent = part_of(d, &d->v[i], d->sent, d->v[i].owner, &box);
        if (bytes_of(d, &box)) sk_lower_move(e, SK_DO_SLICE, q->grad_shard, d->v[i].sent);
    }
    exchange(d, d->sent, d->held, "factors to owners");
    e->at.every = 0;
}

static deal deal_of(sk_lowering *e, const int *params, int n, int sums)
{
    deal d = {.e = e,
              .axis = e->matrices->axis,
              .n = e->l->mesh.size[e->matrices->axis],
              .type = sk_matrix_type(e, &e->p->params.v[*params]),
              .sums = sums,
              .items = n};
    d.v = sk_many(e->tmp, item, n);
    for (int i = 0; i < n; i++) {
        d.v[i] = item_of(&d, params[i]);
        d.v[i].work = work_of(&d, &e->p->params.v[params[i]]);
    }
    choose_owners(&d);
    return d;
}

void sk_lower_distributed(sk_lowering *e, const int *params, int n, int sums)
{
    deal d = deal_of(e, params, n, sums);
    deal factors = deal_factors(&d);
    send_factors(&factors);
    d.sent = blocks(&d, "directions");
    d.held = blocks(&d, "directions of my matrices");
    for (int i = 0; i < n; i++) {
        sk_extent box = shard_at(&d, &e->p->params.v[params[i]], e->p->coord[d.axis]);
        d.v[i].sent = part_of(&d, &d.v[i], d.sent, d.v[i].owner, &box);
    }
    sk_lower_inst(e, SK_DO_ZERO)->out[0] = d.sent; /* what lies between shards goes along */
    pass(&d, 0);
    exchange(&d, d.sent, d.held, "directions to owners");
    for (int i = 0; i < n; i++)
        if (d.v[i].owner == e->p->coord[d.axis]) own(&d, &d.v[i], &factors);
    exchange(&d, d.held, d.sent, "steps from owners");
    pass(&d, 1);
}

/* --- of matrices that all ranks along the axis have --- */

/* My matrix: the step takes the place of the direction. */
static void own_copy(const deal *d, const item *x)
{
    sk_param_plan *q = &d->e->p->params.v[x->param];
    sk_matrix_shard factor[2];
    sk_matrix_factors(d->e, q, factor);
    int step = sk_matrix_step(d->e, q, &(sk_matrix_shard){x->sent, q->update}, factor,
                              sk_matrix_kind_of(d->e, q)->cut);
    sk_lower_move(d->e, SK_DO_SLICE, step, x->sent);
}

static void gather_steps(const deal *d)
{
    sk_program *p = d->e->p;
    int me = p->coord[d->axis];
    const sk_extent all = p->bufs.v[d->held].box;
    sk_extent box = all;
    box.at[0] = me;
    box.size[0] = 1;
    int mine = sk_lower_buffer(d->e, "steps of my matrices", NULL, SK_WIRE, d->type, box);
    p->bufs.v[mine].within = d->held;
    p->bufs.v[mine].part_at = me * d->block * (int64_t)sk_dtype_size(d->type);
    int call = sk_lower_call(d->e, SK_ALLGATHER, SK_SUM, d->type, d->axis, "steps from owners");
    sk_lower_rows(d->e, call, mine, d->held, &all, 0);
    sk_lower_start(d->e, call, SK_FLIES_NOT);
}

void sk_lower_distributed_replicas(sk_lowering *e, const int *params, int n, int sums)
{
    deal d = deal_of(e, params, n, sums);
    d.held = blocks(&d, "steps");
    for (int i = 0; i < n; i++) {
        sk_extent box = sk_lower_box(e, e->p->params.v[params[i]].tensor,
                                     &e->p->params.v[params[i]].update, -1);
        d.v[i].sent = part_of(&d, &d.v[i], d.held, d.v[i].owner, &box);
    }
    sk_lower_inst(e, SK_DO_ZERO)->out[0] = d.held; /* what lies between shards goes along */
    pass(&d, 0);
    for (int i = 0; i < n; i++)
        if (d.v[i].owner == e->p->coord[d.axis]) own_copy(&d, &d.v[i]);
    gather_steps(&d);
    pass(&d, 1);
}
