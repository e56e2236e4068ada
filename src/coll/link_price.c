/* link_price.c - the price of a list where every link has a rate of its own (coll/links.h).
 *
 * Links are independent and full duplex.  A round takes as long as its slowest link; the rounds of
 * all members come one after the other:
 *
 *     sum over rounds (alpha + largest of (bytes on a link / its rate))
 *         + messages each + summed S gamma
 *
 * with the messages of the member that has most.  Streams are as long as what is known of their
 * rows says (coll/stream_terms.h). */
#include "coll/link_price.h"
#include "coll/stream_terms.h"

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

/* terms: the contributions in what each step sends; NULL: cells are dense. */
static void count_member(walk *w, sk_arena *a, const sk_steps *s, int me, const int *terms)
{
    double messages = 0;
    int n = w->ask->n;
    for (int i = 0; i < n; i++) w->carried[i] = 0;
    for (int i = 0, round = -1; i < s->list.n; i++) {
        const sk_step *t = &s->list.v[i];
        if (t->act != SK_STEP_SEND) continue;
        for (int j = 0; j < n && t->round != round; j++) w->carried[j] = 0;
        round = t->round;
        while (w->rounds.n <= round) *sk_push(a, &w->rounds) = 0;
        w->carried[t->peer] += t->n * w->unit * (terms ? sk_stream_share(w->ask, terms[i]) : 1);
        w->rounds.v[round] = fmax(w->rounds.v[round], seconds_on(w, me, t->peer));
        messages += link_of(w, me, t->peer)->each;
    }
    w->messages = fmax(w->messages, messages);
}

double sk_link_price(const sk_costs *c, const sk_coll *how, const sk_coll_ask *ask, int here,
                     int64_t bytes)
{
    sk_arena tmp = {0};
    int n = ask->n;
    sk_steps *lists = sk_many(&tmp, sk_steps, n);
    int **terms = how->packs && ask->fill > 0 ? sk_many(&tmp, int *, n) : NULL;
    for (int me = 0; me < n; me++) {
        sk_coll_ask one = *ask;
        one.me = me;
        sk_steps_build(how, &one, &tmp, &lists[me]);
    }
    if (terms) sk_stream_terms(&tmp, lists, n, terms);
    walk w = {.c = c, .ask = ask, .here = here, .unit = (double)bytes / lists[0].cells};
    w.carried = sk_many(&tmp, double, n);
    for (int me = 0; me < n; me++) count_member(&w, &tmp, &lists[me], me, terms ? terms[me] : NULL);
    double sum = w.messages + how->price(ask).summed * (double)bytes * c->gamma;
    for (int i = 0; i < w.rounds.n; i++) sum += w.rounds.v[i];
    sk_arena_end(&tmp);
    return sum;
}
