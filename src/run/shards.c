/* shards.c - what a rank keeps, as shards of logical tensors: for checkpoints. */
#include "run/run_state.h"

#include <string.h>

/* Buffers in the file of a rank have an address only in that rank. */
static void shard_of(const sk_program *p, char *base, char *file, int buf, bool mine,
                     sk_tensor_shard *out)
{
    const sk_buffer *b = &p->bufs.v[buf];
    if (b->placement == SK_FILE) base = file;
    *out = (sk_tensor_shard){.name = b->name,
                             .type = b->q8 ? SK_F32 : b->type,
                             .q8 = b->q8,
                             .n = b->box.n,
                             .mine = mine,
                             .data = base ? base + b->offset : NULL};
    memcpy(out->full, b->box.full, sizeof out->full);
    memcpy(out->at, b->box.at, sizeof out->at);
    memcpy(out->size, b->box.size, sizeof out->size);
}

/* The scalars of an optimizer, each a tensor of one element. */
static void scalars_of(const sk_program *p, sk_arena *a, char *base, char *file,
                       const sk_param_plan *q, sk_tensor_shard *v, int *n)
{
    for (int k = 0; q->scalars >= 0 && q->optim->scalars[k]; k++) {
        sk_tensor_shard *s = &v[(*n)++];
        shard_of(p, base, file, q->scalars, q->lead, s);
        s->name = sk_print(a, "%s.%s.%s", q->tensor->name, q->optim->name, q->optim->scalars[k]);
        s->full[0] = s->size[0] = 1;
        if (s->data) s->data = (char *)s->data + (size_t)k * sk_dtype_size(s->type);
    }
}

/* What differs from replica to replica is one tensor more, with the replicas as dim 0. */
static void of_replica(const sk_program *p, sk_arena *a, const int *coord, sk_tensor_shard *s)
{
    if (s->parts) return; /* has an entry for each rank already */
    sk_assert(s->n < SK_SHARD_DIM);
    memmove(s->full + 1, s->full, sizeof *s->full * (size_t)s->n);
    memmove(s->at + 1, s->at, sizeof *s->at * (size_t)s->n);
    memmove(s->size + 1, s->size, sizeof *s->size * (size_t)s->n);
    s->full[0] = sk_layout_replicas(&p->layout);
    s->at[0] = sk_layout_replica_of(&p->layout, coord);
    s->size[0] = 1;
    s->n++;
    s->each = s->name;
    s->name = sk_print(a, "%s" SK_REPLICA_SUFFIX, s->name);
}

/* What is alike in all replicas: the first has it written. */
static void outer_shards(const sk_program *p, char *base, char *file, const sk_param_plan *q,
                         sk_tensor_shard *v, int *n)
{
    bool mine = q->owner && !sk_layout_replica_of(&p->layout, p->coord);
    if (q->anchor >= 0) {
        shard_of(p, base, file, q->anchor, mine, &v[*n]);
        v[(*n)++].like = q->tensor->name;
    }
    if (q->outer_momentum < 0) return;
    shard_of(p, base, file, q->outer_momentum, mine, &v[*n]);
    v[(*n)++].may_lack = true;
}

static void list_shards(const sk_program *p, sk_arena *a, void *base, void *file,
                        sk_tensor_shard **v, int *n)
{
    *v = sk_many(a, sk_tensor_shard,
                 p->params.n * (7 + SK_MAX_STATE + SK_MAX_MATRIX_STATE + SK_MAX_SCALAR));
    *n = 0;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        bool wide = q->master >= 0; /* then the master is saved, and both are restored from it */
        if (sk_run_keeps(p, q->stored))
            shard_of(p, base, file, sk_param_kept(q), q->writes && !wide, &(*v)[(*n)++]);
        if (wide) {
            shard_of(p, base, file, q->master, q->owner, &(*v)[*n]);
            (*v)[(*n)++].name = q->tensor->name;
        }
        for (int s = 0; s < q->n_state; s++)
            shard_of(p, base, file, q->state[s], q->owner, &(*v)[(*n)++]);
        if (p->late && q->optim && q->n_state > q->optim->n_state) (*v)[*n - 1].may_lack = true;
        for (int s = 0; s < q->n_matrix_state; s++)
            shard_of(p, base, file, q->matrix_state[s], q->keeps_matrix_state, &(*v)[(*n)++]);
        if (q->ema >= 0) {
            shard_of(p, base, file, q->ema, q->owner, &(*v)[*n]);
            (*v)[(*n)++].like = q->tensor->name;
        }
        scalars_of(p, a, base, file, q, *v, n);
        if (q->factor >= 0) {
            shard_of(p, base, file, q->factor, q->keeps_factor, &(*v)[*n]);
            (*v)[(*n)++].may_lack = true;
        }
        if (q->change_error >= 0) {
            shard_of(p, base, file, q->change_error, q->owner, &(*v)[*n]);
            (*v)[(*n)++].may_lack = true;
        }
        if (q->error < 0) continue;
        shard_of(p, base, file, q->error, q->tells, &(*v)[*n]);
        (*v)[(*n)++].parts = true;
    }
    for (int i = 0; sk_layout_any_local(&p->layout) && i < *n; i++)
        if (!sk_layout_alike(&p->layout)) of_replica(p, a, p->coord, &(*v)[i]);
        else if (!(*v)[i].parts) (*v)[i].mine &= !sk_layout_replica_of(&p->layout, p->coord);
    for (int i = 0; i < p->params.n; i++) outer_shards(p, base, file, &p->params.v[i], *v, n);
}

void sk_program_shards(const sk_program *p, sk_arena *a, void *base, sk_tensor_shard **v, int *n)
{
    list_shards(p, a, base, NULL, v, n);
}

/* The shard of another rank of the class: of the same size, elsewhere in the tensor. */
static void move_shard(const sk_program *p, const int *coord, const sk_param_plan *q,
                       const sk_state *s, sk_tensor_shard *to)
{
    sk_extent piece =
        sk_shard_of(p->graph, &p->layout, q->tensor->letters, s, coord, -1, p->n_micro);
    for (int d = 0; d < to->n; d++) {
        sk_assert(piece.size[d] == to->size[d]);
        to->at[d] = piece.at[d];
    }
}

/* The weights of a parameter: the average where there is one; else the master, or what is stored.
 * Replicas that differ have one each. */
static void model_shards(const sk_program *p, const int *coord, const sk_param_plan *q, char *base,
                         char *file, sk_tensor_shard *v, int *n)
{
    bool wide = q->master >= 0;
    int average = sk_param_own_average(q), own = average >= 0 ? average : q->master;
    bool mine = !sk_layout_alike(&p->layout) || !sk_layout_replica_of(&p->layout, coord);
    if (average < 0 && sk_run_keeps(p, q->stored)) {
        shard_of(p, base, file, sk_param_kept(q), q->writes && !wide && mine, &v[*n]);
        move_shard(p, coord, q, sk_param_kept_state(p, q), &v[(*n)++]);
    }
    if (own < 0) return;
    shard_of(p, base, file, own, q->owner && mine, &v[*n]);
    move_shard(p, coord, q, &q->update, &v[*n]);
    v[(*n)++].name = q->tensor->name;
}

static void list_model(const sk_program *p, int rank, sk_arena *a, void *base, void *file,
                       sk_tensor_shard **v, int *n)
{
    int coord[SK_MAX_AXES];
    bool apart = sk_layout_any_local(&p->layout) && !sk_layout_alike(&p->layout);
    sk_mesh_coords(&p->layout.mesh, rank, coord);
    *v = sk_many(a, sk_tensor_shard, 2 * p->params.n + 1);
    *n = 0;
    for (int i = 0; i < p->params.n; i++)
        model_shards(p, coord, &p->params.v[i], base, file, *v, n);
    for (int i = 0; apart && i < *n; i++) of_replica(p, a, coord, &(*v)[i]);
}

void sk_program_model_shards(const sk_program *p, int rank, sk_arena *a, void *base,
                             sk_tensor_shard **v, int *n)
{
    list_model(p, rank, a, base, NULL, v, n);
}

static void *file_of(const sk_run *r) { return r->disk ? sk_disk_map(r->disk) : NULL; }

void sk_run_model_shards(const sk_run *r, sk_arena *a, sk_tensor_shard **v, int *n)
{
    list_model(r->p, r->p->rank, a, r->base, file_of(r), v, n);
}

void sk_run_average_shards(const sk_run *r, sk_arena *a, sk_tensor_shard **v, int *n)
{
    *v = sk_many(a, sk_tensor_shard, 2 * r->p->params.n + 1);
    *n = 0;
    for (int i = 0; i < r->p->params.n; i++) {
        const sk_param_plan *q = &r->p->params.v[i];
        int copies[] = {sk_param_own_average(q), q->anchor};
        for (int k = 0; k < 2; k++) {
            if (copies[k] < 0) continue;
            shard_of(r->p, r->base, file_of(r), copies[k], q->owner, &(*v)[*n]);
            (*v)[(*n)++].name = q->tensor->name;
        }
    }
}

void sk_program_sum_shards(const sk_program *p, int rank, sk_arena *a, void *base,
                           sk_tensor_shard **v, int **buffer, int *n)
{
    int coord[SK_MAX_AXES];
    sk_mesh_coords(&p->layout.mesh, rank, coord);
    *v = sk_many(a, sk_tensor_shard, sk_n_grads(p) + 1);
    *buffer = sk_many(a, int, sk_n_grads(p) + 1);
    *n = 0;
    for (int i = 0; i < sk_n_grads(p); i++) {
        const sk_param_plan *q = &p->params.v[i];
        if (q->tensor->bias_update != 0) continue;
        shard_of(p, base, NULL, q->grad_shard, q->owner, &(*v)[*n]);
        move_shard(p, coord, q, &q->update, &(*v)[*n]);
        (*v)[*n].name = i < p->params.n ? sk_print(a, "%s.grad", q->tensor->name) : q->tensor->name;
        (*buffer)[(*n)++] = q->grad_shard;
    }
}

void sk_run_shards(const sk_run *r, sk_arena *a, sk_tensor_shard **v, int *n)
{
    list_shards(r->p, a, r->base, file_of(r), v, n);
}
