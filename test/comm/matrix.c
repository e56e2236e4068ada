/* matrix.c - every collective, by every algorithm that can, on every way there is.
 *
 * Ranks are threads, processes, threads on several hosts with a wire between them
 * (test/lib/office.h), or what an MPI started (test/mpi/matrix.sh):
 *
 *     comm_matrix                  threads, processes, hosts
 *     comm_matrix openmpi|mpich    this process is one rank, and each rank a host
 *
 * Inputs are small integers, so that results are exact in every type and order; sums in
 * the order of the tree are tested with numbers that do not add up, against sk_sum().
 * Type, reduction, shape and place change from case to case, so that each meets each; what is
 * cut is cut evenly and by cells, and an all-to-all also exchanges two dims, both ways.
 * Output: what is wrong, then "matrix: N cases, N wrong". */
#include "comm/heap.h"
#include "coll/execute.h"
#include "coll/sum_kernels.h"
#include "coll/adasum_kernel.h"
#include "lib/office.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SLOW 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SLOW 1
#endif
#endif
#ifndef SLOW
#define SLOW 0
#endif

enum { DEADLINE_S = 200, HEAP = 6 << 20, PERIOD = 24, GUARD = 64, MAX_RANKS = 32, SEGS = 3 };
enum { ALL, REVERSED, N_GROUPS };

static struct tally {
    atomic_llong cases, wrong;
} * tally; /* in shared memory: processes count too */

static void too_late(int sig)
{
    (void)sig;
    static const char text[] = "matrix: a job ran past its deadline\n";
    ssize_t n = write(2, text, sizeof text - 1);
    _exit(n < 0 ? 2 : 1);
}

/* --- one rank --- */

typedef struct rank_ctx {
    void (*todo)(struct rank_ctx *c);
    sk_heaps *heaps;
    sk_comm *comm;
    sk_wire *wire;
    const int *host_of;
    const sk_links *links; /* NULL: alike */
    const char *name;
    int rank, n;
    char *heap;
    int64_t used;
    bool failed;
} rank_ctx;

typedef struct trial { /* one case of the matrix */
    sk_coll_kind kind;
    int algorithm, group, root, n_segs, salt;
    sk_dtype type;
    sk_reduce reduce;
    bool in_place;
    int sparse; /* so many elements of PERIOD are not zero, others on each member; 0: all */
    bool room;  /* and the call says how many that makes */
    uint64_t degrees;
    int64_t dims[SEGS][3];
    sk_swap swap;
    int cells;                            /* 1: n is cut by cells, 2: n2, 3: both */
    int64_t more[SEGS][2];                /* mid, n2 */
    sk_grid grid[SEGS][2];                /* of n and n2 */
    int64_t edge[SEGS][2][MAX_RANKS + 1]; /* where the parts of n and n2 begin */
} trial;

typedef struct made { /* a trial on one rank */
    sk_coll_call *call;
    int p, me;
    int64_t src_bytes[SEGS], dst_bytes[SEGS];
    char *src_copy[SEGS];
} made;

static char *take(rank_ctx *c, int64_t bytes)
{
    char *p = c->heap + c->used;
    c->used += (bytes + GUARD + 63) / 64 * 64;
    sk_assert(c->used <= sk_heap_bytes(c->heaps, c->rank));
    return p;
}

static int me_in(const rank_ctx *c, int group)
{
    return group == REVERSED ? c->n - 1 - c->rank : c->rank;
}

static bool wrong(rank_ctx *c, const trial *t, const char *what, long long at)
{
    if (atomic_fetch_add(&tally->wrong, 1) < 20)
        fprintf(stderr,
                "%s, rank %d of %d: %s by %s of %s, reduction %d, %s place, swap %d, cells %d, "
                "%d segments [%lld][%lld][%lld], root %d: %s at %lld %s\n",
                c->name, c->rank, c->n, sk_coll_names[t->kind], sk_coll_parts[t->algorithm]->name,
                sk_dtype_name(t->type), (int)t->reduce, t->in_place ? "in" : "out of", (int)t->swap,
                t->cells, t->n_segs, (long long)t->dims[0][0], (long long)t->dims[0][1],
                (long long)t->dims[0][2], t->root, what, at, sk_error());
    return false;
}

/* --- numbers --- */

static void put(sk_dtype t, void *p, int64_t i, double x)
{
    float f = (float)x;
    if (t == SK_F32) ((float *)p)[i] = f;
    else if (t == SK_F64) ((double *)p)[i] = x;
    else if (t == SK_I32) ((int32_t *)p)[i] = (int32_t)x;
    else if (t == SK_I64) ((int64_t *)p)[i] = (int64_t)x;
    else if (t == SK_U8) ((uint8_t *)p)[i] = (uint8_t)x;
    else sk_convert((uint16_t *)p + i, t, &f, SK_F32, 1);
}

/* Element e of the buffer of member k; repeats every PERIOD elements. */
static int value(const trial *t, int k, int64_t e)
{
    int m = (int)(e % PERIOD);
    if (t->swap) return (int)((uint64_t)(e + t->salt) * 0x9E3779B97F4A7C15u >> 40) % 113 + k % 8;
    if (t->reduce == SK_ADASUM) k = 0; /* alike on all: then it has no effect */
    if (t->sparse && (m + 7 * k) % PERIOD >= t->sparse) return 0;
    int x = (m * 5 + k * 3 + t->salt) % 7;
    return t->type == SK_U8 ? x : x - 3;
}

static double reduced(const trial *t, int p, int64_t e)
{
    int sum = 0, most = -100, least = 100;
    for (int k = 0; k < p; k++) {
        int x = value(t, k, e);
        sum += x;
        most = x > most ? x : most;
        least = x < least ? x : least;
    }
    if (t->reduce == SK_ADASUM) return most;
    if (t->reduce == SK_MAXIMUM) return most;
    if (t->reduce == SK_MINIMUM) return least;
    if (t->reduce == SK_SUM) return sum;
    if (t->type == SK_F64) return (double)sum / p;
    if (t->type == SK_I32 || t->type == SK_I64 || t->type == SK_U8) return sum / p;
    return (double)((float)sum / (float)p);
}

/* --- what a member gives and gets --- */

/* Which of p members has cell c of [from, to): half of them, as the tree goes, have half of it. */
static int cell_owner(int c, int from, int to, int p)
{
    int left = 1, half = from + (to - from) / 2;
    if (p == 1 || to - from == 1) return 0;
    while (2 * left < p) left *= 2;
    return c < half ? cell_owner(c, from, half, left) : left + cell_owner(c, half, to, p - left);
}

static int row_owner(const sk_grid *g, int64_t row, int p)
{
    int c = g->from;
    int64_t at = row + g->full * g->from / g->cells;
    while (g->full * (c + 1) / g->cells <= at) c++;
    return cell_owner(c, g->from, g->to, p);
}

static void find_edges(const sk_grid *g, int64_t n, int p, int64_t *edge)
{
    for (int k = 0; k <= p; k++) edge[k] = g->cells ? 0 : n * k / p;
    for (int64_t row = 0; g->cells && row < n; row++) edge[row_owner(g, row, p) + 1]++;
    for (int k = 0; g->cells && k < p; k++) edge[k + 1] += edge[k];
}

static int64_t part_of(const trial *t, int i, int k)
{
    return t->edge[i][0][k + 1] - t->edge[i][0][k];
}

/* Where in the whole buffer element j of member k's dense part lies. */
static int64_t whole_at(const trial *t, int i, int k, int64_t j)
{
    int64_t inner = t->dims[i][2], run = part_of(t, i, k) * inner;
    return j / run * t->dims[i][1] * inner + t->edge[i][0][k] * inner + j % run;
}

/* An exchange: which dim is split in my source, or my result. */
static int split_dim(const trial *t, bool out) { return (t->swap == SK_SWAP_N_N2) == out; }

static int64_t box_count(const trial *t, int i, int me, bool out)
{
    const int64_t *edge = t->edge[i][split_dim(t, out)];
    int64_t other = split_dim(t, out) ? t->dims[i][1] : t->more[i][1];
    return t->dims[i][0] * t->dims[i][2] * t->more[i][0] * other * (edge[me + 1] - edge[me]);
}

/* Of element j of it: the place in the whole tensor; and who had it before. */
static int64_t box_place(const trial *t, int i, int me, bool out, int64_t j, int *owner)
{
    int d = split_dim(t, out), b = split_dim(t, false), k = 0;
    int64_t size[2] = {t->dims[i][1], t->more[i][1]}, box[2] = {size[0], size[1]}, at[2];
    int64_t inner = t->dims[i][2], mid = t->more[i][0], z = j % inner, m;
    box[d] = t->edge[i][d][me + 1] - t->edge[i][d][me];
    j /= inner, at[1] = j % box[1];
    j /= box[1], m = j % mid;
    j /= mid, at[0] = j % box[0];
    at[d] += t->edge[i][d][me];
    while (t->edge[i][b][k + 1] <= at[b]) k++;
    *owner = k;
    return (((j / box[0] * size[0] + at[0]) * mid + m) * size[1] + at[1]) * inner + z;
}

static bool part_in(sk_coll_kind k) { return k == SK_ALLGATHER || k == SK_GATHER; }
static bool part_out(sk_coll_kind k) { return k == SK_REDUCE_SCATTER || k == SK_SCATTER; }

static bool gives(const trial *t, int me)
{
    return me == t->root || (t->kind != SK_BROADCAST && t->kind != SK_SCATTER);
}

static bool gets(const trial *t, int me)
{
    return me == t->root || (t->kind != SK_REDUCE && t->kind != SK_GATHER);
}

static int64_t src_count(const trial *t, int i, int me, int p)
{
    const int64_t *dims = t->dims[i];
    if (t->swap) return box_count(t, i, me, false);
    if (t->kind == SK_ALLTOALLV) return p * dims[1] * dims[2];
    return dims[0] * (part_in(t->kind) ? part_of(t, i, me) : dims[1]) * dims[2];
}

static int64_t dst_count(const trial *t, int i, int me, int p)
{
    const int64_t *dims = t->dims[i];
    if (t->swap) return box_count(t, i, me, true);
    if (t->kind == SK_ALLTOALLV) return p * dims[1] * dims[2];
    if (t->kind == SK_ALLTOALL) return p * dims[0] * part_of(t, i, me) * dims[2];
    return dims[0] * (part_out(t->kind) ? part_of(t, i, me) : dims[1]) * dims[2];
}

static int64_t rows_to(const trial *t, int from, int to, int64_t n)
{
    return (from * 7 + to * 3 + t->salt) % (n + 1);
}

/* Where element j of my source comes from, as a place in the whole. */
static int64_t src_place(const trial *t, int i, int me, int64_t j)
{
    int owner;
    if (t->swap) return box_place(t, i, me, false, j, &owner);
    return part_in(t->kind) ? whole_at(t, i, me, j) : j;
}

/* What element j of my result must be; NAN: it was not written. */
static double want_at(const trial *t, int i, int me, int p, int64_t j)
{
    const int64_t *dims = t->dims[i];
    int owner = 0;
    switch (t->kind) {
    case SK_REDUCE_SCATTER:
        return reduced(t, p, whole_at(t, i, me, j));
    case SK_SCATTER:
        return value(t, t->root, whole_at(t, i, me, j));
    case SK_BROADCAST:
        return value(t, t->root, j);
    case SK_ALLGATHER:
    case SK_GATHER:
        for (int k = 0; k < p; k++)
            if (j / dims[2] % dims[1] < t->edge[i][0][k + 1]) return value(t, k, j);
        return 0;
    case SK_ALLTOALL: {
        if (t->swap) j = box_place(t, i, me, true, j, &owner);
        if (t->swap) return value(t, owner, j);
        int64_t part = dims[0] * part_of(t, i, me) * dims[2];
        return value(t, (int)(j / part), whole_at(t, i, me, j % part));
    }
    case SK_SCAN:
        return reduced(t, me + 1, j);
    case SK_ALLTOALLV: {
        int64_t block = dims[1] * dims[2], from = j / block, at = j % block;
        if (at >= rows_to(t, (int)from, me, dims[1]) * dims[2]) return 1e9;
        return value(t, (int)from, me * block + at);
    }
    default:
        return reduced(t, p, j);
    }
}

/* --- one case: made, filled, checked --- */

static void place_seg(rank_ctx *c, const trial *t, made *m, int i)
{
    sk_seg *s = &m->call->segs[i];
    int64_t size = (int64_t)sk_dtype_size(t->type);
    *s = (sk_seg){.outer = t->dims[i][0],
                  .n = t->dims[i][1],
                  .inner = t->dims[i][2],
                  .cut = t->grid[i][0],
                  .swap = t->swap,
                  .mid = t->more[i][0],
                  .n2 = t->more[i][1],
                  .cut2 = t->grid[i][1]};
    m->src_bytes[i] = src_count(t, i, m->me, m->p) * size;
    m->dst_bytes[i] = dst_count(t, i, m->me, m->p) * size;
    int64_t most = m->src_bytes[i] > m->dst_bytes[i] ? m->src_bytes[i] : m->dst_bytes[i];
    int64_t before = t->edge[i][0][m->me] * s->inner * size;
    bool fits = s->outer == 1 || !(part_in(t->kind) || part_out(t->kind));
    char *src = take(c, most), *dst = src;
    if (!t->in_place || !fits || sk_kind_blocks(t->kind)) dst = take(c, most);
    else if (part_in(t->kind)) src += before;
    else if (part_out(t->kind)) dst += before;
    s->src = src - c->heap;
    s->dst = dst - c->heap;
}

static void fill_seg(rank_ctx *c, const trial *t, made *m, int i)
{
    const sk_seg *s = &m->call->segs[i];
    int64_t size = (int64_t)sk_dtype_size(t->type), n = m->src_bytes[i] / size;
    memset(c->heap + s->dst, 0x5a, (size_t)(m->dst_bytes[i] + GUARD));
    for (int64_t j = 0; gives(t, m->me) && j < n; j++)
        put(t->type, c->heap + s->src, j, value(t, m->me, src_place(t, i, m->me, j)));
    m->src_copy[i] = NULL;
    if (s->src == s->dst ||
        (s->src < s->dst + m->dst_bytes[i] && s->dst < s->src + m->src_bytes[i]))
        return;
    m->src_copy[i] = take(c, m->src_bytes[i]);
    memcpy(m->src_copy[i], c->heap + s->src, (size_t)m->src_bytes[i]);
}

static void make(rank_ctx *c, trial *t, made *m)
{
    const sk_coll *a = sk_coll_parts[t->algorithm];
    int ranks[MAX_RANKS];
    sk_coll_ask ask;
    m->p = c->n;
    m->me = me_in(c, t->group);
    m->call = (void *)take(c, (int64_t)(sizeof *m->call + SEGS * sizeof(sk_seg)));
    *m->call = (sk_coll_call){.id = 1000 + t->salt,
                              .kind = t->kind,
                              .reduce = t->reduce,
                              .type = t->type,
                              .group = t->group,
                              .n_segs = t->n_segs,
                              .algorithm = t->algorithm,
                              .degrees = t->degrees,
                              .root = t->root};
    for (int i = 0; i < t->n_segs; i++) {
        find_edges(&t->grid[i][0], t->dims[i][1], c->n, t->edge[i][0]);
        find_edges(&t->grid[i][1], t->more[i][1], c->n, t->edge[i][1]);
        place_seg(c, t, m, i);
    }
    for (int i = 0; i < t->n_segs; i++) fill_seg(c, t, m, i);
    for (int i = 0; i < c->n; i++) ranks[i] = t->group == REVERSED ? c->n - 1 - i : i;
    sk_coll_ask_for(t->kind, ranks, c->n, m->me, t->root, c->host_of, c->links, &ask);
    ask.degrees = t->degrees;
    for (int i = 0; t->room && i < t->n_segs; i++)
        m->call->rows += (t->dims[i][0] * t->dims[i][1] * t->dims[i][2] / PERIOD + 1) * t->sparse;
    ask.rows = m->call->rows;
    m->call->workspace_bytes = sk_coll_workspace(a, &ask, t->type, m->call->segs, t->n_segs);
    m->call->workspace = take(c, m->call->workspace_bytes) - c->heap;
    memset(c->heap + m->call->workspace, 0xa5, (size_t)m->call->workspace_bytes + GUARD);
    int64_t *counts = (void *)take(c, 2 * c->n * 8);
    m->call->counts = (char *)counts - c->heap;
    for (int j = 0; t->kind == SK_ALLTOALLV && j < c->n; j++)
        counts[j] = rows_to(t, m->me, j, t->dims[0][1]), counts[c->n + j] = -1;
}

static bool guarded(const char *p)
{
    for (int i = 0; i < GUARD; i++)
        if (p[i] != p[0]) return false;
    return p[0] == 0x5a || (unsigned char)p[0] == 0xa5;
}

static bool check_values(rank_ctx *c, const trial *t, const made *m, int i)
{
    const sk_seg *s = &m->call->segs[i];
    int64_t size = (int64_t)sk_dtype_size(t->type), n = m->dst_bytes[i] / size;
    const char *dst = c->heap + s->dst;
    bool repeats = t->kind == SK_ALLREDUCE || t->kind == SK_REDUCE || t->kind == SK_BROADCAST;
    double want[PERIOD];
    for (int e = 0; repeats && e < PERIOD; e++) want[e] = want_at(t, i, m->me, m->p, e);
    for (int64_t j = 0; gets(t, m->me) && j < n; j++) {
        char right[8];
        double x = repeats ? want[j % PERIOD] : want_at(t, i, m->me, m->p, j);
        if (x > 1e8) memset(right, 0x5a, sizeof right);
        else put(t->type, right, 0, x);
        if (memcmp(dst + j * size, right, (size_t)size)) return wrong(c, t, "element", j);
    }
    return true;
}

static bool check_seg(rank_ctx *c, const trial *t, const made *m, int i)
{
    const sk_seg *s = &m->call->segs[i];
    if (!check_values(c, t, m, i)) return false;
    bool whole = !part_out(t->kind) || s->dst < s->src || s->dst > s->src + m->src_bytes[i];
    if (gets(t, m->me) && whole && !guarded(c->heap + s->dst + m->dst_bytes[i]))
        return wrong(c, t, "written behind DST", m->dst_bytes[i]);
    if (m->src_copy[i] && memcmp(m->src_copy[i], c->heap + s->src, (size_t)m->src_bytes[i]))
        return wrong(c, t, "SRC was written", 0);
    return true;
}

static bool check_case(rank_ctx *c, const trial *t, const made *m)
{
    bool good = true;
    for (int i = 0; good && i < t->n_segs; i++) good = check_seg(c, t, m, i);
    if (good && !guarded(c->heap + m->call->workspace + m->call->workspace_bytes))
        good = wrong(c, t, "written behind the workspace", m->call->workspace_bytes);
    const int64_t *counts = (const void *)(c->heap + m->call->counts);
    for (int i = 0; good && t->kind == SK_ALLTOALLV && i < c->n; i++)
        if (counts[c->n + i] != rows_to(t, i, m->me, t->dims[0][1])) good = wrong(c, t, "count", i);
    if (c->rank == 0) atomic_fetch_add(&tally->cases, 1);
    return good;
}

/* --- running cases --- */

static sk_status finish(rank_ctx *c, const sk_coll_call *call, int how)
{
    bool done = how % 3 != 1;
    if (how % 3 == 2) SK_TRY(sk_comm_progress(c->comm));
    while (!done) { /* others may wait for what I do in another call */
        SK_TRY(sk_comm_progress(c->comm));
        SK_TRY(sk_comm_test(c->comm, call, &done));
        if (!done) usleep(20);
        sk_status code = SK_OK;
        if (sk_heaps_aborted(c->heaps, &code, NULL, NULL)) return code;
    }
    return sk_comm_wait(c->comm, call);
}

/* Bytes that an all-to-all must send to members of other hosts. */
static int64_t leaving(const rank_ctx *c, const trial *t, int me)
{
    int64_t n = 0;
    for (int k = 0; k < c->n; k++) {
        int rank = t->group == REVERSED ? c->n - 1 - k : k;
        if (c->host_of[rank] == c->host_of[c->rank]) continue;
        for (int i = 0; i < t->n_segs; i++) {
            int64_t part =
                t->dims[i][0] * t->dims[i][2] * part_of(t, i, t->swap == SK_SWAP_N_N2 ? me : k);
            const int64_t *edge = &t->edge[i][1][t->swap == SK_SWAP_N_N2 ? k : me];
            n += t->swap ? part * t->more[i][0] * (edge[1] - edge[0]) : part;
        }
    }
    return n * (int64_t)sk_dtype_size(t->type);
}

/* Only the parts of others leave a member, if nobody passes them on. */
static bool check_sent(rank_ctx *c, const trial *t, const made *m, int64_t before)
{
    const char *name = sk_coll_parts[t->algorithm]->name;
    int64_t sent = sk_office_sent(c->wire) - before;
    if (t->kind != SK_ALLTOALL || before < 0 || !strcmp(name, "bruck")) return true;
    return sent == leaving(c, t, m->me) || wrong(c, t, "bytes sent", sent);
}

/* What is planned of a list: bytes that it sends, to members of this host and of others. */
static bool check_counted(rank_ctx *c, const trial *t, const made *m, int64_t before)
{
    const sk_coll *a = t->algorithm >= 0 ? sk_coll_parts[t->algorithm] : NULL;
    int64_t sent = sk_comm_bytes_sent(c->comm) - before;
    int ranks[MAX_RANKS];
    sk_coll_ask ask;
    if (!a || !a->build || a->native || a->packs || t->kind == SK_ALLTOALLV || c->n < 2)
        return true;
    for (int i = 0; i < c->n; i++) ranks[i] = t->group == REVERSED ? c->n - 1 - i : i;
    sk_coll_ask_for(t->kind, ranks, c->n, m->me, t->root, c->host_of, c->links, &ask);
    ask.degrees = t->degrees;
    return sent == sk_coll_sent(a, &ask, t->type, m->call->segs, t->n_segs) ||
           wrong(c, t, "bytes counted", sent);
}

static bool run_case(rank_ctx *c, trial *t)
{
    made m;
    int64_t sent = sk_office_sent(c->wire), counted = sk_comm_bytes_sent(c->comm);
    c->used = 0;
    make(c, t, &m);
    sk_status st = sk_comm_start(c->comm, m.call);
    if (!st) st = finish(c, m.call, t->salt);
    if (st) {
        c->failed = true;
        return st == SK_EPEER ? false : wrong(c, t, "failed", st);
    }
    return check_case(c, t, &m) && check_sent(c, t, &m, sent) && check_counted(c, t, &m, counted);
}

static bool can(const rank_ctx *c, const trial *t)
{
    int ranks[MAX_RANKS];
    const sk_coll *a = sk_coll_parts[t->algorithm];
    sk_coll_ask ask;
    if (a->native && (a->build ? c->wire != NULL : !c->wire || !c->wire->native)) return false;
    if (a->adasum && c->n == 1) return false; /* done in the heap, which has no Adasum */
    for (int i = 0; i < c->n; i++) ranks[i] = i;
    sk_coll_ask_for(t->kind, ranks, c->n, c->rank, t->root, c->host_of, c->links, &ask);
    ask.degrees = t->degrees;
    return sk_coll_can(a, &ask);
}

/* Some degrees that n members can have, or none. */
static uint64_t some_degrees(const rank_ctx *c, const trial *t, int k)
{
    static const char *const all[] = {"2x2", "4x2", "2x3", "4",   "2x2x2",
                                      "3",   "8",   "4x3", "3x2", "5"};
    trial one = *t;
    for (int i = 0; sk_coll_parts[t->algorithm]->degrees && k % 3 && i < 10; i++)
        if (sk_degrees_read(all[(i + k) % 10], &one.degrees) && can(c, &one)) return one.degrees;
    return 0;
}

/* n rows that are all cells of a dim, or its second half, or its first. */
static sk_grid some_grid(int64_t n, int k)
{
    static const int32_t cells[] = {1, 2, 8, 64};
    int32_t c = cells[k % 4];
    if (k % 3 == 0) return (sk_grid){.full = n, .cells = c, .from = 0, .to = c};
    if (k % 3 == 1) return (sk_grid){.full = 2 * n, .cells = 2 * c, .from = c, .to = 2 * c};
    return (sk_grid){.full = 2 * n + 1, .cells = 2 * c, .from = 0, .to = c};
}

static void vary_cuts(const rank_ctx *c, trial *t, int i, int k)
{
    const int64_t sizes[] = {c->n, 1, c->n + 3, 0, 2 * c->n, c->n - 1, 7};
    static const int64_t mids[] = {1, 2, 5, 1};
    if (t->swap && t->dims[i][1] > 200) t->dims[i][1] = 200;
    t->more[i][0] = t->swap ? mids[k % 4] : 0;
    t->more[i][1] = t->swap ? sizes[k % 7] : 0;
    t->grid[i][0] = t->cells & 1 ? some_grid(t->dims[i][1], k) : (sk_grid){0};
    t->grid[i][1] = t->cells & 2 ? some_grid(t->more[i][1], k / 2) : (sk_grid){0};
}

/* Type, reduction and shape of the k-th case. */
static void vary(const rank_ctx *c, trial *t, int64_t n, int k)
{
    static const sk_dtype types[] = {SK_F32, SK_BF16, SK_F16, SK_F64, SK_I32, SK_U8, SK_I64};
    static const sk_reduce reduces[] = {SK_SUM, SK_MEAN, SK_MAXIMUM, SK_MINIMUM};
    const sk_coll *a = sk_coll_parts[t->algorithm];
    t->type = types[k % 7];
    t->reduce = reduces[k % 4];
    if (a->adasum) t->reduce = SK_ADASUM;
    if (a->adasum && !sk_adasum_can(t->type)) t->type = SK_F32;
    if (a->native && sk_kind_sums(t->kind) && (t->type == SK_BF16 || t->type == SK_F16))
        t->type = SK_F64;
    t->salt = k;
    t->root = k % c->n;
    t->sparse = !a->packs || k % 3 == 0 ? 0 : k % 2 ? PERIOD / 3 : 1;
    t->room = t->sparse && k % 4 < 2;
    t->degrees = 0;
    t->degrees = some_degrees(c, t, k);
    t->n_segs = t->kind == SK_ALLTOALLV ? 1 : 1 + (k % 5 == 4) * (1 + k % 2);
    for (int i = 0; i < t->n_segs; i++) {
        int64_t inner = k % 3 == 2 && n % 4 == 0 ? 4 : 1;
        int64_t outer = k % 4 == 3 && t->kind != SK_ALLTOALLV ? 3 : 1;
        t->dims[i][0] = outer;
        t->dims[i][1] = i == 1 ? n / 2 : n / inner;
        t->dims[i][2] = inner;
    }
    if (t->kind == SK_ALLTOALLV && t->dims[0][1] > 300) t->dims[0][1] = 300;
    for (int i = 0; i < t->n_segs; i++) vary_cuts(c, t, i, k + i);
}

static bool is_cut(sk_coll_kind kind)
{
    return part_in(kind) || part_out(kind) || kind == SK_ALLTOALL;
}

/* One size and place: cut evenly, by cells, and as an exchange. */
static bool run_cuts(rank_ctx *c, trial *t, int64_t n, int *k)
{
    int swaps = t->kind == SK_ALLTOALL ? 3 : 1;
    for (int swap = 0; swap < swaps; swap++)
        for (int cells = 0; cells < (swap ? 4 : is_cut(t->kind) ? 2 : 1); cells++) {
            t->swap = (sk_swap)swap;
            t->cells = cells;
            vary(c, t, n, (*k)++);
            t->group = *k % 4 ? ALL : REVERSED;
            if (!run_case(c, t) && c->failed) return false;
        }
    return true;
}

static bool run_algorithm(rank_ctx *c, sk_coll_kind kind, int algorithm, int every)
{
    const int64_t sizes[] = {0, 1, c->n - 1, c->n, c->n + 1, 17, 1000, 4099};
    static _Thread_local int k;
    trial t = {.kind = kind, .algorithm = algorithm};
    if (!can(c, &t)) return true;
    for (int s = 0; s < 8; s++)
        for (int place = 0; place < 2; place++) {
            if ((s + place + (int)kind + algorithm) % every) continue;
            t.in_place = place;
            if (!run_cuts(c, &t, sizes[s], &k)) return false;
        }
    return true;
}

static void run_matrix(rank_ctx *c, int every)
{
    for (int kind = 0; kind < SK_N_COLLS; kind++)
        for (int a = 0; sk_coll_parts[a]; a++)
            if (!run_algorithm(c, (sk_coll_kind)kind, a, every)) return;
}

/* --- the order of sums --- */

static float uneven(int k, int64_t e) { return 1.0f / (float)(1 + (e * 7 + k * 31) % 1013); }

/* What sk_sum makes of all members' vectors. */
static void sum_tree(rank_ctx *c, int64_t n, float *want)
{
    const void *src[MAX_RANKS];
    for (int k = 0; k < c->n; k++) {
        float *x = (void *)take(c, n * 4);
        for (int64_t e = 0; e < n; e++) x[e] = uneven(k, e);
        src[k] = x;
    }
    void *dst[] = {want};
    sk_sum(SK_F32, SK_SUM, c->n, src, 1, dst, n);
}

static bool run_order(rank_ctx *c, int algorithm, uint64_t degrees, int64_t n)
{
    trial t = {.kind = SK_ALLREDUCE,
               .algorithm = algorithm,
               .type = SK_F32,
               .in_place = algorithm % 2,
               .n_segs = 1,
               .salt = 7777,
               .degrees = degrees,
               .dims = {{1, n, 1}}};
    sk_coll_ask ask = {.kind = t.kind, .n = c->n, .degrees = degrees};
    if (sk_coll_order(sk_coll_parts[algorithm], &ask) != SK_ORDER_TREE || !can(c, &t)) return true;
    made m;
    c->used = 0;
    make(c, &t, &m);
    float *x = (void *)(c->heap + m.call->segs[0].src), *want = (void *)take(c, n * 4);
    for (int64_t e = 0; e < n; e++) x[e] = uneven(m.me, e);
    sum_tree(c, n, want);
    if (sk_comm_start(c->comm, m.call) || sk_comm_wait(c->comm, m.call)) {
        c->failed = true;
        return wrong(c, &t, "failed", 0);
    }
    if (c->rank == 0) atomic_fetch_add(&tally->cases, 1);
    if (memcmp(c->heap + m.call->segs[0].dst, want, (size_t)n * 4))
        return wrong(c, &t, "not the order of the tree", n);
    return true;
}

static void run_orders(rank_ctx *c)
{
    for (int a = 0; sk_coll_parts[a] && !c->failed; a++) {
        const uint64_t degrees[] = {0, 0x0204, 0x0402, 0x020202, 0x0304, 0x0302, 0x04};
        for (int d = 0; d < 7 && !c->failed; d++)
            if (!d || sk_coll_parts[a]->degrees) run_order(c, a, degrees[d], 1000);
    }
}

/* --- several at once --- */

/* Calls on two groups with the same members, started and waited for in another order by every
 * second rank. */
static void run_flight(rank_ctx *c, int k)
{
    enum { N = 6 };
    trial t[N] = {0};
    made m[N];
    int parts = 0;
    c->used = 0;
    while (sk_coll_parts[parts]) parts++;
    for (int i = 0; i < N; i++) {
        t[i].kind = (sk_coll_kind)((i * 5 + k) % SK_ALLTOALLV);
        do t[i].algorithm = k++ % parts;
        while (!can(c, &t[i]) || sk_coll_parts[t[i].algorithm]->native);
        t[i].swap = t[i].kind == SK_ALLTOALL ? (sk_swap)(k % 3) : SK_NO_SWAP;
        t[i].cells = is_cut(t[i].kind) ? k % 4 : 0;
        vary(c, &t[i], 300 + 77 * i, k);
        t[i].group = i % 2 ? ALL : REVERSED;
        make(c, &t[i], &m[i]);
    }
    for (int i = 0; i < N; i++) {
        int at = c->rank % 2 ? i ^ 1 : i;
        if (sk_comm_start(c->comm, m[at].call)) c->failed = true;
    }
    for (int i = 0; i < N && !c->failed; i++) {
        int at = c->rank % 3 == 1 ? i ^ 1 : i;
        if (finish(c, m[at].call, k + i)) c->failed = true;
    }
    for (int i = 0; i < N && !c->failed; i++) check_case(c, &t[i], &m[i]);
    if (c->failed) wrong(c, &t[0], "several at once failed", k);
}

/* --- messages --- */

static void run_messages(rank_ctx *c, int64_t bytes)
{
    char *out = take(c, bytes), *in = take(c, bytes);
    int next = (c->rank + 1) % c->n, last = (c->rank + c->n - 1) % c->n;
    trial t = {.kind = SK_GATHER, .n_segs = 1};
    sk_status st = SK_OK;
    if (c->n == 1) return;
    for (int round = 0; round < 3 && !st; round++) {
        memset(out, c->rank + round, (size_t)bytes);
        st = sk_comm_send(c->comm, next, 100 + round, out, bytes);
        if (!st) st = sk_comm_recv(c->comm, last, 100 + round, in, bytes);
        if (!st) st = sk_comm_sent(c->comm, next, 1);
        if (!st) st = sk_comm_barrier(c->comm);
        for (int64_t i = 0; !st && i < bytes; i++)
            if (in[i] != (char)(last + round)) wrong(c, &t, "message", i), i = bytes;
    }
    c->failed = st != SK_OK;
    if (c->rank == 0) atomic_fetch_add(&tally->cases, 1);
    if (st) wrong(c, &t, "messages failed", bytes);
}

/* --- what must fail --- */

/* A ring of f32 whose call is not the same on all, or whose workspace is too small. */
static sk_status run_bad(rank_ctx *c, int64_t id, int64_t less_workspace)
{
    trial t = {.kind = SK_ALLREDUCE, .algorithm = sk_coll_find("ring"), .n_segs = 1};
    made m;
    t.dims[0][0] = t.dims[0][2] = 1;
    t.dims[0][1] = 1000;
    make(c, &t, &m);
    m.call->id = id;
    m.call->workspace_bytes -= less_workspace;
    SK_TRY(sk_comm_start(c->comm, m.call));
    return sk_comm_wait(c->comm, m.call);
}

static void differ(rank_ctx *c) { c->failed = run_bad(c, c->rank == 1, 0) != SK_OK; }
static void squeeze(rank_ctx *c) { c->failed = run_bad(c, 7, c->rank == 1 ? 100 : 0) != SK_OK; }

/* --- ranks --- */

static int every = 1;

static void whole_matrix(rank_ctx *c)
{
    run_matrix(c, every);
    if (!c->failed) run_orders(c);
    for (int k = 0; k < 6 && c->n > 1 && !c->failed; k++) run_flight(c, 11 * k + c->n);
    c->used = 0;
    if (!c->failed) run_messages(c, 100);
    if (!c->failed) run_messages(c, 100000);
    if (!c->failed && sk_comm_barrier(c->comm)) wrong(c, &(trial){0}, "barrier", 0);
}

static void work(rank_ctx *c)
{
    int ids[N_GROUPS][MAX_RANKS];
    sk_group g[N_GROUPS] = {{c->n, c->rank, ids[ALL]}, {c->n, c->n - 1 - c->rank, ids[REVERSED]}};
    for (int i = 0; i < c->n; i++) ids[ALL][i] = i, ids[REVERSED][i] = c->n - 1 - i;
    sk_comm_opts o = {.rank = c->rank,
                      .groups = g,
                      .n_groups = N_GROUPS,
                      .timeout_s = 60,
                      .wire = c->wire,
                      .host_of = c->host_of,
                      .links = c->links};
    c->heap = sk_heap_base(c->heaps, c->rank);
    if (sk_comm_open(c->heaps, &o, &c->comm)) {
        wrong(c, &(trial){0}, "cannot open", 0);
        return;
    }
    c->todo(c);
    sk_comm_close(c->comm);
}

static void *run_rank(void *arg)
{
    work(arg);
    return NULL;
}

static void run_threads(rank_ctx *c, int n)
{
    pthread_t t[MAX_RANKS];
    for (int r = 0; r < n; r++) sk_assert(!pthread_create(&t[r], NULL, run_rank, &c[r]));
    for (int r = 0; r < n; r++) pthread_join(t[r], NULL);
}

static void run_processes(rank_ctx *c, int n)
{
    fflush(NULL);
    for (int r = 0; r < n; r++)
        if (!fork()) {
            alarm(DEADLINE_S);
            work(&c[r]);
            _exit(0);
        }
    for (int left = n, how = 0; left; left--)
        if (wait(&how) < 0 || how) atomic_fetch_add(&tally->wrong, 1);
}

/* Rates from 1 to 5, and every seventh pair without a link; some pairs have one that is one way. */
static void draw_links(int n, sk_links *out)
{
    out->n = n;
    for (int i = 0; i < n * n; i++)
        out->rate[i] = i / n == i % n || (i % 7 == 3 && n > 4) ? 0 : 1 + i * 31 % 5;
}

/* hosts > 0: ranks are threads, on so many hosts; `mixed`: neighbours are on different ones, and
 * links differ. */
static void run_job(const char *name, int n, bool processes, int hosts, bool mixed)
{
    rank_ctx c[MAX_RANKS];
    int64_t bytes[MAX_RANKS] = {0};
    int host_of[MAX_RANKS];
    static double rate[MAX_RANKS * MAX_RANKS];
    sk_links links = {.rate = rate};
    sk_heaps *h = NULL;
    const char *message = NULL;
    draw_links(n, &links);
    sk_office *office = hosts ? sk_office_open(n) : NULL;
    for (int r = 0; r < n; r++) bytes[r] = n > 16 ? 4 * HEAP : HEAP, host_of[r] = 0;
    for (int r = 0; hosts && r < n; r++) host_of[r] = mixed ? r % hosts : r * hosts / n;
    if (sk_heaps_open(n, bytes, processes, 64, &h)) {
        fprintf(stderr, "matrix: %s\n", sk_error());
        exit(1);
    }
    for (int r = 0; r < n; r++)
        c[r] = (rank_ctx){.todo = whole_matrix,
                          .heaps = h,
                          .name = name,
                          .rank = r,
                          .n = n,
                          .wire = office ? sk_office_wire(office, r) : NULL,
                          .host_of = office ? host_of : NULL,
                          .links = office && mixed ? &links : NULL};
    if (processes) run_processes(c, n);
    else run_threads(c, n);
    if (sk_heaps_aborted(h, NULL, NULL, &message)) {
        atomic_fetch_add(&tally->wrong, 1);
        fprintf(stderr, "%s of %d: %s\n", name, n, message);
    }
    if (office && !message) sk_office_close(office);
    sk_heaps_close(h);
}

/* Three threads of which one does something else; the message must hold these words. */
static void run_failing(const char *name, void (*todo)(rank_ctx *c), const char *words)
{
    rank_ctx c[3];
    int64_t bytes[3] = {HEAP, HEAP, HEAP};
    sk_heaps *h = NULL;
    const char *message = "";
    sk_assert(!sk_heaps_open(3, bytes, false, 64, &h));
    for (int r = 0; r < 3; r++)
        c[r] = (rank_ctx){.todo = todo, .heaps = h, .name = name, .rank = r, .n = 3};
    run_threads(c, 3);
    sk_heaps_aborted(h, NULL, NULL, &message);
    atomic_fetch_add(&tally->cases, 1);
    if (!strstr(message, words)) {
        atomic_fetch_add(&tally->wrong, 1);
        fprintf(stderr, "%s: the message is \"%s\"\n", name, message);
    }
    sk_heaps_close(h);
}

/* --- as one rank of an MPI job --- */

static void run_mpi(const char *name)
{
    sk_wire *w = NULL;
    sk_heaps *h = NULL;
    int64_t bytes[MAX_RANKS] = {0};
    int host_of[MAX_RANKS], fd = -1;
    bool here[MAX_RANKS];
    if (sk_wire_open(name, &w) || w->n_ranks > MAX_RANKS) {
        fprintf(stderr, "matrix: %s\n", sk_error());
        exit(1);
    }
    for (int r = 0; r < w->n_ranks; r++) bytes[r] = HEAP, host_of[r] = r, here[r] = r == w->rank;
    sk_heaps_ask q = {.n_ranks = w->n_ranks, .bytes = bytes, .here = here};
    if (sk_heaps_make(&q, &fd, &h)) {
        fprintf(stderr, "matrix: %s\n", sk_error());
        exit(1);
    }
    rank_ctx c = {.todo = whole_matrix,
                  .heaps = h,
                  .name = w->name,
                  .rank = w->rank,
                  .n = w->n_ranks,
                  .wire = w,
                  .host_of = host_of};
    work(&c);
    if (atomic_load(&tally->wrong)) w->abort(w, 1);
    if (w->rank == 0) fprintf(stderr, "%s\n", w->library);
    sk_heaps_close(h);
    w->close(w);
}

static void run_all(void)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 24, 32};
    int n_sizes = getenv("SKEIN_LONG") ? 13 : SLOW ? 7 : 11;
    for (int i = 0; i < n_sizes; i++) {
        every = SLOW ? 3 : sizes[i] > 9 && !getenv("SKEIN_LONG") ? 3 : 1;
        run_job("threads", sizes[i], false, 0, false);
    }
    every = getenv("SKEIN_LONG") ? 1 : 3;
    for (int n = 2; n < 6; n++) run_job("processes", n, true, 0, false);
    for (int n = 2; n < (SLOW ? 5 : 9); n++) run_job("a host each", n, false, n, false);
    run_job("two by three", 6, false, 2, false);
    run_job("four by two", 8, false, 4, false);
    run_job("uneven hosts", 5, false, 2, false);
    run_job("mixed hosts", 6, false, 2, true);
    run_job("mixed hosts", 5, false, 3, true);
    run_failing("other programs", differ, "their programs or their members of the group differ");
    run_failing("a small workspace", squeeze, "its workspace is");
}

int main(int argc, char **argv)
{
    tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sk_assert(tally != MAP_FAILED);
    signal(SIGALRM, too_late);
    alarm(DEADLINE_S);
    if (argc > 1) run_mpi(argv[1]);
    else run_all();
    long long bad = atomic_load(&tally->wrong), cases = atomic_load(&tally->cases);
    if (cases || bad) printf("matrix: %lld cases, %lld wrong\n", cases, bad);
    return bad != 0;
}
