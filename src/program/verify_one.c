/* verify_one.c - what can be proved about one rank's program alone: P4, P5 and P7 here; P5 of
 * instructions of some updates in verify_intervals.c, P6 in verify_places.c, P8 in verify_work.c,
 * P9 in verify_shared.c, P10 in verify_offload.c.
 *
 * Live ranges are computed again from the instructions, not taken from the memory plan: a buffer is
 * live from its first to its last use, a buffer that was sent until the instruction that waits for
 * its arrival.  Kept buffers, tables of calls and scratch are always live; they are sorted once, so
 * that a transient buffer is compared with them by bisection. */
#include "program/workspaces.h"
#include "program/acts.h"
#include "coll/segment.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- live ranges --- */

typedef struct lives {
    int *first, *last;       /* by buffer; -1: never */
    const sk_step_due *turn; /* by buffer: in which steps of a synchronisation alone */
    int *arrives;            /* by instruction, of sends: when the message has been received */
} lives;

static void use(const sk_program *p, lives *l, int buf, int pc)
{
    if (buf < 0) return;
    buf = sk_buffer_root(p, buf);
    if (l->first[buf] < 0) l->first[buf] = pc;
    if (l->last[buf] < pc) l->last[buf] = pc;
}

static int section_end(const sk_program *p, int pc)
{
    return pc < p->n_train ? p->n_train : p->insts.n;
}

/* The instruction that waits for the arrival of the k-th message to peer, looked for from pc on. */
static int arrival(const sk_program *p, int pc, int peer, int64_t k)
{
    for (int i = pc; i < section_end(p, pc); i++) {
        const sk_inst *in = &p->insts.v[i];
        if (in->act == SK_DO_SENT && in->peer == peer && in->sent >= k) return i;
    }
    return -1;
}

static sk_status sends(const sk_program *p, lives *l, sk_arena *a)
{
    int64_t *sent = sk_many(a, int64_t, p->n_ranks);
    for (int pc = 0; pc < p->insts.n; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        if (pc == p->n_train) memset(sent, 0, sizeof *sent * (size_t)p->n_ranks);
        if (in->act != SK_DO_SEND) continue;
        if (in->peer < 0 || in->peer >= p->n_ranks)
            return sk_fail(SK_EBUG, "P2: rank %d sends to rank %d of %d", p->rank, in->peer,
                           p->n_ranks);
        int end = l->arrives[pc] = arrival(p, pc, in->peer, ++sent[in->peer]);
        if (end < 0)
            return sk_fail(SK_EBUG,
                           "P7: rank %d: '%s' is sent to rank %d at instruction %d, and nobody "
                           "waits for its arrival",
                           p->rank, p->bufs.v[in->in[0]].name, in->peer, pc);
        use(p, l, in->in[0], end);
    }
    return SK_OK;
}

typedef struct user {
    const sk_program *p;
    lives *l;
    int pc;
} user;

static void see_use(void *ctx, int *buf, unsigned how)
{
    const user *u = ctx;
    (void)how;
    use(u->p, u->l, *buf, u->pc);
}

static sk_status find_lives(const sk_program *p, sk_arena *a, lives *l)
{
    *l = (lives){sk_many(a, int, p->bufs.n + 1), sk_many(a, int, p->bufs.n + 1),
                 sk_buffer_turns(p, a), sk_many(a, int, p->insts.n + 1)};
    memset(l->first, -1, sizeof(int) * (size_t)p->bufs.n);
    memset(l->last, -1, sizeof(int) * (size_t)p->bufs.n);
    for (int pc = 0; pc < p->insts.n; pc++)
        sk_operands(p, &p->insts.v[pc], see_use, &(user){p, l, pc});
    return sends(p, l, a);
}

/* --- P4: no overlap --- */

/* Offsets in the file are counted behind those of the heap. */
static int64_t place(const sk_program *p, const sk_buffer *b)
{
    return b->offset + (b->placement == SK_FILE ? p->heap_bytes : 0);
}

typedef struct span {
    int64_t at, end;
    const char *name;
} span;

typedef struct spans {
    span *v;
    int n, cap;
} spans;

static int by_place(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static void add_span(sk_arena *a, spans *s, int64_t at, int64_t bytes, const char *name)
{
    if (bytes > 0) *sk_push(a, s) = (span){at, at + bytes, name};
}

static sk_status overlap(const sk_program *p, const char *x, const char *y, int64_t at)
{
    return sk_fail(SK_EBUG, "P4: rank %d: '%s' and '%s' overlap at %" PRId64 " while both live",
                   p->rank, x, y, at);
}

/* Ranges that are always live, sorted; they must not overlap. */
static sk_status fixed_spans(const sk_program *p, sk_arena *a, spans *s)
{
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        if (b->keep && b->within < 0) add_span(a, s, place(p, b), b->bytes, b->name);
    }
    for (int i = 0; i < p->calls.n; i++)
        add_span(a, s, p->calls.v[i].table_at, sk_call_table_bytes(&p->calls.v[i]),
                 "table of a call");
    add_span(a, s, p->kind_at[SK_SCRATCH], sk_scratch_bytes(p), "scratch");
    add_span(a, s, p->kind_at[SK_HOSTED], p->bounce_bytes, "the way to the file");
    if (s->n) qsort(s->v, (size_t)s->n, sizeof *s->v, by_place);
    for (int i = 1; i < s->n; i++)
        if (s->v[i].at < s->v[i - 1].end)
            return overlap(p, s->v[i - 1].name, s->v[i].name, s->v[i].at);
    return SK_OK;
}

/* The fixed span that [at, end) touches, or NULL. */
static const span *touched(const spans *s, int64_t at, int64_t end)
{
    int lo = 0, hi = s->n; /* the last one that begins before end */
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (s->v[mid].at < end) lo = mid + 1;
        else hi = mid;
    }
    return lo && s->v[lo - 1].end > at ? &s->v[lo - 1] : NULL;
}

/* The one overlap that is allowed: an op works in place on an operand that it reads for the last
 * time. */
static bool in_place(const sk_program *p, const lives *l, int x, int y)
{
    int pc = l->first[y];
    if (pc < 0 || l->last[x] != pc) return false;
    const sk_inst *in = &p->insts.v[pc];
    unsigned may = in->act == SK_DO_OP && in->out[0] == y ? in->node->op->reuse : 0;
    for (int r = 0; may && r < in->node->n_in; r++)
        if (may >> r & 1 && in->in[r] == x) return p->bufs.v[x].offset == p->bufs.v[y].offset;
    return false;
}

typedef struct alive {
    int *v, n, cap;
} alive;

static sk_status born(const sk_program *p, const lives *l, const spans *fixed, alive *set,
                      sk_arena *a, int i)
{
    const sk_buffer *b = &p->bufs.v[i];
    if (!b->bytes) return SK_OK;
    int64_t at = place(p, b);
    const span *f = touched(fixed, at, at + b->bytes);
    if (f) return overlap(p, b->name, f->name, b->offset);
    for (int k = 0; k < set->n; k++) {
        const sk_buffer *c = &p->bufs.v[set->v[k]];
        if (at >= place(p, c) + c->bytes || place(p, c) >= at + b->bytes) continue;
        if (sk_turns_differ(&l->turn[i], &l->turn[set->v[k]])) continue;
        if (!in_place(p, l, set->v[k], i)) return overlap(p, b->name, c->name, b->offset);
    }
    *sk_push(a, set) = i;
    return SK_OK;
}

static sk_status no_overlap(const sk_program *p, const lives *l, sk_arena *a)
{
    alive set = {0};
    spans fixed = {0};
    int *at = sk_many(a, int, p->insts.n + 1), *next = sk_many(a, int, p->bufs.n + 1);
    SK_TRY(fixed_spans(p, a, &fixed));
    memset(at, -1, sizeof(int) * (size_t)(p->insts.n + 1));
    for (int i = p->bufs.n - 1; i >= 0; i--) {
        if (p->bufs.v[i].within >= 0 || p->bufs.v[i].keep || l->first[i] < 0) continue;
        next[i] = at[l->first[i]];
        at[l->first[i]] = i;
    }
    for (int pc = 0; pc < p->insts.n; pc++) {
        for (int i = at[pc]; i >= 0; i = next[i]) SK_TRY(born(p, l, &fixed, &set, a, i));
        int kept = 0;
        for (int k = 0; k < set.n; k++)
            if (l->last[set.v[k]] > pc) set.v[kept++] = set.v[k];
        set.n = kept;
    }
    return SK_OK;
}

/* --- P5: written before read; P7: not used while others may read or write it --- */

/* Parts are written, and held by calls, one by one.  A buffer without parts is one part. */
typedef struct marks {
    char *written;   /* by buffer */
    char *lazy;      /* by buffer: weights of which updates leave a shard (sk_param_plan.lazy) */
    int *between;    /* by such a buffer: 1 + what the first of two gathers has made of it, or 0 */
    int64_t *filled; /* by buffer: bytes of its parts that are written */
    int *moving;     /* by root: of how many parts of it others may read or write */
    struct {
        int *v, n, cap;
    } away; /* these */
    sk_arena *arena;
} marks;

static bool is_written(const sk_program *p, const marks *m, int buf)
{
    const sk_buffer *b = &p->bufs.v[buf];
    if (m->written[buf] || m->filled[buf] >= b->bytes) return true;
    return b->within >= 0 && is_written(p, m, b->within);
}

static void write(const sk_program *p, marks *m, int buf)
{
    const sk_buffer *b = &p->bufs.v[buf];
    if (b->within >= 0 && m->lazy[b->within]) {
        int *between = &m->between[b->within];
        if (!b->keep) *between = 1 + buf;
        else { /* an update: others have to gather it again */ m->written[b->within] = 0;
            if (*between) m->written[*between - 1] = 0;
        }
        m->written[buf] = 1;
        return;
    }
    if (b->within >= 0 && !m->written[buf]) m->filled[b->within] += b->bytes;
    m->written[buf] = 1;
}

static sk_status reads(const sk_program *p, const marks *m, int buf, int pc)
{
    if (buf < 0 || is_written(p, m, buf)) return SK_OK;
    return sk_fail(SK_EBUG, "P5: rank %d: instruction %d (%s) reads '%s' before anything wrote it",
                   p->rank, pc, sk_act_row_of(&p->insts.v[pc])->name, p->bufs.v[buf].name);
}

/* Does it share bytes with a buffer in flight? */
static bool meets(const sk_program *p, const marks *m, int buf)
{
    const sk_buffer *b = &p->bufs.v[buf];
    int r = sk_buffer_root(p, buf);
    for (int i = 0; m->moving[r] && i < m->away.n; i++) {
        const sk_buffer *x = &p->bufs.v[m->away.v[i]];
        if (sk_buffer_root(p, m->away.v[i]) == r && b->offset < x->offset + x->bytes &&
            x->offset < b->offset + b->bytes)
            return true;
    }
    return false;
}

static sk_status untouched(const sk_program *p, const marks *m, int buf, int pc)
{
    if (buf < 0 || !meets(p, m, buf)) return SK_OK;
    return sk_fail(SK_EBUG,
                   "P7: rank %d: instruction %d (%s) touches '%s' while a collective uses it",
                   p->rank, pc, sk_act_row_of(&p->insts.v[pc])->name, p->bufs.v[buf].name);
}

/* From the start of a call to its wait its buffers are in flight. */
static void mark_away(const sk_program *p, marks *m, int buf, bool away)
{
    int kept = 0;
    if (away) *sk_push(m->arena, &m->away) = buf;
    for (int i = 0; i < m->away.n && !away; i++)
        if (m->away.v[i] != buf) m->away.v[kept++] = m->away.v[i];
        else m->moving[sk_buffer_root(p, buf)]--;
    m->moving[sk_buffer_root(p, buf)] += away;
    if (!away) m->away.n = kept;
}

typedef struct eye {
    const sk_program *p;
    marks *m;
    int pc;
    sk_status st;
} eye;

static void look(void *ctx, int *buf, unsigned how)
{
    eye *e = ctx;
    if (!e->st && how & SK_READS) e->st = reads(e->p, e->m, *buf, e->pc);
    if (!e->st && how && !(how & (SK_FREES | SK_BESIDE)))
        e->st = untouched(e->p, e->m, *buf, e->pc);
}

static void mark(void *ctx, int *buf, unsigned how)
{
    const eye *e = ctx;
    if (how & (SK_HOLDS | SK_FREES)) mark_away(e->p, e->m, *buf, how & SK_HOLDS);
    if (how & SK_WRITES && !(how & (SK_HOLDS | SK_PART))) write(e->p, e->m, *buf);
}

/* All operands are checked before one is marked: a call may work in place. */
static sk_status one_inst(const sk_program *p, marks *m, int pc)
{
    eye e = {p, m, pc, SK_OK};
    sk_operands(p, &p->insts.v[pc], look, &e);
    if (!e.st) sk_operands(p, &p->insts.v[pc], mark, &e);
    return e.st;
}

/* Weights, the optimizer's state and zeroed memory are written before the first step. */
static bool given(const sk_buffer *b)
{
    return b->keep && (b->zero || b->kind == SK_WEIGHTS || b->kind == SK_OPTIM);
}

/* What is up to date where a section begins. */
static void begin_section(const sk_program *p, marks *m)
{
    for (int i = 0; i < p->bufs.n; i++) {
        m->filled[i] = 0;
        m->written[i] = given(&p->bufs.v[i]);
    }
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        if (!q->lazy) continue;
        m->lazy[q->stored] = 1;
        m->written[q->stored] = 0;
        m->filled[q->stored] = p->bufs.v[q->shard].bytes;
    }
}

static sk_status in_order(const sk_program *p, sk_arena *a)
{
    marks m = {.written = sk_many(a, char, p->bufs.n + 1),
               .lazy = sk_many(a, char, p->bufs.n + 1),
               .between = sk_many(a, int, p->bufs.n + 1),
               .filled = sk_many(a, int64_t, p->bufs.n + 1),
               .moving = sk_many(a, int, p->bufs.n + 1),
               .arena = a};
    for (int pc = 0; pc < p->insts.n; pc++) {
        if (pc == 0 || pc == p->n_train) begin_section(p, &m);
        SK_TRY(one_inst(p, &m, pc));
    }
    return SK_OK;
}

typedef struct sender {
    const sk_program *p;
    struct {
        struct message {
            int buf, until; /* when it has arrived */
        } * v;
        int n, cap;
    } sent; /* and may be under way */
    int pc;
    sk_status st;
} sender;

static bool share_bytes(const sk_program *p, int a, int b)
{
    const sk_buffer *x = &p->bufs.v[a], *y = &p->bufs.v[b];
    return sk_buffer_root(p, a) == sk_buffer_root(p, b) && x->offset < y->offset + y->bytes &&
           y->offset < x->offset + x->bytes;
}

static void see_write(void *ctx, int *buf, unsigned how)
{
    sender *x = ctx;
    if (x->st || !(how & SK_WRITES) || how & SK_FREES) return;
    int i = 0;
    while (i < x->sent.n && !share_bytes(x->p, x->sent.v[i].buf, *buf)) i++;
    if (i == x->sent.n) return;
    x->st = sk_fail(SK_EBUG,
                    "P7: rank %d: instruction %d (%s) writes '%s', which is on its way to another "
                    "rank",
                    x->p->rank, x->pc, sk_act_row_of(&x->p->insts.v[x->pc])->name,
                    x->p->bufs.v[*buf].name);
}

/* A message is read out of the sender's memory: nobody writes there before it has arrived. */
static sk_status sends_kept(const sk_program *p, const lives *l, sk_arena *a)
{
    sender x = {.p = p};
    for (int pc = 0; pc < p->insts.n; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        int kept = 0;
        for (int i = 0; i < x.sent.n; i++)
            if (x.sent.v[i].until > pc) x.sent.v[kept++] = x.sent.v[i];
        x.sent.n = kept;
        x.pc = pc;
        sk_operands(p, in, see_write, &x);
        if (x.st) return x.st;
        if (in->act == SK_DO_SEND)
            *sk_push(a, &x.sent) = (struct message){in->in[0], l->arrives[pc]};
    }
    return SK_OK;
}

static sk_status all_of(const sk_program *p, sk_arena *a)
{
    lives l;
    SK_TRY(sk_verify_places(p));
    SK_TRY(find_lives(p, a, &l));
    SK_TRY(no_overlap(p, &l, a));
    SK_TRY(in_order(p, a));
    SK_TRY(sends_kept(p, &l, a));
    SK_TRY(sk_verify_intervals(p));
    SK_TRY(sk_verify_work(p));
    SK_TRY(sk_verify_shared(p));
    SK_TRY(sk_verify_offload(p));
    SK_TRY(sk_verify_launches(p));
    return SK_OK;
}

sk_status sk_verify_one(const sk_program *p)
{
    sk_arena tmp = {0};
    sk_status st = all_of(p, &tmp);
    sk_arena_end(&tmp);
    return st;
}
