/* loggp.c - playing lists: the next message is always the one that leaves first.
 *
 * Links of a kind have one latency, so messages to a member come in the order in which they left,
 * and its link in takes them in that order. */
#include "coll/loggp.h"

#include <math.h>
#include <string.h>

/* A point in time, and what the way to it is made of. */
typedef struct moment {
    double at;
    sk_loggp made_of;
} moment;

typedef struct mail { /* messages of one member to another, and how many the other has taken */
    moment *v;
    int n, cap, taken;
} mail;

typedef struct player {
    sk_steps list;
    int at;           /* the next step that is not done */
    int lo, hi, sent; /* the round: its steps, and the next of them to look at for sends */
    moment now, out_free, in_free;
    double out_tokens, in_tokens; /* bytes in the buckets of the links when they were last free */
} player;

typedef struct game {
    const sk_loggp *m;
    sk_arena *arena;
    player *v;
    mail *mail; /* [n * n], from and to */
    int n, here;
    double bytes; /* of the vector */
} game;

static moment later(const moment *a, const moment *b) { return a->at >= b->at ? *a : *b; }

static void add(moment *t, const game *g, bool out, sk_loggp_number what, double times)
{
    t->at += times * (out ? g->m->between : g->m->inside)[what];
    (out ? t->made_of.between : t->made_of.inside)[what] += times;
}

static bool leaves(const game *g, int a, int b) { return a / g->here != b / g->here; }

static bool receives(const sk_step *s)
{
    return s->act == SK_STEP_RECV || s->act == SK_STEP_RECV_SUM;
}

static double bytes_of(const game *g, const player *p, int cells)
{
    return cells * g->bytes / p->list.cells;
}

/* --- rounds --- */

static void open_round(player *p)
{
    p->lo = p->sent = p->hi = p->at;
    int round = p->at < p->list.list.n ? p->list.list.v[p->at].round : 0;
    while (p->hi < p->list.list.n && p->list.list.v[p->hi].round == round) p->hi++;
}

/* Its next send of the round; NULL: none. */
static const sk_step *next_send(player *p)
{
    while (p->sent < p->hi && p->list.list.v[p->sent].act != SK_STEP_SEND) p->sent++;
    return p->sent < p->hi ? &p->list.list.v[p->sent] : NULL;
}

/* Does the i-th step of a list bring the first message of its round from its peer? */
static bool first_from(const sk_steps *l, int i)
{
    const sk_step *s = &l->list.v[i];
    for (int j = i - 1; j >= 0 && l->list.v[j].round == s->round; j--)
        if (receives(&l->list.v[j]) && l->list.v[j].peer == s->peer) return false;
    return true;
}

/* Members of other hosts that send to b in the round that takes the k-th message from a. */
static int streams_at(const game *g, int a, int b, int k)
{
    const sk_steps *l = &g->v[b].list;
    int i = 0, n = 0;
    for (; i < l->list.n; i++)
        if (receives(&l->list.v[i]) && l->list.v[i].peer == a && !k--) break;
    if (i == l->list.n) return 1;
    int round = l->list.v[i].round;
    while (i && l->list.v[i - 1].round == round) i--;
    for (; i < l->list.n && l->list.v[i].round == round; i++)
        n += receives(&l->list.v[i]) && leaves(g, b, l->list.v[i].peer) && first_from(l, i);
    return n;
}

static moment leaving(const game *g, int me, const sk_step *s)
{
    moment t = g->v[me].now;
    add(&t, g, leaves(g, me, s->peer), SK_LOGGP_OVERHEAD, 1);
    return t;
}

/* The bytes that a link must be paid for; it begins with them at `begin`. */
static double charged(const game *g, double *tokens, const moment *last, const moment *begin,
                      double bytes)
{
    double rate = g->m->between[SK_LOGGP_BYTE], idle = begin->at - last->at;
    if (g->m->burst <= 0) return bytes;
    double have = fmin(g->m->burst, *tokens + (rate > 0 && idle > 0 ? idle / rate : 0));
    *tokens = fmax(have - bytes, 0);
    return fmax(bytes - have, 0);
}

/* The next send of a member; to whom. */
static int carry(game *g, int me)
{
    player *p = &g->v[me];
    const sk_step *s = next_send(p);
    player *q = &g->v[s->peer];
    mail *box = &g->mail[me * g->n + s->peer];
    bool out = leaves(g, me, s->peer);
    double bytes = bytes_of(g, p, s->n);
    p->now = leaving(g, me, s);
    moment begin = later(&p->now, &p->out_free), end = begin, in = begin;
    add(&end, g, out, SK_LOGGP_BYTE,
        out ? charged(g, &p->out_tokens, &p->out_free, &begin, bytes) : bytes);
    p->out_free = end;
    add(&p->out_free, g, out, SK_LOGGP_GAP, 1);
    add(&in, g, out, SK_LOGGP_LATENCY, 1);
    in = later(&in, &q->in_free);
    double paid = out ? charged(g, &q->in_tokens, &q->in_free, &in, bytes) : bytes;
    add(&in, g, out, SK_LOGGP_BYTE, paid);
    int streams = out ? streams_at(g, me, s->peer, box->n) : 1;
    if (streams > 1) add(&in, g, out, SK_LOGGP_INCAST, paid * log2(streams));
    add(&end, g, out, SK_LOGGP_LATENCY, 1);
    in = later(&in, &end);
    *(moment *)sk_push(g->arena, box) = in;
    q->in_free = in;
    add(&q->in_free, g, out, SK_LOGGP_GAP, 1);
    p->sent++;
    return s->peer;
}

/* The earliest message that came for the round and is not `taken`; NULL: none is left. */
static const moment *earliest(const game *g, int me, bool *taken, const sk_step **step)
{
    const player *p = &g->v[me];
    const moment *first = NULL;
    int at = -1;
    for (int i = p->lo; i < p->hi; i++) {
        const sk_step *s = &p->list.list.v[i];
        if (!receives(s) || taken[i - p->lo]) continue;
        const mail *box = &g->mail[s->peer * g->n + me];
        int k = box->taken;
        for (int j = p->lo; j < i; j++)
            k += receives(&p->list.list.v[j]) && p->list.list.v[j].peer == s->peer;
        if (first && first->at <= box->v[k].at) continue;
        first = &box->v[k];
        at = i;
    }
    if (at < 0) return NULL;
    taken[at - p->lo] = true;
    *step = &p->list.list.v[at];
    return first;
}

static bool all_came(const game *g, int me)
{
    const player *p = &g->v[me];
    for (int i = p->lo; i < p->hi; i++) {
        const sk_step *s = &p->list.list.v[i];
        int need = 0;
        for (int j = p->lo; j <= i; j++)
            need += receives(&p->list.list.v[j]) && p->list.list.v[j].peer == s->peer;
        const mail *box = &g->mail[s->peer * g->n + me];
        if (receives(s) && box->n - box->taken < need) return false;
    }
    return true;
}

static void local_work(const game *g, player *p, const sk_step *s)
{
    double sums = s->act == SK_STEP_TREE ? s->k - 1 : s->act == SK_STEP_SUM;
    add(&p->now, g, true, SK_LOGGP_SUM, sums * bytes_of(g, p, s->n));
}

/* Takes the messages of a round whose sends are over; false: one is still to come. */
static bool close_round(game *g, int me)
{
    player *p = &g->v[me];
    const moment *came;
    const sk_step *s = NULL;
    if (next_send(p) || !all_came(g, me)) return false;
    bool *taken = sk_many(g->arena, bool, p->hi - p->lo + 1);
    while ((came = earliest(g, me, taken, &s))) {
        p->now = later(&p->now, came);
        add(&p->now, g, leaves(g, me, s->peer), SK_LOGGP_OVERHEAD, 1);
        double added = s->act == SK_STEP_RECV_SUM ? bytes_of(g, p, s->n) : 0;
        add(&p->now, g, true, SK_LOGGP_SUM, added);
    }
    for (int i = p->lo; i < p->hi; i++) {
        s = &p->list.list.v[i];
        if (receives(s)) g->mail[s->peer * g->n + me].taken++;
        else if (s->act != SK_STEP_SEND) local_work(g, p, s);
    }
    p->at = p->hi;
    open_round(p);
    return true;
}

/* --- a call --- */

/* The same steps once more, in rounds behind those of the list. */
static void double_list(sk_steps *s)
{
    int n = s->list.n, last = n ? s->list.v[n - 1].round : 0;
    for (int i = 0; i < n; i++) {
        sk_step again = s->list.v[i];
        again.round += last + 1;
        *(sk_step *)sk_push(s->arena, &s->list) = again;
    }
}

static void seat(game *g, const sk_coll *how, const sk_coll_ask *ask, int calls)
{
    g->v = sk_many(g->arena, player, g->n);
    g->mail = sk_many(g->arena, mail, (int64_t)g->n * g->n);
    for (int i = 0; i < g->n; i++) {
        sk_coll_ask one = *ask;
        one.me = i;
        sk_steps_build(how, &one, g->arena, &g->v[i].list);
        if (calls > 1) double_list(&g->v[i].list);
        g->v[i].out_tokens = g->v[i].in_tokens = g->m->steady ? 0 : g->m->burst;
        open_round(&g->v[i]);
    }
}

/* Who sends next: the one whose message leaves first; -1: nobody can. */
static int who_sends(game *g)
{
    int first = -1;
    double least = INFINITY;
    for (int i = 0; i < g->n; i++) {
        const sk_step *s = next_send(&g->v[i]);
        if (!s) continue;
        moment t = leaving(g, i, s);
        double at = fmax(t.at, g->v[i].out_free.at);
        if (at < least) least = at, first = i;
    }
    return first;
}

static void settle(game *g, int me)
{
    while (g->v[me].at < g->v[me].list.list.n && close_round(g, me)) continue;
}

static moment play(game *g)
{
    moment end = {0};
    for (int i = 0; i < g->n; i++) settle(g, i);
    for (int i; (i = who_sends(g)) >= 0;) {
        settle(g, carry(g, i));
        settle(g, i);
    }
    for (int i = 0; i < g->n; i++) {
        sk_assert(g->v[i].at == g->v[i].list.list.n);
        end = later(&end, &g->v[i].now);
    }
    return end;
}

sk_loggp sk_loggp_of(const sk_costs *c)
{
    sk_loggp m = {0};
    const sk_link *link[] = {&c->inside, &c->between};
    for (int i = 0; i < 2; i++) {
        double *to = i ? m.between : m.inside;
        to[SK_LOGGP_LATENCY] = link[i]->alpha;
        to[SK_LOGGP_OVERHEAD] = link[i]->each;
        to[SK_LOGGP_GAP] = link[i]->gap;
        to[SK_LOGGP_BYTE] = link[i]->beta;
        to[SK_LOGGP_INCAST] = link[i]->beta * link[i]->incast;
        to[SK_LOGGP_SUM] = c->gamma;
    }
    m.burst = c->between.burst;
    return m;
}

/* One call, or two one after the other. */
static moment play_calls(const sk_loggp *m, const sk_coll *how, const sk_coll_ask *ask, int here,
                         double bytes, int calls)
{
    sk_arena tmp = {0};
    game g = {.m = m, .arena = &tmp, .n = ask->n, .here = here, .bytes = bytes};
    seat(&g, how, ask, calls);
    moment end = play(&g);
    sk_arena_end(&tmp);
    return end;
}

/* a becomes what it is more than b. */
static void subtract(moment *a, const moment *b)
{
    a->at -= b->at;
    for (int i = 0; i < SK_LOGGP_N; i++) {
        a->made_of.inside[i] -= b->made_of.inside[i];
        a->made_of.between[i] -= b->made_of.between[i];
    }
}

double sk_loggp_play(const sk_loggp *m, int algorithm, const sk_coll_ask *ask, int hosts,
                     int64_t bytes, sk_loggp *path)
{
    const sk_coll *how = algorithm >= 0 ? sk_coll_parts[algorithm] : NULL;
    if (path) *path = (sk_loggp){0};
    if (ask->n < 2) return 0;
    if (!how || !how->build || ask->n > SK_LOGGP_MEMBERS) return INFINITY;
    int here = sk_members_here(ask, hosts);
    bool twice = m->steady && m->burst > 0;
    moment one = play_calls(m, how, ask, here, (double)bytes, 1), end = one;
    if (twice) end = play_calls(m, how, ask, here, (double)bytes, 2), subtract(&end, &one);
    if (path) *path = end.made_of;
    return end.at;
}
