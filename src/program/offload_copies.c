/* offload_copies.c - the pass that copies offloaded buffers to the device when they are needed
 * (ZeRO-Offload, ZeRO-Infinity).
 *
 * The layout gives the placement of optimizer state, weights, gradients and activations: their
 * home.  An instruction works in one memory: the device's; or the host's, for the optimizer and the
 * squares of gradients, if their operands are placed on the host or in the file.  All instructions
 * are written when this pass begins.  A use of a buffer outside of its home becomes a use of a
 * copy:
 *
 *     copy home -> here      some groups of instructions ahead (`prefetch`, by default one)
 *     copied                 right before the first use
 *     ... uses ...
 *     copy here -> home      right behind the last, if one of them wrote
 *     copied                 some groups later, or before the next use
 *
 * A stay is a sequence of uses by neighbouring groups: the time that one copy exists.  A group is a
 * layer of a task, or of the update; for a weight that is fetched in tiles (weight_tiles.c) each
 * tile is a group.  If all uses in a stay are of one part of the buffer, only that part is copied.
 * Copies are done in the order in which they were started. */
#include "program/acts.h"
#include "program/lowering.h"

#include <stdlib.h>
#include <string.h>

enum {
    NEAR = 1,     /* groups between two uses of one stay */
    LEAST = 1024, /* bytes of the smallest result that is offloaded */
    STORE,
    STORED,
    FETCH,
    FETCHED /* in this order, where they stand before one instruction */
};

typedef struct use {
    int *slot;    /* the operand that says it */
    int as;       /* the buffer, or a part of it */
    int from, to; /* instructions */
    bool reads, writes;
    sk_placement at;
    int next; /* use of the same buffer, or -1 */
} use;

typedef struct note { /* an instruction to be put before another one */
    int pc, section, rank, copy, from, to;
} note;

typedef struct stay {
    int first, last; /* uses */
    int from, to;    /* instructions */
    sk_placement at;
} stay;

typedef struct copies {
    sk_lowering *e;
    sk_program *p;
    sk_arena *tmp;
    int *group, *begin; /* instruction -> group; group -> its first instruction */
    int n_groups;
    int *head, *tail; /* by buffer: uses */
    int *end_of;      /* by call: where it is waited for */
    int64_t *sent;    /* by rank: messages to it, so far in the section */
    struct {
        use *v;
        int n, cap;
    } uses;
    struct {
        note *v;
        int n, cap;
    } notes;
    int *ready; /* by buffer: from this instruction on its home has the tiles that were written; or
                   -1 */
    int there;  /* of the current buffer: from this instruction on its home is up to date */
    int stored; /* the note of a copy home that is not waited for, or -1 */
} copies;

/* --- placement of buffers and instructions --- */

static sk_offload_kind kind_of(const sk_buffer *b)
{
    return b->kind == SK_WEIGHTS ? SK_PARAMS : b->kind == SK_GRADS ? SK_GRAD : SK_STATE;
}

static bool has_home(const sk_buffer *b)
{
    return b->keep && b->tensor && b->tensor->role != SK_EXTRA &&
           (b->kind == SK_WEIGHTS || b->kind == SK_GRADS || b->kind == SK_OPTIM);
}

bool sk_lower_hosted(const sk_lowering *e, const sk_tensor *t)
{
    return e->opts->optim && e->l->home[SK_STATE] && t->bias_update == 0 &&
           sk_lower_optim(e, t)->n_state;
}

/* The memory that an instruction will work in: buffers have no placement yet. */
static sk_placement works_on(const copies *x, const sk_inst *in)
{
    bool host = sk_act_row_of(in)->host;
    bool of_param = in->act == SK_DO_UPDATE || in->act == SK_DO_AVERAGE || in->act == SK_DO_NARROW;
    if (of_param) host = sk_lower_hosted(x->e, x->p->params.v[in->param].tensor);
    return host ? SK_HOST : SK_DEVICE;
}

/* What is copied on its own: a buffer, or a tile of one. */
static int unit(const sk_program *p, int buf)
{
    while (p->bufs.v[buf].within >= 0 && !p->bufs.v[buf].tile) buf = p->bufs.v[buf].within;
    return buf;
}

/* --- groups --- */

static bool same_group(const copies *x, const sk_inst *a, const sk_inst *b)
{
    if (x->e->l->tiles > 1 && (a->part != b->part || a->parts != b->parts)) return false;
    return a->micro == b->micro && a->phase == b->phase && a->layer == b->layer &&
           a->work == b->work;
}

static void find_groups(copies *x)
{
    const sk_program *p = x->p;
    x->group = sk_many(x->tmp, int, p->insts.n + 1);
    x->begin = sk_many(x->tmp, int, p->insts.n + 2);
    int g = -1;
    for (int pc = 0; pc < p->insts.n; pc++) {
        bool first = pc == 0 || pc == p->n_train;
        if (first || !same_group(x, &p->insts.v[pc], &p->insts.v[pc - 1])) x->begin[++g] = pc;
        x->group[pc] = g;
    }
    x->n_groups = g + 1;
    x->group[p->insts.n] = x->n_groups;
    x->begin[x->n_groups] = p->insts.n;
}

static int section_begin(const copies *x, int pc) { return pc < x->p->n_train ? 0 : x->p->n_train; }
static int section_end(const copies *x, int pc)
{
    return pc < x->p->n_train ? x->p->n_train : x->p->insts.n;
}

/* --- uses --- */

static void add_use(copies *x, int *slot, int from, int to, bool reads, bool writes,
                    sk_placement at)
{
    if (*slot < 0 || sk_buffer_own(x->p, *slot)) return;
    int r = unit(x->p, *slot), n = x->uses.n;
    *sk_push(x->tmp, &x->uses) = (use){slot, *slot, from, to, reads, writes, at, -1};
    if (x->head[r] < 0) x->head[r] = n;
    else x->uses.v[x->tail[r]].next = n;
    x->tail[r] = n;
}

/* The instruction after which the k-th message to a rank has arrived. */
static int arrival(const copies *x, int pc, int peer, int64_t k)
{
    for (int i = pc; i < section_end(x, pc); i++) {
        const sk_inst *in = &x->p->insts.v[i];
        if (in->act == SK_DO_SENT && in->peer == peer && in->sent >= k) return i;
    }
    return section_end(x, pc) - 1;
}

typedef struct user { /* an instruction, and until when it holds its operands */
    copies *x;
    int from, to;
    sk_placement at;
} user;

/* An operand that is freed was held until here; for one with SK_BESIDE no copy has to wait. */
static void note_use(void *ctx, int *buf, unsigned how)
{
    const user *u = ctx;
    if (how & (SK_FREES | SK_BESIDE) || !(how & (SK_READS | SK_WRITES))) return;
    add_use(u->x, buf, u->from, u->to, how & SK_READS, how & SK_WRITES, u->at);
}

static void inst_uses(copies *x, int pc)
{
    sk_inst *in = &x->p->insts.v[pc];
    user u = {x, pc, pc, works_on(x, in)};
    if (in->act == SK_DO_SEND) u.to = arrival(x, pc, in->peer, ++x->sent[in->peer]);
    if (in->act == SK_DO_START) u.to = x->end_of[in->call];
    sk_operands(x->p, in, note_use, &u);
}

static void list_uses(copies *x)
{
    sk_program *p = x->p;
    x->uses.n = 0;
    memset(x->head, -1, sizeof(int) * (size_t)p->bufs.n);
    for (int pc = 0; pc < p->insts.n; pc++) {
        if (pc == 0 || pc == p->n_train) memset(x->sent, 0, sizeof *x->sent * (size_t)p->n_ranks);
        inst_uses(x, pc);
    }
}

/* A buffer that the device uses in tiles and as a whole (a tied weight, tiled at one end) is copied
 * as a whole.  Returns true if there was one. */
static bool drop_tiles(copies *x)
{
    bool any = false;
    for (int i = 0; i < x->p->bufs.n; i++) {
        sk_buffer *b = &x->p->bufs.v[i];
        for (int u = b->tile ? x->head[sk_buffer_root(x->p, i)] : -1; u >= 0; u = x->uses.v[u].next)
            if (x->uses.v[u].at == SK_DEVICE) any = true, b->tile = false;
    }
    return any;
}

static void find_uses(copies *x)
{
    sk_program *p = x->p;
    x->head = sk_many(x->tmp, int, p->bufs.n + 1);
    x->tail = sk_many(x->tmp, int, p->bufs.n + 1);
    x->sent = sk_many(x->tmp, int64_t, p->n_ranks);
    x->end_of = sk_many(x->tmp, int, p->calls.n + 1);
    for (int pc = 0; pc < p->insts.n; pc++)
        if (p->insts.v[pc].act == SK_DO_WAIT) x->end_of[p->insts.v[pc].call] = pc;
    list_uses(x);
    if (drop_tiles(x)) list_uses(x);
}

/* Computed long before it is read: a result that the backward pass reads, a gradient that waits for
 * another contribution. */
static bool waits_long(const copies *x, int buf)
{
    int u = x->head[buf];
    if (u < 0 || x->uses.v[u].from >= x->p->n_train || x->p->bufs.v[buf].bytes < LEAST)
        return false;
    for (int end = 0; u >= 0; u = x->uses.v[u].next) {
        const use *y = &x->uses.v[u];
        if (end && x->group[y->from] - x->group[end] > NEAR) return true;
        if (y->to > end) end = y->to;
    }
    return false;
}

static sk_placement home_of(const copies *x, int buf)
{
    const sk_buffer *b = &x->p->bufs.v[buf];
    if (has_home(b)) return x->e->l->home[kind_of(b)];
    if (b->keep || !b->tensor || (b->kind != SK_ACTS && b->kind != SK_GRADS)) return SK_DEVICE;
    sk_placement home = x->e->l->home[b->kind == SK_ACTS ? SK_KEPT : SK_GRAD];
    return home && waits_long(x, buf) ? home : SK_DEVICE;
}

/* --- stays --- */

/* Before instruction `pc`, in the section of `beside`. */
static int add_note(copies *x, int pc, int beside, int rank, int copy, int from, int to)
{
    *sk_push(x->tmp, &x->notes) = (note){pc, beside >= x->p->n_train, rank, copy, from, to};
    return x->notes.n - 1;
}

/* Files are read and written in pages. */
static bool on_pages(const sk_program *p, int buf, int part)
{
    if (part == buf) return true; /* all of it, or a tile that was checked */
    int64_t at = sk_buffer_begin(p, part), end = at + p->bufs.v[part].bytes;
    return at % SK_FILE_PAGE == 0 && (end % SK_FILE_PAGE == 0 || end == p->bufs.v[buf].bytes);
}

/* What a stay copies: the one part that all its uses name, or the whole buffer. */
static int extent(const copies *x, const stay *s, int buf, sk_placement home)
{
    int as = x->uses.v[s->first].as;
    if (home == SK_FILE && !on_pages(x->p, buf, as)) return buf;
    for (int u = s->first;; u = x->uses.v[u].next) {
        if (x->uses.v[u].as != as) return buf;
        if (u == s->last) return as;
    }
}

static int clone(copies *x, int of, sk_placement at, int within, int64_t part_at)
{
    sk_buffer b = x->p->bufs.v[of];
    b.keep = b.zero = b.common = b.tile = false;
    b.placement = at;
    b.within = within;
    b.part_at = part_at;
    *sk_push(x->tmp, &x->p->bufs) = b;
    return x->p->bufs.n - 1;
}

/* The same part of the same copy, seen in the same shape: a view of a whole table as one row is not
 * the table. */
static bool same_part(const sk_buffer *a, int64_t at, const sk_buffer *b)
{
    bool same = a->part_at == at && a->bytes == b->bytes && a->box.n == b->box.n;
    for (int d = 0; same && d < b->box.n; d++) same = a->box.size[d] == b->box.size[d];
    return same;
}

/* Makes the operands of the stay name the copy, or the same part of it. */
static void rename_uses(copies *x, const stay *s, int what, int copy)
{
    int first = x->p->bufs.n;
    for (int u = s->first;; u = x->uses.v[u].next) {
        const use *y = &x->uses.v[u];
        int b = y->as == what ? copy : -1;
        int64_t at = b < 0 ? sk_buffer_begin(x->p, y->as) : 0;
        for (int i = first; b < 0 && i < x->p->bufs.n; i++)
            if (same_part(&x->p->bufs.v[i], at, &x->p->bufs.v[y->as])) b = i;
        *y->slot = b >= 0 ? b : clone(x, y->as, s->at, copy, at);
        if (u == s->last) return;
    }
}

/* The first use from `pc` on of the whole buffer, of which a tile was copied home. */
static int whole_used(const copies *x, int part, int pc)
{
    int buf = sk_buffer_root(x->p, part);
    for (int u = part == buf ? -1 : x->head[buf]; u >= 0; u = x->uses.v[u].next)
        if (x->uses.v[u].from >= pc) return x->uses.v[u].from;
    return x->p->insts.n;
}

/* A copy home that is in flight is waited for before `pc` at the latest. */
static void settle(copies *x, int pc)
{
    if (x->stored < 0) return;
    const note n = x->notes.v[x->stored];
    int whole = whole_used(x, n.to, n.pc);
    if (pc > whole) pc = whole;
    int late = x->group[n.pc - 1] + 1 + NEAR;
    int when = late < x->n_groups ? x->begin[late] : x->p->insts.n;
    if (when > pc) when = pc;
    if (when < n.pc) when = n.pc;
    add_note(x, when, n.pc - 1, STORED, n.copy, n.from, n.to);
    x->there = when;
    x->stored = -1;
}

static void fetch(copies *x, const stay *s, int what, int copy)
{
    int ahead = x->e->l->prefetch ? x->e->l->prefetch : 1;
    int g = x->group[s->from] - ahead, pc = g < 0 ? 0 : x->begin[g];
    if (pc < section_begin(x, s->from)) pc = section_begin(x, s->from);
    if (pc < x->there) pc = x->there;
    add_note(x, pc, s->from, FETCH, x->p->n_copies, what, copy);
    add_note(x, s->from, s->from, FETCHED, x->p->n_copies++, what, copy);
    x->there = s->from + 1;
}

static void store(copies *x, const stay *s, int what, int copy)
{
    x->stored = add_note(x, s->to + 1, s->to, STORE, x->p->n_copies++, copy, what);
}

/* `more`: the buffer is used again in this section. */
static void close_stay(copies *x, const stay *s, int buf, sk_placement home, bool more)
{
    const use *first = &x->uses.v[s->first];
    int what = extent(x, s, buf, home), copy = clone(x, what, s->at, -1, 0);
    bool writes = false;
    for (int u = s->first;; u = x->uses.v[u].next) {
        writes |= x->uses.v[u].writes;
        if (u == s->last) break;
    }
    settle(x, s->from);
    if (x->there >= 0 && (first->reads || first->as != what)) fetch(x, s, what, copy);
    rename_uses(x, s, what, copy);
    if (writes && (more || x->p->bufs.v[sk_buffer_root(x->p, buf)].keep)) store(x, s, what, copy);
}

/* Does the use belong to the same stay?  Yes if its group is near.  A transient buffer also stays
 * until the last instruction that only writes it, so that it is complete before it is first copied
 * home; an instruction that adds to it may be in a later stay. */
static bool joins(const copies *x, const stay *s, const use *y)
{
    bool kept = x->p->bufs.v[sk_buffer_root(x->p, y->as)].keep;
    bool near = y->from <= s->to || x->group[y->from] - x->group[s->to] <= NEAR;
    return s->at == y->at && section_end(x, s->to) == section_end(x, y->from) &&
           (near || (y->writes && !y->reads && !kept));
}

/* All uses of a buffer, in order. */
static void plan_buffer(copies *x, int buf, sk_placement home)
{
    const sk_buffer *b = &x->p->bufs.v[sk_buffer_root(x->p, buf)];
    bool given = b->keep && (b->zero || b->kind == SK_WEIGHTS || b->kind == SK_OPTIM);
    stay s = {.first = -1};
    int section = -1;
    x->stored = -1;
    for (int u = x->head[buf]; u >= 0; u = x->uses.v[u].next) {
        const use y = x->uses.v[u];
        bool out = s.first >= 0 && !joins(x, &s, &y);
        if (out) close_stay(x, &s, buf, home, section == section_end(x, y.from)), s.first = -1;
        if (section != section_end(x, y.from)) {
            settle(x, section);
            section = section_end(x, y.from);
            x->there = given ? section_begin(x, y.from) : x->ready[buf];
        }
        if (y.at == home) {
            settle(x, y.from);
            x->there = y.to + 1; /* also if it only reads: nothing else uses source or destination
                                    of a copy in flight */
            continue;
        }
        if (s.first < 0) s = (stay){u, u, y.from, y.to, y.at};
        s.last = u;
        if (y.to > s.to) s.to = y.to;
    }
    if (s.first >= 0) close_stay(x, &s, buf, home, false);
    settle(x, section);
    int whole = sk_buffer_root(x->p, buf);
    if (whole != buf && x->there > x->ready[whole]) x->ready[whole] = x->there;
}

static bool leaves(const copies *x, int buf, sk_placement home)
{
    for (int u = x->head[buf]; u >= 0; u = x->uses.v[u].next)
        if (x->uses.v[u].at != home) return true;
    return false;
}

/* --- the new list --- */

static int by_pc(const void *a, const void *b)
{
    const note *x = a, *y = b;
    if (x->pc != y->pc) return x->pc < y->pc ? -1 : 1;
    if (x->section != y->section) return x->section < y->section ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->copy > y->copy) - (x->copy < y->copy);
}

/* It takes task and layer of its neighbour, so that pictures and listings show it there. */
static void put(copies *x, const note *n, const sk_inst *beside)
{
    sk_inst *in =
        sk_lower_inst(x->e, n->rank == STORE || n->rank == FETCH ? SK_DO_COPY : SK_DO_COPIED);
    in->micro = beside->micro;
    in->layer = beside->layer;
    in->phase = beside->phase;
    in->work = beside->work;
    in->copy = n->copy;
    in->in[0] = n->from;
    in->out[0] = n->to;
}

static void put_all(copies *x, int *next, int pc, int section, const sk_inst *beside)
{
    for (; *next < x->notes.n; ++*next) {
        const note *n = &x->notes.v[*next];
        if (n->pc != pc || n->section != section) return;
        put(x, n, beside);
    }
}

static void merge(copies *x)
{
    sk_program *p = x->p;
    int n = p->insts.n, n_train = p->n_train, next = 0;
    const sk_inst *old = sk_grow(x->tmp, NULL, 0, sizeof *old * (size_t)(n + 1));
    memcpy((void *)old, p->insts.v, sizeof *old * (size_t)n);
    if (x->notes.n) qsort(x->notes.v, (size_t)x->notes.n, sizeof *x->notes.v, by_pc);
    p->insts.n = 0;
    for (int pc = 0; pc <= n; pc++) {
        put_all(x, &next, pc, 0, &old[pc ? pc - 1 : 0]);
        if (pc == n_train) p->n_train = p->insts.n;
        put_all(x, &next, pc, 1, &old[pc == n ? pc - 1 : pc]);
        if (pc < n) *sk_push(x->e->tmp, &p->insts) = old[pc];
    }
    sk_assert(next == x->notes.n);
}

sk_status sk_place_offload_copies(sk_lowering *e)
{
    copies x = {.e = e, .p = e->p, .tmp = e->tmp};
    if (!sk_layout_offloads(e->l)) return SK_OK;
    sk_number(e->p); /* copies that start together: by buffer number */
    int n = e->p->bufs.n;
    find_groups(&x);
    find_uses(&x);
    x.ready = sk_many(e->tmp, int, n + 1);
    memset(x.ready, -1, sizeof(int) * (size_t)n);
    for (int i = n - 1; i >= 0; i--) { /* parts before their whole */
        if (unit(e->p, i) != i) continue;
        sk_placement home = home_of(&x, sk_buffer_root(e->p, i));
        if (leaves(&x, i, home)) plan_buffer(&x, i, home);
        e->p->bufs.v[i].placement = home;
    }
    for (int i = 0; i < e->p->bufs.n; i++)
        if (e->p->bufs.v[i].within >= 0)
            e->p->bufs.v[i].placement = e->p->bufs.v[sk_buffer_root(e->p, i)].placement;
    merge(&x);
    return SK_OK;
}
