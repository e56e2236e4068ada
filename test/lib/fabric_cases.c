/* fabric_cases.c - programs that are all calls, and what must come of them. */
#include "lib/fabric_cases.h"
#include "base/clock.h"
#include "base/hash.h"
#include "comm/comm.h"
#include "device/device.h"
#include "program/program.h"
#include "program/workspaces.h"
#include "run/gpu/fabric.h"

#include <pthread.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, GROUPS = 4, SEGS = 3, MESSAGES = 3, HEAP = 1 << 20, DEADLINE = 200 };
enum { WORLD = 2, THREE = 3 }; /* groups: 0 and 1 are the axes of a square */
#define TIMEOUT_S 60.0
#define SILENT_S  15.0
#define POISON    0xEE

typedef struct shape {
    int64_t outer, n, inner, mid, n2;
    sk_swap swap;
} shape;

#define ROWS(outer, n, inner)             \
    {                                     \
        outer, n, inner, 0, 0, SK_NO_SWAP \
    }
static const shape rows[][SEGS] = {
    {ROWS(1, 24, 5)},
    {ROWS(1, 7, 3), ROWS(1, 24, 2)},
    {ROWS(3, 24, 4)},
    {ROWS(3, 7, 5), ROWS(1, 2, 5), ROWS(2, 12, 8)},
    {ROWS(1, 49152, 1), ROWS(1, 0, 7)},
};
static const shape swaps[][SEGS] = {
    {{1, 6, 2, 1, 9, SK_SWAP_N_N2}},
    {{1, 6, 2, 1, 9, SK_SWAP_N2_N}},
    {{3, 5, 3, 2, 7, SK_SWAP_N_N2}, {2, 24, 1, 3, 12, SK_SWAP_N2_N}},
    {{3, 5, 3, 2, 7, SK_SWAP_N2_N}, {2, 24, 1, 3, 12, SK_SWAP_N_N2}, ROWS(1, 7, 2)},
};
enum { N_ROWS = sizeof rows / sizeof *rows, N_SWAPS = sizeof swaps / sizeof *swaps };

typedef struct rank {
    sk_arena arena;
    sk_program p;
    sk_heaps *heaps;
    const char *device;
    sk_device *d;
    sk_comm *comm;
    sk_stream *s;
    sk_fabric *f;
    char *base, *image, *back;
    sk_launch l;
    int64_t bytes; /* of the memory of a case, the most */
    struct {
        bool *v;
        int n, cap;
    } over; /* by call: does a result lie over what was given?  The same on all ranks */
    double timeout_s;
    bool silent, taped; /* the last rank does not come to a call; which was recorded */
    int64_t before;     /* bytes of the device that were free before the fabric */
    int checks, bad;
} rank;

/* --- the program --- */

static void add_group(rank *k, int g, const int *ranks, int n)
{
    int *copy = sk_many(&k->arena, int, n);
    k->p.groups[g] = (sk_group){.n = n, .me = -1, .ranks = copy};
    for (int i = 0; i < n; i++) {
        copy[i] = ranks[i];
        if (ranks[i] == k->p.rank) k->p.groups[g].me = i;
    }
}

static void make_groups(rank *k)
{
    static const int all[RANKS] = {0, 1, 2, 3};
    int n = k->p.n_ranks, r = k->p.rank;
    k->p.groups = sk_many(&k->arena, sk_group, GROUPS);
    k->p.n_groups = GROUPS;
    k->p.world = WORLD;
    add_group(k, 0, n == 4 ? (int[]){r & 2, r | 1} : all, 2);
    add_group(k, 1, n == 4 ? (int[]){r & 1, r | 2} : all, n == 4 ? 2 : 1);
    add_group(k, WORLD, all, n);
    add_group(k, THREE, (int[]){0, 2, 1}, n == 4 ? 3 : 1);
    if (n < 4) k->p.groups[1].me = k->p.groups[THREE].me = r ? -1 : 0;
}

static int64_t at(int64_t n, int i, int p) { return n * i / p; }
static int64_t part(int64_t n, int i, int p) { return at(n, i + 1, p) - at(n, i, p); }

/* Elements that member i has of a segment before, and after. */
static int64_t has(sk_coll_kind kind, const sk_call_seg *s, int i, int p, bool after)
{
    int64_t n = s->n, n2 = s->swap ? s->n2 : 1, mid = s->swap ? s->mid : 1;
    bool first = s->swap == SK_SWAP_N_N2;
    if (s->swap && first != after) n = part(n, i, p);
    if (s->swap && first == after) n2 = part(n2, i, p);
    if (!s->swap && kind == SK_ALLTOALL && after) n = p * part(n, i, p);
    if (kind == SK_ALLGATHER || kind == SK_GATHER) n = after ? n : part(n, i, p);
    if (kind == SK_REDUCE_SCATTER || kind == SK_SCATTER) n = after ? part(n, i, p) : n;
    return s->outer * n * mid * n2 * s->inner;
}

static int add_buffer(rank *k, int64_t offset, int64_t bytes, sk_dtype type)
{
    sk_buffer *b = sk_push(&k->arena, &k->p.bufs);
    *b = (sk_buffer){.name = "case", .type = type, .offset = offset, .bytes = bytes};
    return k->p.bufs.n - 1;
}

/* Is dst a place in src, or src one in dst?  How far in, in bytes. */
static bool overlap(sk_coll_kind kind, const sk_call_seg *s, int me, int p, int64_t *skip)
{
    *skip = at(s->n, me, p) * s->inner;
    if (kind == SK_ALLREDUCE || kind == SK_BROADCAST || kind == SK_REDUCE) *skip = 0;
    else if (s->outer > 1 || kind == SK_ALLTOALL) return false;
    return true;
}

static void add_case(rank *k, sk_coll_kind kind, sk_reduce reduce, sk_dtype type, int group,
                     const shape *shapes, bool in_place)
{
    int number = k->p.calls.n, p = k->p.groups[group].n, me = k->p.groups[group].me;
    int64_t size = (int64_t)sk_dtype_size(type), end = number % 2 ? size : 0, skip;
    sk_call_plan c = {
        .kind = kind, .reduce = reduce, .type = type, .group = group, .workspace = -1};
    c.what =
        sk_print(&k->arena, "case %d, %s of %s", number, sk_coll_names[kind], sk_dtype_name(type));
    c.root = number % p;
    c.segs = sk_many(&k->arena, sk_call_seg, SEGS);
    bool any = false;
    for (; c.n_segs < SEGS && shapes[c.n_segs].outer; c.n_segs++) {
        const shape *x = &shapes[c.n_segs];
        sk_call_seg *s = &c.segs[c.n_segs];
        *s = (sk_call_seg){.outer = x->outer,
                           .n = x->n,
                           .inner = x->inner,
                           .swap = x->swap,
                           .mid = x->mid,
                           .n2 = x->n2};
        int who = me < 0 ? 0 : me;
        int64_t src = has(kind, s, who, p, false) * size, dst = has(kind, s, who, p, true) * size;
        bool over = in_place && overlap(kind, s, who, p, &skip);
        any |= over;
        int64_t most = over ? (src > dst ? src : dst) : src;
        bool inner = over && src < dst; /* src lies in dst */
        s->src = add_buffer(k, end + (inner ? skip * size : 0), src, type);
        s->dst = add_buffer(
            k, over ? end + (inner ? 0 : skip * size) : end + src + 64 / size * size, dst, type);
        end += (over ? most : src + 64 / size * size + dst) + size;
    }
    if (end > k->bytes) k->bytes = end;
    *sk_push(&k->arena, &k->p.calls) = c;
    *sk_push(&k->arena, &k->over) = any;
}

static bool sums(sk_coll_kind kind)
{
    return kind == SK_ALLREDUCE || kind == SK_REDUCE || kind == SK_REDUCE_SCATTER;
}

static void add_kind(rank *k, sk_coll_kind kind, int group)
{
    bool few = group < WORLD;
    for (int i = 0; i < N_ROWS; i++)
        if (!few || i == 3) add_case(k, kind, SK_SUM, SK_F32, group, rows[i], i % 2);
    for (sk_dtype t = SK_F32; !few && t < SK_N_DTYPES; t++)
        add_case(k, kind, SK_SUM, t, group, rows[1], t % 2);
    for (int i = 0; kind == SK_ALLTOALL && i < N_SWAPS; i++)
        add_case(k, kind, SK_SUM, i % 2 ? SK_BF16 : SK_F32, group, swaps[i], false);
    for (int i = 0; sums(kind) && i < N_ROWS; i++) {
        add_case(k, kind, i % 3 == 1 ? SK_MEAN : SK_SUM, i % 4 == 3 ? SK_F64 : SK_F32, group,
                 rows[i], i % 2);
        k->p.calls.v[k->p.calls.n - 1].ordered = true;
    }
    if (few || !sums(kind)) return;
    add_case(k, kind, SK_MAXIMUM, SK_BF16, group, rows[3], false);
    add_case(k, kind, SK_MINIMUM, SK_F32, group, rows[1], true);
    if (k->p.groups[group].n != 3) add_case(k, kind, SK_MEAN, SK_F32, group, rows[1], false);
}

static int next_of(const rank *k) { return (k->p.rank + 1) % k->p.n_ranks; }
static int before_of(const rank *k) { return (k->p.rank + k->p.n_ranks - 1) % k->p.n_ranks; }

static void make_program(rank *k)
{
    make_groups(k);
    for (sk_coll_kind kind = 0; kind <= SK_ALLTOALL; kind++) /* the others are not for GPUs */
        for (int g = 0; g < GROUPS; g++)
            if (k->p.groups[g].n > 1 || g == 1) add_kind(k, kind, g);
    *sk_push(&k->arena, &k->p.insts) = (sk_inst){.act = SK_DO_SEND, .peer = next_of(k)};
    *sk_push(&k->arena, &k->p.insts) = (sk_inst){.act = SK_DO_RECV, .peer = before_of(k)};
    k->bytes += 256;
}

/* --- numbers --- */

/* Element e of what member i gives of a segment. */
static double value(const sk_call_plan *c, int i, int seg, int64_t e)
{
    int64_t key[4] = {i, seg, e, c->kind};
    uint64_t h = sk_hash(SK_HASH_SEED, key, sizeof key);
    if (c->ordered)
        return (double)(float)ldexp((double)(h >> 20 & 0xffff) / 3, (int)(h >> 50) % 16);
    return sums(c->kind) ? 12.0 * (double)(h >> 20 & 3) : (double)(h >> 20 & 127);
}

/* Members [i, i + n), as coll/call.h's tree goes, rounded at every branch. */
static double branch(const sk_call_plan *c, int i, int n, int seg, int64_t e)
{
    int left = 1;
    if (n == 1) return value(c, i, seg, e);
    while (2 * left < n) left *= 2;
    double x = branch(c, i, left, seg, e) + branch(c, i + left, n - left, seg, e);
    return c->type == SK_F32 ? (double)(float)x : x;
}

static double reduced(const sk_call_plan *c, int p, int seg, int64_t e)
{
    if (c->ordered) return branch(c, 0, p, seg, e) / (c->reduce == SK_MEAN ? p : 1);
    double x = value(c, 0, seg, e);
    for (int i = 1; i < p; i++) {
        double y = value(c, i, seg, e);
        x = c->reduce == SK_MAXIMUM   ? (x > y ? x : y)
            : c->reduce == SK_MINIMUM ? (x < y ? x : y)
                                      : x + y;
    }
    return c->reduce == SK_MEAN ? x / p : x;
}

/* The member that has row r of n, and which of its rows that is. */
static int owner(int64_t n, int p, int64_t *r)
{
    int i = 0;
    while (*r >= at(n, i + 1, p)) i++;
    *r -= at(n, i, p);
    return i;
}

/* Element e of what I get of an exchange of two dims. */
static double swapped(const sk_call_plan *c, int me, int p, int seg, int64_t e)
{
    const sk_call_seg *s = &c->segs[seg];
    bool forth = s->swap == SK_SWAP_N_N2;
    int64_t n = forth ? s->n : part(s->n, me, p), n2 = forth ? part(s->n2, me, p) : s->n2;
    int64_t in = e % s->inner, b = e / s->inner % n2, m = e / s->inner / n2 % s->mid;
    int64_t a = e / s->inner / n2 / s->mid % n, o = e / s->inner / n2 / s->mid / n;
    int i = forth ? owner(s->n, p, &a) : owner(s->n2, p, &b);
    if (forth) b += at(s->n2, me, p);
    else a += at(s->n, me, p);
    n = forth ? part(s->n, i, p) : s->n;
    n2 = forth ? s->n2 : part(s->n2, i, p);
    return value(c, i, seg, (((o * n + a) * s->mid + m) * n2 + b) * s->inner + in);
}

/* Element e of what I get. */
static double wanted(const sk_call_plan *c, int me, int p, int seg, int64_t e)
{
    const sk_call_seg *s = &c->segs[seg];
    int64_t mine = part(s->n, me, p), in = e % s->inner, r = e / s->inner, o,
            from = at(s->n, me, p);
    if (s->swap) return swapped(c, me, p, seg, e);
    switch (c->kind) {
    case SK_ALLREDUCE:
    case SK_REDUCE:
        return reduced(c, p, seg, e);
    case SK_BROADCAST:
        return value(c, c->root, seg, e);
    case SK_REDUCE_SCATTER:
        return reduced(c, p, seg, (r / mine * s->n + from + r % mine) * s->inner + in);
    case SK_SCATTER:
        return value(c, c->root, seg, (r / mine * s->n + from + r % mine) * s->inner + in);
    case SK_ALLTOALL:
        o = r / mine;
        return value(c, (int)(o / s->outer), seg,
                     (o % s->outer * s->n + from + r % mine) * s->inner + in);
    default:
        o = r / s->n, r %= s->n;
        int i = owner(s->n, p, &r);
        return value(c, i, seg, (o * part(s->n, i, p) + r) * s->inner + in);
    }
}

static void put(char *to, sk_dtype t, int64_t e, double x)
{
    sk_convert(to + e * (int64_t)sk_dtype_size(t), t, &x, SK_F64, 1);
}

/* --- one case --- */

static void lay(rank *k, const sk_call_plan *c, int me, int p)
{
    memset(k->image, POISON, (size_t)k->bytes);
    for (int i = 0; i < c->n_segs; i++) {
        char *src = k->image + k->p.bufs.v[c->segs[i].src].offset;
        for (int64_t e = 0; e < has(c->kind, &c->segs[i], me, p, false); e++)
            put(src, c->type, e, value(c, me, i, e));
    }
}

/* The image becomes what must be there afterwards. */
static void expect(rank *k, const sk_call_plan *c, int me, int p)
{
    if ((c->kind == SK_REDUCE || c->kind == SK_GATHER) && me != c->root) return;
    for (int i = 0; i < c->n_segs; i++) {
        char *dst = k->image + k->p.bufs.v[c->segs[i].dst].offset;
        for (int64_t e = 0; e < has(c->kind, &c->segs[i], me, p, true); e++)
            put(dst, c->type, e, wanted(c, me, p, i, e));
    }
}

static sk_status up(rank *k)
{
    return sk_device_copy(k->d, k->base, k->image, (size_t)k->bytes, k->s);
}

static sk_status sync_up(rank *k)
{
    for (bool done = false; !done;) {
        SK_TRY(sk_fabric_watch(k->f));
        SK_TRY(sk_stream_done(k->d, k->s, &done));
        if (!done) usleep(100);
    }
    return SK_OK;
}

static sk_status compare(rank *k, const sk_call_plan *c, const char *how)
{
    SK_TRY(sync_up(k));
    SK_TRY(sk_device_copy(k->d, k->back, k->base, (size_t)k->bytes, k->s));
    SK_TRY(sk_stream_sync(k->d, k->s));
    k->checks++;
    if (!memcmp(k->image, k->back, (size_t)k->bytes)) return SK_OK;
    int64_t i = 0;
    while (k->image[i] == k->back[i]) i++;
    k->bad++;
    printf("rank %d: %s on group %d, %s: byte %lld is %02x, %02x is wanted\n", k->p.rank, c->what,
           c->group, how, (long long)i, (unsigned char)k->back[i], (unsigned char)k->image[i]);
    return SK_OK;
}

static sk_status play(rank *k, int call, int times)
{
    sk_device_graph *t = NULL;
    SK_TRY(sk_device_graph_begin(k->d, k->s));
    SK_TRY(sk_fabric_start(k->f, call, k->base, &k->l));
    SK_TRY(sk_device_graph_end(k->d, k->s, &t));
    for (int i = 0; i < times; i++) SK_TRY(sk_device_graph_launch(k->d, t, k->s));
    return SK_OK;
}

/* At once; then recorded, and played: twice, where the first time leaves what is given as it was.
 */
static sk_status run_case(rank *k, int call)
{
    const sk_call_plan *c = &k->p.calls.v[call];
    const sk_group *g = &k->p.groups[c->group];
    if (g->me < 0) return SK_OK;
    bool tape = !strncmp(k->device, "cuda", 4) && c->n_segs > 1;
    for (int again = 0; again < (tape ? 2 : 1); again++) {
        lay(k, c, g->me, g->n);
        SK_TRY(up(k));
        SK_TRY(sk_stream_sync(k->d, k->s));
        SK_TRY(again ? play(k, call, k->over.v[call] ? 1 : 2)
                     : sk_fabric_start(k->f, call, k->base, &k->l));
        expect(k, c, g->me, g->n);
        SK_TRY(compare(k, c, again ? "played" : "plain"));
    }
    return SK_OK;
}

/* --- messages: all send first, to the next; and each comes from the one before --- */

static unsigned char letter(int from, int m, int64_t i)
{
    return (unsigned char)(from * 50 + m * 17 + (int)(i % 13));
}

static sk_status run_messages(rank *k)
{
    static const int64_t bytes[MESSAGES] = {1, 1000, 40000};
    int from = before_of(k), to = next_of(k);
    sk_stream *out = sk_fabric_pair_stream(k->f, k->p.rank, to),
              *in = sk_fabric_pair_stream(k->f, from, k->p.rank);
    int64_t half = k->bytes / 2, place = 0;
    for (int m = 0; m < MESSAGES; place += bytes[m++])
        for (int64_t i = 0; i < bytes[m]; i++) k->image[place + i] = (char)letter(k->p.rank, m, i);
    SK_TRY(up(k));
    SK_TRY(sk_stream_sync(k->d, k->s));
    place = 0;
    for (int m = 0; m < MESSAGES; place += bytes[m++])
        SK_TRY(sk_fabric_send(k->f, to, k->base + place, bytes[m], m, out));
    place = half;
    for (int m = 0; m < MESSAGES; place += bytes[m++])
        SK_TRY(sk_fabric_recv(k->f, from, k->base + place, bytes[m], m, in));
    SK_TRY(sk_stream_sync(k->d, in));
    SK_TRY(sk_stream_sync(k->d, out));
    place = half;
    for (int m = 0; m < MESSAGES; place += bytes[m++])
        for (int64_t i = 0; i < bytes[m]; i++) k->image[place + i] = (char)letter(from, m, i);
    return compare(k, &(sk_call_plan){.what = "messages"}, "from the one before");
}

/* --- a rank --- */

static sk_status free_bytes(rank *k, int64_t *out)
{
    sk_device_facts facts;
    SK_TRY(sk_device_look(k->d, &facts));
    *out = facts.available;
    return SK_OK;
}

static sk_status open_rank(rank *k)
{
    int64_t bytes = 0;
    void *workspace, *base;
    sk_comm_opts o = {.rank = k->p.rank,
                      .groups = k->p.groups,
                      .n_groups = k->p.n_groups,
                      .timeout_s = k->timeout_s};
    for (int i = 0; i < k->p.calls.n; i++) {
        const sk_call_plan *c = &k->p.calls.v[i];
        int64_t need = sk_workspace_call(c, k->p.groups[c->group].n);
        if (need > bytes) bytes = need;
    }
    if (bytes < 256) bytes = 256;
    k->image = sk_alloc(&k->arena, (size_t)k->bytes);
    k->back = sk_alloc(&k->arena, (size_t)k->bytes);
    SK_TRY(sk_device_open(k->device, &k->d));
    SK_TRY(sk_pool_open(k->d, (size_t)k->bytes, &base));
    SK_TRY(sk_pool_open(k->d, (size_t)bytes, &workspace));
    SK_TRY(sk_stream_open(k->d, &k->s));
    k->base = base;
    k->l = (sk_launch){.stream = k->s, .workspace = workspace, .workspace_bytes = (size_t)bytes};
    SK_TRY(sk_comm_open(k->heaps, &o, &k->comm));
    SK_TRY(free_bytes(k, &k->before));
    SK_TRY(sk_comm_barrier(k->comm));
    SK_TRY(sk_fabric_open(&k->arena, &k->p, k->d, k->comm, k->timeout_s, &k->f));
    sk_fabric_watch_heaps(k->f, k->heaps);
    return SK_OK;
}

/* One call that one rank leaves out: the others must hear of it, by its name, and be able to end.
 */
static sk_status run_silent(rank *k)
{
    int call = 0;
    double since = sk_now();
    while (k->p.calls.v[call].group != WORLD) call++;
    SK_TRY(sk_fabric_warm_up(k->f, k->base, &k->l));
    SK_TRY(sk_comm_barrier(k->comm));
    bool there = k->p.rank + 1 < k->p.n_ranks;
    if (there && k->taped) SK_TRY(play(k, call, 1));
    else if (there) SK_TRY(sk_fabric_start(k->f, call, k->base, &k->l));
    while (!there && !sk_heaps_aborted(k->heaps, NULL, NULL, NULL)) usleep(1000);
    sk_status st = there ? sync_up(k) : SK_EPEER;
    const char *what = k->p.calls.v[call].what;
    bool told = !there || !*sk_error_line() || strstr(sk_error_line(), what);
    if (!k->p.rank)
        printf("  silent%s after %.1f s: %s\n", k->taped ? " on tape" : "", sk_now() - since,
               sk_error_line());
    k->bad += st != SK_EPEER || !told;
    sk_heaps_abort(k->heaps, st, k->p.rank, sk_error());
    sk_fabric_abort(k->f);
    if (sk_stream_sync(k->d, k->s)) printf("rank %d: %s\n", k->p.rank, sk_error_line());
    return SK_OK;
}

static sk_status run_rank(rank *k)
{
    double began = sk_now();
    SK_TRY(open_rank(k));
    double open = sk_now();
    if (k->silent) return run_silent(k);
    SK_TRY(sk_fabric_warm_up(k->f, k->base, &k->l));
    double warm = sk_now();
    int64_t left = 0;
    SK_TRY(sk_comm_barrier(k->comm));
    SK_TRY(free_bytes(k, &left));
    if (!k->p.rank)
        printf("%d ranks on %s: open %.2f s, all %d calls once %.2f s; memory of all ranks %lld "
               "MiB\n",
               k->p.n_ranks, k->device, open - began, k->p.calls.n, warm - open,
               (long long)(k->before - left) >> 20);
    for (sk_coll_kind kind = 0; kind < SK_N_COLLS; kind++) {
        int checks = k->checks, bad = k->bad;
        double since = sk_now();
        for (int i = 0; i < k->p.calls.n; i++)
            if (k->p.calls.v[i].kind == kind) SK_TRY(run_case(k, i));
        if (k->p.rank || k->checks == checks) continue;
        printf("  %-15s %3d cases, %d wrong, %.2f s\n", sk_coll_names[kind], k->checks - checks,
               k->bad - bad, sk_now() - since);
    }
    SK_TRY(run_messages(k));
    SK_TRY(sk_comm_barrier(k->comm));
    if (!k->p.rank) printf("  messages around\n");
    sk_fabric_close(k->f);
    return SK_OK;
}

static void *rank_main(void *ctx)
{
    rank *k = ctx;
    make_program(k);
    sk_status st = run_rank(k);
    if (st) {
        printf("rank %d: status %d: %s\n", k->p.rank, (int)st, sk_error());
        sk_heaps_abort(k->heaps, st, k->p.rank, sk_error());
        if (k->f) sk_fabric_abort(k->f);
        k->bad++;
    }
    if (k->comm) sk_comm_close(k->comm);
    sk_device_close(k->d);
    sk_arena_end(&k->arena);
    return NULL;
}

static int wait_all(const pid_t *pid, int n)
{
    int bad = 0, how;
    for (int r = 0; r < n; r++) {
        waitpid(pid[r], &how, 0);
        bad += !WIFEXITED(how) || WEXITSTATUS(how);
        if (!WIFEXITED(how)) printf("rank %d ended by signal %d\n", r, WTERMSIG(how));
    }
    return bad;
}

static int run_processes(rank *k, int n, void (*before)(int rank))
{
    pid_t pid[RANKS];
    fflush(stdout);
    for (int r = 0; r < n; r++) {
        pid[r] = fork();
        if (pid[r]) continue;
        alarm(DEADLINE);
        if (before) before(r);
        rank_main(&k[r]);
        fflush(stdout);
        _exit(k[r].bad != 0);
    }
    return wait_all(pid, n);
}

static int run_threads(rank *k, int n)
{
    pthread_t thread[RANKS];
    int bad = 0;
    for (int r = 0; r < n; r++) pthread_create(&thread[r], NULL, rank_main, &k[r]);
    for (int r = 0; r < n; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < n; r++) bad += k[r].bad != 0;
    return bad;
}

static int run_all(int n_ranks, const char *device, bool processes, void (*before)(int rank),
                   bool silent, bool taped)
{
    rank k[RANKS] = {{.arena = {0}}};
    sk_heaps *heaps;
    int64_t bytes[RANKS] = {HEAP, HEAP, HEAP, HEAP};
    sk_status st = sk_heaps_open(n_ranks, bytes, processes, 0, &heaps);
    if (st) return printf("heaps: %s\n", sk_error());
    for (int r = 0; r < n_ranks; r++) {
        k[r].device = device;
        k[r].heaps = heaps;
        k[r].silent = silent;
        k[r].taped = taped;
        k[r].timeout_s = silent ? SILENT_S : TIMEOUT_S;
        k[r].p.rank = r;
        k[r].p.n_ranks = n_ranks;
    }
    int bad = processes ? run_processes(k, n_ranks, before) : run_threads(k, n_ranks);
    sk_heaps_close(heaps);
    return bad;
}

int sk_fabric_cases(int n_ranks, const char *device, bool processes, void (*before)(int rank))
{
    return run_all(n_ranks, device, processes, before, false, false);
}

int sk_fabric_silent(int n_ranks, const char *device, bool taped, void (*before)(int rank))
{
    return run_all(n_ranks, device, true, before, true, taped);
}
