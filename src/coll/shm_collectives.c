/* shm.c - the work of a collective in the heaps of one host.
 *
 * Every share is a row of stretches: copy this run, or sum these runs into those.
 * They are counted off one after the other, and a window of that count can be done
 * by itself, so that the threads of a rank can divide a share among them.  Shares
 * of a call of S bytes on p members, in bytes that one core moves:
 *
 *     all-reduce       member u's p-th of all elements, summed over all sources and stored to all
 *                      destinations: 2S, and 2pS of memory in all; the least possible while each
 *                      member keeps a copy
 *     reduce           the same p-th, stored on the root: S + S/p
 *     broadcast        the same p-th, copied from the root to all others: S/p + S(p-1)/p
 *     reduce-scatter   part u, summed: S + S/p
 *     all-gather, scatter, all-to-all   what member u gets, copied
 *     gather           what member u gives, copied
 *     common           nothing: dst is one memory, and every part was made at its place
 *
 * Bytes that go from one member's memory to another's are counted where they are moved, by the rank
 * that moves them: sources of a sum that are not the share's owner's, results that are not stored
 * in its memory, copies between two members.  Of an all-reduce that is 2S(p-1) on all ranks.
 */
#include "comm/endpoint.h"
#include "coll/streaming_copy.h"
#include "comm/fuse.h"
#include "coll/sum_kernels.h"

enum {
    GRAIN = 128,
    TEAM_BYTES = 1 << 18,
    FAR_AWAY = 128 << 20
}; /* shares end on such borders; worth the team; on all members, more than caches hold */

typedef struct job {
    sk_comm *c;
    const sk_group *g;
    const sk_coll_call *call;
    int64_t size;         /* of an element */
    int64_t at, from, to; /* counted off so far; the window that is mine */
    int share;
    bool own; /* only my own result, from what is shown */
    bool fused;
    sk_partial *notes; /* by thread of the team */
    int64_t *moved;    /* likewise: bytes from one member's memory to another's */
    int thread;
} job;

/* Counts off n bytes.  Are some of them in the window?  Then [skip, skip + *n). */
static bool clip(job *j, int64_t *n, int64_t *skip)
{
    int64_t lo = j->from > j->at ? j->from - j->at : 0,
            hi = j->to - j->at < *n ? j->to - j->at : *n;
    j->at += *n;
    *skip = lo;
    *n = hi - lo;
    return hi > lo;
}

/* --- where things lie --- */

static char *heap_of(const job *j, int i) { return sk_heap_base(j->c->heaps, j->g->ranks[i]); }

/* Segment s of member i's source; `before`: bytes of the segments before it in what is shown. */
static const char *source(const job *j, int i, int s, int64_t before)
{
    if (j->own) return j->c->shown[i] + before;
    return heap_of(j, i) + j->c->calls[i]->segs[s].src;
}

static char *target(const job *j, int i, int s)
{
    return heap_of(j, i) + j->c->calls[i]->segs[s].dst;
}

/* `across`: from one member's memory to another's. */
static void count(job *j, bool across, int64_t bytes)
{
    if (across) j->moved[j->thread] += bytes;
}

static void copy(job *j, char *to, const char *from, int64_t n, bool across)
{
    int64_t skip;
    if (!clip(j, &n, &skip) || to == from) return;
    sk_streaming_copy(to + skip, from + skip, (size_t)n);
    count(j, across, n);
}

static void add_up(job *j, const void *const *src, int n_dst, void *const *dst, int64_t n)
{
    const sk_coll_call *call = j->call;
    sk_reduce op = j->g->n == 1 ? SK_SUM : call->reduce; /* whatever it is: of one */
    if (j->fused) sk_fuse(call, j->g->n, src, n_dst, dst, n, &j->notes[j->thread]);
    else sk_sum(call->type, op, j->g->n, src, n_dst, dst, n);
}

/* Bytes of dst for those of src. */
static int64_t cast_bytes(const job *j, int64_t bytes)
{
    return j->fused ? bytes / j->size * (int64_t)sk_dtype_size(sk_fuse_type(j->call)) : bytes;
}

/* --- the whole on every member: all-reduce, reduce, broadcast --- */

/* Sum of one segment over all sources to the destinations that count. */
static void sum_all(job *j, int s, int64_t before, int64_t skip, int64_t n)
{
    const sk_coll_call *call = j->call;
    int n_dst = 0, p = j->g->n;
    const void **src = j->c->src + j->thread * j->c->n_ranks;
    void **dst = j->c->dst + j->thread * j->c->n_ranks;
    for (int i = 0; i < p; i++) {
        src[i] = source(j, i, s, before) + skip;
        count(j, i != j->share, n);
    }
    for (int i = 0; i < p; i++) {
        bool wanted = call->kind == SK_ALLREDUCE ? !j->own || i == j->g->me : i == call->root;
        if (!wanted) continue;
        dst[n_dst++] = target(j, i, s) + cast_bytes(j, skip);
        count(j, i != j->share, cast_bytes(j, n));
    }
    add_up(j, src, n_dst, dst, n / j->size);
}

static void send_all(job *j, int s, int64_t before, int64_t skip, int64_t n)
{
    const char *from = source(j, j->call->root, s, before) + skip;
    bool far = sk_seg_count(&j->call->segs[s]) * j->size * j->g->n >= FAR_AWAY;
    for (int i = 0; i < j->g->n; i++) {
        if (j->own && i != j->g->me) continue;
        char *to = target(j, i, s) + skip;
        if (to == from) continue;
        count(j, i != j->call->root, n);
        if (far) sk_streaming_copy(to, from, (size_t)n);
        else memcpy(to, from, (size_t)n); /* who gets it now often gives it next */
    }
}

static void whole(job *j)
{
    int64_t before = 0;
    for (int s = 0; s < j->call->n_segs; s++) {
        int64_t all = sk_seg_count(&j->call->segs[s]) * j->size, n = all, skip;
        if (clip(j, &n, &skip)) {
            if (j->call->kind == SK_BROADCAST) send_all(j, s, before, skip, n);
            else sum_all(j, s, before, skip, n);
        }
        before += all;
    }
}

/* --- parts --- */

static void scatter_sum(job *j)
{
    const sk_coll_call *call = j->call;
    const void **src = j->c->src + j->thread * j->c->n_ranks;
    int64_t before = 0;
    int p = j->g->n;
    for (int i = 0; i < call->n_segs; i++) {
        const sk_seg *s = &call->segs[i];
        sk_rows part = sk_seg_rows(s, j->share, p);
        int64_t row = s->inner * j->size, lo = part.at * row, run = part.n * row;
        char *to = target(j, j->share, i);
        for (int64_t o = 0; o < s->outer; o++, to += cast_bytes(j, run)) {
            int64_t n = run, skip;
            if (!clip(j, &n, &skip)) continue;
            for (int k = 0; k < p; k++) {
                src[k] = source(j, k, i, before) + o * s->n * row + lo + skip;
                count(j, k != j->share, n);
            }
            add_up(j, src, 1, (void *[]){to + cast_bytes(j, skip)}, n / j->size);
        }
        before += sk_seg_count(s) * j->size;
    }
}

/* Runs of member k's part of every segment: dense on one side, with gaps on the other. */
static void move_part(job *j, int k, int from, int to, bool spread)
{
    int64_t before = 0;
    for (int i = 0; i < j->call->n_segs; i++) {
        const sk_seg *s = &j->call->segs[i];
        sk_rows part = sk_seg_rows(s, k, j->g->n);
        int64_t row = s->inner * j->size, lo = part.at * row, run = part.n * row, gap = s->n * row;
        const char *a = source(j, from, i, before) + (spread ? 0 : lo);
        char *b = target(j, to, i) + (spread ? lo : 0);
        for (int64_t o = 0; o < s->outer; o++, a += spread ? run : gap, b += spread ? gap : run)
            copy(j, b, a, run, from != to);
        before += spread ? s->outer * run : s->outer * gap;
    }
}

/* Everybody's part to member `to`, the neighbour's first, so that not all read from one. */
static void collect(job *j, int to)
{
    for (int i = 1; i <= j->g->n; i++) {
        int k = (to + i) % j->g->n;
        move_part(j, k, k, to, true);
    }
}

/* From one member's src to another's dst; at once if the window is elsewhere. */
static void copy_block(job *j, const sk_block *b, char *dst, const char *src, bool across)
{
    int64_t run = b->run * j->size, all = sk_block_count(b) * j->size;
    if (j->at + all <= j->from || j->at >= j->to) {
        j->at += all;
        return;
    }
    for (int64_t o = 0; o < b->outer; o++) {
        char *to = dst + (b->dst.at + o * b->dst.far) * j->size;
        const char *from = src + (b->src.at + o * b->src.far) * j->size;
        for (int64_t r = 0; r < b->runs; r++)
            copy(j, to + r * b->dst.near * j->size, from + r * b->src.near * j->size, run, across);
    }
}

/* Part `to` of what member k has, behind what came from the members before k. */
static void turn_part(job *j, const sk_seg *s, int k, int to, char *dst, const char *src)
{
    sk_rows part = sk_seg_rows(s, to, j->g->n);
    int64_t row = s->inner * j->size, run = part.n * row;
    src += part.at * row;
    dst += k * s->outer * run;
    for (int64_t o = 0; o < s->outer; o++, src += s->n * row, dst += run)
        copy(j, dst, src, run, k != to);
}

static void swap_part(job *j, const sk_seg *s, int k, int to, char *dst, const char *src)
{
    sk_block b = sk_seg_block(s, k, to, j->g->n);
    copy_block(j, &b, dst, src, k != to);
}

/* What every member k has for this one. */
static void turn(job *j, int to)
{
    int p = j->g->n;
    for (int i = 1; i <= p; i++) {
        int k = (to + i) % p;
        int64_t before = 0;
        for (int s = 0; s < j->call->n_segs; s++) {
            const sk_seg *g = &j->call->segs[s];
            char *dst = target(j, to, s);
            const char *src = source(j, k, s, before);
            if (g->swap) swap_part(j, g, k, to, dst, src);
            else turn_part(j, g, k, to, dst, src);
            before += sk_seg_gives(g, k, p) * j->size;
        }
    }
}

static int64_t *counts_of(const job *j, int i)
{
    return (int64_t *)(void *)(heap_of(j, i) + j->c->calls[i]->counts);
}

static void turn_some(job *j, int to)
{
    int64_t *came = counts_of(j, to) + j->g->n;
    for (int k = 0; k < j->g->n; k++) {
        int64_t rows = counts_of(j, k)[to];
        for (int s = 0; s < j->call->n_segs; s++) {
            const sk_seg *g = &j->call->segs[s];
            int64_t row = g->inner * j->size, n = rows < 0 ? 0 : rows > g->n ? g->n : rows;
            copy(j, target(j, to, s) + k * g->n * row, source(j, k, s, 0) + to * g->n * row,
                 n * row, k != to);
        }
        if (j->from == 0) came[k] = rows;
    }
}

/* --- shares --- */

static bool same_everywhere(sk_coll_kind kind)
{
    return kind == SK_ALLREDUCE || kind == SK_REDUCE || kind == SK_BROADCAST;
}

static void run(job *j)
{
    const sk_coll_call *call = j->call;
    int u = j->share;
    if (same_everywhere(call->kind)) whole(j);
    else if (call->kind == SK_REDUCE_SCATTER) scatter_sum(j);
    else if (call->kind == SK_ALLGATHER) collect(j, u);
    else if (call->kind == SK_GATHER) move_part(j, u, u, call->root, true);
    else if (call->kind == SK_SCATTER) move_part(j, u, call->root, u, false);
    else if (call->kind == SK_ALLTOALL) turn(j, u);
    else turn_some(j, u);
}

/* Bytes that share u counts off. */
static int64_t length(const job *j)
{
    int64_t n = 0;
    for (int i = 0; i < j->call->n_segs; i++) {
        const sk_seg *s = &j->call->segs[i];
        int64_t part = s->outer * sk_seg_rows(s, j->share, j->g->n).n * s->inner;
        switch (j->call->kind) {
        case SK_REDUCE_SCATTER:
        case SK_GATHER:
        case SK_SCATTER:
            n += part;
            break;
        case SK_ALLTOALL:
            n += sk_seg_gets(s, j->share, j->g->n);
            break;
        case SK_ALLTOALLV: /* at most */
            n += sk_seg_count(s) * j->g->n;
            break;
        default:
            n += sk_seg_count(s);
        }
    }
    return n * j->size;
}

static int64_t border(int64_t n, int i, int p)
{
    return i == p ? n : sk_even_at(n, i, p) / GRAIN * GRAIN;
}

static void part_of(void *ctx, int part, int of)
{
    job j = *(const job *)ctx;
    int64_t n = j.to - j.from, begin = j.from;
    j.from = begin + border(n, part, of);
    j.to = begin + border(n, part + 1, of);
    j.thread = part;
    run(&j);
}

static void share_out(sk_comm *c, job *j)
{
    int n = c->team ? sk_threads_count(c->team) : 1;
    j->moved = c->moved;
    if (n > 1 && j->to - j->from >= TEAM_BYTES) sk_threads_run(c->team, part_of, j);
    else run(j);
    for (int i = 0; i < n; i++) {
        c->left += c->moved[i];
        c->moved[i] = 0;
    }
}

/* The share's partial sums belong to the member whose share it is, whoever did it. */
__attribute__((noinline)) static void share_fused(sk_comm *c, job *j)
{
    sk_partial notes[SK_THREADS_MAX] = {0}, sum = {0};
    j->fused = true;
    j->notes = notes;
    share_out(c, j);
    if (!j->call->partial) return;
    for (int i = 0; i < SK_THREADS_MAX; i++) {
        sum.squares += notes[i].squares;
        sum.bad += notes[i].bad;
    }
    memcpy(heap_of(j, j->share) + c->calls[j->share]->partial, &sum, sizeof sum);
}

void sk_shm_share(sk_comm *c, const sk_group *g, const sk_coll_call *call, int u)
{
    job j = {.c = c, .g = g, .call = call, .share = u, .size = (int64_t)sk_dtype_size(call->type)};
    if (call->common) return;
    int64_t n = length(&j);
    j.to = n;
    if (same_everywhere(call->kind)) {
        j.from = border(n, u, g->n);
        j.to = border(n, u + 1, g->n);
    }
    if (sk_fuse_wanted(call)) share_fused(c, &j);
    else share_out(c, &j);
}

void sk_shm_mine(sk_comm *c, const sk_group *g, const sk_coll_call *call)
{
    int64_t moved = 0;
    job j = {.c = c, .g = g, .call = call, .share = g->me, .own = true, .moved = &moved};
    bool root = g->me == call->root;
    if (call->common) return;
    j.size = (int64_t)sk_dtype_size(call->type);
    j.to = INT64_MAX;
    if (call->kind == SK_GATHER && root) collect(&j, g->me);
    else if (!root && (call->kind == SK_REDUCE || call->kind == SK_GATHER)) return;
    else run(&j);
    c->left += moved;
}

static bool has_source(const sk_group *g, const sk_coll_call *call)
{
    return (call->kind != SK_BROADCAST && call->kind != SK_SCATTER) || g->me == call->root;
}

/* Elements of a segment of my src. */
static int64_t shown(const sk_group *g, const sk_coll_call *call, const sk_seg *s)
{
    bool part = call->kind == SK_ALLGATHER || call->kind == SK_GATHER;
    if (part) return s->outer * sk_seg_rows(s, g->me, g->n).n * s->inner;
    return sk_seg_gives(s, g->me, g->n); /* without a swap: all of it */
}

int64_t sk_shm_show(const sk_comm *c, const sk_group *g, const sk_coll_call *call, char *to)
{
    int64_t at = 0, size = (int64_t)sk_dtype_size(call->type);
    if (!has_source(g, call) || call->common) return 0;
    for (int i = 0; i < call->n_segs; i++) {
        const sk_seg *s = &call->segs[i];
        int64_t n = shown(g, call, s) * size;
        memcpy(to + at, c->base + s->src, (size_t)n);
        at += n;
    }
    return at;
}
