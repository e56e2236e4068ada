/* api_tensor.c - weights and optimizer state of a run, by name: whole, or shard by shard.
 *
 * The caller sees the heaps of all ranks, which stand still between two requests, and
 * uses the same boxes as checkpoints do: every element of a logical tensor has one
 * owner, others keep copies of it. */
#include "api/running.h"

#include <string.h>

/* --- the list --- */

static sk_kept_tensor *find(const skein_run *r, const char *name)
{
    for (int i = 0; i < r->n_tensors; i++)
        if (!strcmp(r->tensors[i].name, name)) return &r->tensors[i];
    return NULL;
}

/* Boxes whose first dim counts parts of a sum are no tensors for a caller. */
static void list_rank(skein_run *r, int rank, bool params)
{
    const sk_graph *g = &r->program->setup.graph;
    for (int i = 0; i < r->n_boxes[rank]; i++) {
        const sk_tensor_shard *b = &r->boxes[rank][i];
        const sk_tensor *t = sk_graph_find(g, b->name);
        if (b->parts || (t && t->role == SK_PARAM) != params || find(r, b->name)) continue;
        sk_kept_tensor *l = &r->tensors[r->n_tensors++];
        *l = (sk_kept_tensor){.name = b->name, .n = b->n, .count = 1};
        for (int d = 0; d < b->n; d++) l->count *= l->full[d] = b->full[d];
    }
}

void sk_tensors_list(skein_run *r)
{
    const sk_setup *s = &r->program->setup;
    int all = 0;
    r->boxes = sk_many(&r->arena, sk_tensor_shard *, s->n_ranks);
    r->n_boxes = sk_many(&r->arena, int, s->n_ranks);
    for (int k = 0; k < s->n_ranks; k++) {
        sk_program_shards(s->programs[k], &r->arena, sk_heap_base(r->heaps, k), &r->boxes[k],
                          &r->n_boxes[k]);
        all += r->n_boxes[k];
    }
    r->tensors = sk_many(&r->arena, sk_kept_tensor, all + 1);
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < s->n_ranks; k++) list_rank(r, k, !pass);
}

int skein_run_tensors(const skein_run *r) { return r ? r->n_tensors : 0; }

int skein_run_tensor(const skein_run *r, int i, skein_shape *out)
{
    SK_NEED(r);
    SK_NEED(out);
    if (i < 0 || i >= r->n_tensors)
        return (int)sk_fail(SK_EUSAGE, "skein_run_tensor: tensor %d; there are %d", i,
                            r->n_tensors);
    const sk_kept_tensor *t = &r->tensors[i];
    skein_shape s = {.name = t->name, .n_dims = t->n, .elements = t->count};
    memcpy(s.dims, t->full, sizeof s.dims);
    return (int)sk_struct_to_caller(__func__, out, &s, sizeof s);
}

/* --- reading and writing --- */

static sk_status named(const skein_run *r, const char *who, const char *name, int64_t n)
{
    const sk_kept_tensor *t = find(r, name);
    if (!t) return sk_fail(SK_EUSAGE, "%s: there is no tensor '%.80s'", who, name);
    if (n != t->count)
        return sk_fail(SK_EUSAGE, "%s: '%s' has %lld elements, not %lld", who, name,
                       (long long)t->count, (long long)n);
    return SK_OK;
}

static bool is_shard(const sk_tensor_shard *b, const char *name)
{
    return !b->parts && !strcmp(b->name, name);
}

static sk_status seen(const sk_tensor_shard *b, int rank)
{
    if (b->data) return SK_OK;
    return sk_fail(SK_ECONF,
                   "'%s' is offloaded to a file, which rank %d alone sees; only what is in memory "
                   "can be read and written",
                   b->name, rank);
}

static int64_t move(const sk_tensor_shard *b, float *whole, bool out)
{
    int64_t n = sk_shard_count(b);
    sk_arena tmp = {0};
    float *wide = b->q8 ? sk_many(&tmp, float, n + 1) : NULL;
    if (wide) sk_shard_read(b, 0, wide, n);
    sk_box_copy(&(sk_box_move){.n = b->n,
                               .full = b->full,
                               .at = b->at,
                               .size = b->size,
                               .whole = whole,
                               .whole_type = SK_F32,
                               .shard = wide ? wide : b->data,
                               .shard_type = b->type,
                               .out = out});
    if (wide && !out) sk_q8_encode(b->q8, b->data, n, 0, wide, n);
    sk_arena_end(&tmp);
    return n;
}

int skein_run_read(skein_run *r, const char *name, float *to, int64_t n)
{
    SK_ENTER;
    SK_NEED(r);
    SK_NEED(name);
    SK_NEED(to);
    int64_t got = 0;
    SK_TELL(named(r, __func__, name, n));
    SK_TELL(sk_run_request(r, SK_REQUEST_PULL));
    for (int k = 0; k < r->ranks.n; k++)
        for (int i = 0; i < r->n_boxes[k]; i++) {
            const sk_tensor_shard *b = &r->boxes[k][i];
            if (!b->mine || !is_shard(b, name)) continue;
            SK_TELL(seen(b, k));
            got += move(b, to, true);
        }
    if (got == n) return SK_OK;
    return (int)sk_fail(SK_EBUG, "'%s': ranks own %lld of %lld elements", name, (long long)got,
                        (long long)n);
}

int skein_run_write(skein_run *r, const char *name, const float *from, int64_t n)
{
    SK_ENTER;
    SK_NEED(r);
    SK_NEED(name);
    SK_NEED(from);
    SK_TELL(named(r, __func__, name, n));
    for (int k = 0; k < r->ranks.n; k++)
        for (int i = 0; i < r->n_boxes[k]; i++)
            if (is_shard(&r->boxes[k][i], name)) SK_TELL(seen(&r->boxes[k][i], k));
    SK_TELL(sk_run_request(r, SK_REQUEST_PULL));
    for (int k = 0; k < r->ranks.n; k++)
        for (int i = 0; i < r->n_boxes[k]; i++)
            if (is_shard(&r->boxes[k][i], name)) move(&r->boxes[k][i], (float *)from, false);
    return (int)sk_run_request(r, SK_REQUEST_PUSH);
}

/* --- shards --- */

int skein_run_shards(const skein_run *r, int rank)
{
    return r && rank >= 0 && rank < r->ranks.n ? r->n_boxes[rank] : -1;
}

int skein_run_shard(const skein_run *r, int rank, int i, skein_shard *out)
{
    SK_NEED(r);
    SK_NEED(out);
    if (i < 0 || i >= skein_run_shards(r, rank))
        return (int)sk_fail(SK_EUSAGE, "skein_run_shard: shard %d of rank %d; it keeps %d", i, rank,
                            skein_run_shards(r, rank));
    const sk_tensor_shard *b = &r->boxes[rank][i];
    bool gpu = r->program->setup.programs[rank]->gpu;
    skein_shard p = {.name = b->name,
                     .type = (skein_dtype)b->type,
                     .n_dims = b->n,
                     .owner = b->mine,
                     .data = gpu || b->q8 ? NULL : b->data};
    memcpy(p.dims, b->full, sizeof p.dims);
    memcpy(p.at, b->at, sizeof p.at);
    memcpy(p.count, b->size, sizeof p.count);
    return (int)sk_struct_to_caller(__func__, out, &p, sizeof p);
}
