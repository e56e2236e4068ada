/* swap.c - exchanges of two dims in the heaps: there and back, with threads that help.
 *
 * Every element is the number of its place in the whole tensor, so a result tells where each one
 * came from.  On 1 to 9 ranks a tensor goes from one split to the other and back, in calls that
 * are under way together on two groups; some are large enough to be divided among the threads of
 * a rank.  Then cuts that are not sound, or not those of the other members, must be refused
 * with an error message.  (Every algorithm and type: matrix.c.)
 * Output: "swap: N checks, N bad". */
#include "base/reduction_blocks.h"
#include "base/threads.h"
#include "coll/call.h"
#include "comm/comm.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { MOST = 9, HEAP = 16 << 20, AT_ONCE = 4, GUARD = 8 };
enum { ALL, REVERSED, N_GROUPS };

static atomic_int checks, bad;

static bool check(bool good, const char *what, int p, int at)
{
    atomic_fetch_add(&checks, 1);
    if (!good && atomic_fetch_add(&bad, 1) < 10)
        fprintf(stderr, "%d ranks, case %d: %s %s\n", p, at, what, sk_error());
    return good;
}

typedef struct rank {
    sk_heaps *heaps;
    sk_comm *comm;
    int me, p;
    int64_t used;
    sk_status st;
    void (*todo)(struct rank *r);
    int wrong; /* which wrong thing is done */
} rank;

/* --- one tensor --- */

typedef struct box { /* rows of n and of n2 that one member has */
    int64_t at[2], n[2];
} box;

static void part(int64_t n, const sk_grid *g, int i, int p, int64_t *at, int64_t *rows)
{
    int from = g->from, to = g->to;
    *at = n * i / p;
    *rows = n * (i + 1) / p - *at;
    if (!g->cells) return;
    sk_tree_part(&from, &to, i, p);
    *at = g->full * from / g->cells - g->full * g->from / g->cells;
    *rows = g->full * to / g->cells - g->full * from / g->cells;
}

/* Split along n (0) or n2 (1). */
static box box_of(const sk_seg *s, int dim, int i, int p)
{
    box b = {{0, 0}, {s->n, s->n2}};
    part(dim ? s->n2 : s->n, dim ? &s->cut2 : &s->cut, i, p, &b.at[dim], &b.n[dim]);
    return b;
}

static int64_t count(const sk_seg *s, box b)
{
    return s->outer * b.n[0] * s->mid * b.n[1] * s->inner;
}

/* The place in the whole of element j of a box. */
static int64_t place(const sk_seg *s, box b, int64_t j)
{
    int64_t z = j % s->inner, y = j / s->inner % b.n[1], rest = j / s->inner / b.n[1];
    int64_t m = rest % s->mid, x = rest / s->mid % b.n[0], o = rest / s->mid / b.n[0];
    return (((o * s->n + x + b.at[0]) * s->mid + m) * s->n2 + y + b.at[1]) * s->inner + z;
}

static int64_t *memory(const rank *r, int64_t at)
{
    return (int64_t *)(void *)((char *)sk_heap_base(r->heaps, r->me) + at);
}

static int64_t take(rank *r, int64_t bytes)
{
    int64_t at = r->used;
    r->used += (bytes + 63) / 64 * 64;
    sk_assert(r->used <= HEAP);
    return at;
}

static int64_t take_box(rank *r, const sk_seg *s, box b)
{
    int64_t n = count(s, b), at = take(r, (n + GUARD) * 8);
    for (int64_t j = 0; j < n + GUARD; j++) memory(r, at)[j] = -1;
    return at;
}

static bool holds(const rank *r, const sk_seg *s, box b, int64_t at)
{
    int64_t n = count(s, b);
    bool good = true;
    for (int64_t j = 0; j < n; j++) good = good && memory(r, at)[j] == place(s, b, j);
    for (int64_t j = n; j < n + GUARD; j++) good = good && memory(r, at)[j] == -1;
    return good;
}

/* --- there and back --- */

static sk_grid some_cells(int64_t n, int k)
{
    if (k % 2 == 0) return (sk_grid){0};
    if (k % 4 == 1) return (sk_grid){.full = n, .cells = 16, .from = 0, .to = 16};
    return (sk_grid){.full = 3 * n, .cells = 3 << k % 3, .from = 1 << k % 3, .to = 2 << k % 3};
}

static sk_seg shape(int k)
{
    static const int64_t n[] = {1, 3, 7, 8, 40, 0, 9}, n2[] = {5, 1, 16, 6, 2, 11, 33};
    static const int64_t inner[] = {1, 4, 3, 64};
    sk_seg s = {.outer = 1 + k % 3, .n = n[k % 7], .mid = 1 + k % 2, .n2 = n2[k / 2 % 7]};
    s.inner = inner[k % 4];
    if (k % 13 == 12) s.outer = 1, s.n = 90, s.mid = 2, s.n2 = 50, s.inner = 33; /* for the team */
    s.cut = some_cells(s.n, k);
    s.cut2 = some_cells(s.n2, k / 3);
    return s;
}

static sk_coll_call *make(rank *r, int64_t id, int group, const sk_seg *s)
{
    sk_coll_call *call = (void *)memory(r, take(r, sizeof *call + sizeof *s));
    *call = (sk_coll_call){.id = id, .kind = SK_ALLTOALL, .type = SK_I64, .group = group};
    call->n_segs = 1;
    call->algorithm = -1;
    call->segs[0] = *s;
    return call;
}

static void swap_some(rank *r, int k)
{
    sk_coll_call *there[AT_ONCE], *back[AT_ONCE];
    int me[N_GROUPS] = {r->me, r->p - 1 - r->me};
    r->used = 0;
    for (int i = 0; i < AT_ONCE; i++) {
        sk_seg s = shape(k + i);
        int dim = (k + i) % 2, who = me[i % 2];
        box before = box_of(&s, dim, who, r->p), after = box_of(&s, !dim, who, r->p);
        s.swap = dim ? SK_SWAP_N2_N : SK_SWAP_N_N2;
        s.src = take_box(r, &s, before);
        s.dst = take_box(r, &s, after);
        for (int64_t j = 0; j < count(&s, before); j++) memory(r, s.src)[j] = place(&s, before, j);
        there[i] = make(r, 2 * (k + i), i % 2, &s);
        s.swap = dim ? SK_SWAP_N_N2 : SK_SWAP_N2_N;
        s.src = s.dst;
        s.dst = take_box(r, &s, before);
        back[i] = make(r, 2 * (k + i) + 1, i % 2, &s);
        check(!sk_comm_start(r->comm, there[i]), "start", r->p, k + i);
    }
    for (int i = 0; i < AT_ONCE; i++) check(!sk_comm_wait(r->comm, there[i]), "wait", r->p, k + i);
    for (int i = 0; i < AT_ONCE; i++) {
        const sk_seg *s = &there[i]->segs[0];
        int dim = (k + i) % 2;
        box before = box_of(s, dim, me[i % 2], r->p), after = box_of(s, !dim, me[i % 2], r->p);
        check(holds(r, s, after, s->dst), "there", r->p, k + i);
        check(!sk_comm_start(r->comm, back[i]) && !sk_comm_wait(r->comm, back[i]), "back", r->p,
              k + i);
        check(holds(r, s, before, back[i]->segs[0].dst), "there and back", r->p, k + i);
    }
}

static void swap_all(rank *r)
{
    for (int k = 0; k < 60; k += AT_ONCE) swap_some(r, k);
}

/* --- what must be refused --- */

static void do_wrong(rank *r)
{
    sk_seg s = {.outer = 1, .n = 8, .inner = 1, .swap = SK_SWAP_N_N2, .mid = 1, .n2 = 8};
    s.cut = (sk_grid){.full = 16, .cells = 4, .from = 0, .to = 2};
    s.src = take(r, 4096);
    s.dst = take(r, 4096);
    sk_coll_call *call = make(r, 7, ALL, &s);
    sk_seg *q = &call->segs[0];
    if (r->wrong == 0) q->cut.to = 3;
    else if (r->wrong == 1) q->cut.from = -1;
    else if (r->wrong == 2) q->cut.full = INT64_MAX;
    else if (r->wrong == 3) q->cut2 = (sk_grid){.full = 9, .cells = 1, .from = 0, .to = 1};
    else if (r->wrong == 4) call->kind = SK_ALLREDUCE;
    else if (r->wrong == 5) q->swap = (sk_swap)3;
    else if (r->wrong == 6) q->n2 = INT64_MAX / 4;
    else if (r->wrong == 7) q->mid = -1;
    else if (r->wrong == 8) q->dst = q->src + 8;
    else if (r->wrong == 9 && r->me == 1) q->cut = (sk_grid){0};
    else if (r->wrong == 10 && r->me == 1) q->swap = SK_SWAP_N2_N;
    r->st = sk_comm_start(r->comm, call);
    if (!r->st) r->st = sk_comm_wait(r->comm, call);
}

/* --- ranks --- */

static void *be(void *arg)
{
    rank *r = arg;
    int ids[N_GROUPS][MOST];
    sk_group g[N_GROUPS] = {{r->p, r->me, ids[ALL]}, {r->p, r->p - 1 - r->me, ids[REVERSED]}};
    for (int i = 0; i < r->p; i++) ids[ALL][i] = i, ids[REVERSED][i] = r->p - 1 - i;
    sk_threads *team = sk_threads_open(1 + r->p % 3);
    sk_comm_opts o = {.rank = r->me, .groups = g, .n_groups = 2, .timeout_s = 30, .team = team};
    if (check(!sk_comm_open(r->heaps, &o, &r->comm), "open", r->p, 0)) r->todo(r);
    sk_comm_close(r->comm);
    sk_threads_close(team);
    return NULL;
}

/* The message, if there is one, must hold these words; NULL: there must be none. */
static void run(int p, int wrong, void (*todo)(rank *r), const char *words)
{
    int64_t bytes[MOST];
    rank r[MOST];
    pthread_t t[MOST];
    sk_heaps *h = NULL;
    const char *message = NULL;
    for (int i = 0; i < p; i++) bytes[i] = HEAP;
    sk_assert(!sk_heaps_open(p, bytes, false, 0, &h));
    for (int i = 0; i < p; i++) {
        r[i] = (rank){.heaps = h, .me = i, .p = p, .todo = todo, .wrong = wrong};
        sk_assert(!pthread_create(&t[i], NULL, be, &r[i]));
    }
    for (int i = 0; i < p; i++) pthread_join(t[i], NULL);
    sk_heaps_aborted(h, NULL, NULL, &message);
    bool good = words ? message && strstr(message, words) : !message;
    if (!check(good, "message", p, wrong)) fprintf(stderr, "  %s\n", message ? message : "none");
    for (int i = 0; words && i < p; i++) check(r[i].st != SK_OK, "not refused", p, wrong);
    sk_heaps_close(h);
}

int main(void)
{
    static const char *const words[] = {
        "the 8 rows of segment 0 are not the reduction blocks 0 to 3 of 4",
        "blocks -1 to 2",
        "in 9223372036854775807 rows",
        "blocks 0 to 1 of 1 in 9 rows",
        "only all-to-all has one",
        "has swap 3",
        "leaves the heap",
        "leaves the heap",
        "overlaps itself",
        "their programs or their members of the group differ",
        "their programs or their members of the group differ"};
    alarm(100);
    for (int p = 1; p <= MOST; p++) run(p, -1, swap_all, NULL);
    for (int i = 0; i < 11; i++) run(i < 9 ? 1 : 2, i, do_wrong, words[i]);
    printf("swap: %d checks, %d bad\n", atomic_load(&checks), atomic_load(&bad));
    return atomic_load(&bad) != 0;
}
