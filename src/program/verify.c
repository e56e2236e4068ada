/* verify.c - the programs of all ranks, walked on paper before the first byte moves.
 *
 * P1, P2 and P3 run all programs together: calls and messages are matched as
 * they would be, and if no rank can go on before all are done, the ranks that
 * wait are named.  A wait is what it is in comm/: first until all members have
 * started the call, then until all have done their share of it.  What can be
 * proved about one program alone is in verify_one.c. */
#include "program/program.h"
#include "base/hash.h"
#include "base/text.h"

#include <inttypes.h>
#include <string.h>

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
    int64_t *posted, *shared, *done; /* by group: calls announced, worked on, finished */
    sk_call_plan const **calls;      /* by group: ring of announced calls */
    uint64_t *members;               /* by group: hash of who is in it */
} walker;

typedef struct walk {
    const sk_program *const *p;
    int n;
    walker *w;
    pair *pairs; /* [from * n + to] */
    sk_arena *arena;
    bool moved; /* somebody went on, or did its share of a call */
} walk;

static const sk_call_plan **slot(walker *w, int group, int64_t seq)
{
    return &w->calls[group * SK_COMM_FLIGHT + (int)(seq % SK_COMM_FLIGHT)];
}

static bool same_shape(const sk_call_seg *a, const sk_call_seg *b)
{
    return a->outer == b->outer && a->n == b->n && a->inner == b->inner && a->swap == b->swap &&
           a->mid == b->mid && a->n2 == b->n2 && !memcmp(&a->cut, &b->cut, sizeof a->cut) &&
           !memcmp(&a->cut2, &b->cut2, sizeof a->cut2);
}

static sk_status same_call(const walk *k, int me, int other, const sk_call_plan *a,
                           const sk_call_plan *b)
{
    bool same = a->kind == b->kind && a->reduce == b->reduce && a->type == b->type &&
                a->n_segs == b->n_segs && !strcmp(a->what, b->what) &&
                a->algorithm == b->algorithm && a->root == b->root && a->common == b->common &&
                k->w[me].members[a->group] == k->w[other].members[b->group];
    for (int s = 0; same && s < a->n_segs; s++) same = same_shape(&a->segs[s], &b->segs[s]);
    if (same) return SK_OK;
    return sk_fail(SK_EBUG,
                   "P1: rank %d calls '%s' (kind %d, %" PRId64 " elements of %s, %d members, by "
                   "%s) where rank %d calls '%s' (kind %d, %" PRId64 " of %s, %d, %s) on the same "
                   "group",
                   me, a->what, (int)a->kind, a->elements, sk_dtype_name(a->type),
                   k->p[me]->groups[a->group].n, sk_algorithm_name(a->algorithm), other, b->what,
                   (int)b->kind, b->elements, sk_dtype_name(b->type),
                   k->p[other]->groups[b->group].n, sk_algorithm_name(b->algorithm));
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
        if (w->shared[c->group] > seq) continue;
        *st = same_call(k, r, g->ranks[i], c, *slot(o, c->group, seq));
        if (*st) return -1;
    }
    k->moved |= w->shared[c->group] <= seq;
    w->shared[c->group] = seq + 1;
    for (int i = 0; i < g->n; i++)
        if (k->w[g->ranks[i]].shared[c->group] <= seq) return 0;
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
        return k->pairs[r * k->n + in->peer].taken >= in->sent;
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
    for (k->moved = true; k->moved;) {
        k->moved = false;
        for (int r = 0; r < k->n; r++)
            while (k->w[r].pc < end[r]) {
                int went = step(k, r, &st);
                if (st) return st;
                if (!went) break;
                k->w[r].pc++;
                k->moved = true;
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
        k.w[r].shared = sk_many(&tmp, int64_t, g);
        k.w[r].done = sk_many(&tmp, int64_t, g);
        k.w[r].calls = sk_many(&tmp, const sk_call_plan *, g *SK_COMM_FLIGHT);
        k.w[r].members = sk_many(&tmp, uint64_t, g);
        for (int i = 0; i < g; i++)
            k.w[r].members[i] = sk_hash(SK_HASH_SEED, p[r]->groups[i].ranks,
                                        sizeof(int) * (size_t)p[r]->groups[i].n);
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
    for (int r = 0; r < n_ranks; r++) SK_TRY(sk_verify_one(programs[r]));
    SK_TRY(sk_verify_twins(programs, n_ranks));
    SK_TRY(together(programs, n_ranks));
    return SK_OK;
}
