/* office.c - for tests: a wire between threads of one process. */
#include "lib/office.h"

#include <pthread.h>
#include <stdlib.h>

enum { SHORT = 256, REQS = 256 }; /* few requests, so that they run out */

typedef struct letter { /* sent and not taken */
    int from, to;
    int64_t tag, bytes;
    const void *data;
    char copy[SHORT];
    bool *taken; /* of a long one: tells the sender */
    struct letter *next;
} letter;

typedef struct request {
    bool used, out, done;
    int from;
    int64_t tag, most, bytes;
    void *data;
    int64_t number; /* receives take letters in the order in which they were asked for */
} request;

typedef struct desk {
    sk_office *office;
    sk_wire wire;
    request reqs[REQS];
    int64_t asked, sent; /* requests; bytes */
} desk;

struct sk_office {
    pthread_mutex_t lock;
    letter *first, **end;
    desk *desks;
};

static int find_free(desk *d)
{
    for (int i = 0; i < REQS; i++)
        if (!d->reqs[i].used) return i;
    return -1;
}

static sk_status send(sk_wire *w, int to, int64_t tag, const void *data, int64_t bytes, sk_req *r)
{
    desk *d = w->own;
    sk_office *o = d->office;
    pthread_mutex_lock(&o->lock);
    if ((*r = find_free(d)) >= 0) {
        letter *l = calloc(1, sizeof *l);
        sk_assert(l);
        request *q = &d->reqs[*r];
        *q = (request){.used = true, .out = true, .done = bytes <= SHORT};
        *l = (letter){.from = w->rank, .to = to, .tag = tag, .bytes = bytes, .data = data};
        if (bytes > SHORT) l->taken = &q->done;
        else if (bytes) memcpy(l->copy, data, (size_t)bytes);
        *o->end = l;
        o->end = &l->next;
        d->sent += bytes;
    }
    pthread_mutex_unlock(&o->lock);
    return SK_OK;
}

static sk_status recv(sk_wire *w, int from, int64_t tag, void *data, int64_t most, sk_req *r)
{
    desk *d = w->own;
    pthread_mutex_lock(&d->office->lock);
    if ((*r = find_free(d)) >= 0)
        d->reqs[*r] = (request){.used = true,
                                .from = from,
                                .tag = tag,
                                .most = most,
                                .data = data,
                                .number = d->asked++};
    pthread_mutex_unlock(&d->office->lock);
    return SK_OK;
}

/* Who of those that wait for such a letter asked first? */
static request *find_reader(desk *d, const letter *l)
{
    request *best = NULL;
    for (int i = 0; i < REQS; i++) {
        request *q = &d->reqs[i];
        if (!q->used || q->out || q->done || q->from != l->from || q->tag != l->tag) continue;
        if (!best || q->number < best->number) best = q;
    }
    return best;
}

static void hand_out(desk *d)
{
    sk_office *o = d->office;
    for (letter **at = &o->first, *l; (l = *at);) {
        request *q = l->to == d->wire.rank ? find_reader(d, l) : NULL;
        if (!q) {
            at = &l->next;
            continue;
        }
        sk_assert(l->bytes <= q->most);
        if (l->bytes) memcpy(q->data, l->taken ? l->data : l->copy, (size_t)l->bytes);
        q->bytes = l->bytes;
        q->done = true;
        if (l->taken) *l->taken = true;
        *at = l->next;
        if (o->end == &l->next) o->end = at;
        free(l);
    }
}

static sk_status test(sk_wire *w, sk_req r, bool *done, int64_t *bytes)
{
    desk *d = w->own;
    pthread_mutex_lock(&d->office->lock);
    hand_out(d);
    request *q = &d->reqs[r];
    sk_assert(q->used);
    *done = q->done;
    if (bytes) *bytes = q->bytes;
    if (q->done) q->used = false;
    pthread_mutex_unlock(&d->office->lock);
    return SK_OK;
}

sk_office *sk_office_open(int n_ranks)
{
    sk_office *o = calloc(1, sizeof *o);
    sk_assert(o && (o->desks = calloc((size_t)n_ranks, sizeof *o->desks)));
    pthread_mutex_init(&o->lock, NULL);
    o->end = &o->first;
    for (int r = 0; r < n_ranks; r++) {
        desk *d = &o->desks[r];
        d->office = o;
        d->wire = (sk_wire){.abi = SK_WIRE_ABI,
                            .name = "office",
                            .library = "test",
                            .rank = r,
                            .n_ranks = n_ranks,
                            .own = d,
                            .send = send,
                            .recv = recv,
                            .test = test};
    }
    return o;
}

sk_wire *sk_office_wire(sk_office *o, int rank) { return &o->desks[rank].wire; }

int64_t sk_office_sent(const sk_wire *w)
{
    const desk *d = w && w->send == send ? w->own : NULL;
    return d ? d->sent : -1;
}

void sk_office_close(sk_office *o)
{
    sk_assert(!o->first);
    pthread_mutex_destroy(&o->lock);
    free(o->desks);
    free(o);
}
