/* foreign.c - collectives on memory of a rank's own, through a small room in its heap.
 * Output: "foreign: N checks, N bad". */
#include "comm/foreign.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANKS = 3, ROOM = SK_FOREIGN_LEAST, MOST = 100003 };

static atomic_int checks, bad;
static sk_heaps *heaps;

static void check(bool good, int kind, int64_t n)
{
    atomic_fetch_add(&checks, 1);
    if (!good && atomic_fetch_add(&bad, 1) < 10)
        fprintf(stderr, "kind %d of %lld\n", kind, (long long)n);
}

static float value(int rank, int64_t i) { return (float)((i * 7 + rank * 5) % 61); }

static float expected(sk_coll_kind kind, int64_t i, int64_t n)
{
    float sum = 0;
    if (kind == SK_BROADCAST) return value(1, i);
    if (kind == SK_ALLGATHER)
        for (int r = 0; r < RANKS; r++)
            if (i >= n * r / RANKS && i < n * (r + 1) / RANKS) return value(r, i);
    for (int r = 0; r < RANKS; r++) sum += value(r, i);
    return sum;
}

static void one(sk_comm *c, int rank, sk_coll_kind kind, int64_t n, float *src, float *dst)
{
    int64_t lo = n * rank / RANKS, hi = n * (rank + 1) / RANKS, wrong = 0;
    bool takes = kind == SK_ALLGATHER, gives = kind == SK_REDUCE_SCATTER;
    for (int64_t i = 0; i < n; i++) src[i] = value(rank, takes ? lo + i : i);
    for (int64_t i = 0; i < n; i++) dst[i] = -1;
    sk_foreign f = {.kind = kind, .type = SK_F32, .root = 1, .src = src, .dst = dst, .n = n};
    f.room = 4096;
    f.room_bytes = ROOM;
    check(!sk_comm_foreign(c, &f), (int)kind, n);
    if (kind == SK_REDUCE && rank != 1) return;
    for (int64_t i = gives ? lo : 0; i < (gives ? hi : n); i++)
        wrong += dst[gives ? i - lo : i] != expected(kind, i, n);
    check(!wrong, (int)kind, n);
}

static void *be(void *arg)
{
    static const sk_coll_kind kinds[] = {SK_ALLREDUCE, SK_BROADCAST, SK_REDUCE, SK_REDUCE_SCATTER,
                                         SK_ALLGATHER};
    static const int64_t sizes[] = {0, 1, 2, 3, 100, 16320, 16321, MOST};
    int rank = (int)(intptr_t)arg, ids[RANKS] = {0, 1, 2};
    sk_group g = {RANKS, rank, ids};
    sk_comm_opts o = {.rank = rank, .groups = &g, .n_groups = 1, .timeout_s = 30};
    sk_comm *c = NULL;
    float *src = malloc(sizeof *src * MOST), *dst = malloc(sizeof *dst * MOST);
    check(src && dst && !sk_comm_open(heaps, &o, &c), -1, 0);
    for (int k = 0; k < 5; k++)
        for (int s = 0; s < 8; s++) one(c, rank, kinds[k], sizes[s], src, dst);
    sk_foreign wrong = {.kind = SK_ALLTOALL, .room = 4096, .room_bytes = ROOM};
    check(sk_comm_foreign(c, &wrong) == SK_EBUG, SK_ALLTOALL, 0);
    sk_comm_close(c);
    free(src);
    free(dst);
    return NULL;
}

int main(void)
{
    int64_t bytes[RANKS] = {4096 + ROOM, 4096 + ROOM, 4096 + ROOM};
    pthread_t t[RANKS];
    alarm(60);
    if (sk_heaps_open(RANKS, bytes, false, 0, &heaps)) return 1;
    for (int r = 0; r < RANKS; r++) pthread_create(&t[r], NULL, be, (void *)(intptr_t)r);
    for (int r = 0; r < RANKS; r++) pthread_join(t[r], NULL);
    sk_heaps_close(heaps);
    printf("foreign: %d checks, %d bad\n", atomic_load(&checks), atomic_load(&bad));
    return atomic_load(&bad) != 0;
}
