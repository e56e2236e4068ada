/* loop_export.c - model directories of a run: rank 0 reads the heaps of all ranks while they wait
 * at a barrier, and is sent what it cannot read. */
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

/* The boxes of rank r into memory of rank 0's own, in the order in which rank r sends them. */
static sk_status recv_model(sk_loop *l, int r, sk_tensor_shard **boxes, int *n)
{
    sk_program_model_shards(l->s->programs[r], r, &l->arena, NULL, boxes, n);
    for (int i = 0; i < *n; i++) {
        sk_tensor_shard *b = &(*boxes)[i];
        if (!sk_loop_box_bytes(b)) continue;
        b->data = sk_many(&l->arena, char, sk_loop_box_bytes(b));
        SK_TRY(recv_box(l, r, b));
    }
    return SK_OK;
}

static sk_status export_here(sk_loop *l, const char *path)
{
    sk_tensor_shard **boxes = sk_many(&l->arena, sk_tensor_shard *, l->s->n_ranks);
    int *n = sk_many(&l->arena, int, l->s->n_ranks);
    for (int r = 0; r < l->s->n_ranks; r++) {
        if (is_remote(l, r)) SK_TRY(recv_model(l, r, &boxes[r], &n[r]));
        else if (r == l->rank) sk_run_model_shards(l->run, &l->arena, &boxes[r], &n[r]);
        else
            sk_program_model_shards(l->s->programs[r], r, &l->arena, sk_heap_base(l->t->heaps, r),
                                    &boxes[r], &n[r]);
    }
    const char *tokens = sk_print(&l->arena, "%s/tokenizer", l->t->dir);
    return sk_export_boxes(&l->arena, l->s, boxes, n, tokens, path);
}

/* With replicas the model is the mean of theirs. */
static sk_status pull_model(sk_loop *l)
{
    SK_TRY(sk_run_mean(l->run));
    SK_TRY(sk_run_pull(l->run));
    for (int i = 0; i < l->own->params.n; i++)
        if (l->own->params.v[i].mean >= 0)
            SK_TRY(sk_run_pull_buffer(l->run, sk_run_program(l->run)->params.v[i].mean));
    return SK_OK;
}

sk_status sk_loop_export(sk_loop *l, const char *name, sk_record_kind kind)
{
    SK_TRY(sk_loop_settle(l));
    SK_TRY(pull_model(l));
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
