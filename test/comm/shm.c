/* shm.c - the test of comm/: ranks as threads and as processes.
 *
 * Inputs are small integers, so sums are exact in every type and any order; the
 * order itself is tested with numbers that do not add up.  Every job has a
 * deadline.  Output: each failed check, then "comm: N checks, N bad". */
#include "base/clock.h"
#include "comm/comm.h"
#include "coll/sum_kernels.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define SLOW 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLOW 1
#endif
#endif
#ifndef SLOW
#define SLOW 0
#endif

enum { DEADLINE_S = 60, HEAP = 4 << 20, PERIOD = 15, GUARD = 64, MAX_RANKS = 200 };

static struct tally {
    atomic_llong checks, bad;
} * tally; /* in shared memory: processes count too */

static const char *job_name = "";

static bool check(bool good, const char *what, int line)
{
    atomic_fetch_add(&tally->checks, 1);
    if (good || atomic_fetch_add(&tally->bad, 1) > 20) return good;
    fprintf(stderr, "comm_shm.c:%d: %s: %s\n", line, job_name, what);
    return good;
}
#define CHECK(cond) check((cond), #cond, __LINE__)

static void too_late(int sig)
{
    (void)sig;
    static const char text[] = "comm: a job ran past its deadline\n";
    ssize_t n = write(2, text, sizeof text - 1);
    _exit(n < 0 ? 2 : 1);
}

/* --- ranks --- */

typedef struct rank_ctx {
    sk_heaps *heaps;
    sk_comm *comm;
    int rank, n, salt;
    char *heap, *free; /* free: bump pointer in my heap */
} rank_ctx;

typedef void job(rank_ctx *c);
enum { ALL, REVERSED, PARITY, ALONE, N_GROUPS };

static double timeout_s = 30;

static sk_status open_rank(rank_ctx *c)
{
    int ids[N_GROUPS][MAX_RANKS], r = c->rank, n = c->n;
    sk_group g[N_GROUPS] = {{n, r, ids[ALL]},
                            {n, n - 1 - r, ids[REVERSED]},
                            {0, r / 2, ids[PARITY]},
                            {1, 0, ids[ALONE]}};
    for (int i = 0; i < n; i++) {
        ids[ALL][i] = i;
        ids[REVERSED][i] = n - 1 - i;
        if (i % 2 == r % 2) ids[PARITY][g[PARITY].n++] = i;
    }
    ids[ALONE][0] = r;
    c->heap = c->free = sk_heap_base(c->heaps, r);
    sk_comm_opts o = {.rank = r, .groups = g, .n_groups = N_GROUPS, .timeout_s = timeout_s};
    return sk_comm_open(c->heaps, &o, &c->comm);
}

typedef struct start {
    rank_ctx ctx;
    job *work;
} start;

static void *run_rank(void *arg)
{
    start *s = arg;
    if (CHECK(!open_rank(&s->ctx))) s->work(&s->ctx);
    sk_comm_close(s->ctx.comm);
    return NULL;
}

static void run_threads(start *s, int n)
{
    pthread_t t[MAX_RANKS];
    for (int r = 0; r < n; r++) CHECK(!pthread_create(&t[r], NULL, run_rank, &s[r]));
    for (int r = 0; r < n; r++) pthread_join(t[r], NULL);
}

/* A killed rank is reported like the launcher does it. */
static void run_processes(start *s, int n)
{
    pid_t pid[MAX_RANKS];
    fflush(NULL);
    for (int r = 0; r < n; r++) {
        pid[r] = fork();
        if (pid[r]) continue;
        alarm(DEADLINE_S);
        run_rank(&s[r]);
        _exit(0);
    }
    for (int left = n; left; left--) {
        int how = 0, r = 0;
        pid_t p = wait(&how);
        while (r < n && pid[r] != p) r++;
        if (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL)
            sk_heaps_abort(s->ctx.heaps, SK_EPEER, r, "killed");
        else CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    }
}

/* Runs work on n ranks and leaves the heaps to the caller. */
static sk_heaps *run_job(const char *name, int n, bool processes, job *work)
{
    int64_t bytes[MAX_RANKS];
    start s[MAX_RANKS];
    sk_heaps *h = NULL;
    job_name = name;
    alarm(DEADLINE_S);
    for (int r = 0; r < n; r++) bytes[r] = HEAP + 8 * r;
    if (!CHECK(!sk_heaps_open(n, bytes, processes, 4096, &h))) exit(1);
    for (int r = 0; r < n; r++)
        s[r] = (start){.ctx = {.heaps = h, .rank = r, .n = n}, .work = work};
    if (processes) run_processes(s, n);
    else run_threads(s, n);
    for (int r = 0; r < n; r++) CHECK(atomic_load(&sk_heaps_rank_state(h, r)->waits_for) == -1);
    return h;
}

/* For jobs that must not fail. */
static void run_good(const char *name, int n, bool processes, job *work)
{
    sk_heaps *h = run_job(name, n, processes, work);
    const char *message = NULL;
    if (!CHECK(!sk_heaps_aborted(h, NULL, NULL, &message))) fprintf(stderr, "%s\n", message);
    sk_heaps_close(h);
}

static char *take(rank_ctx *c, int64_t bytes)
{
    char *p = c->free;
    c->free += (bytes + 63) / 64 * 64;
    sk_assert(c->free <= c->heap + HEAP);
    return p;
}

/* --- elements --- */

static void put(sk_dtype t, void *p, int64_t i, int x)
{
    float f = (float)x;
    if (t == SK_F32) ((float *)p)[i] = f;
    else if (t == SK_F64) ((double *)p)[i] = x;
    else if (t == SK_BF16) ((uint16_t *)p)[i] = sk_to_bf16(f);
    else if (t == SK_I32) ((int32_t *)p)[i] = x;
    else if (t == SK_I64) ((int64_t *)p)[i] = x;
    else if (t == SK_U8) ((uint8_t *)p)[i] = (uint8_t)(x + 8);
    else sk_convert((uint16_t *)p + i, SK_F16, &f, SK_F32, 1);
}

static int get(sk_dtype t, const void *p, int64_t i)
{
    float f = 0;
    if (t == SK_F32) return (int)((const float *)p)[i];
    if (t == SK_F64) return (int)((const double *)p)[i];
    if (t == SK_BF16) return (int)sk_from_bf16(((const uint16_t *)p)[i]);
    if (t == SK_I32) return ((const int32_t *)p)[i];
    if (t == SK_I64) return (int)((const int64_t *)p)[i];
    if (t == SK_U8) return ((const uint8_t *)p)[i] - 8;
    sk_convert(&f, SK_F32, (const uint16_t *)p + i, SK_F16, 1);
    return (int)f;
}

/* Element e of the buffer of member k; repeats every PERIOD elements. */
static int value(int k, int64_t e, int salt)
{
    return (int)((e % PERIOD * 7 + k * 13 + salt) % PERIOD) - 7;
}

static int expected(const sk_coll_call *call, int p, int64_t e, int salt)
{
    int sum = 0, most = -100;
    for (int k = 0; k < p; k++) {
        int x = value(k, e, salt);
        sum += x;
        most = x > most ? x : most;
    }
    return call->reduce == SK_SUM ? sum : most;
}

/* Which of p members has cell c of [from, to): half of them, as the tree goes, have half of it. */
static int cell_owner(int c, int from, int to, int p)
{
    int left = 1, half = from + (to - from) / 2;
    if (p == 1 || to - from == 1) return 0;
    while (2 * left < p) left *= 2;
    return c < half ? cell_owner(c, from, half, left) : left + cell_owner(c, half, to, p - left);
}

/* Where member k's part begins. */
static int64_t start_of(const sk_seg *s, int k, int p)
{
    const sk_grid *g = &s->cut;
    if (!g->cells) return s->n * k / p;
    int c = g->from;
    while (c < g->to && cell_owner(c, g->from, g->to, p) < k) c++;
    return g->full * c / g->cells - g->full * g->from / g->cells;
}

static int64_t part_of(const sk_seg *s, int k, int p)
{
    return start_of(s, k + 1, p) - start_of(s, k, p);
}

/* --- one collective: made, filled, checked --- */

typedef struct shape {
    int64_t outer, n, inner;
} shape;

static int group_n(const rank_ctx *c, int group)
{
    if (group == ALONE) return 1;
    return group == PARITY ? (c->n + 1 - c->rank % 2) / 2 : c->n;
}

static int group_me(const rank_ctx *c, int group)
{
    int me[] = {c->rank, c->n - 1 - c->rank, c->rank / 2, 0};
    return me[group];
}

/* n rows: all cells of a dim, or the first or second half of one. */
static sk_grid some_cells(int64_t n, int k)
{
    int32_t c = 1 << k;
    if (k % 2) return (sk_grid){.full = 2 * n, .cells = 2 * c, .from = c, .to = 2 * c};
    if (k) return (sk_grid){.full = 2 * n + 1, .cells = 2 * c, .from = 0, .to = c};
    return (sk_grid){.full = n, .cells = 16, .from = 0, .to = 16};
}

/* Segment i of call, of the given shape, in fresh memory; in_place where that is allowed. */
static void make_seg(rank_ctx *c, sk_coll_call *call, int i, shape s, bool in_place)
{
    int p = group_n(c, call->group), me = group_me(c, call->group);
    int64_t size = (int64_t)sk_dtype_size(call->type), all = s.outer * s.n * s.inner * size;
    sk_seg *seg = &call->segs[i];
    *seg = (sk_seg){.outer = s.outer, .n = s.n, .inner = s.inner};
    if (call->id % 11 < 4 && all < 16000) seg->cut = some_cells(s.n, (int)(call->id % 11));
    int64_t mine = s.outer * part_of(seg, me, p) * s.inner * size;
    int64_t before = start_of(seg, me, p) * s.inner * size;
    char *whole = take(c, all + GUARD), *src = whole, *dst = whole;
    memset(whole, 0x5a, (size_t)(all + GUARD));
    if (call->kind == SK_ALLREDUCE && !in_place) dst = take(c, all + GUARD);
    if (call->kind == SK_REDUCE_SCATTER)
        dst = in_place && s.outer == 1 ? whole + before : take(c, mine + GUARD);
    if (call->kind == SK_ALLGATHER)
        src = in_place && s.outer == 1 ? whole + before : take(c, mine + GUARD);
    int64_t dst_bytes = call->kind == SK_REDUCE_SCATTER ? mine : all;
    if (dst != whole && dst != whole + before) memset(dst, 0x5a, (size_t)(dst_bytes + GUARD));
    seg->src = src - c->heap;
    seg->dst = dst - c->heap;
}

/* Where in the whole buffer element j of member k's dense part lies. */
static int64_t whole_at(const sk_seg *s, int k, int p, int64_t j)
{
    int64_t run = part_of(s, k, p) * s->inner;
    return j / run * s->n * s->inner + start_of(s, k, p) * s->inner + j % run;
}

static void fill_seg(const rank_ctx *c, const sk_coll_call *call, int i)
{
    const sk_seg *s = &call->segs[i];
    int p = group_n(c, call->group), me = group_me(c, call->group);
    int64_t n = s->outer * s->n * s->inner;
    if (call->kind == SK_ALLGATHER) n = s->outer * part_of(s, me, p) * s->inner;
    for (int64_t j = 0; j < n; j++) {
        int64_t e = call->kind == SK_ALLGATHER ? whole_at(s, me, p, j) : j;
        put(call->type, c->heap + s->src, j, value(me, e, c->salt + i));
    }
}

static bool gathered(const rank_ctx *c, const sk_coll_call *call, int i)
{
    const sk_seg *s = &call->segs[i];
    int p = group_n(c, call->group);
    for (int k = 0; k < p; k++) {
        int64_t n = s->outer * part_of(s, k, p) * s->inner;
        for (int64_t j = 0; j < n; j++) {
            int64_t e = whole_at(s, k, p, j);
            if (get(call->type, c->heap + s->dst, e) != value(k, e, c->salt + i)) return false;
        }
    }
    return true;
}

static bool reduced(const rank_ctx *c, const sk_coll_call *call, int i)
{
    const sk_seg *s = &call->segs[i];
    int p = group_n(c, call->group), me = group_me(c, call->group), want[PERIOD];
    bool scatter = call->kind == SK_REDUCE_SCATTER;
    int64_t n = s->outer * (scatter ? part_of(s, me, p) : s->n) * s->inner;
    for (int e = 0; e < PERIOD; e++) want[e] = expected(call, p, e, c->salt + i);
    for (int64_t j = 0; j < n; j++) {
        int64_t e = scatter ? whole_at(s, me, p, j) : j;
        if (get(call->type, c->heap + s->dst, j) != want[e % PERIOD]) return false;
    }
    return true;
}

/* Nothing was written behind dst. */
static bool guarded(const rank_ctx *c, const sk_coll_call *call, int i)
{
    const sk_seg *s = &call->segs[i];
    int p = group_n(c, call->group), me = group_me(c, call->group);
    bool scatter = call->kind == SK_REDUCE_SCATTER;
    int64_t n = s->outer * (scatter ? part_of(s, me, p) : s->n) * s->inner;
    if (scatter && s->dst >= s->src && s->dst <= s->src + s->outer * s->n * s->inner * 8)
        return true;
    const char *end = c->heap + s->dst + n * (int64_t)sk_dtype_size(call->type);
    for (int k = 0; k < GUARD; k++)
        if (end[k] != 0x5a) return false;
    return true;
}

static sk_coll_call *make_call(rank_ctx *c, int64_t id, sk_coll_kind kind, sk_dtype type, int group,
                               int n_segs)
{
    sk_coll_call *call = (void *)take(c, (int64_t)(sizeof *call + sizeof(sk_seg) * (size_t)n_segs));
    *call = (sk_coll_call){
        .id = id, .kind = kind, .type = type, .group = group, .n_segs = n_segs, .algorithm = -1};
    call->reduce = kind != SK_ALLGATHER && id % 5 == 3 ? SK_MAXIMUM : SK_SUM;
    return call;
}

static void fill_call(const rank_ctx *c, const sk_coll_call *call)
{
    for (int i = 0; i < call->n_segs; i++) fill_seg(c, call, i);
}

static bool right(const rank_ctx *c, const sk_coll_call *call)
{
    bool good = true;
    for (int i = 0; i < call->n_segs; i++)
        good = good && guarded(c, call, i) &&
               (call->kind == SK_ALLGATHER ? gathered(c, call, i) : reduced(c, call, i));
    return good;
}

/* --- jobs: collectives --- */

static const sk_dtype all_types[] = {SK_F32, SK_BF16, SK_F16, SK_F64, SK_I32, SK_I64, SK_U8};

/* Big shapes only with two types, so that the whole takes seconds. */
static bool skip(shape s, sk_coll_kind kind, sk_dtype type)
{
    int64_t n = s.outer * s.n * s.inner;
    if (type == SK_U8 && kind != SK_ALLGATHER) return true;
    if (SLOW && n > 5000) return true;
    return n > 5000 && ((type != SK_F32 && type != SK_BF16) || (n > 100000 && type != SK_BF16));
}

static void one_case(rank_ctx *c, int64_t id, int variant, shape s, sk_dtype type)
{
    sk_coll_kind kind = (sk_coll_kind)(variant % 3);
    if (skip(s, kind, type)) return;
    c->free = c->heap;
    c->salt = (int)(id % 1000);
    sk_coll_call *call = make_call(c, id, kind, type, (int)(id % N_GROUPS), 1);
    make_seg(c, call, 0, s, variant >= 3);
    fill_call(c, call);
    if (!CHECK(!sk_comm_start(c->comm, call) && !sk_comm_wait(c->comm, call))) return;
    if (!CHECK(right(c, call)))
        fprintf(stderr, "  rank %d of %d, kind %d, %s, [%lld][%lld][%lld], group %d, in place %d\n",
                c->rank, c->n, (int)kind, sk_dtype_name(type), (long long)s.outer, (long long)s.n,
                (long long)s.inner, call->group, variant >= 3);
}

static void every_case(rank_ctx *c)
{
    static const int64_t sizes[] = {0, 1, 3, 7, 100, 4097, 70001};
    static const shape mixes[] = {{1, 0, 1}, {3, 0, 1}, {1, 0, 5}, {2, 0, 3}, {0, 0, 4}, {4, 0, 0}};
    int64_t id = 0;
    for (int m = 0; m < 6; m++)
        for (int z = 0; z < 7; z++)
            for (int t = 0; t < 7; t++)
                for (int variant = 0; variant < 6; variant++)
                    one_case(c, id++, variant, (shape){mixes[m].outer, sizes[z], mixes[m].inner},
                             all_types[t]);
}

/* Many calls of several segments in flight, on several groups at once. */
static void in_flight(rank_ctx *c)
{
    enum { CALLS = 48 };
    static const shape shapes[] = {{1, 500, 1}, {2, 5, 3}, {1, 0, 1}, {1, 3000, 1}, {5, 2, 1}};
    sk_coll_call *calls[CALLS];
    for (int round = 0; round < 4; round++) {
        c->free = c->heap;
        c->salt = round;
        for (int i = 0; i < CALLS; i++) {
            int n_segs = i % 4, kind = i / 2 % 3;
            calls[i] = make_call(c, i, (sk_coll_kind)kind, all_types[i % 6], i % N_GROUPS, n_segs);
            for (int s = 0; s < n_segs; s++)
                make_seg(c, calls[i], s, shapes[(i + s) % 5], (i + s) % 3 == 0);
            fill_call(c, calls[i]);
            CHECK(!sk_comm_start(c->comm, calls[i]));
        }
        for (int i = 0; i < CALLS; i++) {
            CHECK(!sk_comm_wait(c->comm, calls[i]));
            CHECK(right(c, calls[i]));
        }
    }
}

static double pick(sk_reduce op, double a, double x)
{
    if (op == SK_MAXIMUM) return x > a || x != x ? x : a;
    if (op == SK_MINIMUM) return x < a || x != x ? x : a;
    return a + x;
}

/* The order of coll/call.h, by halves: cut at the largest power of two. */
static double tree(sk_reduce op, const double *x, int n, bool wide)
{
    int half = 1;
    if (n == 1) return x[0];
    while (2 * half < n) half *= 2;
    double sum = pick(op, tree(op, x, half, wide), tree(op, x + half, n - half, wide));
    return wide ? sum : (double)(float)sum;
}

/* Numbers whose sum depends on the order, in the order of a group that runs backwards. */
static void order_and_bits(rank_ctx *c)
{
    static const int sizes[] = {5, 900, 3000};
    for (int z = 0; z < 3; z++) {
        int n = sizes[z], bad = 0;
        c->free = c->heap;
        sk_coll_call *call = make_call(c, 0, SK_ALLREDUCE, SK_F32, REVERSED, 1);
        make_seg(c, call, 0, (shape){1, n, 1}, z % 2);
        float *src = (void *)(c->heap + call->segs[0].src);
        float *dst = (void *)(c->heap + call->segs[0].dst);
        for (int i = 0; i < n; i++) src[i] = (float)(1 + c->rank * 1000003 + i) / 3.0f;
        CHECK(!sk_comm_start(c->comm, call) && !sk_comm_wait(c->comm, call));
        for (int i = 0; i < n; i++) {
            double x[MAX_RANKS];
            for (int r = 0; r < c->n; r++)
                x[c->n - 1 - r] = (double)((float)(1 + r * 1000003 + i) / 3.0f);
            float sum = (float)tree(SK_SUM, x, c->n, false);
            bad += memcmp(&sum, &dst[i], sizeof sum) != 0;
        }
        CHECK(bad == 0);
    }
}

/* --- jobs: messages and barriers --- */

static void ring_of_messages(rank_ctx *c)
{
    enum { MESSAGES = 500, SLOTS = 8, ROOM = 3000 };
    int next = (c->rank + 1) % c->n, before = (c->rank + c->n - 1) % c->n, bad = 0;
    char *out = take(c, SLOTS * ROOM), *in = take(c, ROOM);
    for (int m = 0; m < MESSAGES; m++) {
        int64_t bytes = (int64_t)m * 37 % ROOM;
        char *slot = out + m % SLOTS * ROOM;
        CHECK(!sk_comm_sent(c->comm, next, m - SLOTS + 1));
        memset(slot, (m + c->rank) & 127, (size_t)bytes);
        CHECK(!sk_comm_send(c->comm, next, m, slot, bytes));
        CHECK(!sk_comm_recv(c->comm, before, m, in, bytes));
        for (int64_t i = 0; i < bytes; i++) bad += in[i] != ((m + before) & 127);
    }
    CHECK(!sk_comm_sent(c->comm, next, MESSAGES));
    CHECK(bad == 0);
}

/* More sends than fit: the sender waits for the receiver. */
static void flood(rank_ctx *c)
{
    enum { MESSAGES = 5 * SK_COMM_FLIGHT };
    int64_t *data = (void *)take(c, MESSAGES * 8), got = 0;
    for (int m = 0; m < MESSAGES; m++) data[m] = m;
    for (int m = 0; c->rank == 0 && m < MESSAGES; m++)
        CHECK(!sk_comm_send(c->comm, 1, -m, &data[m], 8));
    for (int m = 0; c->rank == 1 && m < MESSAGES; m++)
        CHECK(!sk_comm_recv(c->comm, 0, -m, &got, 8) && got == m);
    if (c->rank == 0) CHECK(!sk_comm_sent(c->comm, 1, MESSAGES));
}

/* After the k-th barrier everybody has entered it k times. */
static void barriers(rank_ctx *c)
{
    atomic_llong *entered = sk_heaps_extra(c->heaps);
    for (int k = 1; k <= 200; k++) {
        atomic_fetch_add(entered, 1);
        CHECK(!sk_comm_barrier(c->comm));
        long long n = atomic_load(entered);
        CHECK(n >= (long long)k * c->n && n <= (long long)(k + 1) * c->n);
    }
}

/* --- jobs: failing --- */

/* What each rank got, in the extra memory. */
typedef struct outcome {
    atomic_int status[MAX_RANKS];
    atomic_int at_work; /* ranks that began to wait */
    atomic_llong began_us;
} outcome;

static void note(const rank_ctx *c, sk_status st)
{
    atomic_store(&((outcome *)sk_heaps_extra(c->heaps))->status[c->rank], (int)st);
}

static void differing_id(rank_ctx *c)
{
    sk_coll_call *call = make_call(c, c->rank == 1 ? 14 : 12, SK_ALLREDUCE, SK_F32, ALL, 1);
    make_seg(c, call, 0, (shape){1, 10, 1}, true);
    sk_status st = sk_comm_start(c->comm, call);
    note(c, st ? st : sk_comm_wait(c->comm, call));
}

static void differing_shape(rank_ctx *c)
{
    sk_coll_call *call = make_call(c, 12, SK_ALLREDUCE, SK_F32, ALL, 1);
    make_seg(c, call, 0, (shape){1, c->rank == 1 ? 11 : 10, 1}, true);
    sk_status st = sk_comm_start(c->comm, call);
    note(c, st ? st : sk_comm_wait(c->comm, call));
}

static void differing_members(rank_ctx *c)
{
    int me = c->rank, pair[] = {0, 1}, other[] = {1, 0};
    sk_group g = {2, 1, other};
    if (me == 0) g = (sk_group){2, 0, pair};
    if (me == 1) g = (sk_group){2, 0, other};
    sk_comm_close(c->comm);
    sk_comm_opts o = {.rank = me, .groups = &g, .n_groups = 1, .timeout_s = timeout_s};
    CHECK(!sk_comm_open(c->heaps, &o, &c->comm));
    sk_coll_call *call = make_call(c, 12, SK_ALLREDUCE, SK_F32, 0, 0);
    sk_status st = sk_comm_start(c->comm, call);
    note(c, st ? st : sk_comm_wait(c->comm, call));
}

static void differing_tag(rank_ctx *c)
{
    char *p = take(c, 64);
    if (c->rank == 0) note(c, sk_comm_send(c->comm, 1, 31, p, 8));
    else note(c, sk_comm_recv(c->comm, 0, 32, p, 8));
}

/* Rank 0 looks at the sleepers, then aborts; they wait in three different ways. */
static void abort_wakes(rank_ctx *c)
{
    outcome *o = sk_heaps_extra(c->heaps);
    if (c->rank == 0) {
        while (atomic_load(&o->at_work) < c->n - 1) usleep(1000);
        usleep(100000);
        for (int r = 1; r < c->n; r++)
            CHECK(atomic_load(&sk_heaps_rank_state(c->heaps, r)->waits_for) == 0);
        atomic_store(&o->began_us, (long long)(1e6 * sk_now()));
        CHECK(sk_heaps_abort(c->heaps, SK_EDATA, 0, "the disk is gone"));
        CHECK(!sk_heaps_abort(c->heaps, SK_EIO, 0, "second"));
        note(c, SK_EDATA);
        return;
    }
    sk_coll_call *call = make_call(c, 3, SK_ALLREDUCE, SK_F32, ALL, 0);
    atomic_fetch_add(&o->at_work, 1);
    sk_status st = SK_OK;
    if (c->rank == 1) st = sk_comm_recv(c->comm, 0, 1, NULL, 0);
    else if (c->rank == 2) {
        CHECK(!sk_comm_send(c->comm, 0, 1, c->heap, 8));
        st = sk_comm_sent(c->comm, 0, 1);
    } else {
        sk_group pair = {2, 1, (const int[]){0, c->rank}};
        sk_comm_close(c->comm);
        sk_comm_opts ends = {
            .rank = c->rank, .groups = &pair, .n_groups = 1, .timeout_s = timeout_s};
        CHECK(!sk_comm_open(c->heaps, &ends, &c->comm));
        CHECK(!sk_comm_start(c->comm, call));
        st = sk_comm_wait(c->comm, call);
    }
    note(c, st);
    CHECK(1e6 * sk_now() - (double)atomic_load(&o->began_us) < 1e6);
}

static void nobody_comes(rank_ctx *c)
{
    sk_coll_call *call = make_call(c, 5, SK_ALLREDUCE, SK_F32, ALL, 0);
    if (c->rank == 1) {
        sk_rank_state *l = sk_heaps_rank_state(c->heaps, 1);
        atomic_store(&l->step, 3);
        atomic_store(&l->pc, 7);
        while (!sk_heaps_aborted(c->heaps, NULL, NULL, NULL)) usleep(1000);
        return;
    }
    usleep(20000);
    atomic_store(&sk_heaps_rank_state(c->heaps, 0)->pc, 17);
    double t = sk_now();
    CHECK(!sk_comm_start(c->comm, call));
    note(c, sk_comm_wait(c->comm, call));
    CHECK(sk_now() - t > 0.25 && sk_now() - t < 2);
}

static void killed(rank_ctx *c)
{
    if (c->rank == 1) {
        CHECK(!sk_comm_barrier(c->comm));
        raise(SIGKILL);
    }
    sk_status st = sk_comm_barrier(c->comm); /* who is late in it may hear of the end there */
    double t = sk_now();
    note(c, st ? st : sk_comm_barrier(c->comm));
    CHECK(sk_now() - t < 1);
}

/* Rank r alone does something wrong, one case after the other, each on fresh heaps. */
static int wrong_case;

static sk_status do_wrong(rank_ctx *c)
{
    sk_coll_call *call = make_call(c, 5, SK_ALLREDUCE, SK_F32, ALONE, 1);
    sk_coll_call *more = make_call(c, 6, SK_ALLREDUCE, SK_F32, ALONE, 0);
    make_seg(c, call, 0, (shape){1, 10, 1}, true);
    sk_status st = SK_OK;
    switch (wrong_case) {
    case 0: /* too many in flight */
        for (int i = 0; i <= SK_COMM_FLIGHT && !st; i++) st = sk_comm_start(c->comm, call);
        return st;
    case 1: /* out of order */
        CHECK(!sk_comm_start(c->comm, call) && !sk_comm_start(c->comm, more));
        return sk_comm_wait(c->comm, more);
    case 2: /* never started */
        return sk_comm_wait(c->comm, call);
    case 3:
        call->segs[0].dst += 4;
        break; /* overlaps itself */
    case 4:
        call->segs[0].n = HEAP;
        break;
    case 5:
        call->segs[0].src = -8;
        break;
    case 6:
        call->group = 9;
        break;
    case 7:
        call->reduce = SK_ADASUM; /* not without its algorithm */
        break;
    case 8:
        call->n_segs = HEAP;
        break;
    case 9:
        return sk_comm_send(c->comm, 0, 0, &st, 4); /* not from the heap */
    case 10:
        return sk_comm_sent(c->comm, 0, 1);
    case 11:
        return sk_comm_recv(c->comm, 1, 0, NULL, 0);
    case 12:
        call->kind = (sk_coll_kind)77;
        break;
    }
    return sk_comm_start(c->comm, call);
}

static void wrong_job(rank_ctx *c) { note(c, do_wrong(c)); }

/* --- the tests around them --- */

/* Run a job that must fail with `code` on exactly one rank (-1: any), the others SK_EPEER or OK. */
static void run_bad(const char *name, int n, bool processes, job *work, sk_status code,
                    const char *const *words, int n_words)
{
    sk_heaps *h = run_job(name, n, processes, work);
    sk_status told = SK_OK;
    int who = -1, firsts = 0;
    const char *message = "";
    const outcome *o = sk_heaps_extra(h);
    CHECK(sk_heaps_aborted(h, &told, &who, &message));
    CHECK(told == code);
    for (int r = 0; r < n; r++) {
        int st = atomic_load(&o->status[r]);
        firsts += code != SK_EPEER && st == (int)code;
        CHECK(st == (int)code || st == SK_EPEER || st == SK_OK);
    }
    CHECK(code == SK_EPEER || (firsts == 1 && atomic_load(&o->status[who]) == (int)code));
    for (int i = 0; i < n_words; i++)
        if (!CHECK(strstr(message, words[i])))
            fprintf(stderr, "  no '%s' in: %s\n", words[i], message);
    sk_heaps_close(h);
}
#define WORDS(...) \
    (const char *const[]){__VA_ARGS__}, (int)(sizeof(const char *[]){__VA_ARGS__} / sizeof(char *))

static void test_failures(bool processes)
{
    run_bad("differing id", 2, processes, differing_id, SK_EBUG,
            WORDS("rank 0", "rank 1", "call c", "call e"));
    run_bad("differing shape", 3, processes, differing_shape, SK_EBUG,
            WORDS("rank 1", "10 elements", "11 elements"));
    run_bad("differing members", 2, processes, differing_members, SK_EBUG,
            WORDS("rank 0", "rank 1", "members"));
    run_bad("differing tag", 2, processes, differing_tag, SK_EBUG,
            WORDS("rank 0", "rank 1", "31", "32"));
    run_bad("abort", 4, processes, abort_wakes, SK_EDATA, WORDS("the disk is gone"));
    timeout_s = 0.3;
    run_bad("timeout", 2, processes, nobody_comes, SK_EPEER,
            WORDS("rank 0 waited 0.3", "instruction 17", "for rank 1", "step 4, instruction 7"));
    timeout_s = 30;
    for (wrong_case = 0; wrong_case < 13; wrong_case++)
        run_bad("wrong use", 1, processes, wrong_job, SK_EBUG, NULL, 0);
    if (processes) run_bad("killed", 3, true, killed, SK_EPEER, WORDS("killed"));
}

static void test_heaps(bool shared)
{
    int64_t bytes[] = {0, 1, 5000, (5 << 20) + 3};
    sk_heaps *h = NULL;
    job_name = "heaps";
    CHECK(!sk_heaps_open(4, bytes, shared, 100, &h));
    for (int r = 0; r < 4; r++) {
        unsigned char *p = sk_heap_base(h, r), any = 0;
        CHECK(sk_heap_bytes(h, r) == bytes[r] && (uintptr_t)p % 4096 == 0);
        for (int64_t i = 0; i < bytes[r]; i++) {
            any |= p[i];
            p[i] = (unsigned char)r;
        }
        CHECK(any == 0 && atomic_load(&sk_heaps_rank_state(h, r)->step) == -1);
    }
    CHECK(!sk_heaps_stop_asked(h));
    sk_heaps_ask_stop(h);
    CHECK(sk_heaps_stop_asked(h) && !sk_heaps_aborted(h, NULL, NULL, NULL));
    char *extra = sk_heaps_extra(h);
    CHECK(extra[0] == 0 && extra[99] == 0);
    sk_heaps_close(h);
    CHECK(sk_heaps_open(2, (int64_t[]){1000, (int64_t)1 << 50}, shared, 0, &h) == SK_EIO);
    CHECK(strstr(sk_error(), "1125899906843624"));
    CHECK(sk_heaps_open(1, (int64_t[]){-1}, shared, 0, &h) == SK_EBUG);
}

/* --- the kernels alone --- */

static uint32_t noise(void)
{
    static uint32_t x = 12345;
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    return x;
}

/* What sk_sum must give for element i, by way of sk_convert; as stored bytes. */
static void sum_slowly(sk_dtype t, sk_reduce op, int n_src, const void *const *src, int64_t i,
                       void *out)
{
    size_t size = sk_dtype_size(t);
    bool narrow = t == SK_F32 || t == SK_BF16 || t == SK_F16, whole = !narrow && t != SK_F64;
    double x[64], a;
    for (int k = 0; k < n_src; k++) {
        float f = 0;
        sk_convert(&f, SK_F32, (const char *)src[k] + (size_t)i * size, t, 1);
        sk_convert(&x[k], SK_F64, (const char *)src[k] + (size_t)i * size, t, 1);
        if (narrow) x[k] = (double)f;
    }
    a = tree(op, x, n_src, !narrow);
    if (op == SK_MEAN) a = whole ? trunc(a / n_src) : a / n_src;
    if (op == SK_MEAN && narrow) a = (double)((float)(a * n_src) / (float)n_src);
    if (t == SK_U8) *(uint8_t *)out = (uint8_t)(int)a;
    else if (narrow) sk_convert(out, t, &(float){(float)a}, SK_F32, 1);
    else sk_convert(out, t, &a, SK_F64, 1);
}

/* Small integers, or for floating types any bits at all. */
static void scatter_bits(sk_dtype t, char *p, int64_t n, bool wild)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t b = noise();
        if (t == SK_U8) ((uint8_t *)p)[i] = (uint8_t)(b % 12); /* twenty of them fit */
        else if (!wild || t == SK_I32 || t == SK_I64 || t == SK_F64)
            put(t, p, i, (int)(b % 2001) - 1000);
        else memcpy(p + (size_t)i * sk_dtype_size(t), &b, sk_dtype_size(t));
    }
}

static bool same_or_nan(sk_dtype t, const char *a, const char *b)
{
    double x = 0, y = 0;
    if (!memcmp(a, b, sk_dtype_size(t))) return true;
    sk_convert(&x, SK_F64, a, t, 1);
    sk_convert(&y, SK_F64, b, t, 1);
    return x != x && y != y;
}

static void kernel_case(sk_dtype t, sk_reduce op, int n_src, int64_t n, bool wild)
{
    enum { MOST = 20, ROOM = 300 * 8 };
    static char buf[MOST + 1][ROOM], want[ROOM];
    const void *src[MOST];
    void *dst[2] = {buf[MOST], buf[0]}; /* buf[0] in place */
    size_t size = sk_dtype_size(t);
    bool good = true;
    for (int k = 0; k < n_src; k++) {
        src[k] = buf[k];
        scatter_bits(t, buf[k], n, wild);
    }
    memset(buf[MOST], 0x5a, ROOM);
    for (int64_t i = 0; i < n; i++) sum_slowly(t, op, n_src, src, i, want + (size_t)i * size);
    sk_sum(t, op, n_src, src, 2, dst, n);
    for (size_t at = 0; at < (size_t)n * size; at += size)
        good = good && same_or_nan(t, want + at, buf[MOST] + at) &&
               !memcmp(buf[0] + at, buf[MOST] + at, size);
    if (!CHECK(good && buf[MOST][(size_t)n * size] == 0x5a))
        fprintf(stderr, "  %s op %d, %d sources, %lld elements\n", sk_dtype_name(t), (int)op, n_src,
                (long long)n);
}

static void test_kernels(void)
{
    job_name = "kernels";
    for (int t = 0; t < SK_N_DTYPES; t++)
        for (int op = 0; op < SK_ADASUM; op++)
            for (int k = 1; k <= 20; k++)
                for (int64_t n = 0; n < 290; n += 1 + n / 12)
                    kernel_case((sk_dtype)t, (sk_reduce)op, k, n, n % 2);
    CHECK(sk_sum_can(SK_BF16, SK_SUM) && !sk_sum_can(SK_F32, SK_ADASUM));
}

static void test_ranks(bool processes)
{
    static const int counts[] = {1, 2, 3, 4, 5, 8};
    for (int i = 0; i < 6; i++) {
        int n = counts[i];
        run_good("every case", n, processes, every_case);
        run_good("in flight", n, processes, in_flight);
        run_good("order", n, processes, order_and_bits);
        run_good("ring", n, processes, ring_of_messages);
        run_good("barriers", n, processes, barriers);
    }
    run_good("flood", 2, processes, flood);
    if (processes) return;
    run_good("many order", MAX_RANKS, processes, order_and_bits);
    run_good("many barriers", MAX_RANKS, processes, barriers);
}

int main(void)
{
    tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tally == MAP_FAILED) return 1;
    signal(SIGALRM, too_late);
    alarm(DEADLINE_S);
    test_kernels();
    for (int processes = 0; processes < 2; processes++) {
        test_heaps(processes);
        test_ranks(processes);
        test_failures(processes);
    }
    long long bad = atomic_load(&tally->bad);
    printf("comm: %lld checks, %lld bad\n", (long long)atomic_load(&tally->checks), bad);
    return bad != 0;
}
