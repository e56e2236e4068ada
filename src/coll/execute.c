/* execute.c - executing step lists: rounds, and the beginning and the end of an execution.
 *
 * In a round sends and receives are in flight together (execute_message.c); copies and sums come
 * when the receives are over (execute_local.c).  A send may stay in flight until a later round
 * writes what it sends, so that nobody waits for a slow neighbour without need. */
#include "coll/execute.h"
#include "coll/execution.h"
#include "coll/adasum_kernel.h"
#include "coll/sum_kernels.h"

typedef struct sk_executor {
    sk_compiled_schedule *schedules;
    sk_execution *free;
} sk_executor;

/* --- rounds --- */

/* A member whose receive must come before this round; -1: none. */
static int find_due(const sk_execution *e, int round)
{
    for (int k = 0; k < e->n_out; k++)
        if (e->states[e->out[k]].due <= round) return sk_exec_step(e, e->out[k])->peer;
    return -1;
}

typedef struct pass { /* one look at the steps of a round */
    bool open;        /* a message is not sent, or did not come */
    bool full;        /* the wire took no more: later messages must not overtake */
    int waits_for;    /* a member */
} pass;

static sk_status try_send(sk_comm *c, sk_execution *e, int i, pass *s)
{
    bool done = false;
    if (!s->full) SK_TRY(sk_exec_send(c, e, i, &done));
    s->full |= !done;
    s->open |= !done;
    return SK_OK;
}

static sk_status try_recv(sk_comm *c, sk_execution *e, int i, pass *s)
{
    int peer = sk_exec_step(e, i)->peer;
    bool done = false, here = sk_on_this_host(c, sk_exec_rank(e, peer));
    if (here) SK_TRY(sk_exec_recv_note(c, e, i, &done));
    else if (!s->full || e->states[i].phase != SK_STEP_NEW)
        SK_TRY(sk_exec_recv_wire(c, e, i, &done));
    if (!here && e->states[i].phase == SK_STEP_NEW) s->full = true;
    if (done) e->states[i].phase = SK_STEP_DONE;
    else if (s->waits_for < 0) s->waits_for = peer;
    s->open |= !done;
    return SK_OK;
}

static sk_status try_messages(sk_comm *c, sk_execution *e, pass *s)
{
    for (int i = e->lo; i < e->hi; i++) {
        sk_step_phase state = e->states[i].phase;
        sk_step_act act = sk_exec_step(e, i)->act;
        if (act == SK_STEP_SEND && state == SK_STEP_NEW) SK_TRY(try_send(c, e, i, s));
        if (act == SK_STEP_RECV || act == SK_STEP_RECV_SUM)
            if (state != SK_STEP_DONE) SK_TRY(try_recv(c, e, i, s));
    }
    return SK_OK;
}

static void run_locals(sk_comm *c, sk_execution *e)
{
    for (int i = e->lo; i < e->hi; i++) {
        sk_step_act act = sk_exec_step(e, i)->act;
        bool message = act == SK_STEP_SEND || act == SK_STEP_RECV || act == SK_STEP_RECV_SUM;
        if (message || e->states[i].phase == SK_STEP_DONE) continue;
        if (e->schedule->coll->packs) sk_exec_streams_local(e, i);
        else sk_exec_local(c, e, sk_exec_step(e, i));
        e->states[i].phase = SK_STEP_DONE;
    }
}

/* The steps of the next round, if nothing is due before it. */
static bool next_round(sk_execution *e, int *waits_for)
{
    int n = e->schedule->steps.list.n;
    int round = e->hi < n ? sk_exec_step(e, e->hi)->round : SK_NEVER;
    *waits_for = find_due(e, round);
    if (*waits_for >= 0) return false;
    sk_assert(e->hi <= n);
    e->lo = e->hi;
    while (e->hi < n && sk_exec_step(e, e->hi)->round == round) e->hi++;
    return true;
}

/* --- the beginning and the end --- */

static void finish(sk_comm *c, sk_execution *e)
{
    const sk_buffer_layout *s = &e->layout;
    sk_assert(!e->over && !e->n_out && e->lo == e->hi);
    e->over = true;
    if (e->schedule->coll->packs) {
        sk_exec_streams_end(c, e);
        return;
    }
    if (e->call->reduce == SK_MEAN && sk_kind_sums(e->call->kind) &&
        sk_kind_gets(e->call->kind, e->layout.me == e->call->root))
        sk_sum_divide(e->call->type, e->space[SK_DST], sk_buffer_layout_bytes(s, SK_DST) / s->size,
                      sk_kind_terms(e->call->kind, s->me, s->p));
    if (s->dst_packed)
        sk_buffer_layout_pack(s, e->call->segs, e->call->n_segs, SK_DST, SK_UNPACK, c->base,
                              e->space[SK_DST]);
}

/* SRC and DST of the list, with what they hold at the start. */
static sk_status set_up(sk_comm *c, sk_execution *e)
{
    const sk_buffer_layout *s = &e->layout;
    const sk_coll_call *call = e->call;
    char *workspace = sk_exec_workspace(c->base, call), *src = NULL, *dst = NULL;
    if (call->n_segs) src = c->base + call->segs[0].src, dst = c->base + call->segs[0].dst;
    e->staging = workspace + s->staging;
    e->space[SK_TMP] = workspace + s->tmp;
    e->space[SK_DST] = s->dst_packed ? workspace + s->dst : dst;
    e->space[SK_SRC] = s->src_is_dst ? e->space[SK_DST] : s->src_packed ? workspace + s->src : src;
    if (e->schedule->coll->packs) return sk_exec_streams_begin(c, e);
    if (s->src_packed)
        sk_buffer_layout_pack(s, call->segs, call->n_segs, SK_SRC, SK_PACK, c->base,
                              e->space[SK_SRC]);
    bool copied = sk_kind_rows[call->kind].copied && sk_kind_gives(call->kind, s->me == call->root);
    if (copied && e->space[SK_DST] != src)
        sk_buffer_layout_pack(s, call->segs, call->n_segs, SK_SRC, SK_PACK, c->base,
                              e->space[SK_DST]);
    return SK_OK;
}

static void count_rows(sk_comm *c, sk_execution *e)
{
    const int64_t *counts = (const int64_t *)(const void *)(c->base + e->call->counts);
    int64_t row = e->call->segs[0].inner * e->layout.size;
    for (int i = 0; i < e->layout.p; i++) *sk_exec_length(e, sk_src(i)) = counts[i] * row;
}

static int64_t make_tag(const sk_execution *e)
{
    uint64_t low = (uint64_t)e->call->group * SK_COMM_FLIGHT + e->number % SK_COMM_FLIGHT;
    return (int64_t)(e->sync->sign << SK_WIRE_TAG_BITS | low);
}

/* All-to-all: what goes to each member, and what comes from it. */
static void measure_parts(sk_execution *e)
{
    int me = e->layout.me, n = e->layout.p;
    for (int i = 0; i < n; i++) {
        int64_t *out = sk_exec_length(e, sk_src(i)), *in = sk_exec_length(e, sk_dst(i));
        *out = *in = 0;
        for (int k = 0; k < e->call->n_segs; k++) {
            sk_block to = sk_seg_block(&e->call->segs[k], me, i, n);
            sk_block from = sk_seg_block(&e->call->segs[k], i, me, n);
            *out += sk_block_count(&to) * e->layout.size;
            *in += sk_block_count(&from) * e->layout.size;
        }
    }
}

static sk_status check(const sk_comm *c, const sk_coll *a, const sk_coll_call *call,
                       const sk_coll_ask *ask)
{
    if (!sk_coll_can(a, ask))
        return sk_fail(SK_EBUG, "call %llx: algorithm %s has no %s for %d members",
                       (long long)call->id, a->name, sk_coll_names[call->kind], ask->n);
    if (a->adasum != (call->reduce == SK_ADASUM && sk_kind_sums(call->kind)) ||
        (a->adasum && !sk_adasum_can(call->type)))
        return sk_fail(SK_EBUG, "call %llx: reduction %d of %s is not for algorithm %s",
                       (long long)call->id, (int)call->reduce, sk_dtype_name(call->type), a->name);
    if (!a->build && (!c->wire || !c->wire->native))
        return sk_fail(SK_EBUG, "call %llx: algorithm %s needs a library that has collectives",
                       (long long)call->id, a->name);
    return SK_OK;
}

static bool same_ask(const sk_coll_ask *a, const sk_coll_ask *b)
{
    return a->kind == b->kind && a->n == b->n && a->me == b->me && a->root == b->root &&
           a->n_axes == b->n_axes && !memcmp(a->axes, b->axes, sizeof a->axes) &&
           a->degrees == b->degrees && a->rate == b->rate && (!a->rate || a->ranks == b->ranks);
}

static const sk_compiled_schedule *schedule_for(sk_comm *c, const sk_coll *a,
                                                const sk_coll_ask *ask)
{
    for (sk_compiled_schedule *s = c->collectives->executor->schedules; s; s = s->next)
        if (s->coll == a && same_ask(&s->steps.ask, ask)) return s;
    sk_compiled_schedule *s = sk_new(&c->arena, sk_compiled_schedule);
    sk_schedule_compile(&c->arena, a, ask, s);
    s->next = c->collectives->executor->schedules;
    c->collectives->executor->schedules = s;
    return s;
}

static sk_execution *new_execution(sk_arena *a, int steps, int cells, int n)
{
    sk_execution *e = sk_new(a, sk_execution);
    e->cap_steps = steps;
    e->cap_cells = cells;
    e->cap_n = n;
    e->box = sk_many(a, sk_outbox, n);
    e->states = sk_many(a, sk_step_state, steps);
    e->terms = sk_many(a, const void *, n);
    e->out = sk_many(a, int, steps);
    e->at = sk_many(a, int64_t, cells + 1);
    e->length = sk_many(a, int64_t, 3 * cells);
    return e;
}

/* An execution with room for this list: one that was used before, or a new one. */
static sk_execution *execution_for(sk_comm *c, const sk_compiled_schedule *s)
{
    int steps = s->steps.list.n, n = s->steps.ask.n;
    int cells = s->steps.cells > s->steps.tmp_cells ? s->steps.cells : s->steps.tmp_cells;
    sk_execution **from = NULL, *e;
    for (sk_execution **q = &c->collectives->executor->free; *q; q = &(*q)->next)
        if ((*q)->cap_steps >= steps && (*q)->cap_cells >= cells && (*q)->cap_n >= n &&
            (!from || (*q)->cap_steps < (*from)->cap_steps))
            from = q; /* the tightest, so that long lists find theirs again */
    e = from ? *from : NULL;
    if (e) *from = e->next;
    else e = new_execution(&c->arena, steps, cells, n);
    memset(e->box, 0, (size_t)n * sizeof *e->box);
    memset(e->states, 0, (size_t)steps * sizeof *e->states);
    e->schedule = s;
    e->n_out = e->lo = e->hi = 0;
    e->over = false;
    return e;
}

static sk_status check_workspace(const sk_comm *c, const sk_execution *e)
{
    const sk_coll_call *k = e->call;
    if (k->workspace_bytes >= e->layout.bytes && sk_in_heap(c, k->workspace, k->workspace_bytes, 1))
        return SK_OK;
    return sk_fail(
        SK_EBUG,
        "call %llx (%s by %s): its workspace is %lld bytes at %lld in a heap of %lld, rank "
        "%d needs %lld",
        (long long)k->id, sk_coll_names[k->kind], e->schedule->coll->name,
        (long long)k->workspace_bytes, (long long)k->workspace, (long long)c->bytes, c->rank,
        (long long)e->layout.bytes);
}

/* The sends of the first round; what comes is looked at in sk_execute_progress. */
static sk_status first_sends(sk_comm *c, sk_execution *e)
{
    pass s = {.waits_for = -1};
    int waits_for;
    next_round(e, &waits_for);
    for (int i = e->lo; i < e->hi; i++)
        if (sk_exec_step(e, i)->act == SK_STEP_SEND) SK_TRY(try_send(c, e, i, &s));
    return SK_OK;
}

sk_status sk_execute_begin(sk_comm *c, sk_group_state *m, const sk_call_state *state,
                           uint64_t number, sk_execution **out)
{
    const sk_coll_call *call = state->call;
    const sk_coll *a = sk_coll_parts[call->algorithm];
    sk_coll_ask ask;
    sk_coll_ask_for(call->kind, m->group.ranks, m->group.n, m->group.me, call->root, c->host_of,
                    c->links, &ask);
    ask.degrees = call->degrees;
    SK_TRY(check(c, a, call, &ask));
    sk_execution *e = execution_for(c, schedule_for(c, a, &ask));
    sk_assert(e->schedule->steps.ask.me == m->group.me && number == m->posted);
    e->call = call;
    e->sync = &state->sync;
    e->group = m;
    e->number = number;
    e->tag = make_tag(e);
    sk_buffer_layout_make(e->schedule, call->type, call->segs, call->n_segs, call->rows, true,
                          e->at, &e->layout);
    sk_status st = check_workspace(c, e);
    if (!st) st = set_up(c, e);
    if (!st) {
        if (sk_kind_rows[call->kind].counts) count_rows(c, e);
        else if (sk_kind_blocks(call->kind)) measure_parts(e);
        sk_exec_fill_outbox(c, e);
        st = first_sends(c, e);
    }
    if (st) {
        sk_execute_end(c, e);
        return sk_trail(st, SK_HERE);
    }
    sk_exec_announce(c, e);
    *out = e;
    return SK_OK;
}

bool sk_execute_blocks(const sk_execution *e) { return !e->schedule->coll->build && !e->over; }

static sk_status go_native(sk_comm *c, sk_execution *e)
{
    const sk_coll_call *k = e->call;
    const sk_group *g = &e->group->group;
    for (int i = 0; i < e->layout.cells; i++)
        e->length[i] = sk_buffer_layout_span(&e->layout, i, 1) / e->layout.size;
    sk_native_call call = {.kind = k->kind,
                           .reduce = sk_exec_reduce(e),
                           .type = k->type,
                           .root = k->root,
                           .n = g->n,
                           .ranks = g->ranks,
                           .src = e->space[SK_SRC],
                           .dst = e->space[SK_DST],
                           .counts = e->length};
    sk_status st = c->wire->native(c->wire, &call);
    if (st) return sk_comm_report(c, st);
    c->bytes_sent += sk_call_bytes_sent(c, g, k);
    finish(c, e);
    return SK_OK;
}

static sk_status go_on(sk_comm *c, sk_execution *e, int *waits_for)
{
    for (;;) {
        pass s = {.waits_for = -1};
        SK_TRY(sk_exec_test_sends(c, e));
        SK_TRY(try_messages(c, e, &s));
        *waits_for = s.waits_for;
        if (s.open) return SK_OK;
        run_locals(c, e);
        if (!next_round(e, waits_for)) return SK_OK;
        if (e->lo == e->hi) break;
    }
    finish(c, e);
    return SK_OK;
}

sk_status sk_execute_progress(sk_comm *c, sk_execution *e, bool *over, int *waits_for)
{
    int member = -1;
    if (!e->over) SK_TRY(e->schedule->coll->build ? go_on(c, e, &member) : go_native(c, e));
    *over = e->over;
    *waits_for = member < 0 ? -1 : sk_exec_rank(e, member);
    return SK_OK;
}

void sk_execute_end(sk_comm *c, sk_execution *e)
{
    e->next = c->collectives->executor->free;
    c->collectives->executor->free = e;
}

void sk_executor_open(sk_comm *c) { c->collectives->executor = sk_new(&c->arena, sk_executor); }
