/* execute_message.c - the sends and receives of an execution, between hosts and inside of one.
 *
 * Between ranks of one host a message is a note in the sender's outbox, which lies in the workspace
 * of its call: one note per send of the list, so there is always a free one and several executions
 * never share any.  A note says where the data lie in the sender's heap.  The receiver finds the
 * outbox by the slot of the group (comm/heap.h), reads straight out of the sender's memory, and
 * marks the note as taken; only then may the sender write there again.
 *
 * Between hosts a message goes over the wire with the tag of the execution.  Messages of one
 * execution between two members keep their order, so the tag tells executions apart and nothing
 * else: group, number of the call, and a hash of what the call is, so that calls that differ never
 * meet. */
#include "coll/execution.h"

enum { LINE = 64 };
enum { EMPTY, POSTED, TAKEN }; /* a note */

static int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

static sk_status wrong_bytes(sk_comm *c, const sk_execution *e, int peer, int64_t got, int64_t want)
{
    sk_status st = sk_fail(SK_EBUG,
                           "rank %d got %lld bytes from rank %d in call %llx (%s by %s) and "
                           "expects %lld; their programs differ",
                           c->rank, (long long)got, peer, (long long)e->call->id,
                           sk_coll_names[e->call->kind], e->schedule->coll->name, (long long)want);
    return sk_comm_report(c, st);
}

/* A failure of the wire, reported. */
static sk_status told(sk_comm *c, sk_status st) { return st ? sk_comm_report(c, st) : SK_OK; }

/* --- outboxes --- */

static sk_outbox open_box(char *memory, int n)
{
    int64_t head = round_up((n + 1) * (int64_t)sizeof(int), LINE);
    return (sk_outbox){(const int *)(const void *)memory, (sk_note *)(void *)(memory + head)};
}

/* My outbox, empty. */
void sk_exec_fill_outbox(sk_comm *c, sk_execution *e)
{
    int n = e->group->group.n, *first = (int *)(void *)sk_exec_workspace(c->base, e->call);
    sk_outbox *mine = &e->box[e->group->group.me];
    memcpy(first, e->schedule->box, (size_t)(n + 1) * sizeof *first);
    *mine = open_box((char *)first, n);
    for (int i = 0; i < first[n]; i++)
        atomic_store_explicit(&mine->notes[i].state, EMPTY, memory_order_relaxed);
}

/* The outbox of a member of this host, once it has begun the same call. */
static sk_status find_outbox(sk_comm *c, sk_execution *e, int member)
{
    int r = sk_exec_rank(e, member);
    sk_group_slot *s = sk_heaps_slot(c->heaps, r, e->call->group);
    if (!sk_reached(&s->posted, e->number + 1)) return SK_OK;
    char *base = sk_heap_base(c->heaps, r);
    const void *at = base + s->call[e->number % SK_COMM_FLIGHT];
    const sk_coll_call *theirs = at;
    if (s->sign[e->number % SK_COMM_FLIGHT] != e->sync->sign)
        return sk_call_differ(c, e->sync, r, theirs);
    e->box[member] = open_box(sk_exec_workspace(base, theirs), e->group->group.n);
    return SK_OK;
}

/* Everybody of this host may look for me now. */
void sk_exec_announce(sk_comm *c, const sk_execution *e)
{
    const sk_group *g = &e->group->group;
    sk_group_slot *s = sk_heaps_slot(c->heaps, c->rank, e->call->group);
    s->call[e->number % SK_COMM_FLIGHT] = (const char *)e->call - c->base;
    atomic_store(&s->posted, e->number + 1);
    for (int i = 0; i < g->n; i++)
        if (i != g->me && sk_on_this_host(c, g->ranks[i]))
            sk_bell_ring(sk_heaps_bell(c->heaps, g->ranks[i]));
}

/* --- lengths --- */

/* Bytes that a send carries.  Nothing but a member's part leaves it, unless it was packed with
 * others in TMP. */
static int64_t length_of(const sk_execution *e, const sk_step *t, sk_cell c)
{
    bool known = sk_kind_rows[e->layout.kind].counts || c.space != SK_TMP;
    return sk_exec_may_be_short(e, t) && known ? *sk_exec_length(e, c)
                                               : sk_buffer_layout_span(&e->layout, t->chunk, t->n);
}

/* The least that a receive must bring. */
static int64_t least_of(const sk_execution *e, const sk_step *t, int64_t most)
{
    if (!sk_exec_may_be_short(e, t)) return most;
    return e->layout.kind == SK_ALLTOALL && t->into.space == SK_DST ? *sk_exec_length(e, t->into)
                                                                    : 0;
}

/* --- sending --- */

typedef struct load { /* what a send carries */
    const char *from;
    int64_t bytes;
    bool apart, staged;
} load;

/* Cells that are apart, in a row at `to`. */
static void collect(const sk_execution *e, const sk_step *t, char *to)
{
    for (int j = 0; j < t->n; j++) {
        int64_t bytes = sk_buffer_layout_span(&e->layout, t->chunk + j, 1);
        sk_exec_copy(to, sk_exec_cell(e, sk_cell_at(t->from, j)), bytes);
        to += bytes;
    }
}

static load load_of(const sk_execution *e, int i, bool here)
{
    const sk_step *t = sk_exec_step(e, i);
    if (e->schedule->coll->packs) {
        load s = {.staged = t->n > 1};
        s.from = sk_exec_streams_out(e, i, &s.bytes);
        return s;
    }
    bool apart = !sk_exec_in_a_row(e, t->from, t);
    load l = {sk_exec_cell(e, t->from), length_of(e, t, t->from), apart, apart && !here};
    if (!l.staged) return l;
    char *to = sk_exec_staging(e, i, 0);
    collect(e, t, to);
    l.from = to;
    l.apart = false;
    return l;
}

static void post_note(sk_comm *c, sk_execution *e, int i, const load *l)
{
    const sk_step *t = sk_exec_step(e, i);
    const sk_outbox *box = &e->box[e->group->group.me];
    sk_note *n = &box->notes[box->first[t->peer] + e->schedule->ordinal[i]];
    n->at = l->from - c->base;
    n->bytes = l->bytes;
    n->apart = l->apart;
    atomic_store(&n->state, POSTED);
    sk_bell_ring(sk_heaps_bell(c->heaps, sk_exec_rank(e, t->peer)));
}

/* *done stays false when the wire has no room for one more. */
sk_status sk_exec_send(sk_comm *c, sk_execution *e, int i, bool *done)
{
    int to = sk_exec_rank(e, sk_exec_step(e, i)->peer);
    bool here = sk_on_this_host(c, to);
    load l = load_of(e, i, here);
    sk_step_state *now = &e->states[i];
    sk_assert(now->phase == SK_STEP_NEW && e->n_out < e->cap_steps);
    now->req = -1;
    if (here) post_note(c, e, i, &l);
    else {
        SK_TRY(told(c, c->wire->send(c->wire, to, e->tag, l.from, l.bytes, &now->req)));
        if (now->req < 0) return SK_OK;
    }
    c->bytes_sent += l.bytes;
    now->phase = SK_STEP_IN_FLIGHT;
    now->due = l.staged ? sk_exec_step(e, i)->round + 1 : e->schedule->due[i];
    e->out[e->n_out++] = i;
    *done = true;
    return SK_OK;
}

static sk_status arrived(sk_comm *c, sk_execution *e, int i, bool *done)
{
    const sk_step *t = sk_exec_step(e, i);
    if (e->states[i].req >= 0) return told(c, c->wire->test(c->wire, e->states[i].req, done, NULL));
    const sk_outbox *box = &e->box[e->group->group.me];
    const sk_note *n = &box->notes[box->first[t->peer] + e->schedule->ordinal[i]];
    *done = atomic_load_explicit(&n->state, memory_order_acquire) == TAKEN;
    return SK_OK;
}

/* Looks at all sends in flight. */
sk_status sk_exec_test_sends(sk_comm *c, sk_execution *e)
{
    for (int k = e->n_out - 1; k >= 0; k--) {
        bool done = false;
        SK_TRY(arrived(c, e, e->out[k], &done));
        if (!done) continue;
        sk_assert(e->states[e->out[k]].phase == SK_STEP_IN_FLIGHT);
        e->states[e->out[k]].phase = SK_STEP_DONE;
        e->out[k] = e->out[--e->n_out];
    }
    return SK_OK;
}

/* --- receiving --- */

/* Data that came: cells in a row, cells that are apart, or streams. */
static sk_status deliver(sk_comm *c, sk_execution *e, int i, const char *from, int64_t bytes,
                         bool apart)
{
    const sk_step *t = sk_exec_step(e, i);
    bool sums = t->act == SK_STEP_RECV_SUM, v = sk_kind_rows[e->layout.kind].counts;
    bool part = sk_exec_may_be_short(e, t);
    int64_t want = v ? e->layout.largest : sk_buffer_layout_span(&e->layout, t->chunk, t->n);
    if (e->schedule->coll->packs) return sk_exec_streams_in(c, e, i, from, bytes);
    if (bytes > want || bytes < least_of(e, t, want))
        return wrong_bytes(c, e, sk_exec_rank(e, t->peer), bytes, want);
    if (v) sk_exec_set_length(c, e, t->into, bytes);
    if (part) sk_exec_copy(sk_exec_cell(e, t->into), from, bytes);
    else sk_exec_apply(e, t, from, apart, sums);
    return SK_OK;
}

sk_status sk_exec_recv_note(sk_comm *c, sk_execution *e, int i, bool *done)
{
    const sk_step *t = sk_exec_step(e, i);
    sk_outbox *box = &e->box[t->peer];
    if (!box->first) SK_TRY(find_outbox(c, e, t->peer));
    if (!box->first) return SK_OK;
    sk_note *n = &box->notes[box->first[e->group->group.me] + e->schedule->ordinal[i]];
    if (atomic_load_explicit(&n->state, memory_order_acquire) != POSTED) return SK_OK;
    int r = sk_exec_rank(e, t->peer);
    SK_TRY(deliver(c, e, i, (const char *)sk_heap_base(c->heaps, r) + n->at, n->bytes, n->apart));
    atomic_store(&n->state, TAKEN);
    sk_bell_ring(sk_heaps_bell(c->heaps, r));
    *done = true;
    return SK_OK;
}

/* Where a wire puts what comes: its place, or the staging buffer if there is more to do with it. */
static char *landing(const sk_execution *e, int i, int64_t *most)
{
    const sk_step *t = sk_exec_step(e, i);
    bool packs = e->schedule->coll->packs;
    *most = packs ? t->n * e->layout.stride
                  : (sk_kind_rows[e->layout.kind].counts
                         ? e->layout.largest
                         : sk_buffer_layout_span(&e->layout, t->chunk, t->n));
    if (packs || t->act == SK_STEP_RECV_SUM || !sk_exec_in_a_row(e, t->into, t))
        return sk_exec_staging(e, i, 0);
    return sk_exec_cell(e, t->into);
}

sk_status sk_exec_recv_wire(sk_comm *c, sk_execution *e, int i, bool *done)
{
    sk_step_state *now = &e->states[i];
    int64_t most = 0, bytes = 0;
    char *to = landing(e, i, &most);
    if (now->phase == SK_STEP_NEW) {
        int from = sk_exec_rank(e, sk_exec_step(e, i)->peer);
        SK_TRY(told(c, c->wire->recv(c->wire, from, e->tag, to, most, &now->req)));
        if (now->req < 0) return SK_OK;
        now->phase = SK_STEP_IN_FLIGHT;
    }
    SK_TRY(told(c, c->wire->test(c->wire, now->req, done, &bytes)));
    return *done ? deliver(c, e, i, to, bytes, false) : SK_OK;
}
