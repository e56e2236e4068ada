/* algorithms.c - the pass that decides how each call is done (coll/choose.h), plans the workspace
 * that takes, and counts the bytes that must leave this rank. */
#include "base/hash.h"
#include "coll/segment.h"
#include "coll/execute.h"
#include "program/lowering.h"
#include "program/workspaces.h"

#include <stddef.h>
#include <string.h>

enum { MOST_COUNTED = 64 };

_Static_assert((int)SK_PIN_AXES >= (int)SK_MAX_AXES, "every axis may have a pin");

/* Of streams how much leaves a rank is known when they are packed: what the price expects, and no
 * more than dense vectors. */
static int64_t streamed_bytes(const sk_call_plan *c, const sk_coll_ask *ask)
{
    const sk_coll *a = c->algorithm >= 0 ? sk_coll_parts[c->algorithm] : NULL;
    if (!a || !a->packs || ask->fill <= 0 || ask->n < 2) return 0;
    return (int64_t)(sk_coll_price(a, ask).sent * (double)sk_call_bytes(c)) + 1;
}

/* Bytes that leave this rank: those of its list; else at least, 2S(p-1)/p for an all-reduce, half
 * of it for the others.  If the size of an all-reduce does not divide, any member may have the
 * larger share, so none is assumed to. */
int64_t sk_call_wire_of(const sk_call_plan *c, int me, int n)
{
    int64_t size = (int64_t)sk_dtype_size(c->type), sum = 0, summed = 0;
    if (c->common || c->streamed) return c->streamed;
    if (c->sent) return c->sent[me];
    for (int i = 0; i < c->n_segs; i++) {
        sk_seg s = sk_call_shape(&c->segs[i]);
        int64_t mine = s.outer * sk_seg_rows(&s, me, n).n * s.inner, all = sk_seg_count(&s);
        if (s.swap) {
            sk_block own = sk_seg_block(&s, me, me, n);
            sum += (sk_seg_gives(&s, me, n) - sk_block_count(&own)) * size;
            continue;
        }
        if (c->kind == SK_ALLREDUCE) summed += all * size;
        else if (c->kind == SK_ALLGATHER) sum += mine * (n - 1) * size;
        else {
            bool part = c->kind == SK_REDUCE_SCATTER || c->kind == SK_ALLTOALL;
            sum += (all - mine) * size + (part ? 0 : mine * (n - 1) * size);
        }
    }
    summed *= 2 * (n - 1);
    return sum + summed / n + (me < summed % n);
}

static int64_t wire_of(const sk_program *p, const sk_call_plan *c)
{
    const sk_group *g = &p->groups[c->group];
    return sk_call_wire_of(c, g->me, g->n);
}

int64_t sk_call_wire(const sk_call_plan *c, int n)
{
    int64_t sum = 0, ways = c->kind == SK_ALLREDUCE ? 2 : 1;
    if (c->common || c->streamed) return n * c->streamed;
    for (int m = 0; c->sent && m < n; m++) sum += c->sent[m];
    if (c->sent) return sum;
    for (int i = 0; i < c->n_segs; i++) {
        sk_seg s = sk_call_shape(&c->segs[i]);
        sum += s.swap ? sk_seg_whole(&s) : ways * (n - 1) * sk_seg_count(&s);
        for (int m = 0; m < n && s.swap; m++) { /* each keeps a block; sizes differ */
            sk_block own = sk_seg_block(&s, m, m, n);
            sum -= sk_block_count(&own);
        }
    }
    return sum * (int64_t)sk_dtype_size(c->type);
}

void sk_call_fill(const sk_call_plan *c, sk_coll_ask *ask)
{
    int64_t inner = c->n_segs ? c->segs[0].inner : 1, size = (int64_t)sk_dtype_size(c->type);
    ask->rows = c->rows;
    ask->fill = c->fill;
    ask->wide = inner > 0 ? (double)(4 + inner * size) / (double)(inner * size) : 1;
}

static sk_seg *shapes_of(const sk_call_plan *c, sk_arena *a)
{
    sk_seg *segs = sk_many(a, sk_seg, c->n_segs + 1);
    for (int i = 0; i < c->n_segs; i++) segs[i] = sk_call_shape(&c->segs[i]);
    return segs;
}

/* What the lists of all members send, as it is counted where they run.  Of many members it is not
 * asked, for a rank writes them all: closed forms differ where a list cuts elsewhere, or sends more
 * than the least. */
static void count_sent(sk_lowering *e, sk_call_plan *c, const sk_coll_ask *ask)
{
    const sk_coll *how = sk_coll_parts[c->algorithm];
    sk_coll_ask of = *ask;
    if (!how->build || how->native || how->packs || sk_kind_rows[c->kind].counts ||
        ask->n > MOST_COUNTED)
        return;
    int64_t *sent = sk_many(e->p->arena, int64_t, ask->n);
    sk_mark mark = sk_arena_mark(e->p->arena);
    const sk_seg *segs = shapes_of(c, e->p->arena);
    for (of.me = 0; of.me < ask->n; of.me++)
        sent[of.me] = sk_coll_sent(how, &of, c->type, segs, c->n_segs);
    sk_arena_back(e->p->arena, mark);
    c->sent = sent;
}

/* Calls that were executed as step lists so far, one of each shape. */
typedef struct listed {
    int *v, n, cap;
} listed;

static bool same_grid(const sk_grid *a, const sk_grid *b) { return !memcmp(a, b, sizeof *a); }

static bool same_seg(const sk_call_seg *a, const sk_call_seg *b)
{
    return a->outer == b->outer && a->n == b->n && a->inner == b->inner && a->swap == b->swap &&
           a->mid == b->mid && a->n2 == b->n2 && same_grid(&a->cut, &b->cut) &&
           same_grid(&a->cut2, &b->cut2);
}

/* Is the workspace of one that of the other? */
static bool same_lists(const sk_call_plan *a, const sk_call_plan *b)
{
    bool same = a->kind == b->kind && a->type == b->type && a->group == b->group &&
                a->algorithm == b->algorithm && a->degrees == b->degrees && a->rows == b->rows &&
                a->root == b->root && a->n_segs == b->n_segs;
    for (int i = 0; same && i < a->n_segs; i++) same = same_seg(&a->segs[i], &b->segs[i]);
    return same;
}

/* MOST_PLACES: building the lists of n members takes n * n steps: 40 ms where n is 1,024. */
enum { MOST_PLACES = 1024 };

/* What the member needs that needs most: where a member stands in the group decides how much, and
 * ranks of a class, which have equal programs, stand everywhere (classes.c). */
static int64_t most_workspace(sk_program *p, const sk_call_plan *c, const sk_coll_ask *ask)
{
    const sk_coll *how = sk_coll_parts[c->algorithm];
    sk_coll_ask at = *ask;
    sk_mark mark = sk_arena_mark(p->arena);
    const sk_seg *segs = shapes_of(c, p->arena);
    int64_t most = sk_coll_workspace(how, ask, c->type, segs, c->n_segs);
    for (at.me = 0; ask->n <= MOST_PLACES && at.me < ask->n; at.me++) {
        int64_t bytes = sk_coll_workspace(how, &at, c->type, segs, c->n_segs);
        if (bytes > most) most = bytes;
    }
    sk_arena_back(p->arena, mark);
    return most;
}

/* Workspace of calls that are executed as step lists; it lives from start to wait. */
static void plan_workspace(sk_lowering *e, int call, const sk_coll_ask *ask, listed *seen)
{
    sk_program *p = e->p;
    sk_call_plan *c = &p->calls.v[call];
    int i = 0;
    while (i < seen->n && !same_lists(&p->calls.v[seen->v[i]], c)) i++;
    if (i < seen->n) c->workspace_bytes = p->calls.v[seen->v[i]].workspace_bytes;
    else {
        c->workspace_bytes = most_workspace(p, c, ask);
        *sk_push(e->tmp, seen) = call;
    }
    if (!c->workspace_bytes) return;
    sk_extent box = {.n = 1, .size = {c->workspace_bytes}, .full = {c->workspace_bytes}};
    c->workspace = sk_lower_buffer(e, "workspace of a call", NULL, SK_WIRE, SK_U8, box);
}

/* Between GPUs NCCL chooses the algorithm; it needs contiguous data, so the workspace is for
 * packing. */
static void plan_gpu(sk_lowering *e, int call)
{
    sk_call_plan *c = &e->p->calls.v[call];
    c->algorithm = SK_BUILTIN;
    c->workspace_bytes = sk_workspace_call(c, e->p->groups[c->group].n);
    if (!c->workspace_bytes) return;
    sk_extent box = {.n = 1, .size = {c->workspace_bytes}, .full = {c->workspace_bytes}};
    c->workspace = sk_lower_buffer(e, "workspace of a call", NULL, SK_WIRE, SK_U8, box);
}

/* Only ranks of one host can share memory. */
static sk_status meet_here(const sk_lowering *e, const sk_group *g, int hosts)
{
    if (hosts == 1) return SK_OK;
    const char *axis = e->l->mesh.name[e->l->shard_axis];
    return sk_fail(
        SK_ECONF,
        "layout: replica: the %d ranks along '%s' sit on %d hosts, and only ranks of one "
        "host can keep one copy of the weights; leave replica out, or let '%s' end at "
        "the host and split the batch over a second axis as well",
        g->n, axis, hosts, axis);
}

/* Only an algorithm that the user pinned can fail here. */
static sk_status sums_type(const sk_call_plan *c)
{
    const sk_coll *a = c->algorithm >= 0 ? sk_coll_parts[c->algorithm] : NULL;
    if (!a || !a->no_halves || !sk_kind_sums(c->kind) || sk_dtype_size(c->type) != 2) return SK_OK;
    return sk_fail(SK_ECONF,
                   "comm.algorithm: %s does not sum %s, and '%s' is a sum of them; take another "
                   "one (skein list coll), or train.dtype=f32",
                   a->name, sk_dtype_name(c->type), c->what);
}

/* In canonical order a sum of floats goes by the tree.  Maxima and sums of integers are exact in
 * any order; adasum is a reduction of its own. */
static sk_status keeps_order(const sk_lowering *e, const sk_call_plan *c, const sk_coll_ask *ask)
{
    const sk_coll *a = c->algorithm >= 0 ? sk_coll_parts[c->algorithm] : NULL;
    bool rounds = sk_kind_sums(c->kind) && c->reduce == SK_SUM && c->type != SK_I64;
    if (!e->l->canonical || !a || sk_coll_order(a, ask) == SK_ORDER_TREE || !rounds) return SK_OK;
    return sk_fail(SK_ECONF,
                   "comm.algorithm: %s adds in an order of its own, and order=canonical needs "
                   "that of the tree for '%s'; leave comm.algorithm out, or take order=fast",
                   a->name, c->what);
}

/* A library's own collective goes through its wire, which ranks of one host do not have. */
static sk_status has_wire(const sk_lowering *e, const sk_call_plan *c)
{
    const sk_coll *a = c->algorithm >= 0 ? sk_coll_parts[c->algorithm] : NULL;
    const int *host_of = e->opts->host_of;
    bool far = false;
    for (int r = 1; host_of && r < e->p->n_ranks; r++) far |= host_of[r] != host_of[0];
    return a && !far ? sk_choose_wired(a, false) : SK_OK;
}

/* A pin of all calls that one of them refused: it may be for a kind. */
static sk_status of_a_kind(sk_lowering *e, const sk_call_plan *c, int pin, sk_status st)
{
    const sk_coll *a = pin > 0 ? sk_coll_parts[pin - 1] : NULL;
    int kind = 0;
    while (a && kind < SK_N_COLLS && !(a->kinds >> kind & 1)) kind++;
    if (!a || pin != e->opts->pins.all || kind == SK_N_COLLS || a->kinds >> c->kind & 1) return st;
    const char *why = sk_strdup(e->tmp, sk_error_line());
    return sk_fail(st, "%s; comm.algorithm=\"%s: %s\" asks for it in calls of that kind alone", why,
                   sk_coll_names[kind], a->name);
}

static sk_status choose(sk_lowering *e, int call, listed *seen)
{
    sk_call_plan *c = &e->p->calls.v[call];
    const sk_group *g = &e->p->groups[c->group];
    const sk_compile_opts *o = e->opts;
    sk_coll_ask ask;
    if (o->gpu) {
        plan_gpu(e, call);
        return SK_OK;
    }
    sk_coll_ask_for(c->kind, g->ranks, g->n, g->me, c->root, o->host_of, o->links, &ask);
    ask.any_order = e->p->any_order;
    int hosts = sk_hosts_count(g->ranks, g->n, o->host_of);
    int64_t bytes = sk_call_bytes(c);
    if (c->common) return meet_here(e, g, hosts);
    int axis = c->group < e->l->mesh.n ? c->group : -1, pin = sk_pins_of(&o->pins, c->kind, axis);
    ask.degrees = sk_pins_degrees(&o->pins, c->kind, axis);
    sk_call_fill(c, &ask);
    sk_status st = sk_choose_call(o->costs, pin, &ask, hosts, c->reduce, bytes, &c->algorithm);
    if (st) return sk_trail(of_a_kind(e, c, pin, st), SK_HERE);
    c->degrees = c->algorithm >= 0 ? ask.degrees : 0;
    c->streamed = streamed_bytes(c, &ask);
    SK_TRY(sums_type(c));
    SK_TRY(keeps_order(e, c, &ask));
    SK_TRY(has_wire(e, c));
    if (c->algorithm >= 0) count_sent(e, c, &ask);
    if (c->algorithm >= 0) plan_workspace(e, call, &ask, seen);
    return SK_OK;
}

/* On one host nothing is chosen by costs, but how unions are summed (coded_union.c). */
static bool by_costs(const sk_lowering *e)
{
    for (int i = 0; i < e->p->params.n; i++)
        if (sk_union_sums(e, &e->p->params.v[i])) return true;
    return e->opts->host_of;
}

static uint64_t choices(const sk_lowering *e)
{
    const sk_compile_opts *o = e->opts;
    const sk_costs *c = o->costs ? o->costs : &sk_costs_preset;
    if (!by_costs(e) && !sk_pins_any(&o->pins)) return 0; /* one host: all in shared memory */
    uint64_t h = sk_links_hash(sk_pins_hash(1 + e->p->any_order, &o->pins), o->links);
    if (o->host_of) h = sk_hash(h, o->host_of, sizeof(int) * (size_t)e->p->n_ranks);
    for (int i = 0; sk_coll_parts[i]; i++)
        h = sk_hash(h, sk_coll_parts[i]->name, strlen(sk_coll_parts[i]->name));
    return sk_hash(h, c, offsetof(sk_costs, host)) |
           1; /* numbers only: the struct has no padding */
}

/* In the order of starts. */
sk_status sk_choose_algorithms(sk_lowering *e)
{
    sk_program *p = e->p;
    listed seen = {0};
    p->any_order = (e->opts->links || e->opts->any_order) && !e->l->canonical;
    for (int pc = 0; pc < p->insts.n; pc++) {
        sk_inst *in = &p->insts.v[pc];
        if (in->act == SK_DO_START) SK_TRY(choose(e, in->call, &seen));
        if (in->act == SK_DO_WAIT) in->wire = wire_of(p, &p->calls.v[in->call]);
        if (sk_layout_timed(e->l)) in->wire += sk_timed_wire(p, in);
    }
    p->choices = choices(e);
    p->links = e->opts->links;
    return SK_OK;
}
