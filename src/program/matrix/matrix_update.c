/* matrix_update.c - optimizers that see whole matrices (sk_optim.matrix).
 *
 * The first pass leaves a direction in each rank's shard.  Where that takes less time, one owner
 * does the work of a matrix for all (matrix_placement.c, distributed_update.c).  A direction is
 * gathered over every other axis that cuts the matrix, what the optimizer does with the matrix
 * becomes instructions of ops, and each rank takes its shard of the result to the second pass.  A
 * parameter may be several matrices (a letter that counts experts): those letters stay cut as they
 * are.
 *
 * Letters of a parameter are told apart by the product that reads it (param_groups.c). */
#include "program/matrix/matrix_update.h"
#include "program/param_groups.h"

#include <string.h>

enum { BUCKET = 64 << 20 }; /* bytes of directions that are under way at once */

sk_status sk_matrix_fits(const sk_lowering *e, const sk_param_plan *q)
{
    char roles[SK_MAX_DIM + 1];
    if (!q->optim || !q->optim->matrix || q->tensor->bias_update != 0) return SK_OK;
    if (e->l->shard_second)
        return sk_fail(SK_ECONF,
                       "layout: shards over two axes do not go with %s, which works on whole "
                       "matrices; shard over one axis",
                       q->optim->name);
    if (!sk_param_matrix(e->g, q->tensor, roles))
        return sk_fail(SK_ECONF,
                       "optim.groups: %s is for matrices, and '%s' \"%s\" is none; put it into a "
                       "group of its own, as in optim.groups=\"matrix: %s, rest: %s\"",
                       q->optim->name, q->tensor->name, q->tensor->letters, q->optim->name,
                       q->optim->rest);
    if (e->opts->gpu && e->l->canonical && sk_matrix_type(e, q) != SK_F32)
        return sk_fail(SK_ECONF,
                       "optim.state is %s: on a GPU with order=canonical, %s takes its matrices in "
                       "f32; optim.state=f32 is needed",
                       sk_dtype_name(e->opts->state_type), q->optim->name);
    if (sk_lower_hosted(e, q->tensor) || e->l->home[SK_STATE])
        return sk_fail(SK_ECONF,
                       "layout: %s works on whole matrices, on the device, and offload= keeps the "
                       "optimizer's state elsewhere; leave it out, or choose adamw",
                       q->optim->name);
    return SK_OK;
}

/* --- bringing a matrix together --- */

/* Cut only along letters that count matrices. */
static sk_state whole_state(const sk_lowering *e, const sk_param_plan *q, const sk_state *from)
{
    sk_state s = *from;
    char roles[SK_MAX_DIM + 1];
    bool matrix = sk_param_matrix(e->g, q->tensor, roles);
    sk_assert(matrix);
    for (int a = 0; a < e->l->mesh.n; a++)
        if (s.how[a] == SK_SPLIT && roles[s.dim[a]] != '0') s.how[a] = SK_REPLICATE;
    return s;
}

int sk_matrix_direction(sk_lowering *e, const sk_param_plan *q, const sk_state *s)
{
    const char *name = sk_print(e->p->arena, "%s.direction", q->tensor->name);
    return sk_lower_buffer(e, name, q->tensor, SK_WIRE, sk_matrix_type(e, q),
                           sk_lower_box(e, q->tensor, s, -1));
}

/* One axis at a time, the one that cuts finest first. */
static int gather(sk_lowering *e, const sk_tensor *t, const char *what, sk_matrix_shard x,
                  const sk_state *want)
{
    sk_dtype type = e->p->bufs.v[x.buf].type;
    for (bool more = true; more;) {
        more = false;
        for (int a = 0; a < e->l->mesh.n; a++) {
            int d = x.state.dim[a];
            if (x.state.how[a] != SK_SPLIT || want->how[a] == SK_SPLIT) continue;
            if (!sk_lower_finest(e, t, &x.state, a, d)) continue;
            x.state.how[a] = SK_REPLICATE;
            const sk_extent box = sk_lower_box(e, t, &x.state, -1);
            int to = sk_lower_buffer(e, what, t, SK_WIRE, type, box);
            int call = sk_lower_call(e, SK_ALLGATHER, SK_SUM, type, a, what);
            sk_lower_rows(e, call, x.buf, to, &box, d);
            sk_lower_start(e, call, SK_FLIES_NOT);
            x.buf = to;
            more = true;
        }
    }
    return x.buf;
}

void sk_matrix_factors(const sk_lowering *e, const sk_param_plan *q, sk_matrix_shard factor[2])
{
    for (int side = 0; side < 2; side++) {
        int i = sk_matrix_factor(e, q, side);
        factor[side].buf = i < 0 ? -1 : e->p->params.v[i].grad_shard;
        if (i >= 0) factor[side].state = e->p->params.v[i].update;
    }
}

int sk_matrix_step(sk_lowering *e, sk_param_plan *q, const sk_matrix_shard *from,
                   const sk_matrix_shard *factor, int cut)
{
    sk_state want = whole_state(e, q, &from->state);
    if (cut >= 0) want.how[cut] = SK_SPLIT;
    const char *what = sk_print(e->p->arena, "direction of %s", q->tensor->name);
    int whole = gather(e, q->tensor, what, *from, &want), bufs[2] = {-1, -1};
    for (int side = 0; side < 2; side++) {
        if (factor[side].buf < 0) continue;
        int i = sk_matrix_factor(e, q, side);
        const sk_tensor *t = e->p->params.v[i].tensor;
        sk_state all = sk_matrix_factor_state(e, i, &want);
        e->at.every = e->p->params.v[i].every;
        bufs[side] = gather(e, t, t->name, factor[side], &all);
        if (!sk_matrix_factor_sharded(e, q, i, &want, &all)) continue;
        int part = sk_lower_buffer(e, t->name, t, SK_WIRE, SK_F32, sk_lower_box(e, t, &all, -1));
        sk_lower_move(e, SK_DO_SLICE, bufs[side], part);
        bufs[side] = part;
    }
    e->at.every = 0;
    int step = sk_matrix_operate(e, q, &want, whole, bufs, cut);
    if (step < 0 || whole == from->buf) return step;
    int to = sk_matrix_direction(e, q, &from->state);
    sk_lower_move(e, SK_DO_SLICE, step, to);
    return to;
}

void sk_matrix_pass(sk_lowering *e, int param, int which, int direction, int sums)
{
    const sk_param_plan *q = &e->p->params.v[param];
    sk_inst *in = sk_lower_pass(e, param, which + (q->optim->n_sums > 0));
    in->in[2 + q->n_state] = direction;
    if (q->optim->n_sums) in->in[1] = sums;
}

static void one_bucket(sk_lowering *e, const int *params, int n, int sums)
{
    sk_program *p = e->p;
    int *dir = sk_many(e->tmp, int, n + 1);
    for (int i = 0; i < n; i++) {
        dir[i] = sk_matrix_direction(e, &p->params.v[params[i]], &p->params.v[params[i]].update);
        sk_matrix_pass(e, params[i], 0, dir[i], sums);
    }
    for (int i = 0; i < n; i++) {
        sk_param_plan *q = &p->params.v[params[i]];
        sk_matrix_shard factor[2];
        sk_matrix_factors(e, q, factor);
        dir[i] = sk_matrix_step(e, q, &(sk_matrix_shard){dir[i], q->update}, factor,
                                sk_matrix_kind_of(e, q)->cut);
    }
    for (int i = 0; i < n; i++) sk_matrix_pass(e, params[i], 1, dir[i], sums);
}

typedef void bucket(sk_lowering *e, const int *params, int n, int sums);

/* By all that have the matrix; by owners, of matrices that several have or that are cut. */
static bucket *bucket_of(const sk_lowering *e, const sk_param_plan *q)
{
    if (!sk_is_distributed(e, q)) return one_bucket;
    return sk_is_distributed_shard(e, q) ? sk_lower_distributed : sk_lower_distributed_replicas;
}

/* Of one group, those that are done so. */
static void in_buckets(sk_lowering *e, int group, bucket *how, int sums)
{
    int axis = e->matrices->axis,
        parts = how == sk_lower_distributed && axis >= 0 ? e->l->mesh.size[axis] : 1;
    const sk_program *p = e->p;
    int *params = sk_many(e->tmp, int, p->params.n + 1), n = 0;
    int64_t bytes = 0;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        if (q->group != group || !sk_param_matrix_update(q) || bucket_of(e, q) != how) continue;
        params[n++] = i;
        bytes += sk_lower_logical(e, q->tensor) / parts;
        if (bytes < BUCKET) continue;
        how(e, params, n, sums);
        bytes = n = 0;
    }
    if (n) how(e, params, n, sums);
}

void sk_lower_matrix_updates(sk_lowering *e, int sums)
{
    e->p->matrices = e->matrices = sk_matrix_placements(e, e->p->arena);
    for (int group = 0; group <= e->opts->n_groups; group++) {
        in_buckets(e, group, one_bucket, sums);
        in_buckets(e, group, sk_lower_distributed, sums);
        in_buckets(e, group, sk_lower_distributed_replicas, sums);
    }
}
