/* fake_nccl.c - for tests: what NCCL does between GPUs, between the streams of lib/fake_gpu.h.
 *
 * As there a call blocks its stream until all members have come to it, and the host goes on. */
#include "lib/fake_nccl.h"

#include "device/nccl.h"
#include "lib/fake_gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, CIRCLES = 1 << 14, OPS = 64 };

typedef struct letter {
    struct letter *next;
    int64_t bytes;
    char data[];
} letter;

struct sk_circle {
    struct meeting *m;
    int me;
};

typedef struct meeting { /* a circle, as all members see it; stays, for streams may still be there
                          */
    char id[SK_NCCL_ID];
    int n, joined;
    int here, round; /* at the gate */
    bool broken;     /* by abort() */
    const void *src[MOST];
    int64_t n_src[MOST];
    letter *mail[MOST][MOST]; /* from, to; the first */
    sk_circle of[MOST];
} meeting;

typedef enum what { SUM, SCATTER_SUM, GATHER, SUM_TO, SPREAD, SEND, RECV } what;

typedef struct op {
    what what;
    sk_circle *c;
    const void *src;
    void *dst;
    int64_t n;
    sk_dtype type;
    sk_nccl_op op;
    int peer;
} op;

typedef struct group { /* one launch */
    int n;
    op v[OPS];
} group;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t came = PTHREAD_COND_INITIALIZER;
static meeting *meetings[CIRCLES];
static int n_meetings, n_ids;
static _Thread_local group now;
static _Thread_local int depth;
static _Thread_local void *stream_of;

/* --- circles --- */

static sk_status fake_open(int *version)
{
    if (version) *version = 99999;
    return SK_OK;
}

static sk_status fake_id(char id[SK_NCCL_ID])
{
    memset(id, 0, SK_NCCL_ID);
    pthread_mutex_lock(&lock);
    snprintf(id, SK_NCCL_ID, "circle %d", n_ids++);
    pthread_mutex_unlock(&lock);
    return SK_OK;
}

static meeting *find(const char *id, int n)
{
    int i = 0;
    while (i < n_meetings && memcmp(meetings[i]->id, id, SK_NCCL_ID) != 0) i++;
    if (i < n_meetings) return meetings[i];
    sk_assert(i < CIRCLES);
    meeting *m = meetings[n_meetings++] = calloc(1, sizeof *m);
    m->n = n;
    memcpy(m->id, id, SK_NCCL_ID);
    return m;
}

static sk_status fake_join(int device, int n, int me, const char id[SK_NCCL_ID], const char *name,
                           sk_circle **out)
{
    (void)device, (void)name;
    pthread_mutex_lock(&lock);
    meeting *m = find(id, n);
    sk_circle *c = &m->of[me];
    *c = (sk_circle){m, me};
    c->m->joined++;
    pthread_mutex_unlock(&lock);
    sk_assert(c->m->n == n && me < n);
    *out = c;
    return SK_OK;
}

static sk_status fake_ready(sk_circle *c, bool *yes)
{
    pthread_mutex_lock(&lock);
    *yes = c->m->joined == c->m->n;
    pthread_mutex_unlock(&lock);
    return SK_OK;
}

static sk_status fake_finish(sk_circle *c)
{
    (void)c;
    return SK_OK;
}
static void fake_leave(sk_circle *c) { (void)c; }

/* What is on a stream comes to its end; others, as with NCCL, are not told. */
static void fake_abort(sk_circle *c)
{
    pthread_mutex_lock(&lock);
    c->m->broken = true;
    pthread_cond_broadcast(&came);
    pthread_mutex_unlock(&lock);
}

/* --- what they do, on the thread of the stream --- */

static double element(const void *data, sk_dtype t, int64_t i)
{
    double x;
    sk_convert(&x, SK_F64, (const char *)data + i * (int64_t)sk_dtype_size(t), t, 1);
    return x;
}

static double reduced(const op *o, int64_t i)
{
    const meeting *m = o->c->m;
    double x = element(m->src[0], o->type, i);
    for (int k = 1; k < m->n; k++) {
        double y = element(m->src[k], o->type, i);
        x = o->op == SK_NCCL_MAX ? (x > y ? x : y) : o->op == SK_NCCL_MIN ? (x < y ? x : y) : x + y;
    }
    return o->op == SK_NCCL_MEAN ? x / m->n : x;
}

/* My result, made while nobody writes. */
static void make(const op *o, char *to)
{
    const meeting *m = o->c->m;
    size_t size = sk_dtype_size(o->type), bytes = (size_t)o->n * size;
    int64_t from = o->what == SCATTER_SUM ? o->c->me * o->n : 0;
    if (o->what == SPREAD) memcpy(to, m->src[o->peer], bytes);
    for (int k = 0; o->what == GATHER && k < m->n; k++)
        memcpy(to + (size_t)k * bytes, m->src[k], bytes);
    for (int64_t i = 0; o->what != SPREAD && o->what != GATHER && i < o->n; i++) {
        double x = reduced(o, from + i);
        sk_convert(to + (size_t)i * size, o->type, &x, SK_F64, 1);
    }
}

/* Until all members are here, or one has given up. */
static void gate(meeting *m)
{
    pthread_mutex_lock(&lock);
    int round = m->round;
    if (++m->here == m->n) m->here = 0, m->round++;
    pthread_cond_broadcast(&came);
    while (m->round == round && !m->broken) pthread_cond_wait(&came, &lock);
    pthread_mutex_unlock(&lock);
}

static void together(const op *o)
{
    meeting *m = o->c->m;
    size_t bytes = (size_t)(o->n * (o->what == GATHER ? m->n : 1)) * sk_dtype_size(o->type);
    char *mine = malloc(bytes + 1);
    m->src[o->c->me] = o->src;
    m->n_src[o->c->me] = o->n;
    gate(m);
    for (int k = 0; k < m->n; k++) sk_assert(m->broken || m->n_src[k] == o->n);
    if (!m->broken) make(o, mine);
    gate(m);
    if (o->what != SUM_TO || o->peer == o->c->me) memcpy(o->dst, mine, bytes);
    gate(m);
    free(mine);
}

static void post(const op *o)
{
    letter *l = malloc(sizeof *l + (size_t)o->n), **at;
    l->next = NULL;
    l->bytes = o->n;
    memcpy(l->data, o->src, (size_t)o->n);
    pthread_mutex_lock(&lock);
    for (at = &o->c->m->mail[o->c->me][o->peer]; *at;) at = &(*at)->next;
    *at = l;
    pthread_cond_broadcast(&came);
    pthread_mutex_unlock(&lock);
}

static void fetch(const op *o)
{
    letter **at = &o->c->m->mail[o->peer][o->c->me], *l;
    pthread_mutex_lock(&lock);
    while (!*at && !o->c->m->broken) pthread_cond_wait(&came, &lock);
    l = *at;
    if (l) *at = l->next;
    pthread_mutex_unlock(&lock);
    if (!l) return;
    sk_assert(l->bytes == o->n);
    memcpy(o->dst, l->data, (size_t)o->n);
    free(l);
}

static void do_group(void *ctx)
{
    const group *g = ctx;
    for (int i = 0; i < g->n; i++)
        if (g->v[i].what == SEND) post(&g->v[i]);
    for (int i = 0; i < g->n; i++)
        if (g->v[i].what < SEND) together(&g->v[i]);
    for (int i = 0; i < g->n; i++)
        if (g->v[i].what == RECV) fetch(&g->v[i]);
}

static sk_status fake_begin(void)
{
    depth++;
    return SK_OK;
}

static sk_status fake_end(void)
{
    if (--depth) return SK_OK;
    if (now.n) sk_fake_give(stream_of, do_group, &now, sizeof now);
    now.n = 0;
    return SK_OK;
}

static sk_status note(op o, void *stream)
{
    fake_begin();
    sk_assert(now.n < OPS && (!now.n || stream == stream_of));
    stream_of = stream;
    now.v[now.n++] = o;
    return fake_end();
}

static sk_status fake_sum(sk_circle *c, const void *src, void *dst, int64_t n, sk_dtype t,
                          sk_nccl_op r, void *stream)
{
    return note((op){SUM, c, src, dst, n, t, r, 0}, stream);
}

static sk_status fake_scatter_sum(sk_circle *c, const void *src, void *dst, int64_t n, sk_dtype t,
                                  sk_nccl_op r, void *stream)
{
    return note((op){SCATTER_SUM, c, src, dst, n, t, r, 0}, stream);
}

static sk_status fake_gather(sk_circle *c, const void *src, void *dst, int64_t n, sk_dtype t,
                             void *stream)
{
    return note((op){GATHER, c, src, dst, n, t, SK_NCCL_SUM, 0}, stream);
}

static sk_status fake_sum_to(sk_circle *c, const void *src, void *dst, int64_t n, sk_dtype t,
                             sk_nccl_op r, int root, void *stream)
{
    return note((op){SUM_TO, c, src, dst, n, t, r, root}, stream);
}

static sk_status fake_spread(sk_circle *c, const void *src, void *dst, int64_t n, sk_dtype t,
                             int root, void *stream)
{
    return note((op){SPREAD, c, src, dst, n, t, SK_NCCL_SUM, root}, stream);
}

static sk_status fake_send(sk_circle *c, const void *src, int64_t bytes, int to, void *stream)
{
    return note((op){SEND, c, src, NULL, bytes, SK_U8, SK_NCCL_SUM, to}, stream);
}

static sk_status fake_recv(sk_circle *c, void *dst, int64_t bytes, int from, void *stream)
{
    return note((op){RECV, c, NULL, dst, bytes, SK_U8, SK_NCCL_SUM, from}, stream);
}

typedef struct word_call {
    int64_t *word, value;
} word_call;

static void do_mark(void *ctx)
{
    const word_call *c = ctx;
    __atomic_store_n(c->word, c->value, __ATOMIC_RELAXED);
}

static sk_status fake_mark(int64_t *word, int64_t value, void *stream)
{
    word_call c = {word, value};
    sk_fake_give(stream, do_mark, &c, sizeof c);
    return SK_OK;
}

const sk_nccl sk_nccl_cuda = {
    .open = fake_open,
    .id = fake_id,
    .join = fake_join,
    .ready = fake_ready,
    .finish = fake_finish,
    .leave = fake_leave,
    .abort = fake_abort,
    .begin = fake_begin,
    .end = fake_end,
    .sum = fake_sum,
    .scatter_sum = fake_scatter_sum,
    .gather = fake_gather,
    .sum_to = fake_sum_to,
    .spread = fake_spread,
    .send = fake_send,
    .recv = fake_recv,
    .mark = fake_mark,
};

void sk_fake_nccl(void) {}
