/* sim_laps.c - laps of ranks, and the rest of a step that has become regular. */
#include "plan/sim_laps.h"
#include "program/acts.h"

#include <math.h>

enum { STEADY = 6 }; /* laps, besides a lap for each stage */

static const double ROUNDING = 1e-12; /* relative to the time of the step so far */

/* --- how many --- */

static int stages_of(const sk_sim *k)
{
    return k->l->stage_axis < 0 ? 1 : k->l->mesh.size[k->l->stage_axis];
}

static int must_be_steady(const sk_sim *k) { return stages_of(k) + STEADY; }

int sk_sim_laps_first(const sk_sim *k)
{
    const sk_program *p = k->in->programs[0];
    int some = 3 * stages_of(k) + 2 * STEADY + SK_LISTED;
    if (!sk_program_listed(p)) return 0;
    if (k->factors) return p->n_micro; /* ranks that do not meet in a lap have laps of their own */
    return some < p->n_micro ? some : p->n_micro;
}

static bool pairs(const sk_sim_laps *x, int repeat)
{
    return x->r.train.pairs > 1 && x->r.v[repeat].n_tasks == 2;
}

/* Laps of pairs are left out; where there are none all is walked. */
void sk_sim_laps_open(sk_sim *k, sk_sim_rank *w)
{
    sk_sim_laps *x = sk_new(k->arena, sk_sim_laps);
    bool found = sk_repeats_find(w->p, &x->r);
    sk_assert(found); /* sk_simulate_compile has asked */
    if (x->r.train.pairs == 1) k->n_micro = w->p->n_micro;
    w->laps = x;
    for (int i = 0; i < x->r.n; i++) {
        const sk_repeat *r = &x->r.v[i];
        x->more[i] = r->more;
        if (!pairs(x, i)) continue;
        x->more[i] -= w->p->n_micro - k->n_micro;
        x->ended = sk_many(k->arena, double, r->n + 1);
        x->least = sk_many(k->arena, double, x->more[i] + 1);
        x->most = sk_many(k->arena, double, x->more[i] + 1);
    }
}

/* --- going round --- */

static void mark_channels(sk_sim_rank *w, bool again)
{
    for (int i = 0; i < w->channels.n; i++) {
        sk_sim_channel *q = &w->channels.v[i];
        if (again) q->more += q->n - q->mark;
        q->mark = q->n;
    }
}

static void note(sk_sim_rank *w, int i)
{
    sk_sim_laps *x = w->laps;
    double later = w->now - x->ended[i];
    x->ended[i] = w->now;
    if (!i || later < x->least[x->lap]) x->least[x->lap] = later;
    if (!i || later > x->most[x->lap]) x->most[x->lap] = later;
}

static void keep(double now, double *before, double *lap)
{
    *lap = now - *before;
    *before = now;
}

static void end_of_pair(sk_sim_rank *w)
{
    sk_sim_laps *x = w->laps;
    keep(w->out->busy, &x->busy, &x->lap_busy);
    keep(w->out->exposed, &x->exposed, &x->lap_exposed);
    keep(w->core, &x->core, &x->lap_core);
    keep(w->between, &x->between, &x->lap_between);
    keep(w->out->flops, &x->flops, &x->lap_flops);
    keep(w->host, &x->host, &x->lap_host);
    for (int e = 0; e < SK_N_EXPOSED; e++)
        keep(w->out->exposed_by[e], &x->exposed_by[e], &x->lap_exposed_by[e]);
}

void sk_sim_laps_go(sk_sim_rank *w)
{
    sk_sim_laps *x = w->laps;
    while (x->at < x->r.n && !x->r.v[x->at].n) x->at++; /* a stage without layers */
    if (x->at == x->r.n) return;
    const sk_repeat *r = &x->r.v[x->at];
    if (w->pc == r->at) mark_channels(w, false);
    if (w->pc <= r->at) return;
    if (pairs(x, x->at)) note(w, w->pc - 1 - r->at);
    if (w->pc != r->at + r->n) return;
    if (pairs(x, x->at)) end_of_pair(w);
    w->micros += x->r.n_micro;
    if (x->lap++ < x->more[x->at]) {
        mark_channels(w, true);
        w->pc = r->at;
        return;
    }
    x->at++;
    x->lap = 0;
    if (x->at < x->r.n && w->pc == x->r.v[x->at].at) mark_channels(w, false);
}

/* --- the rest --- */

static int pair_of(const sk_sim_laps *x)
{
    for (int i = 0; i < x->r.n; i++)
        if (pairs(x, i) && x->r.v[i].n) return i;
    return -1;
}

/* The time of a lap; 0: the last laps differ, of this rank or from `by`. */
static double steady(const sk_sim *k, const sk_sim_rank *w, double by)
{
    const sk_sim_laps *x = w->laps;
    int i = pair_of(x);
    if (i < 0) return by;
    int last = x->more[i];
    double off = ROUNDING * w->now;
    if (last < must_be_steady(k)) return 0;
    if (by <= 0) by = x->most[last];
    if (x->lap_host > by + off) return 0; /* its lead over the launches of its host shrinks */
    for (int lap = last; lap > last - must_be_steady(k); lap--)
        if (x->least[lap] < by - off || x->most[lap] > by + off) return 0;
    return by;
}

/* The bytes that a lap sends: of each group once. */
static void add_wire(sk_sim *k, sk_sim_rank *w, const sk_repeat *r, int64_t laps)
{
    for (int pc = r->at; pc < r->at + r->n; pc++) {
        const sk_inst *in = &w->p->insts.v[pc];
        if (k->early && sk_inst_once(in)) continue;
        w->wire += (double)laps * sk_inst_average(in, in->wire);
        if (in->act == SK_DO_SEND) k->out->wire_sends += laps * in->wire * w->out->ranks;
        if (in->act != SK_DO_START) continue;
        const sk_call_plan *plan = &w->p->calls.v[in->call];
        sk_sim_group *c = &k->groups[w->group[plan->group]];
        if (c->rank != w->rank) continue;
        c->wire += (double)laps * sk_inst_average(in, sk_call_wire(plan, c->reach.n));
    }
}

static void add_rest(sk_sim *k, sk_sim_rank *w, double by, int64_t laps)
{
    const sk_sim_laps *x = w->laps;
    int i = pair_of(x);
    w->now += by * (double)laps;
    if (i < 0) return;
    w->out->busy += x->lap_busy * (double)laps;
    w->out->exposed += x->lap_exposed * (double)laps;
    w->core += x->lap_core * (double)laps;
    w->between += x->lap_between * (double)laps;
    w->out->flops += x->lap_flops * (double)laps;
    for (int e = 0; e < SK_N_EXPOSED; e++)
        w->out->exposed_by[e] += x->lap_exposed_by[e] * (double)laps;
    add_wire(k, w, &x->r.v[i], laps);
}

bool sk_sim_laps_end(sk_sim *k)
{
    int64_t laps = k->w[0].p->n_micro - k->n_micro;
    double by = 0;
    if (!laps) return true;
    for (int i = 0; i < k->n; i++) {
        by = steady(k, &k->w[i], by);
        if (by <= 0 && pair_of(k->w[i].laps) >= 0) return false;
    }
    for (int i = 0; i < k->n; i++) add_rest(k, &k->w[i], by, laps);
    return true;
}
