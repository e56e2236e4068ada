/* verify.c - the programs of all ranks, walked on paper before the first byte moves.
 *
 * P4, P5 and P6 look at one program: live ranges are worked out anew from the
 * instructions, not taken from the memory plan.  P1, P2 and P3 run all programs
 * together: calls and messages are matched as they would be, and if no rank can
 * go on before all are done, the ranks that wait are named. */
#include "program/program.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- one program: places (P6), lives (P4), order (P5) --- */

static int root(const sk_program *p, int buf)
{
    while (p->bufs.v[buf].within >= 0) buf = p->bufs.v[buf].within;
    return buf;
}

static sk_status in_heap(const sk_program *p)
{
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        if (b->first < 0 && !b->keep) continue;
        if (b->offset < 0 || b->bytes < 0 || b->offset + b->bytes > p->heap_bytes)
            return sk_fail(
                SK_EBUG, "P6: rank %d: '%s' lies at %" PRId64 "+%" PRId64 " in a heap of %" PRId64,
                p->rank, b->name, b->offset, b->bytes, p->heap_bytes);
    }
    for (int i = 0; i < p->calls.n; i++)
        if (p->calls.v[i].group < 0 || p->calls.v[i].group >= p->n_groups ||
            p->calls.v[i].table_at < 0 || p->calls.v[i].table_at > p->heap_bytes)
            return sk_fail(SK_EBUG, "P6: rank %d: call %d (%s) names group %d of %d", p->rank, i,
                           p->calls.v[i].what, p->calls.v[i].group, p->n_groups);
    return SK_OK;
}

typedef struct lives {
    int *first, *last; /* by buffer; -1: never */
} lives;

static void use(const sk_program *p, lives *l, int buf, int pc)
{
    if (buf < 0) return;
    buf = root(p, buf);
    if (l->first[buf] < 0) l->first[buf] = pc;
    l->last[buf] = pc;
}

static lives find_lives(const sk_program *p, sk_arena *a)
{
    lives l = {sk_many(a, int, p->bufs.n + 1), sk_many(a, int, p->bufs.n + 1)};
    memset(l.first, -1, sizeof(int) * (size_t)p->bufs.n);
    memset(l.last, -1, sizeof(int) * (size_t)p->bufs.n);
    for (int pc = 0; pc < p->insts.n; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        for (int i = 0; i < SK_MAX_IN; i++) use(p, &l, in->in[i], pc);
        for (int o = 0; o < SK_MAX_OUT; o++) use(p, &l, in->out[o], pc);
        const sk_call_plan *c = in->call >= 0 ? &p->calls.v[in->call] : NULL;
        for (int s = 0; c && s < c->n_segs; s++) {
            use(p, &l, c->segs[s].src, pc);
            use(p, &l, c->segs[s].dst, pc);
        }
    }
    return l;
}

/* The one overlap that is meant: an op works in place on an operand that dies there. */
static bool in_place(const sk_program *p, const lives *l, int x, int y)
{
    int pc = l->first[y];
    if (pc < 0 || l->last[x] != pc) return false;
    const sk_inst *in = &p->insts.v[pc];
    int r = in->act == SK_DO_OP ? in->node->op->reuse - 1 : -1;
    return r >= 0 && in->in[r] == x && in->out[0] == y &&
           p->bufs.v[x].offset == p->bufs.v[y].offset;
}

typedef struct alive {
    int *v, n, cap;
} alive;

static sk_status born(const sk_program *p, const lives *l, alive *set, sk_arena *a, int i)
{
    const sk_buffer *b = &p->bufs.v[i];
    for (int k = 0; k < set->n && b->bytes; k++) {
        int j = set->v[k];
        const sk_buffer *c = &p->bufs.v[j];
        bool apart = b->offset >= c->offset + c->bytes || c->offset >= b->offset + b->bytes;
        if (apart || !c->bytes || in_place(p, l, j, i)) continue;
        return sk_fail(SK_EBUG,
                       "P4: rank %d: '%s' and '%s' overlap at %" PRId64
                       " while both live (instruction %d)",
                       p->rank, b->name, c->name, b->offset, l->first[i]);
    }
    *sk_push(a, set) = i;
    return SK_OK;
}

static sk_status no_overlap(const sk_program *p, const lives *l, sk_arena *a)
{
    alive set = {0};
    int *at = sk_many(a, int, p->insts.n + 1), *next = sk_many(a, int, p->bufs.n + 1);
    memset(at, -1, sizeof(int) * (size_t)(p->insts.n + 1));
    for (int i = p->bufs.n - 1; i >= 0; i--) {
        if (p->bufs.v[i].within >= 0 || p->bufs.v[i].keep || l->first[i] < 0) continue;
        next[i] = at[l->first[i]];
        at[l->first[i]] = i;
    }
    for (int i = 0; i < p->bufs.n; i++) /* kept ones live always */
        if (p->bufs.v[i].keep && p->bufs.v[i].within < 0) SK_TRY(born(p, l, &set, a, i));
    for (int pc = 0; pc < p->insts.n; pc++) {
        for (int i = at[pc]; i >= 0; i = next[i]) SK_TRY(born(p, l, &set, a, i));
        int kept = 0;
        for (int k = 0; k < set.n; k++) {
            int j = set.v[k];
            if (p->bufs.v[j].keep || l->last[j] > pc) set.v[kept++] = j;
        }
        set.n = kept;
    }
    return SK_OK;
}

static sk_status reads(const sk_program *p, char *written, int buf, int pc)
{
    if (buf < 0 || written[root(p, buf)] || !p->bufs.v[buf].bytes) return SK_OK;
    return sk_fail(SK_EBUG, "P5: rank %d: instruction %d (%s) reads '%s' before anything wrote it",
                   p->rank, pc, sk_act_names[p->insts.v[pc].act], p->bufs.v[buf].name);
}

static sk_status written_first(const sk_program *p, sk_arena *a)
{
    char *written = sk_many(a, char, p->bufs.n + 1);
    for (int i = 0; i < p->bufs.n; i++) /* weights and zeroed memory are there from the start */
        written[i] = p->bufs.v[i].keep && (p->bufs.v[i].zero || p->bufs.v[i].kind == SK_WEIGHTS);
    for (int pc = 0; pc < p->insts.n; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        const sk_call_plan *c = in->call >= 0 ? &p->calls.v[in->call] : NULL;
        for (int i = 0; i < SK_MAX_IN; i++) SK_TRY(reads(p, written, in->in[i], pc));
        for (int o = 0; o < SK_MAX_OUT; o++)
            if (in->add >> o & 1) SK_TRY(reads(p, written, in->out[o], pc));
        if (in->act == SK_DO_ADD) SK_TRY(reads(p, written, in->out[0], pc));
        for (int s = 0; c && s < c->n_segs; s++) SK_TRY(reads(p, written, c->segs[s].src, pc));
        for (int s = 0; c && in->act == SK_DO_WAIT && s < c->n_segs; s++)
            written[root(p, c->segs[s].dst)] = 1;
        for (int o = 0; o < SK_MAX_OUT; o++)
            if (in->out[o] >= 0) written[root(p, in->out[o])] = 1;
    }
    return SK_OK;
}

static sk_status alone(const sk_program *p)
{
    sk_arena tmp = {0};
    sk_status st = in_heap(p);
    if (!st) {
        lives l = find_lives(p, &tmp);
        st = no_overlap(p, &l, &tmp);
    }
    if (!st) st = written_first(p, &tmp);
    sk_arena_end(&tmp);
    return st;
}

/* --- all programs together: P1, P2, P3 --- */

typedef struct message {
    int64_t tag, bytes;
} message;

typedef struct pair {
    message *v;
    int n, cap;
    int taken;
} pair;

typedef struct walker {
    int pc;
    int64_t *posted, *done;     /* by group: calls announced and finished */
    sk_call_plan const **calls; /* by group: ring of announced calls */
} walker;

typedef struct walk {
    const sk_program *const *p;
    int n, n_groups;
    walker *w;
    pair *pairs; /* [from * n + to] */
    sk_arena *arena;
} walk;

static const sk_call_plan **slot(walker *w, int group, int64_t seq)
{
    return &w->calls[group * SK_COMM_FLIGHT + (int)(seq % SK_COMM_FLIGHT)];
}

static sk_status same_call(const walk *k, int me, int other, const sk_call_plan *a,
                           const sk_call_plan *b)
{
    bool same = a->kind == b->kind && a->reduce == b->reduce && a->type == b->type &&
                a->n_segs == b->n_segs;
    for (int s = 0; same && s < a->n_segs; s++)
        same = a->segs[s].outer == b->segs[s].outer && a->segs[s].n == b->segs[s].n &&
               a->segs[s].inner == b->segs[s].inner;
    if (same) return SK_OK;
    return sk_fail(SK_EBUG, "P1: rank %d calls '%s' where rank %d calls '%s' on the same group",
                   k->p[me]->rank, a->what, k->p[other]->rank, b->what);
}

/* 1: went on, 0: must wait, -1: failed */
static int step_wait(walk *k, int r, const sk_call_plan *c, sk_status *st)
{
    walker *w = &k->w[r];
    const sk_group *g = &k->p[r]->groups[c->group];
    int64_t seq = w->done[c->group];
    if (w->posted[c->group] <= seq || *slot(w, c->group, seq) != c) {
        *st = sk_fail(SK_EBUG, "P1: rank %d waits for '%s', which is not the oldest it started",
                      k->p[r]->rank, c->what);
        return -1;
    }
    for (int i = 0; i < g->n; i++) {
        walker *o = &k->w[g->ranks[i]];
        if (o->posted[c->group] <= seq) return 0;
        if (o->posted[c->group] - seq > SK_COMM_FLIGHT) continue; /* checked when it was fresh */
        *st = same_call(k, r, g->ranks[i], c, *slot(o, c->group, seq));
        if (*st) return -1;
    }
    w->done[c->group]++;
    return 1;
}

static int step_start(walk *k, int r, const sk_call_plan *c, sk_status *st)
{
    walker *w = &k->w[r];
    const sk_group *g = &k->p[r]->groups[c->group];
    bool member = g->me >= 0 && g->me < g->n && g->ranks[g->me] == k->p[r]->rank;
    if (!member || w->posted[c->group] - w->done[c->group] >= SK_COMM_FLIGHT) {
        *st = sk_fail(SK_EBUG, "P1: rank %d starts '%s' %s", k->p[r]->rank, c->what,
                      member ? "with too many calls in flight" : "on a group it is not in");
        return -1;
    }
    *slot(w, c->group, w->posted[c->group]++) = c;
    return 1;
}

static int step_recv(walk *k, int r, const sk_inst *in, sk_status *st)
{
    pair *q = &k->pairs[in->peer * k->n + r];
    int64_t bytes = k->p[r]->bufs.v[in->out[0]].bytes;
    if (q->taken == q->n) return 0;
    const message *m = &q->v[q->taken++];
    if (m->tag == in->tag && m->bytes == bytes) return 1;
    *st = sk_fail(SK_EBUG,
                  "P2: rank %d receives '%s' (%" PRId64 " bytes), but rank %d sent another "
                  "tensor (%" PRId64 " bytes) there",
                  r, k->p[r]->bufs.v[in->out[0]].name, bytes, in->peer, m->bytes);
    return -1;
}

static int step(walk *k, int r, sk_status *st)
{
    const sk_program *p = k->p[r];
    const sk_inst *in = &p->insts.v[k->w[r].pc];
    switch (in->act) {
    case SK_DO_START:
        return step_start(k, r, &p->calls.v[in->call], st);
    case SK_DO_WAIT:
        return step_wait(k, r, &p->calls.v[in->call], st);
    case SK_DO_RECV:
    case SK_DO_SEND:
    case SK_DO_SENT:
        if (in->peer < 0 || in->peer >= k->n) {
            *st = sk_fail(SK_EBUG, "P2: rank %d names rank %d of %d", r, in->peer, k->n);
            return -1;
        }
        if (in->act == SK_DO_RECV) return step_recv(k, r, in, st);
        if (in->act == SK_DO_SEND) {
            *(message *)sk_push(k->arena, &k->pairs[r * k->n + in->peer]) =
                (message){in->tag, p->bufs.v[in->in[0]].bytes};
            return 1;
        }
        /* counts are per section; both sections begin with nothing under way */
        return k->pairs[r * k->n + in->peer].taken >= in->count;
    default:
        return 1;
    }
}

static sk_status stuck(const walk *k, const int *end)
{
    sk_arena tmp = {0};
    sk_out o = {.arena = &tmp};
    int shown = 0, waiting = 0;
    for (int r = 0; r < k->n; r++) {
        if (k->w[r].pc >= end[r]) continue;
        waiting++;
        if (shown++ < 4)
            sk_out_add(&o, "\n  rank %d at%s", r, sk_inst_print(k->p[r], k->w[r].pc, &tmp));
    }
    sk_status st = sk_fail(SK_EBUG, "P3: %d of %d ranks wait for ever:%s", waiting, k->n, o.s);
    sk_arena_end(&tmp);
    return st;
}

static sk_status left_over(const walk *k)
{
    for (int a = 0; a < k->n; a++)
        for (int b = 0; b < k->n; b++) {
            const pair *q = &k->pairs[a * k->n + b];
            if (q->taken < q->n)
                return sk_fail(SK_EBUG,
                               "P2: rank %d sends %d messages to rank %d, which receives %d", a,
                               q->n, b, q->taken);
        }
    for (int r = 0; r < k->n; r++)
        for (int g = 0; g < k->p[r]->n_groups; g++)
            if (k->w[r].posted[g] != k->w[r].done[g])
                return sk_fail(
                    SK_EBUG, "P1: rank %d starts a call on group %d and never waits for it", r, g);
    return SK_OK;
}

static sk_status walk_section(walk *k, const int *end)
{
    sk_status st = SK_OK;
    memset(k->pairs, 0, sizeof *k->pairs * (size_t)(k->n * k->n));
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < k->n; r++)
            while (k->w[r].pc < end[r]) {
                int went = step(k, r, &st);
                if (st) return st;
                if (!went) break;
                k->w[r].pc++;
                moved = true;
            }
    }
    for (int r = 0; r < k->n; r++)
        if (k->w[r].pc < end[r]) return stuck(k, end);
    return left_over(k);
}

static sk_status together(const sk_program *const *p, int n)
{
    sk_arena tmp = {0};
    walk k = {.p = p, .n = n, .arena = &tmp};
    int *end = sk_many(&tmp, int, n);
    k.w = sk_many(&tmp, walker, n);
    k.pairs = sk_many(&tmp, pair, n * n);
    for (int r = 0; r < n; r++) {
        int g = p[r]->n_groups;
        k.w[r].posted = sk_many(&tmp, int64_t, g);
        k.w[r].done = sk_many(&tmp, int64_t, g);
        k.w[r].calls = sk_many(&tmp, const sk_call_plan *, g *SK_COMM_FLIGHT);
        end[r] = p[r]->n_train;
    }
    sk_status st = walk_section(&k, end);
    for (int r = 0; r < n; r++) end[r] = p[r]->insts.n;
    if (!st) st = walk_section(&k, end);
    sk_arena_end(&tmp);
    return st;
}

sk_status sk_verify(const sk_program *const *programs, int n_ranks)
{
    for (int r = 0; r < n_ranks; r++) SK_TRY(alone(programs[r]));
    SK_TRY(together(programs, n_ranks));
    return SK_OK;
}
