/* shm_collectives.c - the work of a collective in the heaps of one host.
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
 *     scan             the same p-th, summed for each member: S (p + 3) / 2
 *     broadcast        the same p-th, copied from the root to all others: S/p + S(p-1)/p
 *     reduce-scatter   part u, summed: S + S/p
 *     all-gather, scatter, all-to-all   what member u gets, copied
 *     gather           what member u gives, copied
 *     common           nothing: dst is one memory, and every part was made at its place
 *
 * Bytes that go from one member's memory to another's are counted where they are moved, by the rank
 * that moves them: sources of a sum that are not the share's owner's, results that are not stored
 * in its memory, copies between two members.  Of an all-reduce that is 2S(p-1) on all ranks, and is
 * counted so also where each member makes its own result: whether members do depends on the cores
 * of the host, on which the bytes of a job must not depend.
 */
#include "coll/collectives.h"
#include "coll/streaming_copy.h"
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
    const void *const *peers; /* the calls of all members */
    const char *const *shown; /* what they show, if only my own result is made */
    int64_t size;             /* of an element */
    int64_t at, from, to;     /* counted off so far; the window that is mine */
    int share;
    bool own;       /* only my own result, from what is shown */
    int64_t *moved; /* by thread of the team: bytes from one member's memory to another's */
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

static char *heap_of(const job *j, int i) { return j->c->heaps->base[j->g->ranks[i]]; }

static const sk_coll_call *call_of(const job *j, int i)
{
    return i == j->g->me ? j->call : j->peers[i];
}

/* Segment s of member i's source; `before`: bytes of the segments before it in what is shown. */
static const char *source(const job *j, int i, int s, int64_t before)
{
    if (j->shown) return j->shown[i] + before;
    return heap_of(j, i) + call_of(j, i)->segs[s].src;
}

static char *target(const job *j, int i, int s)
{
    return heap_of(j, i) + call_of(j, i)->segs[s].dst;
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

static void add_up(job *j, int terms, const void *const *src, int n_dst, void *const *dst,
                   int64_t n)
{
    const sk_coll_call *call = j->call;
    sk_reduce op = j->g->n == 1 ? SK_SUM : call->reduce; /* whatever it is: of one */
    sk_sum(call->type, op, terms, src, n_dst, dst, n);
}

/* --- the whole on every member: all-reduce, reduce, broadcast, scan --- */

/* Does member i's destination get this share? */
static bool wanted(const job *j, int i)
{
    if (j->shown && i != j->g->me) return false;
    return sk_kind_gets(j->call->kind, i == j->call->root);
}

/* A stretch of one segment, summed over the first `terms` sources to destinations [from, to) as far
 * as they are wanted. */
static void sum_to(job *j, int s, int64_t before, int64_t skip, int64_t n, int terms, int from,
                   int to)
{
    int n_dst = 0;
    const void **src = j->c->collectives->src + j->thread * j->c->n_ranks;
    void **dst = j->c->collectives->dst + j->thread * j->c->n_ranks;
    for (int i = 0; i < terms; i++) {
        src[i] = source(j, i, s, before) + skip;
        count(j, i != j->share, n);
    }
    for (int i = from; i < to; i++) {
        if (!wanted(j, i)) continue;
        dst[n_dst++] = target(j, i, s) + skip;
        count(j, i != j->share, n);
    }
    add_up(j, terms, src, n_dst, dst, n / j->size);
}

/* Of a scan the last member's result first: in place it is written where the source was, which only
 * later members need. */
static void sum_all(job *j, int s, int64_t before, int64_t skip, int64_t n)
{
    int p = j->g->n;
    if (sk_kind_rows[j->call->kind].origin != SK_FROM_FIRST) {
        sum_to(j, s, before, skip, n, p, 0, p);
        return;
    }
    for (int i = p - 1; i >= 0; i--)
        if (wanted(j, i)) sum_to(j, s, before, skip, n, i + 1, i, i + 1);
}

static void send_all(job *j, int s, int64_t before, int64_t skip, int64_t n)
{
    const char *from = source(j, j->call->root, s, before) + skip;
    bool far = sk_seg_count(&j->call->segs[s]) * j->size * j->g->n >= FAR_AWAY;
    for (int i = 0; i < j->g->n; i++) {
        if (!wanted(j, i)) continue;
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
    const void **src = j->c->collectives->src + j->thread * j->c->n_ranks;
    int64_t before = 0;
    int p = j->g->n;
    for (int i = 0; i < call->n_segs; i++) {
        const sk_seg *s = &call->segs[i];
        sk_rows part = sk_seg_rows(s, j->share, p);
        int64_t row = s->inner * j->size, lo = part.at * row, run = part.n * row;
        char *to = target(j, j->share, i);
        for (int64_t o = 0; o < s->outer; o++, to += run) {
            int64_t n = run, skip;
            if (!clip(j, &n, &skip)) continue;
            for (int k = 0; k < p; k++) {
                src[k] = source(j, k, i, before) + o * s->n * row + lo + skip;
                count(j, k != j->share, n);
            }
            add_up(j, p, src, 1, (void *[]){to + skip}, n / j->size);
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
    return (int64_t *)(void *)(heap_of(j, i) + call_of(j, i)->counts);
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

static void run(job *j)
{
    const sk_coll_call *call = j->call;
    const sk_kind_row *row = &sk_kind_rows[call->kind];
    int u = j->share;
    if (!sk_kind_cut(call->kind)) whole(j);
    else if (row->counts) turn_some(j, u);
    else if (row->src == SK_OPERAND_BLOCKS) turn(j, u);
    else if (row->origin == SK_FROM_ALL) scatter_sum(j);
    else if (row->dst == SK_OPERAND_PART) move_part(j, u, call->root, u, false);
    else if (row->dst == SK_OPERAND_ROOT) move_part(j, u, u, call->root, true);
    else collect(j, u);
}

/* Bytes that share u counts off. */
static int64_t length(const job *j)
{
    const sk_kind_row *row = &sk_kind_rows[j->call->kind];
    bool part =
        row->dst == SK_OPERAND_PART || (row->src == SK_OPERAND_PART && row->dst == SK_OPERAND_ROOT);
    int64_t n = 0;
    for (int i = 0; i < j->call->n_segs; i++) {
        const sk_seg *s = &j->call->segs[i];
        if (part) n += s->outer * sk_seg_rows(s, j->share, j->g->n).n * s->inner;
        else if (row->counts) n += sk_seg_count(s) * j->g->n; /* at most */
        else if (row->src == SK_OPERAND_BLOCKS) n += sk_seg_gets(s, j->share, j->g->n);
        else n += sk_seg_count(s);
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
    j->moved = c->collectives->moved;
    if (n > 1 && j->to - j->from >= TEAM_BYTES) sk_threads_run(c->team, part_of, j);
    else run(j);
    for (int i = 0; i < n; i++) {
        c->bytes_sent += j->moved[i];
        j->moved[i] = 0;
    }
}

static job job_of(sk_comm *c, const sk_sync *s, int share)
{
    const sk_coll_call *call = ((const sk_call_state *)(const void *)s)->call;
    return (job){.c = c,
                 .g = &c->groups[s->group].group,
                 .call = call,
                 .share = share,
                 .size = (int64_t)sk_dtype_size(call->type)};
}

void sk_shm_share(sk_comm *c, const sk_sync *s, const void *const *peers, int u)
{
    job j = job_of(c, s, u);
    sk_assert(u >= 0 && u < j.g->n);
    if (j.call->common) return;
    int64_t n = length(&j);
    j.peers = peers;
    j.to = n;
    if (!sk_kind_cut(j.call->kind)) { /* share u is the u-th stretch, for all members */
        j.from = border(n, u, j.g->n);
        j.to = border(n, u + 1, j.g->n);
    }
    share_out(c, &j);
}

void sk_shm_result(sk_comm *c, const sk_sync *s, const char *const *shown)
{
    int64_t moved = 0;
    job j = job_of(c, s, c->groups[s->group].group.me);
    sk_coll_kind kind = j.call->kind;
    bool root = j.share == j.call->root;
    if (j.call->common || !sk_kind_gets(kind, root)) return;
    j.shown = shown;
    j.moved = &moved;
    j.to = INT64_MAX;
    if (kind == SK_GATHER) collect(&j, j.share); /* the root makes all shares */
    else run(&j);
    bool planned = kind == SK_ALLREDUCE; /* as many as by shares, however many cores there are */
    c->bytes_sent += planned ? sk_call_bytes_sent(c, j.g, j.call) : moved;
}

/* Everybody's, unless one member has all or gets all. */
bool sk_shm_needs(const sk_comm *c, const sk_sync *s, int i)
{
    const sk_coll_call *call = ((const sk_call_state *)(const void *)s)->call;
    bool root = c->groups[s->group].group.me == call->root;
    if (sk_kind_rows[call->kind].src == SK_OPERAND_ROOT) return !root && i == call->root;
    return sk_kind_gets(call->kind, root);
}

/* Elements of a segment of my src. */
static int64_t shown_count(const job *j, const sk_seg *s)
{
    if (sk_kind_rows[j->call->kind].src == SK_OPERAND_PART)
        return s->outer * sk_seg_rows(s, j->g->me, j->g->n).n * s->inner;
    return sk_seg_gives(s, j->g->me, j->g->n); /* without a swap: all of it */
}

void sk_shm_show(sk_comm *c, const sk_sync *s, char *to)
{
    job j = job_of(c, s, 0);
    if (!sk_kind_gives(j.call->kind, j.g->me == j.call->root) || j.call->common) return;
    int64_t at = 0;
    for (int i = 0; i < j.call->n_segs; i++) {
        const sk_seg *seg = &j.call->segs[i];
        int64_t n = shown_count(&j, seg) * j.size;
        sk_assert(at + n <= SK_TINY);
        memcpy(to + at, c->base + seg->src, (size_t)n);
        at += n;
    }
}
