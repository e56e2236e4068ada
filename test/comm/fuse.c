/* fuse.c - sums that are cast, scaled and measured on the way, against the plain way.
 *
 * Four ranks as threads, every floating type to every other, all-reduce and reduce-scatter; the
 * result must be that of the f32 sum in the order of the tree, scaled, measured and rounded once.
 * Output: "fuse: N checks, N bad". */
#include "base/rng.h"
#include "comm/comm.h"
#include "coll/sum_kernels.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { RANKS = 4, N = 1777, TABLE = 4096, ROOM = 16384 };

static atomic_int checks, bad;
static sk_heaps *heaps;

static void check(bool good, const char *what, int kind, int from, int to)
{
    atomic_fetch_add(&checks, 1);
    if (good || atomic_fetch_add(&bad, 1) > 10) return;
    fprintf(stderr, "%s: kind %d from %d to %d\n", what, kind, from, to);
}

static const sk_dtype types[] = {SK_F32, SK_BF16, SK_F16, SK_F64};

static void fill(int rank, sk_dtype t, char *to)
{
    for (int i = 0; i < N; i++) {
        float x = (float)(int)(sk_rng(3, (uint64_t)rank, (uint64_t)i).a % 2001) / 64 - 15;
        if (i == 7 && rank == 2) x = INFINITY;
        sk_convert(to + (size_t)i * sk_dtype_size(t), t, &x, SK_F32, 1);
    }
}

/* Element i, before the cast: by plain sk_sum on widened sources. */
static double expected(sk_dtype t, int64_t i, float scale)
{
    double wide[RANKS], out = 0;
    float narrow[RANKS], sum = 0;
    const void *a[RANKS], *b[RANKS];
    for (int r = 0; r < RANKS; r++) {
        const char *src = (const char *)sk_heap_base(heaps, r) + TABLE;
        sk_convert(&wide[r], SK_F64, src + (size_t)i * sk_dtype_size(t), t, 1);
        sk_convert(&narrow[r], SK_F32, src + (size_t)i * sk_dtype_size(t), t, 1);
        a[r] = &wide[r];
        b[r] = &narrow[r];
    }
    sk_sum(SK_F64, SK_SUM, RANKS, a, 1, (void *[]){&out}, 1);
    sk_sum(SK_F32, SK_SUM, RANKS, b, 1, (void *[]){&sum}, 1);
    return t == SK_F64 ? out * (double)scale : (double)(sum * scale);
}

static void compare(const sk_coll_call *call, int rank, sk_dtype to, const sk_partial *p)
{
    const char *base = sk_heap_base(heaps, rank);
    bool part = call->kind == SK_REDUCE_SCATTER;
    int64_t lo = part ? N * rank / RANKS : 0, hi = part ? N * (rank + 1) / RANKS : N, wrong = 0;
    sk_partial want = {0};
    for (int64_t i = lo; i < hi; i++) {
        double x = expected(call->type, i, call->scale);
        char stored[8];
        if (call->type == SK_F64) sk_convert(stored, to, &x, SK_F64, 1);
        else sk_convert(stored, to, &(float){(float)x}, SK_F32, 1);
        wrong += memcmp(stored, base + call->segs[0].dst + (size_t)(i - lo) * sk_dtype_size(to),
                        sk_dtype_size(to)) != 0;
        if (isfinite(x)) want.squares += x * x;
        else want.bad++;
    }
    check(!wrong, "elements", (int)call->kind, (int)call->type, (int)to);
    if (!part) return; /* whose share is which is not told for an all-reduce */
    check(p->bad == want.bad, "bad", (int)call->kind, (int)call->type, (int)to);
    check(fabs(p->squares - want.squares) <= 1e-6 * want.squares, "squares", (int)call->kind,
          (int)call->type, (int)to);
}

static void one(sk_comm *c, int rank, sk_coll_kind kind, sk_dtype from, sk_dtype to)
{
    char *base = sk_heap_base(heaps, rank);
    sk_coll_call *call = (void *)base;
    fill(rank, from, base + TABLE);
    *call = (sk_coll_call){.id = 1 + kind + 16 * (int64_t)from + 256 * (int64_t)to,
                           .kind = kind,
                           .type = from,
                           .n_segs = 1,
                           .algorithm = -1,
                           .cast = 1 + (int)to,
                           .scale = 0.37f,
                           .partial = 1024};
    call->segs[0] = (sk_seg){.src = TABLE, .dst = TABLE + ROOM, .outer = 1, .n = N, .inner = 1};
    check(!sk_comm_barrier(c) && !sk_comm_start(c, call) && !sk_comm_wait(c, call), "call",
          (int)kind, (int)from, (int)to);
    compare(call, rank, to, (const sk_partial *)(const void *)(base + 1024));
    check(!sk_comm_barrier(c), "barrier", 0, 0, 0);
}

static void *be(void *arg)
{
    int rank = (int)(intptr_t)arg, ids[RANKS] = {0, 1, 2, 3};
    sk_group g = {RANKS, rank, ids};
    sk_comm_opts o = {.rank = rank, .groups = &g, .n_groups = 1, .timeout_s = 30};
    sk_comm *c = NULL;
    check(!sk_comm_open(heaps, &o, &c), "open", 0, 0, 0);
    for (int k = 0; k < 2; k++)
        for (int a = 0; a < 4; a++)
            for (int b = 0; b < 4; b++)
                one(c, rank, k ? SK_REDUCE_SCATTER : SK_ALLREDUCE, types[a], types[b]);
    sk_comm_close(c);
    return NULL;
}

int main(void)
{
    int64_t bytes[RANKS];
    pthread_t t[RANKS];
    alarm(60);
    for (int r = 0; r < RANKS; r++) bytes[r] = TABLE + 2 * ROOM + ROOM;
    if (sk_heaps_open(RANKS, bytes, false, 0, &heaps)) return 1;
    for (int r = 0; r < RANKS; r++) pthread_create(&t[r], NULL, be, (void *)(intptr_t)r);
    for (int r = 0; r < RANKS; r++) pthread_join(t[r], NULL);
    sk_heaps_close(heaps);
    printf("fuse: %d checks, %d bad\n", atomic_load(&checks), atomic_load(&bad));
    return atomic_load(&bad) != 0;
}
