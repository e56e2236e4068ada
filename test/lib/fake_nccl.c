/* fake_nccl.c - for tests: what NCCL does between GPUs, between the streams of fake_gpu.c.
 *
 * All that one begin() and end() enclose is of one circle and one stream, and is done by that
 * stream's thread, with those of the other members: everybody shows its list, makes its results
 * while nobody writes, and writes them when all have made theirs.  Sums are taken in the order of
 * the members.  What is only sent and received is between those who do it: a member without a
 * message, as one with empty pieces, does not come. */
#include "device/nccl.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16, CIRCLES = 4096, OPS = 1024 };

typedef enum deal { SUM, SCATTER_SUM, GATHER, SUM_TO, SPREAD, SEND, RECV } deal;

typedef struct op {
    deal what;
    const void *src;
    void *dst;
    int64_t n;
    sk_dtype type;
    sk_nccl_op op;
    int peer;
} op;

typedef struct group { /* one launch */
    sk_nccl_comm *c;
    int n;
    op ops[];
} group;

struct sk_nccl_comm {
    struct meeting *m;
    int me;
};

typedef struct letter { /* sent, and not yet received */
    struct letter *next;
    int from, to;
    int64_t n;
    char bytes[];
} letter;

typedef struct meeting { /* a circle, as all members see it */
    char id[SK_NCCL_ID];
    int n, joined;
    int here, round; /* at the gate */
    bool broken;     /* by abort() */
    const group *shown[MOST];
    letter *letters;       /* the oldest first */
    sk_nccl_comm of[MOST]; /* they stay: streams may still be there */
} meeting;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t came = PTHREAD_COND_INITIALIZER;
static meeting meetings[CIRCLES];
static int n_meetings, n_ids;

/* What this thread has between begin() and end(). */
static _Thread_local op ops[OPS];
static _Thread_local int n_ops, depth;
static _Thread_local sk_nccl_comm *circle;
static _Thread_local void *on;

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
    while (i < n_meetings && memcmp(meetings[i].id, id, SK_NCCL_ID) != 0) i++;
    sk_assert(i < CIRCLES && n <= MOST);
    meeting *m = &meetings[i];
    if (i < n_meetings) return m;
    n_meetings++;
    m->n = n;
    memcpy(m->id, id, SK_NCCL_ID);
    return m;
}

static sk_status fake_join(int device, int n, int me, const char id[SK_NCCL_ID], const char *name,
                           sk_nccl_comm **out)
{
    (void)device, (void)name;
    pthread_mutex_lock(&lock);
    meeting *m = find(id, n);
    sk_nccl_comm *c = &m->of[me];
    *c = (sk_nccl_comm){m, me};
    m->joined++;
    pthread_mutex_unlock(&lock);
    sk_assert(c->m->n == n && me < n);
    *out = c;
    return SK_OK;
}

static sk_status fake_ready(sk_nccl_comm *c, bool *yes)
{
    pthread_mutex_lock(&lock);
    *yes = c->m->joined == c->m->n;
    pthread_mutex_unlock(&lock);
    return SK_OK;
}

static sk_status fake_finish(sk_nccl_comm *c)
{
    (void)c;
    return SK_OK;
}

static void fake_leave(sk_nccl_comm *c) { (void)c; }

/* What is on a stream comes to its end; others, as with NCCL, are not told. */
static void fake_abort(sk_nccl_comm *c)
{
    pthread_mutex_lock(&lock);
    c->m->broken = true;
    pthread_cond_broadcast(&came);
    pthread_mutex_unlock(&lock);
}

/* Until all members are here, or one has given up. */
static bool gate(meeting *m)
{
    pthread_mutex_lock(&lock);
    int round = m->round;
    if (!m->broken && ++m->here == m->n) m->here = 0, m->round++;
    pthread_cond_broadcast(&came);
    while (m->round == round && !m->broken) pthread_cond_wait(&came, &lock);
    bool all = m->round != round;
    pthread_mutex_unlock(&lock);
    return all;
}

/* --- what they do, on a stream's thread --- */

static double element(const void *data, sk_dtype t, int64_t i)
{
    double x;
    sk_convert(&x, SK_F64, (const char *)data + i * (int64_t)sk_dtype_size(t), t, 1);
    return x;
}

static double join(sk_nccl_op how, double x, double y)
{
    if (how == SK_NCCL_MAX) return x > y ? x : y;
    if (how == SK_NCCL_MIN) return x < y ? x : y;
    return x + y;
}

/* As a type has it: whole numbers begin anew where they end.  What lies between the rows of a room
 * is summed too, anything, and nobody reads it. */
static double held(sk_dtype t, double x)
{
    if (t == SK_F32) return (double)(float)x;
    if (t == SK_U8) return (double)((int)x & 255);
    if (t == SK_I32) return (double)(int32_t)(uint32_t)(int64_t)x;
    if (t == SK_I64 && fabs(x) >= 0x1p63) return 0;
    return x;
}

/* Element i of all members' operand k. */
static double reduced(const meeting *m, int k, const op *o, int64_t i)
{
    double x = element(m->shown[0]->ops[k].src, o->type, i);
    for (int r = 1; r < m->n; r++)
        x = held(o->type, join(o->op, x, element(m->shown[r]->ops[k].src, o->type, i)));
    return o->op == SK_NCCL_MEAN ? x / m->n : x;
}

/* What the peer sends me: as many sends of it to me are before that as receives of mine from it. */
static const op *letter_of(const group *g, int k)
{
    const group *from = g->c->m->shown[g->ops[k].peer];
    int before = 0;
    for (int i = 0; i < k; i++)
        before += g->ops[i].what == RECV && g->ops[i].peer == g->ops[k].peer;
    for (int i = 0; i < from->n; i++)
        if (from->ops[i].what == SEND && from->ops[i].peer == g->c->me && !before--)
            return &from->ops[i];
    return NULL;
}

static size_t bytes_of(const group *g, int k)
{
    const op *o = &g->ops[k];
    bool mine = o->what != SEND && (o->what != SUM_TO || o->peer == g->c->me);
    return mine ? (size_t)(o->n * (o->what == GATHER ? g->c->m->n : 1)) * sk_dtype_size(o->type)
                : 0;
}

/* Have all members come for the same? */
static bool alike(const group *g, int k)
{
    const op *o = &g->ops[k];
    const op *sent = o->what == RECV ? letter_of(g, k) : NULL;
    for (int r = 0; o->what < SEND && r < g->c->m->n; r++) {
        const group *x = g->c->m->shown[r];
        if (k >= x->n || x->ops[k].what != o->what || x->ops[k].n != o->n) return false;
    }
    return o->what != RECV || (sent && sent->n == o->n);
}

static void make(const group *g, int k, char *to)
{
    const meeting *m = g->c->m;
    const op *o = &g->ops[k];
    size_t size = sk_dtype_size(o->type), bytes = (size_t)o->n * size;
    if (!alike(g, k)) { /* one has failed in between, and is about to say so */
        sk_assert(sk_fake_failed());
        memset(to, 0, bytes_of(g, k));
        return;
    }
    if (!bytes_of(g, k)) return;
    if (o->what == RECV) memcpy(to, letter_of(g, k)->src, bytes);
    else if (o->what == SPREAD) memcpy(to, m->shown[o->peer]->ops[k].src, bytes);
    else if (o->what == GATHER)
        for (int r = 0; r < m->n; r++)
            memcpy(to + (size_t)r * bytes, m->shown[r]->ops[k].src, bytes);
    else
        for (int64_t i = 0; i < o->n; i++) {
            double x = reduced(m, k, o, (o->what == SCATTER_SUM ? g->c->me * o->n : 0) + i);
            sk_convert(to + (size_t)i * size, o->type, &x, SK_F64, 1);
        }
}

static void put_letter(meeting *m, int from, const op *o)
{
    letter *l = malloc(sizeof *l + (size_t)o->n), **at = &m->letters;
    *l = (letter){.from = from, .to = o->peer, .n = o->n};
    if (o->n) memcpy(l->bytes, o->src, (size_t)o->n);
    pthread_mutex_lock(&lock);
    while (*at) at = &(*at)->next;
    *at = l;
    pthread_cond_broadcast(&came);
    pthread_mutex_unlock(&lock);
}

/* Waits for it, unless somebody has given up. */
static void take_letter(meeting *m, int to, const op *o)
{
    letter **at, *l = NULL;
    pthread_mutex_lock(&lock);
    for (;;) {
        for (at = &m->letters; *at && ((*at)->from != o->peer || (*at)->to != to);)
            at = &(*at)->next;
        if (*at || m->broken) break;
        pthread_cond_wait(&came, &lock);
    }
    if (*at) l = *at, *at = l->next;
    pthread_mutex_unlock(&lock);
    if (!l) return;
    sk_assert(l->n == o->n || sk_fake_failed());
    if (l->n == o->n && l->n) memcpy(o->dst, l->bytes, (size_t)l->n);
    free(l);
}

static bool only_letters(const group *g)
{
    for (int k = 0; k < g->n; k++)
        if (g->ops[k].what < SEND) return false;
    return true;
}

static void letters(const group *g)
{
    for (int k = 0; k < g->n; k++)
        if (g->ops[k].what == SEND) put_letter(g->c->m, g->c->me, &g->ops[k]);
    for (int k = 0; k < g->n; k++)
        if (g->ops[k].what == RECV) take_letter(g->c->m, g->c->me, &g->ops[k]);
}

static void together(void *what)
{
    const group *g = what;
    if (only_letters(g)) {
        letters(g);
        return;
    }
    meeting *m = g->c->m;
    char *made[OPS];
    m->shown[g->c->me] = g;
    if (!gate(m)) return;
    for (int k = 0; k < g->n; k++) {
        made[k] = malloc(bytes_of(g, k) + 1);
        make(g, k, made[k]);
    }
    (void)gate(m);
    for (int k = 0; k < g->n; k++) {
        if (bytes_of(g, k)) memcpy(g->ops[k].dst, made[k], bytes_of(g, k));
        free(made[k]);
    }
}

/* --- giving it to a stream --- */

static sk_status fake_begin(void)
{
    depth++;
    return SK_OK;
}

static sk_status fake_end(void)
{
    if (--depth || !n_ops) return SK_OK;
    size_t bytes = sizeof(group) + (size_t)n_ops * sizeof *ops;
    group *g = calloc(1, bytes);
    *g = (group){circle, n_ops};
    memcpy(g->ops, ops, (size_t)n_ops * sizeof *ops);
    sk_fake_give(on, together, g, bytes);
    free(g);
    n_ops = 0;
    return SK_OK;
}

static sk_status note(sk_nccl_comm *c, void *stream, op o)
{
    fake_begin();
    sk_assert(n_ops < OPS && (!n_ops || (c == circle && stream == on)));
    circle = c;
    on = stream;
    ops[n_ops++] = o;
    return fake_end();
}

static sk_status fake_sum(sk_nccl_comm *c, const void *src, void *dst, int64_t n, sk_dtype t,
                          sk_nccl_op r, void *stream)
{
    return note(c, stream, (op){SUM, src, dst, n, t, r, 0});
}

static sk_status fake_scatter_sum(sk_nccl_comm *c, const void *src, void *dst, int64_t n,
                                  sk_dtype t, sk_nccl_op r, void *stream)
{
    return note(c, stream, (op){SCATTER_SUM, src, dst, n, t, r, 0});
}

static sk_status fake_gather(sk_nccl_comm *c, const void *src, void *dst, int64_t n, sk_dtype t,
                             void *stream)
{
    return note(c, stream, (op){GATHER, src, dst, n, t, SK_NCCL_SUM, 0});
}

static sk_status fake_sum_to(sk_nccl_comm *c, const void *src, void *dst, int64_t n, sk_dtype t,
                             sk_nccl_op r, int root, void *stream)
{
    return note(c, stream, (op){SUM_TO, src, dst, n, t, r, root});
}

static sk_status fake_spread(sk_nccl_comm *c, const void *src, void *dst, int64_t n, sk_dtype t,
                             int root, void *stream)
{
    return note(c, stream, (op){SPREAD, src, dst, n, t, SK_NCCL_SUM, root});
}

static sk_status fake_send(sk_nccl_comm *c, const void *src, int64_t bytes, int to, void *stream)
{
    return note(c, stream, (op){SEND, src, NULL, bytes, SK_U8, SK_NCCL_SUM, to});
}

static sk_status fake_recv(sk_nccl_comm *c, void *dst, int64_t bytes, int from, void *stream)
{
    return note(c, stream, (op){RECV, NULL, dst, bytes, SK_U8, SK_NCCL_SUM, from});
}

typedef struct word {
    int64_t *at, value;
} word;

static void do_mark(void *what)
{
    word *w = what;
    __atomic_store_n(w->at, w->value, __ATOMIC_RELAXED);
}

static sk_status fake_mark(int64_t *at, int64_t value, void *stream)
{
    sk_fake_give(stream, do_mark, &(word){at, value}, sizeof(word));
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
