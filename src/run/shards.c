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
                             .type = b->type,
                             .n = b->box.n,
                             .mine = mine,
                             .data = base ? base + b->offset : NULL};
    memcpy(out->full, b->box.full, sizeof out->full);
    memcpy(out->at, b->box.at, sizeof out->at);
    memcpy(out->size, b->box.size, sizeof out->size);
}

static void list_shards(const sk_program *p, sk_arena *a, void *base, void *file,
                        sk_tensor_shard **v, int *n)
{
    *v = sk_many(a, sk_tensor_shard, p->params.n * (3 + SK_MAX_STATE));
    *n = 0;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        bool wide = q->master >= 0; /* then the master is saved, and both are restored from it */
        if (sk_run_keeps(p, q->stored))
            shard_of(p, base, file, q->stored, q->writes && !wide, &(*v)[(*n)++]);
        if (wide) {
            shard_of(p, base, file, q->master, q->owner, &(*v)[*n]);
            (*v)[(*n)++].name = q->tensor->name;
        }
        for (int s = 0; s < q->n_state; s++)
            shard_of(p, base, file, q->state[s], q->owner, &(*v)[(*n)++]);
        if (p->late && q->optim && q->n_state > q->optim->n_state) (*v)[*n - 1].may_lack = true;
        if (q->error < 0) continue;
        shard_of(p, base, file, q->error, q->tells, &(*v)[*n]);
        (*v)[(*n)++].parts = true;
    }
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

void sk_program_weight_shards(const sk_program *p, int rank, sk_arena *a, void *base,
                              sk_tensor_shard **v, int *n)
{
    bool cut = p->layout.shard == SK_SHARD_PARAMS;
    int coord[SK_MAX_AXES];
    sk_mesh_coords(&p->layout.mesh, rank, coord);
    *v = sk_many(a, sk_tensor_shard, 2 * p->params.n + 1);
    *n = 0;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        bool wide = q->master >= 0;
        if (sk_run_keeps(p, q->stored)) {
            shard_of(p, base, NULL, q->stored, q->writes && !wide, &(*v)[*n]);
            move_shard(p, coord, q, cut ? &q->update : &q->used, &(*v)[(*n)++]);
        }
        if (!wide) continue;
        shard_of(p, base, NULL, q->master, q->owner, &(*v)[*n]);
        move_shard(p, coord, q, &q->update, &(*v)[*n]);
        (*v)[(*n)++].name = q->tensor->name;
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
    list_shards(r->p, a, r->base, r->disk ? sk_disk_map(r->disk) : NULL, v, n);
}
