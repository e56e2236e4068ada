/* play.c - playing step lists.
 *
 * Between ranks of one host a message is a note in the sender's outbox, which lies
 * in the room of its call: one note per send of the list, so there is always a free
 * one and several plays never stand in each other's way.  A note says where the data
 * lie in the sender's heap.  The receiver finds the outbox by the slot of the group
 * (comm/heap.h), reads straight out of the sender's memory, and marks the note as
 * taken; only then may the sender write there again.
 *
 *     EMPTY  -sender->  POSTED  -receiver->  TAKEN
 *
 * Between hosts a message goes over the wire with the tag of the play.  Messages of
 * one play between two members keep their order, so the tag tells plays apart and
 * nothing else: group, number of the call, and a hash of what the call is, so that
 * calls that differ never meet.
 *
 * In a round sends and receives are under way together; copies and sums come when
 * the receives are over.  A send may stay under way until a later round writes what
 * it sends, so that nobody waits for a slow neighbour without need. */
#include "coll/execute.h"
#include "coll/compiled_schedule.h"
#include "coll/adasum_kernel.h"
#include "coll/sparse_stream.h"
#include "coll/sum_kernels.h"

enum { LINE = 64 };
enum { EMPTY, POSTED, TAKEN }; /* a note */
typedef enum turn_state { NEW, UNDER_WAY, DONE } turn_state;

typedef struct note {
    _Alignas(SK_NOTE_BYTES) atomic_int state;
    int apart;         /* cells of SK_TMP that are not in a row */
    int64_t at, bytes; /* in the sender's heap */
} note;
_Static_assert(sizeof(note) == SK_NOTE_BYTES, "the room of an outbox is planned");

typedef struct outbox {
    const int *first; /* which notes are for member j; NULL: not seen yet */
    note *notes;
} outbox;

typedef struct turn { /* a step of this play */
    turn_state state;
    int due; /* a send: the round before which it must have arrived */
    sk_req req;
} turn;

struct sk_execution {
    const sk_compiled_schedule *score;
    const sk_coll_call *call;
    const sk_group_state *member;
    uint64_t number;
    int64_t tag;
    sk_sheet sheet;
    char *space[3], *stage;
    outbox *box;          /* by member */
    turn *turns;          /* by step */
    const void **terms;   /* of a tree */
    int *out, n_out;      /* sends under way */
    int64_t *at, *length; /* chunks; all-to-all-v: bytes in the cells of SRC, DST, TMP */
    int lo, hi;           /* steps of the round at hand */
    bool over;
    int cap_steps, cap_cells, cap_n;
    sk_execution *next; /* in the list of those that are free */
};

typedef struct sk_executor {
    sk_compiled_schedule *scores;
    sk_execution *free;
} sk_executor;

static int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
static const sk_step *step_of(const sk_execution *p, int i) { return &p->score->steps.list.v[i]; }
static int rank_of(const sk_execution *p, int member) { return p->member->group.ranks[member]; }

/* --- asking --- */

static int host_at(const int *ranks, int i, const int *host_of) { return host_of[ranks[i]]; }

/* Members per host if all have as many and in a row; else 0. */
static int even_hosts(const int *ranks, int n, const int *host_of)
{
    int each = 1;
    while (each < n && host_at(ranks, each, host_of) == host_at(ranks, 0, host_of)) each++;
    if (each == n || n % each) return 0;
    for (int i = 0; i < n; i += each)
        for (int j = 0; j < n; j++)
            if ((host_at(ranks, i, host_of) == host_at(ranks, j, host_of)) !=
                (j / each == i / each))
                return 0;
    return each;
}

void sk_coll_ask_for(sk_coll_kind kind, const int *ranks, int n, int me, int root,
                     const int *host_of, sk_coll_ask *out)
{
    *out = (sk_coll_ask){.kind = kind, .n = n, .me = me, .root = sk_kind_rooted(kind) ? root : 0};
    int each = host_of && n > 1 ? even_hosts(ranks, n, host_of) : 0;
    if (!each) return;
    out->n_axes = 2;
    out->axes[0] = n / each;
    out->axes[1] = each;
}

int64_t sk_coll_workspace(const sk_coll *c, const sk_coll_ask *a, sk_dtype type, const sk_seg *segs,
                          int n_segs)
{
    sk_arena scratch = {0};
    sk_compiled_schedule s;
    sk_sheet sheet;
    sk_schedule_compile(&scratch, c, a, &s);
    int64_t *at = sk_many(&scratch, int64_t, s.steps.cells + 1);
    sk_buffer_layout_make(&s, type, segs, n_segs, false, at, &sheet);
    sk_arena_end(&scratch);
    return sheet.bytes;
}

/* --- agreement --- */

/* Of all that members must agree upon. */
static uint64_t sign_of(const sk_execution *p)
{
    return p->member->flight[p->number % SK_COMM_FLIGHT]->sign;
}

static sk_status wrong_bytes(sk_comm *c, const sk_execution *p, int peer, int64_t got, int64_t want)
{
    sk_status st = sk_fail(SK_EBUG,
                           "rank %d got %lld bytes from rank %d in call %llx (%s by %s) and "
                           "expects %lld; their programs differ",
                           c->rank, (long long)got, peer, (long long)p->call->id,
                           sk_coll_names[p->call->kind], p->score->coll->name, (long long)want);
    return sk_comm_report(c, st);
}

/* What a wire said, on the board. */
static sk_status told(sk_comm *c, sk_status st) { return st ? sk_comm_report(c, st) : SK_OK; }

/* --- outboxes --- */

static outbox open_box(char *room, int n)
{
    int64_t head = round_up((n + 1) * (int64_t)sizeof(int), LINE);
    return (outbox){(const int *)(const void *)room, (note *)(void *)(room + head)};
}

static char *room_of(char *base, const sk_coll_call *call)
{
    return base + round_up(call->room, LINE);
}

/* My outbox, empty. */
static void fill_box(sk_comm *c, sk_execution *p)
{
    int n = p->member->group.n, *first = (int *)(void *)room_of(c->base, p->call);
    outbox *mine = &p->box[p->member->group.me];
    memcpy(first, p->score->box, (size_t)(n + 1) * sizeof *first);
    *mine = open_box((char *)first, n);
    for (int i = 0; i < first[n]; i++)
        atomic_store_explicit(&mine->notes[i].state, EMPTY, memory_order_relaxed);
}

/* The outbox of a member of this host, once it has begun the same call. */
static sk_status meet(sk_comm *c, sk_execution *p, int member)
{
    int r = rank_of(p, member);
    sk_slot *s = sk_heaps_slot(c->heaps, r, p->call->group);
    if (!sk_reached(&s->posted, p->number + 1)) return SK_OK;
    char *base = sk_heap_base(c->heaps, r);
    const void *at = base + s->call[p->number % SK_COMM_FLIGHT];
    const sk_coll_call *theirs = at;
    if (s->sign[p->number % SK_COMM_FLIGHT] != sign_of(p))
        return sk_comm_differ(c, p->call, r, theirs);
    p->box[member] = open_box(room_of(base, theirs), p->member->group.n);
    return SK_OK;
}

/* Everybody of this host may look for me now. */
static void announce(sk_comm *c, const sk_execution *p)
{
    const sk_group *g = &p->member->group;
    sk_slot *s = sk_heaps_slot(c->heaps, c->rank, p->call->group);
    s->call[p->number % SK_COMM_FLIGHT] = (const char *)p->call - c->base;
    atomic_store(&s->posted, p->number + 1);
    for (int i = 0; i < g->n; i++)
        if (i != g->me && sk_on_this_host(c, g->ranks[i]))
            sk_bell_ring(sk_heaps_bell(c->heaps, g->ranks[i]));
}

/* --- cells --- */

static char *cell_at(const sk_execution *p, sk_cell c)
{
    const sk_sheet *s = &p->sheet;
    if (c.space == SK_TMP) return p->space[SK_TMP] + c.at * s->largest;
    if (sk_buffer_layout_is_part(s->kind, c.space)) return p->space[c.space];
    return p->space[c.space] + (s->at ? s->at[c.at] : c.at * s->largest);
}

static sk_cell cell_next(sk_cell c, int j) { return (sk_cell){c.space, c.at + j}; }

/* Cells of TMP are as far apart as the largest chunk is long. */
static bool in_a_row(const sk_execution *p, sk_cell c, const sk_step *t)
{
    if (c.space != SK_TMP || t->n == 1) return true;
    return sk_buffer_layout_span(&p->sheet, t->chunk, t->n - 1) == (t->n - 1) * p->sheet.largest;
}

/* Cells of an all-to-all have one size, and what is in those of SRC and DST may be shorter. */
static int64_t *length_at(const sk_execution *p, sk_cell c)
{
    return &p->length[(int)c.space * p->cap_cells + c.at];
}

static bool may_be_short(const sk_execution *p, const sk_step *t)
{
    return p->sheet.kind == SK_ALLTOALLV || (p->sheet.kind == SK_ALLTOALL && t->n == 1);
}

/* Bytes that a send carries.  Nothing but a member's part leaves it, unless it was packed with
 * others in TMP. */
static int64_t length_of(const sk_execution *p, const sk_step *t, sk_cell c)
{
    bool known = p->sheet.kind == SK_ALLTOALLV || c.space != SK_TMP;
    return may_be_short(p, t) && known ? *length_at(p, c)
                                       : sk_buffer_layout_span(&p->sheet, t->chunk, t->n);
}

/* The least that a receive must bring. */
static int64_t least_of(const sk_execution *p, const sk_step *t, int64_t most)
{
    if (!may_be_short(p, t)) return most;
    return p->sheet.kind == SK_ALLTOALL && t->into.space == SK_DST ? *length_at(p, t->into) : 0;
}

/* What came, or was copied, of an all-to-all-v. */
static void set_length(sk_comm *c, sk_execution *p, sk_cell into, int64_t bytes)
{
    int64_t *counts = (int64_t *)(void *)(c->base + p->call->counts);
    *length_at(p, into) = bytes;
    int64_t row = p->call->segs[0].inner * p->sheet.size;
    if (into.space == SK_DST) counts[p->sheet.p + into.at] = row ? bytes / row : 0;
}

/* --- sums --- */

/* Vectors of an Adasum are the segments; its lists never cut. */
static void add_angles(const sk_execution *p, const char *a, const char *b, char *to)
{
    for (int i = 0; i < p->call->n_segs; i++) {
        int64_t n = sk_seg_count(&p->call->segs[i]), bytes = n * p->sheet.size;
        sk_adasum(p->call->type, a, b, to, n);
        a += bytes;
        b += bytes;
        to += bytes;
    }
}

static sk_reduce step_reduce(const sk_execution *p)
{
    return p->call->reduce == SK_MEAN ? SK_SUM : p->call->reduce;
}

static void add(const sk_execution *p, const char *a, const char *b, char *to, int64_t bytes)
{
    if (p->call->reduce == SK_ADASUM) {
        sk_assert(bytes == p->sheet.total);
        add_angles(p, a, b, to);
        return;
    }
    const void *src[] = {a, b};
    void *dst[] = {to};
    sk_sum(p->call->type, step_reduce(p), 2, src, 1, dst, bytes / p->sheet.size);
}

static void copy(char *to, const char *from, int64_t bytes)
{
    if (bytes && to != from) memcpy(to, from, (size_t)bytes);
}

/* into = from, or from + with; `from` is cells in a row, or as far apart as those of TMP. */
static void apply(const sk_execution *p, const sk_step *t, const char *from, bool apart, bool sums)
{
    bool whole = !apart && in_a_row(p, t->into, t) && (!sums || in_a_row(p, t->with, t));
    int m = whole ? t->n : 1;
    for (int j = 0; j < t->n; j += m) {
        int64_t skip = apart ? j * p->sheet.largest : sk_buffer_layout_span(&p->sheet, t->chunk, j);
        int64_t bytes = sk_buffer_layout_span(&p->sheet, t->chunk + j, m);
        char *to = cell_at(p, cell_next(t->into, j));
        if (sums) add(p, cell_at(p, cell_next(t->with, j)), from + skip, to, bytes);
        else copy(to, from + skip, bytes);
    }
}

static void run_tree(const sk_execution *p, const sk_step *t)
{
    sk_assert(t->k <= p->sheet.p && p->call->reduce != SK_ADASUM);
    for (int j = 0; j < t->k; j++)
        p->terms[j] = cell_at(p, j == t->own ? t->with : cell_next(t->from, j));
    void *dst[] = {cell_at(p, t->into)};
    sk_sum(p->call->type, step_reduce(p), t->k, p->terms, 1, dst,
           sk_buffer_layout_span(&p->sheet, t->chunk, 1) / p->sheet.size);
}

static void run_local(sk_comm *c, sk_execution *p, const sk_step *t)
{
    const char *from = cell_at(p, t->from);
    if (t->act == SK_STEP_TREE) run_tree(p, t);
    else if (p->sheet.kind == SK_ALLTOALLV) {
        copy(cell_at(p, t->into), from, *length_at(p, t->from));
        set_length(c, p, t->into, *length_at(p, t->from));
    } else apply(p, t, from, !in_a_row(p, t->from, t), t->act == SK_STEP_SUM);
}

/* --- sending --- */

static char *stage_of(const sk_execution *p, int i, int skip)
{
    return p->stage + (p->score->stage[i] + skip) * p->sheet.stage_stride;
}

typedef struct load { /* what a send carries */
    const char *from;
    int64_t bytes;
    bool apart, staged;
} load;

/* Cells that are apart, in a row at `to`. */
static void collect(const sk_execution *p, const sk_step *t, char *to)
{
    for (int j = 0; j < t->n; j++) {
        int64_t bytes = sk_buffer_layout_span(&p->sheet, t->chunk + j, 1);
        copy(to, cell_at(p, cell_next(t->from, j)), bytes);
        to += bytes;
    }
}

static load load_of(const sk_execution *p, int i, bool here)
{
    const sk_step *t = step_of(p, i);
    bool packs = p->score->coll->packs, apart = !in_a_row(p, t->from, t);
    load l = {cell_at(p, t->from), length_of(p, t, t->from), apart, packs || (apart && !here)};
    if (!l.staged) return l;
    if (apart) {
        char *to = stage_of(p, i, packs ? t->n : 0);
        collect(p, t, to);
        l.from = to;
        l.apart = false;
    }
    if (!packs) return l;
    char *to = stage_of(p, i, 0);
    l.bytes = sk_stream_pack(p->call->type, l.from, l.bytes / p->sheet.size, p->sheet.row, to);
    l.from = to;
    return l;
}

static void post_note(sk_comm *c, sk_execution *p, int i, const load *l)
{
    const sk_step *t = step_of(p, i);
    const outbox *box = &p->box[p->member->group.me];
    note *n = &box->notes[box->first[t->peer] + p->score->ordinal[i]];
    n->at = l->from - c->base;
    n->bytes = l->bytes;
    n->apart = l->apart;
    atomic_store(&n->state, POSTED);
    sk_bell_ring(sk_heaps_bell(c->heaps, rank_of(p, t->peer)));
}

/* *done stays false when the wire has no room for one more. */
static sk_status post(sk_comm *c, sk_execution *p, int i, bool *done)
{
    int to = rank_of(p, step_of(p, i)->peer);
    bool here = sk_on_this_host(c, to);
    load l = load_of(p, i, here);
    turn *now = &p->turns[i];
    now->req = -1;
    if (here) post_note(c, p, i, &l);
    else {
        SK_TRY(told(c, c->wire->send(c->wire, to, p->tag, l.from, l.bytes, &now->req)));
        if (now->req < 0) return SK_OK;
    }
    c->left += l.bytes;
    now->state = UNDER_WAY;
    now->due = l.staged ? step_of(p, i)->round + 1 : p->score->due[i];
    p->out[p->n_out++] = i;
    *done = true;
    return SK_OK;
}

static sk_status arrived(sk_comm *c, sk_execution *p, int i, bool *done)
{
    const sk_step *t = step_of(p, i);
    if (p->turns[i].req >= 0) return told(c, c->wire->test(c->wire, p->turns[i].req, done, NULL));
    const outbox *box = &p->box[p->member->group.me];
    const note *n = &box->notes[box->first[t->peer] + p->score->ordinal[i]];
    *done = atomic_load_explicit(&n->state, memory_order_acquire) == TAKEN;
    return SK_OK;
}

/* Looks at all sends under way. */
static sk_status look_at_sends(sk_comm *c, sk_execution *p)
{
    for (int k = p->n_out - 1; k >= 0; k--) {
        bool done = false;
        SK_TRY(arrived(c, p, p->out[k], &done));
        if (!done) continue;
        p->turns[p->out[k]].state = DONE;
        p->out[k] = p->out[--p->n_out];
    }
    return SK_OK;
}

/* A member whose receive must come before this round; -1: none. */
static int find_due(const sk_execution *p, int round)
{
    for (int k = 0; k < p->n_out; k++)
        if (p->turns[p->out[k]].due <= round) return step_of(p, p->out[k])->peer;
    return -1;
}

/* --- receiving --- */

/* Data that came: cells in a row, cells that are apart, or a stream. */
static sk_status deliver(sk_comm *c, sk_execution *p, int i, const char *from, int64_t bytes,
                         bool apart)
{
    const sk_step *t = step_of(p, i);
    bool sums = t->act == SK_STEP_RECV_SUM, v = p->sheet.kind == SK_ALLTOALLV;
    bool part = may_be_short(p, t);
    int64_t want = v ? p->sheet.largest : sk_buffer_layout_span(&p->sheet, t->chunk, t->n);
    if (p->score->coll->packs) {
        bool at_once = !sums && in_a_row(p, t->into, t);
        char *to = at_once ? cell_at(p, t->into) : stage_of(p, i, t->n);
        sk_status st =
            sk_stream_unpack(p->call->type, from, bytes, to, want / p->sheet.size, p->sheet.row);
        if (st) return sk_comm_report(c, st);
        from = to;
    } else if (bytes > want || bytes < least_of(p, t, want))
        return wrong_bytes(c, p, rank_of(p, t->peer), bytes, want);
    if (v) set_length(c, p, t->into, bytes);
    if (part) copy(cell_at(p, t->into), from, bytes);
    else apply(p, t, from, apart, sums);
    return SK_OK;
}

static sk_status take_note(sk_comm *c, sk_execution *p, int i, bool *done)
{
    const sk_step *t = step_of(p, i);
    outbox *box = &p->box[t->peer];
    if (!box->first) SK_TRY(meet(c, p, t->peer));
    if (!box->first) return SK_OK;
    note *n = &box->notes[box->first[p->member->group.me] + p->score->ordinal[i]];
    if (atomic_load_explicit(&n->state, memory_order_acquire) != POSTED) return SK_OK;
    int r = rank_of(p, t->peer);
    SK_TRY(deliver(c, p, i, (const char *)sk_heap_base(c->heaps, r) + n->at, n->bytes, n->apart));
    atomic_store(&n->state, TAKEN);
    sk_bell_ring(sk_heaps_bell(c->heaps, r));
    *done = true;
    return SK_OK;
}

/* Where a wire puts what comes: its place, or the stage if there is more to do with it. */
static char *landing(const sk_execution *p, int i, int64_t *most)
{
    const sk_step *t = step_of(p, i);
    bool packs = p->score->coll->packs;
    *most =
        packs ? t->n * p->sheet.stage_stride
              : (p->sheet.kind == SK_ALLTOALLV ? p->sheet.largest
                                               : sk_buffer_layout_span(&p->sheet, t->chunk, t->n));
    if (packs || t->act == SK_STEP_RECV_SUM || !in_a_row(p, t->into, t)) return stage_of(p, i, 0);
    return cell_at(p, t->into);
}

static sk_status take_wire(sk_comm *c, sk_execution *p, int i, bool *done)
{
    turn *now = &p->turns[i];
    int64_t most = 0, bytes = 0;
    char *to = landing(p, i, &most);
    if (now->state == NEW) {
        int from = rank_of(p, step_of(p, i)->peer);
        SK_TRY(told(c, c->wire->recv(c->wire, from, p->tag, to, most, &now->req)));
        if (now->req < 0) return SK_OK;
        now->state = UNDER_WAY;
    }
    SK_TRY(told(c, c->wire->test(c->wire, now->req, done, &bytes)));
    return *done ? deliver(c, p, i, to, bytes, false) : SK_OK;
}

/* --- rounds --- */

typedef struct pass { /* one look at the steps of a round */
    bool open;        /* a message is not sent, or did not come */
    bool full;        /* the wire took no more: later messages must not overtake */
    int waits_for;    /* a member */
} pass;

static sk_status try_send(sk_comm *c, sk_execution *p, int i, pass *s)
{
    bool done = false;
    if (!s->full) SK_TRY(post(c, p, i, &done));
    s->full |= !done;
    s->open |= !done;
    return SK_OK;
}

static sk_status try_recv(sk_comm *c, sk_execution *p, int i, pass *s)
{
    int peer = step_of(p, i)->peer;
    bool done = false, here = sk_on_this_host(c, rank_of(p, peer));
    if (here) SK_TRY(take_note(c, p, i, &done));
    else if (!s->full || p->turns[i].state != NEW) SK_TRY(take_wire(c, p, i, &done));
    if (!here && p->turns[i].state == NEW) s->full = true;
    if (done) p->turns[i].state = DONE;
    else if (s->waits_for < 0) s->waits_for = peer;
    s->open |= !done;
    return SK_OK;
}

static sk_status try_messages(sk_comm *c, sk_execution *p, pass *s)
{
    for (int i = p->lo; i < p->hi; i++) {
        turn_state state = p->turns[i].state;
        sk_step_act act = step_of(p, i)->act;
        if (act == SK_STEP_SEND && state == NEW) SK_TRY(try_send(c, p, i, s));
        if (act == SK_STEP_RECV || act == SK_STEP_RECV_SUM)
            if (state != DONE) SK_TRY(try_recv(c, p, i, s));
    }
    return SK_OK;
}

static void run_locals(sk_comm *c, sk_execution *p)
{
    for (int i = p->lo; i < p->hi; i++) {
        sk_step_act act = step_of(p, i)->act;
        bool message = act == SK_STEP_SEND || act == SK_STEP_RECV || act == SK_STEP_RECV_SUM;
        if (message || p->turns[i].state == DONE) continue;
        run_local(c, p, step_of(p, i));
        p->turns[i].state = DONE;
    }
}

/* The steps of the next round, if nothing is due before it. */
static bool turn_page(sk_execution *p, int *waits_for)
{
    int n = p->score->steps.list.n;
    int round = p->hi < n ? step_of(p, p->hi)->round : SK_NEVER;
    *waits_for = find_due(p, round);
    if (*waits_for >= 0) return false;
    p->lo = p->hi;
    while (p->hi < n && step_of(p, p->hi)->round == round) p->hi++;
    return true;
}

/* --- the beginning and the end --- */

static bool gets(const sk_execution *p) /* is there anything in DST for me? */
{
    sk_coll_kind k = p->call->kind;
    return (k != SK_REDUCE && k != SK_GATHER) || p->sheet.me == p->call->root;
}

static bool gives(const sk_execution *p)
{
    sk_coll_kind k = p->call->kind;
    return (k != SK_BROADCAST && k != SK_SCATTER) || p->sheet.me == p->call->root;
}

static void finish(sk_comm *c, sk_execution *p)
{
    const sk_sheet *s = &p->sheet;
    if (p->call->reduce == SK_MEAN && sk_kind_sums(p->call->kind) && gets(p))
        sk_sum_divide(p->call->type, p->space[SK_DST], sk_buffer_layout_bytes(s, SK_DST) / s->size,
                      s->p);
    if (s->dst_packed)
        sk_buffer_layout_pack(s, p->call->segs, p->call->n_segs, SK_DST, SK_UNPACK, c->base,
                              p->space[SK_DST]);
    p->over = true;
}

/* SRC and DST of the list, with what they hold at the start. */
static void set_up(sk_comm *c, sk_execution *p)
{
    const sk_sheet *s = &p->sheet;
    const sk_coll_call *call = p->call;
    char *room = room_of(c->base, call), *src = NULL, *dst = NULL;
    if (call->n_segs) src = c->base + call->segs[0].src, dst = c->base + call->segs[0].dst;
    p->stage = room + s->stage;
    p->space[SK_TMP] = room + s->tmp;
    p->space[SK_DST] = s->dst_packed ? room + s->dst : dst;
    p->space[SK_SRC] = s->src_is_dst ? p->space[SK_DST] : s->src_packed ? room + s->src : src;
    if (s->src_packed)
        sk_buffer_layout_pack(s, call->segs, call->n_segs, SK_SRC, SK_PACK, c->base,
                              p->space[SK_SRC]);
    bool copied = call->kind == SK_ALLREDUCE || (call->kind == SK_BROADCAST && gives(p));
    if (copied && p->space[SK_DST] != src)
        sk_buffer_layout_pack(s, call->segs, call->n_segs, SK_SRC, SK_PACK, c->base,
                              p->space[SK_DST]);
}

static void count_rows(sk_comm *c, sk_execution *p)
{
    const int64_t *counts = (const int64_t *)(const void *)(c->base + p->call->counts);
    int64_t row = p->call->segs[0].inner * p->sheet.size;
    for (int i = 0; i < p->sheet.p; i++) *length_at(p, sk_src(i)) = counts[i] * row;
}

static int64_t make_tag(const sk_execution *p)
{
    uint64_t low = (uint64_t)p->call->group * SK_COMM_FLIGHT + p->number % SK_COMM_FLIGHT;
    return (int64_t)(sign_of(p) << SK_WIRE_TAG_BITS | low);
}

/* All-to-all: what goes to each member, and what comes from it. */
static void measure_parts(sk_execution *p)
{
    int me = p->sheet.me, n = p->sheet.p;
    for (int i = 0; i < n; i++) {
        int64_t *out = length_at(p, sk_src(i)), *in = length_at(p, sk_dst(i));
        *out = *in = 0;
        for (int k = 0; k < p->call->n_segs; k++) {
            sk_block to = sk_seg_block(&p->call->segs[k], me, i, n);
            sk_block from = sk_seg_block(&p->call->segs[k], i, me, n);
            *out += sk_block_count(&to) * p->sheet.size;
            *in += sk_block_count(&from) * p->sheet.size;
        }
    }
}

static sk_status check_counts(const sk_comm *c, const sk_coll_call *call, int n)
{
    const int64_t *counts = (const int64_t *)(const void *)(c->base + call->counts);
    if (call->n_segs != 1 || call->segs[0].outer != 1)
        return sk_fail(SK_EBUG, "call %llx: an all-to-all-v has one segment with outer 1",
                       (long long)call->id);
    for (int i = 0; i < n; i++)
        if (counts[i] < 0 || counts[i] > call->segs[0].n)
            return sk_fail(SK_EDATA,
                           "call %llx: rank %d has %lld rows for member %d, its block has room for "
                           "%lld",
                           (long long)call->id, c->rank, (long long)counts[i], i,
                           (long long)call->segs[0].n);
    return SK_OK;
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
    return call->kind == SK_ALLTOALLV ? check_counts(c, call, ask->n) : SK_OK;
}

static bool same_ask(const sk_coll_ask *a, const sk_coll_ask *b)
{
    return a->kind == b->kind && a->n == b->n && a->me == b->me && a->root == b->root &&
           a->n_axes == b->n_axes && !memcmp(a->axes, b->axes, sizeof a->axes);
}

static const sk_compiled_schedule *score_for(sk_comm *c, const sk_coll *a, const sk_coll_ask *ask)
{
    for (sk_compiled_schedule *s = c->stage->scores; s; s = s->next)
        if (s->coll == a && same_ask(&s->steps.ask, ask)) return s;
    sk_compiled_schedule *s = sk_new(&c->arena, sk_compiled_schedule);
    sk_schedule_compile(&c->arena, a, ask, s);
    s->next = c->stage->scores;
    c->stage->scores = s;
    return s;
}

static sk_execution *new_play(sk_arena *a, int steps, int cells, int n)
{
    sk_execution *p = sk_new(a, sk_execution);
    p->cap_steps = steps;
    p->cap_cells = cells;
    p->cap_n = n;
    p->box = sk_many(a, outbox, n);
    p->turns = sk_many(a, turn, steps);
    p->terms = sk_many(a, const void *, n);
    p->out = sk_many(a, int, steps);
    p->at = sk_many(a, int64_t, cells + 1);
    p->length = sk_many(a, int64_t, 3 * cells);
    return p;
}

/* A play with room for this list: one that was used before, or a new one. */
static sk_execution *play_for(sk_comm *c, const sk_compiled_schedule *s)
{
    int steps = s->steps.list.n, n = s->steps.ask.n;
    int cells = s->steps.cells > s->steps.tmp_cells ? s->steps.cells : s->steps.tmp_cells;
    sk_execution **from = NULL, *p;
    for (sk_execution **q = &c->stage->free; *q; q = &(*q)->next)
        if ((*q)->cap_steps >= steps && (*q)->cap_cells >= cells && (*q)->cap_n >= n &&
            (!from || (*q)->cap_steps < (*from)->cap_steps))
            from = q; /* the tightest, so that long lists find theirs again */
    p = from ? *from : NULL;
    if (p) *from = p->next;
    else p = new_play(&c->arena, steps, cells, n);
    memset(p->box, 0, (size_t)n * sizeof *p->box);
    memset(p->turns, 0, (size_t)steps * sizeof *p->turns);
    p->score = s;
    p->n_out = p->lo = p->hi = 0;
    p->over = false;
    return p;
}

static sk_status check_room(const sk_comm *c, const sk_execution *p)
{
    const sk_coll_call *k = p->call;
    if (k->room_bytes >= p->sheet.bytes && sk_in_heap(c, k->room, k->room_bytes, 1)) return SK_OK;
    return sk_fail(SK_EBUG,
                   "call %llx (%s by %s): its room is %lld bytes at %lld in a heap of %lld, rank "
                   "%d needs %lld",
                   (long long)k->id, sk_coll_names[k->kind], p->score->coll->name,
                   (long long)k->room_bytes, (long long)k->room, (long long)c->bytes, c->rank,
                   (long long)p->sheet.bytes);
}

/* The sends of the first round; what comes is looked at in sk_execute_progress. */
static sk_status first_sends(sk_comm *c, sk_execution *p)
{
    pass s = {.waits_for = -1};
    int waits_for;
    turn_page(p, &waits_for);
    for (int i = p->lo; i < p->hi; i++)
        if (step_of(p, i)->act == SK_STEP_SEND) SK_TRY(try_send(c, p, i, &s));
    return SK_OK;
}

sk_status sk_execute_begin(sk_comm *c, sk_group_state *m, const sk_coll_call *call, uint64_t number,
                           sk_execution **out)
{
    const sk_coll *a = sk_coll_parts[call->algorithm];
    sk_coll_ask ask;
    sk_coll_ask_for(call->kind, m->group.ranks, m->group.n, m->group.me, call->root, c->host_of,
                    &ask);
    SK_TRY(check(c, a, call, &ask));
    sk_execution *p = play_for(c, score_for(c, a, &ask));
    p->call = call;
    p->member = m;
    p->number = number;
    p->tag = make_tag(p);
    sk_buffer_layout_make(p->score, call->type, call->segs, call->n_segs, true, p->at, &p->sheet);
    sk_status st = check_room(c, p);
    if (!st) {
        set_up(c, p);
        if (call->kind == SK_ALLTOALLV) count_rows(c, p);
        if (call->kind == SK_ALLTOALL) measure_parts(p);
        fill_box(c, p);
        st = first_sends(c, p);
    }
    if (st) {
        sk_execute_end(c, p);
        return sk_trail(st, SK_HERE);
    }
    announce(c, p);
    *out = p;
    return SK_OK;
}

bool sk_execute_blocks(const sk_execution *p) { return !p->score->coll->build && !p->over; }

static sk_status go_native(sk_comm *c, sk_execution *p)
{
    const sk_coll_call *k = p->call;
    const sk_group *g = &p->member->group;
    for (int i = 0; i < p->sheet.cells; i++)
        p->length[i] = sk_buffer_layout_span(&p->sheet, i, 1) / p->sheet.size;
    sk_status st = c->wire->native(c->wire, k->kind, step_reduce(p), k->type, k->root, g->ranks,
                                   g->n, p->space[SK_SRC], p->space[SK_DST], p->length);
    if (st) return sk_comm_report(c, st);
    c->left += sk_call_bytes_sent(c, g, k);
    finish(c, p);
    return SK_OK;
}

static sk_status go_on(sk_comm *c, sk_execution *p, int *waits_for)
{
    for (;;) {
        pass s = {.waits_for = -1};
        SK_TRY(look_at_sends(c, p));
        SK_TRY(try_messages(c, p, &s));
        *waits_for = s.waits_for;
        if (s.open) return SK_OK;
        run_locals(c, p);
        if (!turn_page(p, waits_for)) return SK_OK;
        if (p->lo == p->hi) break;
    }
    finish(c, p);
    return SK_OK;
}

sk_status sk_execute_progress(sk_comm *c, sk_execution *p, bool *over, int *waits_for)
{
    int member = -1;
    if (!p->over) SK_TRY(p->score->coll->build ? go_on(c, p, &member) : go_native(c, p));
    *over = p->over;
    *waits_for = member < 0 ? -1 : rank_of(p, member);
    return SK_OK;
}

void sk_execute_end(sk_comm *c, sk_execution *p)
{
    p->next = c->stage->free;
    c->stage->free = p;
}

sk_status sk_executor_open(sk_comm *c)
{
    c->stage = sk_new(&c->arena, sk_executor);
    return SK_OK;
}

void sk_executor_close(sk_comm *c) { c->stage = NULL; } /* all of it lies in the arena of c */
