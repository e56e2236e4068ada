/* loop_state.c - what the files of the training loop share: notes for the console, hosts, boxes. */
#include "train/loop_state.h"

#include <math.h>
#include <stdio.h>

void sk_loop_note(sk_loop *l, sk_record_kind kind, const char *text)
{
    sk_record r = {.kind = kind, .step = l->done};
    snprintf(r.text, sizeof r.text, "%s", text);
    sk_channel_put(l->channel, &r);
}

static int ranks_of_host(const sk_loop *l, int end) /* of this rank's, that come before `end` */
{
    int n = 0;
    for (int r = 0; r < end; r++) n += sk_loop_host_of(l, r) == sk_loop_host_of(l, l->rank);
    return n;
}

int sk_loop_place_on_host(const sk_loop *l) { return ranks_of_host(l, l->rank); }
int sk_loop_ranks_on_host(const sk_loop *l) { return ranks_of_host(l, l->s->n_ranks); }

void *sk_loop_gather_buffer(sk_loop *l, size_t bytes)
{
    sk_assert(bytes > 0);
    return l->rank ? NULL : sk_alloc_n(&l->arena, bytes, (size_t)l->s->n_ranks);
}

int sk_loop_host_of(const sk_loop *l, int rank) { return l->t->host_of ? l->t->host_of[rank] : 0; }

int64_t sk_loop_box_bytes(const sk_tensor_shard *b)
{
    int64_t n = b->mine ? (int64_t)sk_dtype_size(b->type) : 0;
    for (int d = 0; d < b->n; d++) n *= b->size[d];
    return n;
}

bool sk_loop_all_finite(const sk_tensor_shard *b)
{
    float x[1024];
    int64_t size = (int64_t)sk_dtype_size(b->type), n = sk_loop_box_bytes(b) / size, m;
    bool real_type = b->type == SK_F32 || b->type == SK_BF16 || b->type == SK_F16;
    for (int64_t i = 0; real_type && i < n; i += m) {
        float bad = 0;
        m = n - i < 1024 ? n - i : 1024;
        sk_shard_read(b, i, x, m);
        for (int64_t k = 0; k < m; k++) bad += x[k] * 0;
        if (isnan(bad)) return false;
    }
    return true;
}
