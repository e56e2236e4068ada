/* boxes.c - what a rank keeps, as boxes of logical tensors: for checkpoints. */
#include "run/run_state.h"

#include <string.h>

/* What lies in the file is seen by its own rank alone. */
static void box_of(const sk_program *p, char *base, char *file, int buf, bool mine,
                   sk_tensor_shard *out)
{
    const sk_buffer *b = &p->bufs.v[buf];
    if (b->tier == SK_FILE) base = file;
    *out = (sk_tensor_shard){.name = b->name,
                             .type = b->type,
                             .n = b->box.n,
                             .mine = mine,
                             .data = base ? base + b->offset : NULL};
    memcpy(out->full, b->box.full, sizeof out->full);
    memcpy(out->at, b->box.at, sizeof out->at);
    memcpy(out->size, b->box.size, sizeof out->size);
}

static void list_boxes(const sk_program *p, sk_arena *a, void *base, void *file,
                       sk_tensor_shard **boxes, int *n)
{
    *boxes = sk_many(a, sk_tensor_shard, p->params.n * (3 + SK_MAX_STATE));
    *n = 0;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        bool wide = q->master >= 0; /* then what is saved is the master, and both are restored */
        if (sk_run_keeps(p, q->stored))
            box_of(p, base, file, q->stored, q->writes && !wide, &(*boxes)[(*n)++]);
        if (wide) {
            box_of(p, base, file, q->master, q->owner, &(*boxes)[*n]);
            (*boxes)[(*n)++].name = q->tensor->name;
        }
        for (int s = 0; s < q->n_state; s++)
            box_of(p, base, file, q->state[s], q->owner, &(*boxes)[(*n)++]);
        if (p->late && q->n_state > p->optim->n_state) (*boxes)[*n - 1].may_lack = true;
        if (q->error < 0) continue;
        box_of(p, base, file, q->error, q->tells, &(*boxes)[*n]);
        (*boxes)[(*n)++].parts = true;
    }
}

void sk_program_shards(const sk_program *p, sk_arena *a, void *base, sk_tensor_shard **boxes,
                       int *n)
{
    list_boxes(p, a, base, NULL, boxes, n);
}

/* The piece that another rank of the class has: as large as p's, elsewhere in the whole. */
static void move_box(const sk_program *p, const int *coord, const sk_param_plan *q,
                     const sk_state *s, sk_tensor_shard *box)
{
    sk_extent piece =
        sk_shard_of(p->graph, &p->layout, q->tensor->letters, s, coord, -1, p->n_micro);
    for (int d = 0; d < box->n; d++) {
        sk_assert(piece.size[d] == box->size[d]);
        box->at[d] = piece.at[d];
    }
}

void sk_program_weight_shards(const sk_program *p, int rank, sk_arena *a, void *base,
                              sk_tensor_shard **boxes, int *n)
{
    bool cut = p->layout.shard == SK_SHARD_PARAMS;
    int coord[SK_MAX_AXES];
    sk_mesh_coords(&p->layout.mesh, rank, coord);
    *boxes = sk_many(a, sk_tensor_shard, 2 * p->params.n + 1);
    *n = 0;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        bool wide = q->master >= 0;
        if (sk_run_keeps(p, q->stored)) {
            box_of(p, base, NULL, q->stored, q->writes && !wide, &(*boxes)[*n]);
            move_box(p, coord, q, cut ? &q->update : &q->used, &(*boxes)[(*n)++]);
        }
        if (!wide) continue;
        box_of(p, base, NULL, q->master, q->owner, &(*boxes)[*n]);
        move_box(p, coord, q, &q->update, &(*boxes)[*n]);
        (*boxes)[(*n)++].name = q->tensor->name;
    }
}

void sk_run_shards(const sk_run *r, sk_arena *a, sk_tensor_shard **boxes, int *n)
{
    list_boxes(r->p, a, r->base, r->disk ? sk_disk_map(r->disk) : NULL, boxes, n);
}
