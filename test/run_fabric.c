/* Calls and messages of run/fabric.c through a door of our own: what NCCL would do between GPUs is
 * done here between threads, so that packing, parts, roots and ids are tried without a GPU.
 * test/fabric_cuda.cu takes the same cases through NCCL. */
#include "device/nccl.h"
#include "lib/check.h"
#include "lib/fabric_cases.h"
#include "run/acts.h"

#include <pthread.h>
#include <stdlib.h>

enum { MOST = 4, CIRCLES = 64, OPS = 256 };

typedef struct letter {
    struct letter *next;
    int64_t bytes;
    char data[];
} letter;

typedef struct meeting { /* a circle, as all members see it */
    char id[SK_NCCL_ID];
    int n, joined;
    pthread_barrier_t all;
    const void *src[MOST];
    int64_t n_src[MOST];
    letter *mail[MOST][MOST]; /* from, to; the first */
} meeting;

struct sk_circle {
    meeting *m;
    int me;
};

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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t came = PTHREAD_COND_INITIALIZER;
static meeting meetings[CIRCLES];
static int n_meetings, n_ids;
static _Thread_local op ops[OPS];
static _Thread_local int n_ops, depth;

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
    sk_assert(i < CIRCLES);
    meeting *m = &meetings[i];
    if (i < n_meetings) return m;
    n_meetings++;
    *m = (meeting){.n = n};
    memcpy(m->id, id, SK_NCCL_ID);
    pthread_barrier_init(&m->all, NULL, (unsigned)n);
    return m;
}

static sk_status fake_join(int device, int n, int me, const char id[SK_NCCL_ID], const char *name,
                           sk_circle **out)
{
    (void)device, (void)name;
    sk_circle *c = malloc(sizeof *c);
    pthread_mutex_lock(&lock);
    *c = (sk_circle){find(id, n), me};
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
static void fake_leave(sk_circle *c) { free(c); }

/* --- what they do --- */

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

static void together(const op *o)
{
    meeting *m = o->c->m;
    size_t bytes = (size_t)(o->n * (o->what == GATHER ? m->n : 1)) * sk_dtype_size(o->type);
    char *mine = malloc(bytes + 1);
    m->src[o->c->me] = o->src;
    m->n_src[o->c->me] = o->n;
    pthread_barrier_wait(&m->all);
    for (int k = 0; k < m->n; k++) sk_assert(m->n_src[k] == o->n);
    make(o, mine);
    pthread_barrier_wait(&m->all);
    if (o->what != SUM_TO || o->peer == o->c->me) memcpy(o->dst, mine, bytes);
    pthread_barrier_wait(&m->all);
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
    while (!*at) pthread_cond_wait(&came, &lock);
    l = *at;
    *at = l->next;
    pthread_mutex_unlock(&lock);
    sk_assert(l->bytes == o->n);
    memcpy(o->dst, l->data, (size_t)o->n);
    free(l);
}

static sk_status fake_begin(void)
{
    depth++;
    return SK_OK;
}

static sk_status fake_end(void)
{
    if (--depth) return SK_OK;
    for (int i = 0; i < n_ops; i++)
        if (ops[i].what == SEND) post(&ops[i]);
    for (int i = 0; i < n_ops; i++)
        if (ops[i].what < SEND) together(&ops[i]);
    for (int i = 0; i < n_ops; i++)
        if (ops[i].what == RECV) fetch(&ops[i]);
    n_ops = 0;
    return SK_OK;
}

static sk_status note(op o)
{
    fake_begin();
    sk_assert(n_ops < OPS);
    ops[n_ops++] = o;
    return fake_end();
}

static sk_status fake_sum(sk_circle *c, const void *src, void *dst, int64_t n, sk_dtype t,
                          sk_nccl_op r, void *stream)
{
    (void)stream;
    return note((op){SUM, c, src, dst, n, t, r, 0});
}

static sk_status fake_scatter_sum(sk_circle *c, const void *src, void *dst, int64_t n, sk_dtype t,
                                  sk_nccl_op r, void *stream)
{
    (void)stream;
    return note((op){SCATTER_SUM, c, src, dst, n, t, r, 0});
}

static sk_status fake_gather(sk_circle *c, const void *src, void *dst, int64_t n, sk_dtype t,
                             void *stream)
{
    (void)stream;
    return note((op){GATHER, c, src, dst, n, t, SK_NCCL_SUM, 0});
}

static sk_status fake_sum_to(sk_circle *c, const void *src, void *dst, int64_t n, sk_dtype t,
                             sk_nccl_op r, int root, void *stream)
{
    (void)stream;
    return note((op){SUM_TO, c, src, dst, n, t, r, root});
}

static sk_status fake_spread(sk_circle *c, const void *src, void *dst, int64_t n, sk_dtype t,
                             int root, void *stream)
{
    (void)stream;
    return note((op){SPREAD, c, src, dst, n, t, SK_NCCL_SUM, root});
}

static sk_status fake_send(sk_circle *c, const void *src, int64_t bytes, int to, void *stream)
{
    (void)stream;
    return note((op){SEND, c, src, NULL, bytes, SK_U8, SK_NCCL_SUM, to});
}

static sk_status fake_recv(sk_circle *c, void *dst, int64_t bytes, int from, void *stream)
{
    (void)stream;
    return note((op){RECV, c, NULL, dst, bytes, SK_U8, SK_NCCL_SUM, from});
}

static sk_status fake_mark(int64_t *word, int64_t value, void *stream)
{
    (void)stream;
    *word = value;
    return SK_OK;
}

const sk_nccl sk_nccl_cuda = {
    .open = fake_open,
    .id = fake_id,
    .join = fake_join,
    .ready = fake_ready,
    .finish = fake_finish,
    .leave = fake_leave,
    .abort = fake_leave,
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

/* --- and of the engine's own kernels, the one that is asked for --- */

static sk_status strided(void *to, int64_t to_step, const void *from, int64_t from_step,
                         int64_t unit, int64_t units, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < units; i++)
        memcpy((char *)to + i * to_step, (const char *)from + i * from_step, (size_t)unit);
    return SK_OK;
}

const sk_acts sk_acts_cuda = {.gather = strided};

int main(void)
{
    for (int n = 2; n <= 4; n += 2) check(!sk_fabric_cases(n, "cpu", false, NULL));
    printf("%d rounds, %d bad\n", checks, bad);
    return bad != 0;
}
