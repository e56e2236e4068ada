/* verify_one.c - what can be proved about one rank's program alone: P4 to P8 (P9: verify_twin.c,
 * P10: verify_tiers.c).
 *
 * Live ranges are worked out anew from the instructions, not taken from the
 * memory plan: a buffer lives from its first to its last use, one that was sent
 * until the instruction that waits for its arrival.  Kept buffers, tables of
 * calls and scratch live always; they are sorted once, so that a transient
 * buffer meets them by bisection. */
#include "program/workspaces.h"
#include "program/acts.h"
#include "coll/segment.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- P6: places --- */

static bool is_used(const sk_buffer *b) { return b->first >= 0 || b->keep; }

/* Where a memory's places are: the device and the host share the heap. */
static void region(const sk_program *p, sk_placement tier, int64_t *from, int64_t *to)
{
    *from = tier == SK_HOST ? p->kind_at[SK_HOSTED] + p->bounce_bytes : 0;
    *to = tier == SK_HOST     ? p->heap_bytes
          : tier == SK_DEVICE ? p->kind_at[SK_HOSTED]
                              : p->file_bytes;
}

static sk_status in_heap(const sk_program *p)
{
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i], *w = b->within >= 0 ? &p->bufs.v[b->within] : NULL;
        if (!is_used(b)) continue;
        int64_t from, to;
        region(p, b->tier, &from, &to);
        if (b->offset < from || b->bytes < 0 || b->offset + b->bytes > to)
            return sk_fail(SK_EBUG,
                           "P6: rank %d: '%s' lies at %" PRId64 "+%" PRId64
                           " outside of the %s, which is %" PRId64 " to %" PRId64,
                           p->rank, b->name, b->offset, b->bytes, sk_placement_names[b->tier], from,
                           to);
        if (w && w->tier != b->tier)
            return sk_fail(SK_EBUG, "P6: rank %d: a part of '%s' lies in another memory", p->rank,
                           w->name);
        if (w && (b->offset < w->offset || b->offset + b->bytes > w->offset + w->bytes))
            return sk_fail(SK_EBUG, "P6: rank %d: a part of '%s' lies outside of it", p->rank,
                           w->name);
    }
    return SK_OK;
}

static int64_t table_bytes(const sk_call_plan *c)
{
    return (int64_t)(sizeof(sk_coll_call) + sizeof(sk_seg) * (size_t)c->n_segs);
}

/* Does a segment's buffer have the size that the collective will read or write? */
static bool seg_fits(const sk_program *p, const sk_call_plan *c, const sk_call_seg *s)
{
    const sk_group *g = &p->groups[c->group];
    int64_t size = (int64_t)sk_dtype_size(c->type);
    sk_seg shape = sk_call_shape(s);
    int64_t all = sk_seg_count(&shape) * size,
            part = s->outer * sk_seg_rows(&shape, g->me, g->n).n * s->inner * size;
    if (c->kind == SK_ALLTOALL)
        return p->bufs.v[s->src].bytes == sk_seg_gives(&shape, g->me, g->n) * size &&
               p->bufs.v[s->dst].bytes == sk_seg_gets(&shape, g->me, g->n) * size;
    return p->bufs.v[s->src].bytes == (c->kind == SK_ALLGATHER ? part : all) &&
           p->bufs.v[s->dst].bytes == (c->kind == SK_REDUCE_SCATTER ? part : all);
}

/* Is there scratch for the algorithm, and is it one? */
static bool room_fits(const sk_program *p, const sk_call_plan *c)
{
    int n = 0;
    while (sk_coll_parts[n]) n++;
    if (c->algorithm < SK_BUILTIN || c->algorithm >= n) return false;
    if (c->workspace < 0) return c->workspace_bytes == 0;
    return c->workspace < p->bufs.n && p->bufs.v[c->workspace].bytes >= c->workspace_bytes &&
           (c->algorithm >= 0 || p->gpu);
}

static sk_status calls_fit(const sk_program *p)
{
    for (int i = 0; i < p->calls.n; i++) {
        const sk_call_plan *c = &p->calls.v[i];
        if (c->group < 0 || c->group >= p->n_groups || p->groups[c->group].me < 0)
            return sk_fail(SK_EBUG, "P6: rank %d: call %d (%s) names group %d of %d", p->rank, i,
                           c->what, c->group, p->n_groups);
        if (c->table_at < 0 || c->table_at + table_bytes(c) > p->heap_bytes)
            return sk_fail(SK_EBUG, "P6: rank %d: the table of call %d (%s) leaves the heap",
                           p->rank, i, c->what);
        if (!room_fits(p, c))
            return sk_fail(SK_EBUG,
                           "P6: rank %d: call %d (%s) has algorithm %d and needs %" PRId64
                           " bytes of room, which it has not got",
                           p->rank, i, c->what, c->algorithm, c->workspace_bytes);
        for (int s = 0; s < c->n_segs; s++)
            if (!seg_fits(p, c, &c->segs[s]))
                return sk_fail(SK_EBUG,
                               "P6: rank %d: call %d (%s) moves [%" PRId64 "][%" PRId64 "][%" PRId64
                               "] between '%s' and '%s', which have other sizes",
                               p->rank, i, c->what, c->segs[s].outer, c->segs[s].n,
                               c->segs[s].inner, p->bufs.v[c->segs[s].src].name,
                               p->bufs.v[c->segs[s].dst].name);
    }
    return SK_OK;
}

/* Has every launch on a GPU the room that its op asks for? */
static sk_status launches_fit(const sk_program *p)
{
    for (int pc = 0; pc < p->insts.n; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        int64_t need = sk_room_launch(p, in);
        if (in->workspace >= p->bufs.n ||
            (in->workspace >= 0 ? p->bufs.v[in->workspace].bytes : 0) < need)
            return sk_fail(SK_EBUG,
                           "P6: rank %d: instruction %d (%s) needs %" PRId64
                           " bytes of room on the GPU, which it has not got",
                           p->rank, pc, in->node ? in->node->op->name : "no op", need);
    }
    return SK_OK;
}

/* --- lives --- */

typedef struct lives {
    int *first, *last; /* by buffer; -1: never */
    int *arrives;      /* by instruction, of sends: when the message has been received */
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
                 sk_many(a, int, p->insts.n + 1)};
    memset(l->first, -1, sizeof(int) * (size_t)p->bufs.n);
    memset(l->last, -1, sizeof(int) * (size_t)p->bufs.n);
    for (int pc = 0; pc < p->insts.n; pc++)
        sk_operands(p, &p->insts.v[pc], see_use, &(user){p, l, pc});
    return sends(p, l, a);
}

/* --- P4: no overlap --- */

/* Places of the file are counted on behind those of the heap. */
static int64_t place(const sk_program *p, const sk_buffer *b)
{
    return b->offset + (b->tier == SK_FILE ? p->heap_bytes : 0);
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

/* What lives always, sorted; these must be apart from one another. */
static sk_status fixed_spans(const sk_program *p, sk_arena *a, spans *s)
{
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        if (b->keep && b->within < 0) add_span(a, s, place(p, b), b->bytes, b->name);
    }
    for (int i = 0; i < p->calls.n; i++)
        add_span(a, s, p->calls.v[i].table_at, table_bytes(&p->calls.v[i]), "table of a call");
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

/* The one overlap that is meant: an op works in place on an operand that dies there. */
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

/* --- P5: written before read; P7: left alone while others may read or write it --- */

/* Parts are written and given away one by one.  What has no parts is one part. */
typedef struct marks {
    char *written;   /* by buffer */
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
    if (b->within >= 0 && !m->written[buf]) m->filled[b->within] += b->bytes;
    m->written[buf] = 1;
}

static sk_status reads(const sk_program *p, const marks *m, int buf, int pc)
{
    if (buf < 0 || is_written(p, m, buf)) return SK_OK;
    return sk_fail(SK_EBUG, "P5: rank %d: instruction %d (%s) reads '%s' before anything wrote it",
                   p->rank, pc, sk_act_row_of(&p->insts.v[pc])->name, p->bufs.v[buf].name);
}

/* Does it share bytes with something that is away? */
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

/* At a start the buffers of a call are given away, at its end they come back. */
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

/* All operands are looked at before one is marked: a call may work in place. */
static sk_status one_inst(const sk_program *p, marks *m, int pc)
{
    eye e = {p, m, pc, SK_OK};
    sk_operands(p, &p->insts.v[pc], look, &e);
    if (!e.st) sk_operands(p, &p->insts.v[pc], mark, &e);
    return e.st;
}

/* Weights, the optimizer's state and zeroed memory are there from the start. */
static bool given(const sk_buffer *b)
{
    return b->keep && (b->zero || b->kind == SK_WEIGHTS || b->kind == SK_OPTIM);
}

static sk_status in_order(const sk_program *p, sk_arena *a)
{
    marks m = {.written = sk_many(a, char, p->bufs.n + 1),
               .filled = sk_many(a, int64_t, p->bufs.n + 1),
               .moving = sk_many(a, int, p->bufs.n + 1),
               .arena = a};
    for (int pc = 0; pc < p->insts.n; pc++) {
        if (pc == 0 || pc == p->n_train)
            for (int i = 0; i < p->bufs.n; i++) {
                m.filled[i] = 0;
                m.written[i] = given(&p->bufs.v[i]);
            }
        SK_TRY(one_inst(p, &m, pc));
    }
    return SK_OK;
}

typedef struct sender {
    const sk_program *p;
    const int *until; /* by root: when its messages have arrived, or 0 */
    int pc;
    sk_status st;
} sender;

static void see_write(void *ctx, int *buf, unsigned how)
{
    sender *x = ctx;
    if (x->st || !(how & SK_WRITES) || how & SK_FREES) return;
    if (x->until[sk_buffer_root(x->p, *buf)] <= x->pc) return;
    x->st = sk_fail(SK_EBUG,
                    "P7: rank %d: instruction %d (%s) writes '%s', which is on its way to another "
                    "rank",
                    x->p->rank, x->pc, sk_act_row_of(&x->p->insts.v[x->pc])->name,
                    x->p->bufs.v[*buf].name);
}

/* A message is read out of the sender's memory: nobody writes there before it has arrived. */
static sk_status sends_kept(const sk_program *p, const lives *l, sk_arena *a)
{
    int *until = sk_many(a, int, p->bufs.n + 1);
    for (int pc = 0; pc < p->insts.n; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        sender x = {p, until, pc, SK_OK};
        sk_operands(p, in, see_write, &x);
        if (x.st) return x.st;
        int *end = in->act == SK_DO_SEND ? &until[sk_buffer_root(p, in->in[0])] : NULL;
        if (end && *end < l->arrives[pc]) *end = l->arrives[pc];
    }
    return SK_OK;
}

/* --- P8: nothing left out, nothing twice --- */

static sk_status nodes_run(const sk_program *p, int from, int to, bool backward, sk_arena *a)
{
    const sk_graph *g = p->expanded;
    int *runs = sk_many(a, int, g->nodes.n + 1), *turn = sk_many(a, int, g->nodes.n + 1);
    for (int pc = from; pc < to; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        if (in->act != SK_DO_OP) continue;
        if (in->part != turn[in->node->id])
            return sk_fail(SK_EBUG, "P8: rank %d: '%s' is at turn %d of %d, not %d", p->rank,
                           in->node->out[0]->name, in->part, in->parts, turn[in->node->id]);
        turn[in->node->id] = (in->part + 1) % in->parts;
        if (in->node->phase != in->phase)
            return sk_fail(SK_EBUG, "P8: rank %d: instruction %d makes '%s' in the wrong phase",
                           p->rank, pc, in->node->out[0]->name);
        runs[in->node->id] += in->part + 1 == in->parts;
    }
    for (int i = 0; i < g->nodes.n; i++) {
        bool here = p->spread.stage[i] == p->stage;
        int want = here && (backward || g->nodes.v[i]->phase == SK_FORWARD) ? p->n_micro : 0;
        if (runs[i] != want)
            return sk_fail(SK_EBUG, "P8: rank %d: '%s' is made %d times in %d micro-batches",
                           p->rank, g->nodes.v[i]->out[0]->name, runs[i], want);
    }
    return SK_OK;
}

static sk_status updated_once(const sk_program *p, sk_arena *a)
{
    int *passes = sk_many(a, int, p->params.n + 1), n_passes = 0;
    bool clipped = false;
    while (p->optim && p->optim->pass[n_passes]) n_passes++;
    for (int pc = 0; pc < p->insts.n; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        clipped |= in->act == SK_DO_CLIP;
        if (in->act != SK_DO_UPDATE) continue;
        int k = passes[in->param]++;
        if (clipped != (in->scale == 0) || pc >= p->n_train || in->pass != k % n_passes ||
            in->update != k / n_passes)
            return sk_fail(SK_EBUG, "P8: rank %d: pass %d over '%s' is out of order", p->rank,
                           in->pass, p->params.v[in->param].tensor->name);
    }
    for (int i = 0; i < p->params.n; i++) {
        int want = p->n_updates * (p->params.v[i].tensor->bias_update != 0 ? 1 : n_passes);
        if (passes[i] != want)
            return sk_fail(SK_EBUG, "P8: rank %d: '%s' gets %d passes of the optimizer, not %d",
                           p->rank, p->params.v[i].tensor->name, passes[i], want);
    }
    return SK_OK;
}

/* Does an encoded buffer have the rows of the other, as many times as it says? */
static sk_status code_fits(const sk_program *p, int pc)
{
    const sk_inst *in = &p->insts.v[pc];
    bool to = in->act == SK_DO_ENCODE;
    const sk_buffer *x = &p->bufs.v[to ? in->in[0] : in->out[0]];
    const sk_buffer *code = &p->bufs.v[to ? in->out[0] : in->in[0]];
    int64_t rows = x->box.size[0], all = x->bytes / (int64_t)sk_dtype_size(x->type);
    int64_t row = rows ? all / rows : 0, times = to ? 1 : in->pieces;
    bool fits = in->codec && code->bytes == times * rows * sk_codec_bytes(in->codec, row);
    if (in->in[1] >= 0)
        fits &=
            p->bufs.v[in->in[1]].bytes == all * (int64_t)sizeof(float) && in->in[1] == in->out[1];
    if (fits) return SK_OK;
    return sk_fail(SK_EBUG,
                   "P6: rank %d: instruction %d (%s): '%s' has %" PRId64 " bytes for %" PRId64
                   " times %" PRId64 " rows of %" PRId64 " elements",
                   p->rank, pc, sk_act_row_of(in)->name, code->name, code->bytes, times, rows, row);
}

/* And what comes encoded is decoded. */
static sk_status codes_fit(const sk_program *p, sk_arena *a)
{
    char *decoded = sk_many(a, char, p->bufs.n + 1);
    for (int pc = 0; pc < p->insts.n; pc++) {
        sk_act act = p->insts.v[pc].act;
        if (act != SK_DO_ENCODE && act != SK_DO_DECODE) continue;
        SK_TRY(code_fits(p, pc));
        if (act == SK_DO_DECODE) decoded[p->insts.v[pc].in[0]]++;
    }
    for (int i = 0; i < p->calls.n; i++)
        for (int s = 0; p->calls.v[i].type == SK_U8 && s < p->calls.v[i].n_segs; s++)
            if (decoded[p->calls.v[i].segs[s].dst] != 1)
                return sk_fail(SK_EBUG,
                               "P8: rank %d: '%s' comes by call %d and is decoded %d times",
                               p->rank, p->bufs.v[p->calls.v[i].segs[s].dst].name, i,
                               decoded[p->calls.v[i].segs[s].dst]);
    return SK_OK;
}

static sk_status all_of(const sk_program *p, sk_arena *a)
{
    lives l;
    SK_TRY(in_heap(p));
    SK_TRY(calls_fit(p));
    SK_TRY(launches_fit(p));
    SK_TRY(codes_fit(p, a));
    SK_TRY(find_lives(p, a, &l));
    SK_TRY(no_overlap(p, &l, a));
    SK_TRY(in_order(p, a));
    SK_TRY(sends_kept(p, &l, a));
    if (p->n_train) SK_TRY(nodes_run(p, 0, p->n_train, true, a));
    if (p->n_train < p->insts.n) SK_TRY(nodes_run(p, p->n_train, p->insts.n, false, a));
    SK_TRY(updated_once(p, a));
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
