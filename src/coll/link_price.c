/* link_price.c - the price of a list where every link has a rate of its own (coll/links.h).
 *
 * Links are independent and full duplex.  A round takes as long as its slowest link; the rounds of
 * all members come one after the other:
 *
 *     sum over rounds (alpha + largest of (bytes on a link / its rate))
 *         + messages each + summed S gamma
 *
 * with the messages of the member that has most. */
#include "coll/link_price.h"

#include <math.h>

typedef struct walk {
    const sk_costs *c;
    const sk_coll_ask *ask;
    int here;        /* neighbours that share a host */
    double unit;     /* bytes of a cell */
    double *carried; /* [n] bytes to each member in the round */
    struct {
        double *v; /* seconds of each round */
        int n, cap;
    } rounds;
    double messages; /* seconds, of the member that has most */
} walk;

static const sk_link *link_of(const walk *w, int from, int to)
{
    return from / w->here == to / w->here ? &w->c->inside : &w->c->between;
}

static double seconds_on(const walk *w, int from, int to)
{
    double rate = sk_coll_rate(w->ask, from, to);
    const sk_link *l = link_of(w, from, to);
    return l->alpha + w->carried[to] * (rate > 0 ? 1 / rate : l->beta);
}

static void count_member(walk *w, sk_arena *a, const sk_coll *how, int me)
{
    sk_coll_ask ask = *w->ask;
    sk_steps s;
    double messages = 0;
    ask.me = me;
    sk_steps_build(how, &ask, a, &s);
    for (int i = 0; i < ask.n; i++) w->carried[i] = 0;
    for (int i = 0, round = -1; i < s.list.n; i++) {
        const sk_step *t = &s.list.v[i];
        if (t->act != SK_STEP_SEND) continue;
        for (int j = 0; j < ask.n && t->round != round; j++) w->carried[j] = 0;
        round = t->round;
        while (w->rounds.n <= round) *sk_push(a, &w->rounds) = 0;
        w->carried[t->peer] += t->n * w->unit;
        w->rounds.v[round] = fmax(w->rounds.v[round], seconds_on(w, me, t->peer));
        messages += link_of(w, me, t->peer)->each;
    }
    w->messages = fmax(w->messages, messages);
}

double sk_link_price(const sk_costs *c, const sk_coll *how, const sk_coll_ask *ask, int here,
                     int64_t bytes)
{
    sk_arena tmp = {0};
    sk_steps first;
    sk_coll_ask one = *ask;
    one.me = 0;
    sk_steps_build(how, &one, &tmp, &first);
    walk w = {.c = c, .ask = ask, .here = here, .unit = (double)bytes / first.cells};
    w.carried = sk_many(&tmp, double, ask->n);
    for (int me = 0; me < ask->n; me++) count_member(&w, &tmp, how, me);
    double sum = w.messages + how->price(ask).summed * (double)bytes * c->gamma;
    for (int i = 0; i < w.rounds.n; i++) sum += w.rounds.v[i];
    sk_arena_end(&tmp);
    return sum;
}
