/* collectives.c - skein's collectives alone: a program of one's own that needs no model.
 *
 *     example_collectives [RANKS [processes]]            ranks of its own, threads or processes
 *     mpirun -n 4 example_collectives join               ranks that another launcher started
 *
 * A line is fitted to points by gradient descent.  Each rank has points of its own; gradients are
 * averaged over all ranks in two halves, so that a rank computes while they are under way.
 * C and C++. */
#include "skein.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 1000, STEPS = 300 };

typedef struct line {
    double a, b;
} line;

/* Half of the rank's points: the gradient of their mean square. */
static line gradient(line at, int rank, int half)
{
    line g = {0, 0};
    for (int i = half * POINTS / 2; i < (half + 1) * POINTS / 2; i++) {
        double x = (double)((i * 37 + rank * 11) % 100) / 100,
               y = 3 * x - 2; /* what is looked for */
        double off = at.a * x + at.b - y;
        g.a += 2 * off * x / (POINTS / 2);
        g.b += 2 * off / (POINTS / 2);
    }
    return g;
}

static int start(skein_comm *c, line *sum, int64_t *ticket)
{
    skein_call call;
    memset(&call, 0, sizeof call);
    call.size = sizeof call;
    call.kind = SKEIN_ALL_REDUCE;
    call.type = SKEIN_F64;
    call.reduction = SKEIN_MEAN;
    call.src = sum;
    call.dst = sum;
    call.n = 2;
    return skein_comm_start(c, &call, ticket);
}

static int one_step(skein_comm *c, line *at, line *half[2])
{
    int64_t ticket[2];
    int st = SKEIN_OK;
    for (int h = 0; h < 2 && !st; h++) {
        *half[h] = gradient(*at, skein_comm_rank(c), h); /* the first half is under way meanwhile */
        st = start(c, half[h], &ticket[h]);
    }
    for (int h = 0; h < 2 && !st; h++) {
        st = skein_comm_wait(c, ticket[h], -1, NULL);
        at->a -= 0.25 * half[h]->a;
        at->b -= 0.25 * half[h]->b;
    }
    return st;
}

/* What every rank does. */
static int work(skein_comm *c, void *ctx)
{
    line at = {0, 0}, *half[2] = {NULL, NULL};
    int st = SKEIN_OK, same = 1, me = skein_comm_rank(c), ranks = skein_comm_ranks(c);
    (void)ctx;
    if (!me) at.a = 5;                             /* one rank knows where to begin, */
    st = skein_broadcast(c, &at, 2, SKEIN_F64, 0); /* and tells the others */
    for (int h = 0; h < 2 && !st; h++) {           /* memory that other ranks reach */
        void *memory = NULL;
        st = skein_comm_alloc(c, sizeof(line), &memory);
        half[h] = (line *)memory;
    }
    for (int i = 0; i < STEPS && !st; i++) st = one_step(c, &at, half);

    line left = at; /* round the ring: has the neighbour the same bits? */
    if (!st)
        st = skein_send_recv(c, (me + 1) % ranks, &at, (me + ranks - 1) % ranks, &left, sizeof at);
    if (!st) same = !memcmp(&left, &at, sizeof at);
    int32_t all = same;
    if (!st) st = skein_all_reduce(c, &all, 1, SKEIN_I32, SKEIN_MIN);
    if (!st && !me)
        printf("%d ranks: y = %.3f x + %.3f, %s\n", ranks, at.a, at.b,
               all ? "the same bits everywhere" : "ranks differ");
    return st;
}

int main(int argc, char **argv)
{
    int st;
    if (argc > 1 && !strcmp(argv[1], "join")) {
        skein_comm *c = NULL;
        st = skein_comm_join(1 << 20, 60, &c);
        if (!st) st = work(c, NULL);
        skein_comm_close(c);
    } else {
        int flags = argc > 2 && !strcmp(argv[2], "processes") ? SKEIN_PROCESSES : 0;
        st = skein_comm_run(argc > 1 ? atoi(argv[1]) : 3, 1 << 20, 60, flags, work, NULL);
    }
    if (st) fprintf(stderr, "failed (%d): %s\n", st, sk_error_line());
    return st;
}
