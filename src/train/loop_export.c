/* loop_export.c - model directories of a run: rank 0 reads the heaps of all ranks while they wait
 * at a barrier, and is sent what it cannot read.  With replicas the model is the mean of theirs. */
#include "train/loop_state.h"
#include "device/disk.h"
#include "run/run.h"
#include "train/model_export.h"

#include <string.h>

enum { EXPORT_TAG = -7 };

/* Can rank 0 not read the heap of that rank? */
static bool is_remote(const sk_loop *l, int rank)
{
    if (rank && l->s->layout.home[SK_PARAMS] == SK_FILE) return true;
    if (rank && l->s->layout.home[SK_STATE] == SK_FILE) return true; /* masters */
    return l->t->host_of && l->t->host_of[rank] != l->t->host_of[0];
}

static int64_t message_bytes(int64_t left) { return left < SK_DISK_BOUNCE ? left : SK_DISK_BOUNCE; }

/* Only what lies in the heap can be sent: what lies in a file goes through a bounce buffer there.
 */
static sk_status send_box(sk_loop *l, const sk_tensor_shard *b)
{
    sk_comm *c = sk_run_comm(l->run);
    char *bounce = sk_run_bounce(l->run);
    for (int64_t at = 0, n; at < sk_loop_box_bytes(b); at += n) {
        char *from = (char *)b->data + at;
        n = message_bytes(sk_loop_box_bytes(b) - at);
        if (bounce) from = memcpy(bounce, from, (size_t)n);
        SK_TRY(sk_comm_send(c, 0, EXPORT_TAG, from, n));
        if (bounce) SK_TRY(sk_comm_sent(c, 0, sk_comm_sends(c, 0)));
    }
    return SK_OK;
}

/* What rank 0 cannot read is sent to it: the boxes of the model that this rank owns. */
static sk_status send_model(sk_loop *l)
{
    sk_mark m = sk_arena_mark(&l->arena);
    sk_tensor_shard *boxes;
    int n;
    sk_run_model_shards(l->run, &l->arena, &boxes, &n);
    for (int i = 0; i < n; i++) SK_TRY(send_box(l, &boxes[i]));
    sk_arena_back(&l->arena, m);
    return SK_OK;
}

static sk_status recv_box(sk_loop *l, int r, const sk_tensor_shard *b)
{
    for (int64_t at = 0, n; at < sk_loop_box_bytes(b); at += n) {
        n = message_bytes(sk_loop_box_bytes(b) - at);
        SK_TRY(sk_comm_recv(sk_run_comm(l->run), r, EXPORT_TAG, (char *)b->data + at, n));
    }
    return SK_OK;
}

/* Of rank r.  What rank 0 cannot read has no data. */
static void list_boxes(sk_loop *l, int r, sk_tensor_shard **boxes, int *n)
{
    void *base = is_remote(l, r) ? NULL : sk_heap_base(l->t->heaps, r);
    if (r == l->rank) sk_run_model_shards(l->run, &l->arena, boxes, n);
    else sk_program_model_shards(l->s->programs[r], r, &l->arena, base, boxes, n);
}

/* Into memory of rank 0's own, in the order in which rank r sends them. */
static sk_status fetch_box(sk_loop *l, int r, sk_tensor_shard *b)
{
    if (!is_remote(l, r)) return SK_OK;
    b->data = sk_many(&l->arena, char, sk_loop_box_bytes(b));
    return recv_box(l, r, b);
}

/* --- the mean over replicas, in f32 also where kernels have narrow weights --- */

typedef struct sums { /* boxes of the model, to which those of all replicas are added */
    int n, cap;
    sk_tensor_shard *v;
    int next; /* where the next one is looked for first: replicas list theirs in one order */
} sums;

static bool same_box(const sk_tensor_shard *x, const sk_tensor_shard *y)
{
    size_t bytes = sizeof *x->at * (size_t)x->n;
    return !strcmp(x->name, y->name) && !memcmp(x->at, y->at, bytes) &&
           !memcmp(x->size, y->size, bytes);
}

/* Where this box of a replica is added; the first replica begins the sum.  NULL: nowhere. */
static sk_tensor_shard *sum_of(sk_loop *l, sums *to, const sk_tensor_shard *b)
{
    sk_tensor_shard one = sk_shard_each(b);
    for (int k = 0; b->at[0] && k < to->n; k++) {
        int i = (to->next + k) % to->n;
        if (!same_box(&to->v[i], &one)) continue;
        to->next = i + 1;
        return &to->v[i];
    }
    if (b->at[0]) return NULL;
    sk_tensor_shard *sum = sk_push(&l->arena, to);
    one.type = SK_F32;
    one.q8 = SK_Q8_NONE;
    one.data = sk_many(&l->arena, float, sk_shard_count(&one)); /* zeros */
    *sum = one;
    return sum;
}

static void add_box(const sk_tensor_shard *b, float *sum)
{
    float x[4096];
    for (int64_t i = 0, all = sk_shard_count(b), n; i < all; i += n) {
        n = all - i < 4096 ? all - i : 4096;
        sk_shard_read(b, i, x, n);
        sk_mean_add(sum + i, x, n);
    }
}

/* Ranks come in their order, and so do the replicas that have a box. */
static sk_status add_rank(sk_loop *l, int r, sums *to)
{
    sk_tensor_shard *boxes;
    int n;
    list_boxes(l, r, &boxes, &n);
    for (int i = 0; i < n; i++) {
        if (!sk_loop_box_bytes(&boxes[i])) continue;
        sk_tensor_shard *sum = sum_of(l, to, &boxes[i]);
        if (!sum)
            return sk_fail(SK_EBUG, "export: '%s' of rank %d is not what the first replica has",
                           boxes[i].name, r);
        sk_mark m = sk_arena_mark(&l->arena);
        SK_TRY(fetch_box(l, r, &boxes[i]));
        add_box(&boxes[i], sum->data);
        sk_arena_back(&l->arena, m);
    }
    return SK_OK;
}

static sk_status take_mean(sk_loop *l, sk_tensor_shard **boxes, int *n)
{
    sums to = {0};
    for (int r = 0; r < l->s->n_ranks; r++) SK_TRY(add_rank(l, r, &to));
    for (int i = 0; i < to.n; i++)
        sk_mean_end(to.v[i].data, sk_shard_count(&to.v[i]), sk_layout_replicas(&l->own->layout));
    *boxes = to.v;
    *n = to.n;
    return SK_OK;
}

/* --- one directory --- */

static sk_status fetch_rank(sk_loop *l, int r, sk_tensor_shard **boxes, int *n)
{
    list_boxes(l, r, boxes, n);
    for (int i = 0; i < *n; i++)
        if (sk_loop_box_bytes(&(*boxes)[i])) SK_TRY(fetch_box(l, r, &(*boxes)[i]));
    return SK_OK;
}

static sk_status export_here(sk_loop *l, const char *path)
{
    sk_tensor_shard **boxes = sk_many(&l->arena, sk_tensor_shard *, l->s->n_ranks);
    const sk_layout *layout = &l->own->layout;
    int *n = sk_many(&l->arena, int, l->s->n_ranks);
    if (sk_layout_any_local(layout) && !sk_layout_alike(layout))
        SK_TRY(take_mean(l, &boxes[0], &n[0])); /* the others have nothing to add */
    else
        for (int r = 0; r < l->s->n_ranks; r++) SK_TRY(fetch_rank(l, r, &boxes[r], &n[r]));
    const char *tokens = sk_print(&l->arena, "%s/tokenizer", l->t->dir);
    return sk_export_boxes(&l->arena, l->s, boxes, n, tokens, path);
}

sk_status sk_loop_export(sk_loop *l, const char *name, sk_record_kind kind)
{
    SK_TRY(sk_loop_settle(l));
    SK_TRY(sk_run_pull(l->run));
    SK_TRY(sk_run_barrier(l->run));
    if (is_remote(l, l->rank)) SK_TRY(send_model(l));
    if (!l->rank) {
        sk_mark m = sk_arena_mark(&l->arena);
        const char *path = sk_print(&l->arena, "%s/%s", l->t->dir, name);
        sk_status st = export_here(l, path);
        if (st && kind == SK_REC_FINAL) return sk_trail(st, SK_HERE);
        sk_loop_note(l, st ? SK_REC_WARN : kind, st ? sk_error_line() : path);
        sk_arena_back(&l->arena, m);
    }
    return sk_run_barrier(l->run);
}
