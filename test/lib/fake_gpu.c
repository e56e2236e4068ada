/* fake_gpu.c - for tests: streams are threads, memory is memory. */
#include "lib/fake_gpu.h"

#include "base/clock.h"
#include "base/exact.h"
#include "base/rng.h"
#include "kernel/codec_kernel.h"
#include "device/device.h"
#include "kernel/cuda/norm_grad.h"
#include "kernel/product.h"
#include "kernel/cuda/xent_rows.h"
#include "device/nccl.h"
#include "kernel/optim_kernel.h"
#include "kernel/weight_average.h"
#include "run/gpu/inst_kernels.h"
#include "run/ordered_sums.h"
#include "run/cpu/pack_bits.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int most_delay;
static bool lazy;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef void deed(void *what);
typedef struct item {
    deed *f;
    bool lingers; /* a copy, a memset */
    bool peers;   /* other streams wait for it: a collective */
    size_t bytes; /* of `what` */
    struct item *next;
    _Alignas(16) char what[];
} item;

struct sk_stream {
    pthread_t thread;
    pthread_cond_t more, idle; /* for its thread; for who waits for it */
    item *head, **tail;
    bool busy, closing;
    int waiting;                   /* threads that wait for it */
    bool polled;                   /* a thread asked whether it is done, and it was not */
    const sk_device_graph *joined; /* what is given is recorded there */
    uint64_t given;                /* items so far */
    sk_stream *next;               /* of all that joined a tape */
    uint64_t awaited;              /* of the items, so many the tape's own stream has waited for */
};

struct sk_event {
    pthread_cond_t news;
    uint64_t asked, done;
    double at;
    const sk_device_graph *tape; /* it was recorded there, behind so many items of the stream */
    sk_stream *of;
    uint64_t behind;
};

typedef struct heard { /* an item on a tape */
    sk_stream *s;
    item *i;
} heard;

struct sk_device_graph {
    sk_stream *own, *others;
    heard *v;
    int n, cap;
};

/* --- bad luck --- */

static atomic_int luck = -1; /* calls until one fails; below 0: none will */

void sk_fake_fail(int call) { atomic_store(&luck, call); }
bool sk_fake_failed(void) { return atomic_load(&luck) < 0; }

static sk_status lucky(void)
{
    int left = atomic_load(&luck);
    if (left < 0 || (left = atomic_fetch_sub(&luck, 1)) > 0) return SK_OK;
    atomic_store(&luck, -1);
    return left ? SK_OK : sk_fail(SK_EIO, "fake GPU: bad luck");
}

/* Only what this thread gives is recorded. */
static _Thread_local sk_device_graph *recording;

/* --- streams --- */

static void *serve(void *ctx)
{
    sk_stream *s = ctx;
    unsigned seed = (unsigned)(uintptr_t)s;
    pthread_mutex_lock(&lock);
    while (!s->closing || s->head) {
        item *i = s->head;
        if (!i || (lazy && !s->waiting && !s->polled && !s->closing)) {
            pthread_cond_wait(&s->more, &lock);
            continue;
        }
        s->head = i->next;
        if (!s->head) s->tail = &s->head;
        s->busy = true;
        bool peers = i->peers;
        pthread_mutex_unlock(&lock);
        if (i->lingers && most_delay) usleep((unsigned)rand_r(&seed) % (unsigned)most_delay);
        i->f(i->what);
        free(i);
        pthread_mutex_lock(&lock);
        s->busy = false;
        s->waiting -= peers;
        if (s->head) continue;
        s->polled = false;
        pthread_cond_broadcast(&s->idle);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void queue(sk_stream *s, item *i)
{
    pthread_mutex_lock(&lock);
    *s->tail = i;
    s->tail = &i->next;
    s->waiting += i->peers;
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&lock);
}

static item *item_of(deed *f, const void *what, size_t bytes, bool lingers)
{
    item *i = calloc(1, sizeof *i + bytes);
    sk_assert(i);
    i->f = f;
    i->lingers = lingers;
    i->bytes = bytes;
    memcpy(i->what, what, bytes);
    return i;
}

static void give(sk_stream *s, item *i)
{
    sk_device_graph *t = recording;
    s->given++;
    if (!t) {
        queue(s, i);
        return;
    }
    sk_assert(s->joined == t); /* or CUDA would do it now, and never again */
    if (t->n == t->cap) {
        t->cap = 2 * t->cap + 64;
        t->v = realloc(t->v, (size_t)t->cap * sizeof *t->v);
    }
    t->v[t->n++] = (heard){s, i};
}

static void append(sk_stream *s, deed *f, const void *what, size_t bytes, bool lingers)
{
    give(s, item_of(f, what, bytes, lingers));
}

void sk_fake_give(void *stream, void (*f)(void *what), const void *what, size_t bytes)
{
    item *i = item_of(f, what, bytes, true);
    i->peers = true;
    give(stream, i);
}

static sk_status stream_open(sk_device *d, sk_stream **out)
{
    SK_TRY(lucky());
    sk_stream *s = sk_new(&d->arena, sk_stream); /* others may still be about to leave it */
    s->tail = &s->head;
    pthread_cond_init(&s->more, NULL);
    pthread_cond_init(&s->idle, NULL);
    pthread_create(&s->thread, NULL, serve, s);
    *out = s;
    return SK_OK;
}

static void stream_close(sk_device *d, sk_stream *s)
{
    (void)d;
    pthread_mutex_lock(&lock);
    s->closing = true;
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&lock);
    pthread_join(s->thread, NULL);
}

static sk_status stream_sync(sk_device *d, sk_stream *s)
{
    SK_TRY(lucky());
    (void)d;
    pthread_mutex_lock(&lock);
    s->waiting++;
    pthread_cond_signal(&s->more);
    while (s->head || s->busy) pthread_cond_wait(&s->idle, &lock);
    s->waiting--;
    pthread_mutex_unlock(&lock);
    return SK_OK;
}

static sk_status stream_done(sk_device *d, sk_stream *s, bool *out)
{
    SK_TRY(lucky());
    (void)d;
    pthread_mutex_lock(&lock);
    *out = !s->head && !s->busy;
    s->polled = !*out;
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&lock);
    return SK_OK;
}

static sk_status graph_begin(sk_device *d, sk_stream *s)
{
    SK_TRY(lucky());
    (void)d;
    sk_assert(!recording);
    recording = calloc(1, sizeof *recording);
    recording->own = s;
    s->joined = recording;
    return SK_OK;
}

static void graph_close(sk_device *d, sk_device_graph *t)
{
    (void)d;
    for (int k = 0; k < t->n; k++) free(t->v[k].i);
    free(t->v);
    free(t);
}

static sk_status graph_end(sk_device *d, sk_stream *s, sk_device_graph **out)
{
    sk_device_graph *t = recording;
    bool whole = true;
    for (sk_stream *x = t->others; x; x = x->next) {
        whole &= x->awaited == x->given; /* what nobody waits for is no part of a graph */
        x->joined = NULL;
    }
    recording = NULL;
    s->joined = NULL;
    sk_status st = whole ? lucky() : sk_fail(SK_EIO, "fake GPU: a stream did not come back");
    if (!st) *out = t;
    else graph_close(d, t);
    return st;
}

/* --- events --- */

typedef struct place {
    sk_event *e;
    uint64_t n;
} place;

static void reach(void *what)
{
    place *p = what;
    pthread_mutex_lock(&lock);
    p->e->done = p->n;
    p->e->at = sk_now();
    pthread_cond_broadcast(&p->e->news);
    pthread_mutex_unlock(&lock);
}

static void wait_for(void *what)
{
    place *p = what;
    pthread_mutex_lock(&lock);
    sk_stream *of = p->e->of;
    if (of) of->waiting++, pthread_cond_signal(&of->more);
    while (p->e->done < p->n) pthread_cond_wait(&p->e->news, &lock);
    if (of) of->waiting--;
    pthread_mutex_unlock(&lock);
}

/* A record or a wait that is played again is of a new number. */
static void renew(item *i)
{
    place *p = (place *)(void *)i->what;
    pthread_mutex_lock(&lock);
    if (i->f == reach) p->n = ++p->e->asked;
    if (i->f == wait_for) p->n = p->e->asked;
    pthread_mutex_unlock(&lock);
}

static sk_status graph_launch(sk_device *d, sk_device_graph *t, sk_stream *s)
{
    SK_TRY(lucky());
    (void)d;
    sk_assert(s == t->own);
    for (int k = 0; k < t->n; k++) {
        const item *x = t->v[k].i;
        item *i = item_of(x->f, x->what, x->bytes, x->lingers);
        i->peers = x->peers;
        if (i->f == reach || i->f == wait_for) renew(i);
        queue(t->v[k].s, i);
    }
    return SK_OK;
}

static sk_status event_open(sk_device *d, sk_event **out)
{
    SK_TRY(lucky());
    *out = sk_new(&d->arena, sk_event);
    pthread_cond_init(&(*out)->news, NULL);
    return SK_OK;
}

static void event_close(sk_device *d, sk_event *e) /* streams close later, and may still reach it */
{
    (void)d, (void)e;
}

static sk_status event_record(sk_device *d, sk_event *e, sk_stream *s)
{
    SK_TRY(lucky());
    (void)d;
    place p = {e, 0};
    pthread_mutex_lock(&lock);
    p.n = recording ? 0 : ++e->asked;
    e->of = s;
    pthread_mutex_unlock(&lock);
    append(s, reach, &p, sizeof p, false);
    e->tape = recording;
    e->behind = s->given;
    return SK_OK;
}

/* While a tape runs: a stream joins it by waiting for an event of it, and comes back when the
 * tape's own stream waits for one that is behind all it was given. */
static void join(sk_event *e, sk_stream *s)
{
    sk_device_graph *t = recording;
    sk_assert(e->tape == t);
    if (s == t->own && e->behind > e->of->awaited) e->of->awaited = e->behind;
    if (s == t->own || s->joined == t) return;
    s->joined = t;
    s->next = t->others;
    t->others = s;
}

static sk_status event_wait(sk_device *d, sk_event *e, sk_stream *s)
{
    SK_TRY(lucky());
    (void)d;
    if (recording) join(e, s);
    pthread_mutex_lock(&lock);
    place p = {e, e->asked};
    pthread_mutex_unlock(&lock);
    append(s, wait_for, &p, sizeof p, false);
    return SK_OK;
}

static sk_status event_done(sk_device *d, sk_event *e, bool *out)
{
    SK_TRY(lucky());
    (void)d;
    pthread_mutex_lock(&lock);
    *out = e->done >= e->asked;
    if (!*out) e->of->polled = true, pthread_cond_signal(&e->of->more);
    pthread_mutex_unlock(&lock);
    return SK_OK;
}

static sk_status event_seconds(sk_device *d, sk_event *from, sk_event *to, double *out)
{
    SK_TRY(lucky());
    (void)d;
    if (!from->done || !to->done) return sk_fail(SK_EBUG, "fake GPU: an event never recorded");
    *out = to->at - from->at;
    return SK_OK;
}

/* --- memory --- */

typedef struct move {
    void *to;
    const void *from;
    size_t bytes;
} move;

static void do_copy(void *what)
{
    move *m = what;
    memcpy(m->to, m->from, m->bytes);
}

enum { PAGE = 4096, BLANK = 2 << 20 };

/* Of much memory, that of a pool, fresh pages take the place of the old ones. */
static void do_zero(void *what)
{
    move *m = what;
    char *to = m->to, *from = to + (PAGE - (uintptr_t)to % PAGE) % PAGE;
    size_t edge = (size_t)(from - to), n = (m->bytes - edge) / PAGE * PAGE;
    if (m->bytes < BLANK) {
        memset(to, 0, m->bytes);
        return;
    }
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    sk_assert(mmap(from, n, PROT_READ | PROT_WRITE, flags, -1, 0) == from);
    memset(to, 0, edge);
    memset(from + n, 0, m->bytes - edge - n);
}

static sk_status copy(sk_device *d, void *to, const void *from, size_t bytes, sk_stream *s)
{
    SK_TRY(lucky());
    (void)d;
    append(s, do_copy, &(move){to, from, bytes}, sizeof(move), true);
    return SK_OK;
}

static sk_status zero(sk_device *d, void *to, size_t bytes, sk_stream *s)
{
    SK_TRY(lucky());
    (void)d;
    append(s, do_zero, &(move){to, NULL, bytes}, sizeof(move), true);
    return SK_OK;
}

/* A pool begins with NaN, and most of it is a workspace of 64 MiB for launches that few of them
 * touch: so it is one piece of memory of 0xff, mapped again and again, of which a page that is
 * written is copied first. */
static int blank(void)
{
    static int fd = -1;
    pthread_mutex_lock(&lock);
    if (fd < 0) {
        fd = memfd_create("blank", MFD_CLOEXEC);
        sk_assert(fd >= 0 && !ftruncate(fd, BLANK));
        void *page = mmap(NULL, BLANK, PROT_WRITE, MAP_SHARED, fd, 0);
        sk_assert(page != MAP_FAILED);
        memset(page, 0xff, BLANK);
        munmap(page, BLANK);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static size_t pages_of(size_t bytes) { return (bytes / BLANK + 1) * BLANK; }

static sk_status pool_open(sk_device *d, size_t bytes, void **base)
{
    int fd = blank(), flags = MAP_PRIVATE | MAP_NORESERVE;
    SK_TRY(lucky());
    (void)d;
    *base = mmap(NULL, pages_of(bytes), PROT_NONE, flags | MAP_ANONYMOUS, -1, 0);
    sk_assert(*base != MAP_FAILED);
    for (size_t at = 0; at < pages_of(bytes); at += BLANK) {
        void *to = (char *)*base + at;
        sk_assert(mmap(to, BLANK, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == to);
    }
    return SK_OK;
}

static void pool_close(sk_device *d, void *base, size_t bytes)
{
    (void)d;
    munmap(base, pages_of(bytes));
}

static sk_status pinned_open(sk_device *d, size_t bytes, void **base)
{
    SK_TRY(lucky());
    (void)d;
    *base = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    sk_assert(*base);
    return SK_OK;
}

static void pinned_close(sk_device *d, void *base)
{
    (void)d;
    free(base);
}

static sk_status pin(sk_device *d, void *base, size_t bytes)
{
    (void)d;
    sk_assert((uintptr_t)base % 4096 == 0 && bytes % 4096 == 0);
    return SK_OK;
}

static void unpin(sk_device *d, void *base) { (void)d, (void)base; }

static sk_status nothing(sk_device *d)
{
    (void)d;
    return SK_OK;
}

static sk_status look(sk_device *d, sk_device_facts *out)
{
    SK_TRY(lucky());
    (void)d;
    snprintf(out->model, sizeof out->model, "fake");
    const char *small = getenv("SKEIN_FAKE_BYTES");
    out->bytes = out->available = small ? atoll(small) : (int64_t)1 << 40;
    return SK_OK;
}

const sk_device_kind sk_device_cuda = {
    .name = "cuda",
    .open = nothing,
    .look = look,
    .pool_open = pool_open,
    .pool_close = pool_close,
    .copy = copy,
    .stream_open = stream_open,
    .stream_close = stream_close,
    .stream_sync = stream_sync,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_seconds = event_seconds,
    .zero = zero,
    .stream_done = stream_done,
    .pinned_open = pinned_open,
    .pinned_close = pinned_close,
    .pin = pin,
    .unpin = unpin,
    .graph_begin = graph_begin,
    .graph_end = graph_end,
    .graph_launch = graph_launch,
    .graph_close = graph_close,
    .event_done = event_done,
};

/* --- ops --- */

enum { FIRST = 10, LAST = 90 }; /* numbers of two digits */

typedef struct op_call {
    const sk_op *op;
    sk_args args;
    const uint64_t *step;
    const int64_t *updates;
} op_call;

/* A bias without an address was added before (parts/fuse/linear_gelu.c): none is left. */
static float *without_bias(sk_args *a)
{
    if (a->n_in < 2 || a->in[1].data || !sk_count(&a->in[1])) return NULL;
    a->in[1].type = SK_F32;
    return a->in[1].data = calloc((size_t)sk_count(&a->in[1]), sizeof(float));
}

static void do_op(void *what)
{
    op_call *c = what;
    float *none = without_bias(&c->args);
    c->args.part = 0;
    c->args.of = 1;
    c->args.stream = *c->step;
    if (c->updates) c->args.updates = *c->updates;
    c->args.scratch = aligned_alloc(64, sk_op_scratch(c->op, &c->args) / 64 * 64 + 64);
    sk_op_run_cpu(c->op, &c->args);
    free(c->args.scratch);
    free(none);
}

static sk_status launch(int i, const sk_args *a, const sk_launch *l)
{
    SK_TRY(lucky());
    SK_TRY(sk_op_takes(sk_op_parts[i - FIRST], a));
    op_call c = {.op = sk_op_parts[i - FIRST], .step = l->step, .updates = l->updates};
    c.args =
        *a; /* no initialiser: behind one gcc 12 clears padding of arrays where there is none */
    append(l->stream, do_op, &c, sizeof c, false);
    return SK_OK;
}

/* A kernel does not know its op, so each has a function of its own. */
#define ONE(i) \
    static sk_status launch_##i(const sk_args *a, const sk_launch *l) { return launch(i, a, l); }
#define TEN(t) \
    ONE(t##0)  \
    ONE(t##1) ONE(t##2) ONE(t##3) ONE(t##4) ONE(t##5) ONE(t##6) ONE(t##7) ONE(t##8) ONE(t##9)
TEN(1)
TEN(2)
TEN(3)
TEN(4)
TEN(5)
TEN(6)
TEN(7)
TEN(8)
#define ENTRY(i) [i] = {.op = "", .launch = launch_##i},
#define ENTRIES(t) \
    ENTRY(t##0)    \
    ENTRY(t##1)    \
    ENTRY(t##2) ENTRY(t##3) ENTRY(t##4) ENTRY(t##5) ENTRY(t##6) ENTRY(t##7) ENTRY(t##8) ENTRY(t##9)
static sk_kernel kernels[LAST] = {ENTRIES(1) ENTRIES(2) ENTRIES(3) ENTRIES(4) ENTRIES(5) ENTRIES(6)
                                      ENTRIES(7) ENTRIES(8)};
const sk_kernel *const sk_kernel_parts[] = {
    &kernels[10], &kernels[11], &kernels[12], &kernels[13], &kernels[14], &kernels[15],
    &kernels[16], &kernels[17], &kernels[18], &kernels[19], &kernels[20], &kernels[21],
    &kernels[22], &kernels[23], &kernels[24], &kernels[25], &kernels[26], &kernels[27],
    &kernels[28], &kernels[29], &kernels[30], &kernels[31], &kernels[32], &kernels[33],
    &kernels[34], &kernels[35], &kernels[36], &kernels[37], &kernels[38], &kernels[39],
    &kernels[40], &kernels[41], &kernels[42], &kernels[43], &kernels[44], &kernels[45],
    &kernels[46], &kernels[47], &kernels[48], &kernels[49], &kernels[50], &kernels[51],
    &kernels[52], &kernels[53], &kernels[54], &kernels[55], &kernels[56], &kernels[57],
    &kernels[58], &kernels[59], &kernels[60], &kernels[61], &kernels[62], &kernels[63],
    &kernels[64], &kernels[65], &kernels[66], &kernels[67], &kernels[68], &kernels[69],
    &kernels[70], &kernels[71], &kernels[72], &kernels[73], &kernels[74], &kernels[75],
    &kernels[76], &kernels[77], &kernels[78], &kernels[79], &kernels[80], &kernels[81],
    &kernels[82], &kernels[83], &kernels[84], &kernels[85], &kernels[86], &kernels[87],
    &kernels[88], &kernels[89], NULL};

/* --- the engine's own --- */

typedef struct strip_call {
    char *to;
    const char *from;
    int64_t to_step, from_step, unit, units;
} strip_call;

static void do_strips(void *what)
{
    const strip_call *c = what;
    for (int64_t i = 0; i < c->units; i++)
        memcpy(c->to + i * c->to_step, c->from + i * c->from_step, (size_t)c->unit);
}

static sk_status gather(void *to, int64_t to_step, const void *from, int64_t from_step,
                        int64_t unit, int64_t units, void *stream)
{
    SK_TRY(lucky());
    strip_call c = {to, from, to_step, from_step, unit, units};
    append(stream, do_strips, &c, sizeof c, false);
    return SK_OK;
}

typedef struct box_call {
    sk_view from, to;
    bool paste;
} box_call;

static void do_box(void *what)
{
    box_call *c = what;
    const sk_view *part = c->paste ? &c->from : &c->to, *whole = c->paste ? &c->to : &c->from;
    size_t size = sk_dtype_size(part->type);
    for (int64_t i = 0; i < sk_count(part); i++) {
        int64_t at = 0, rest = i;
        for (int d = part->n - 1; d >= 0; d--) {
            at += (part->at[d] - whole->at[d] + rest % part->size[d]) * whole->step[d];
            rest /= part->size[d];
        }
        char *near = (char *)part->data + (size_t)i * size;
        char *far = (char *)whole->data + (size_t)at * size;
        memcpy(c->paste ? far : near, c->paste ? near : far, size);
    }
}

static sk_status slice(const sk_view *from, const sk_view *to, void *stream)
{
    SK_TRY(lucky());
    append(stream, do_box, &(box_call){*from, *to, false}, sizeof(box_call), false);
    return SK_OK;
}

static sk_status paste(const sk_view *from, const sk_view *to, void *stream)
{
    SK_TRY(lucky());
    append(stream, do_box, &(box_call){*from, *to, true}, sizeof(box_call), false);
    return SK_OK;
}

typedef struct add_call {
    void *to;
    const void *from;
    int64_t n;
    sk_dtype type;
} add_call;

static float get(const void *x, sk_dtype type, int64_t i)
{
    float y;
    sk_convert(&y, SK_F32, (const char *)x + (size_t)i * sk_dtype_size(type), type, 1);
    return y;
}

static void put(void *x, sk_dtype type, int64_t i, float y)
{
    sk_convert((char *)x + (size_t)i * sk_dtype_size(type), type, &y, SK_F32, 1);
}

static void do_add(void *what)
{
    add_call *c = what;
    for (int64_t i = 0; i < c->n; i++)
        put(c->to, c->type, i, get(c->to, c->type, i) + get(c->from, c->type, i));
}

static sk_status add(void *to, const void *from, int64_t n, sk_dtype type, void *stream)
{
    SK_TRY(lucky());
    SK_TRY(sk_inst_kernel_takes("add", type));
    append(stream, do_add, &(add_call){to, from, n, type}, sizeof(add_call), false);
    return SK_OK;
}

/* As coll/call.h adds: the largest power of two of members first. */
static double branch(const double *x, int n, bool single)
{
    int left = 1;
    if (n == 1) return *x;
    while (2 * left < n) left *= 2;
    double y = branch(x, left, single) + branch(x + left, n - left, single);
    return single ? (double)(float)y : y;
}

static void do_tree(void *what)
{
    const sk_tree_job *j = what;
    size_t size = sk_dtype_size(j->type);
    for (int64_t i = 0; i < j->n; i++) {
        double x[64], y;
        sk_assert(j->members <= 64);
        for (int k = 0; k < j->members; k++)
            sk_convert(&x[k], SK_F64,
                       (k == j->me ? (const char *)j->mine : j->terms + k * j->step) +
                           i * (int64_t)size,
                       j->type, 1);
        y = branch(x, j->members, j->type == SK_F32);
        if (j->mean) y /= j->members;
        sk_convert((char *)j->to + i * (int64_t)size, j->type, &y, SK_F64, 1);
    }
}

static sk_status tree(const sk_tree_job *j, void *stream)
{
    SK_TRY(lucky());
    append(stream, do_tree, j, sizeof *j, false);
    return SK_OK;
}

typedef struct convert_call {
    void *to;
    const void *from;
    sk_dtype to_type, type;
    int64_t n;
} convert_call;

static void do_convert(void *what)
{
    const convert_call *c = what;
    sk_convert(c->to, c->to_type, c->from, c->type, c->n);
}

static sk_status convert(void *to, sk_dtype to_type, const void *from, sk_dtype type, int64_t n,
                         void *stream)
{
    SK_TRY(lucky());
    append(stream, do_convert, &(convert_call){to, from, to_type, type, n}, sizeof(convert_call),
           false);
    return SK_OK;
}

typedef struct keep_call {
    convert_call as;
    const int32_t *skip;
} keep_call;

static void do_keep(void *what)
{
    keep_call *c = what;
    if (!*c->skip) do_convert(&c->as);
}

static sk_status keep(float *to, const void *from, sk_dtype type, int64_t n, const int32_t *skip,
                      void *stream)
{
    SK_TRY(lucky());
    SK_TRY(sk_inst_kernel_takes("keep", type));
    append(stream, do_keep, &(keep_call){{to, from, SK_F32, type, n}, skip}, sizeof(keep_call),
           false);
    return SK_OK;
}

static void do_stats(void *what)
{
    sk_stats_job *j = what;
    double sum = 0;
    sk_exact exact = {0};
    for (int k = 0; k < j->n_pieces && j->exact; k++)
        if (j->pieces[k].counts) sk_exact_add_squares(&exact, j->pieces[k].data, j->pieces[k].n);
    if (j->exact) memcpy(j->exact, exact.limb, sizeof exact.limb);
    for (int k = 0; k < j->n_pieces; k++)
        for (int64_t i = 0; i < j->pieces[k].n && !(j->exact && j->pieces[k].counts); i++) {
            double x = (double)get(j->pieces[k].data, j->pieces[k].type, i);
            sum += x * (x * (j->pieces[k].counts ? 1 : 0));
        }
    for (int64_t i = 1; i < j->out_n; i++)
        j->out[i] = i <= j->n_sums && j->sum[i - 1] ? (double)*j->sum[i - 1] : 0;
    j->out[0] = sum + (j->more ? *j->more : 0);
    if (j->full && *j->full) j->out[0] = INFINITY;
    if (j->full) *j->full = 0;
}

static sk_status stats(const sk_stats_job *j, const sk_launch *l)
{
    SK_TRY(lucky());
    append(l->stream, do_stats, j, sizeof *j, false);
    return SK_OK;
}

static void take_sums(const sk_clip_job *j, const double *sums, const int64_t *exact, double scale)
{
    sk_step_scalars *p = j->pulse;
    double sum[SK_N_SUMS] = {0};
    memcpy(sum, sums + 1, sizeof *sum * (size_t)j->n_sums);
    double tokens = sum[SK_SUM_WEIGHT] > 0 ? sum[SK_SUM_WEIGHT] : 1, squares = sums[0];
    for (int w = 0; w < j->n_sums; w++) {
        const double *cells = sums + 1 + j->n_sums + (int64_t)j->of[w].tree * j->n_blocks;
        if (j->of[w].trees) sum[w] = sk_tree_sums(cells, j->n_blocks, j->of[w].trees);
    }
    if (exact) squares += sk_exact_value((const sk_exact *)(const void *)exact);
    p->loss = sum[SK_SUM_LOSS] / tokens;
    p->tokens = sum[SK_SUM_WEIGHT];
    p->aux = sum[SK_SUM_AUX] / tokens;
    p->drops = sum[SK_SUM_DROPS];
    p->right = sum[SK_SUM_RIGHT];
    p->norm = sqrt(squares) / tokens / scale;
    double small = j->small ? *j->small : 0;
    if (j->small_exact) small = sk_exact_value((const sk_exact *)(const void *)j->small_exact);
    p->small = small / (tokens * scale * tokens * scale);
    p->finite = isfinite(p->loss) && isfinite(p->norm);
    p->again = j->train && ((j->no_drops && p->drops > 0) || (j->no_full && !isfinite(p->norm)));
}

static void do_clip(void *what)
{
    sk_clip_job *j = what;
    sk_step_scalars *p = j->pulse;
    double scale = p->loss_scale > 0 ? p->loss_scale : 1;
    bool together = (int64_t)p->step < j->together;
    take_sums(j, j->sums, j->exact, scale);
    if (together) {
        double norm = p->norm, own = p->tokens > 0 ? p->tokens : 1;
        take_sums(j, j->all, j->exact_all, scale);
        p->norm = norm * own / (p->tokens > 0 ? p->tokens : 1);
        p->finite = isfinite(p->loss) && isfinite(p->norm);
    }
    double tokens = p->tokens > 0 ? p->tokens : 1;
    bool clips = j->clip > 0 && p->phase + 1 >= j->phases;
    double factor = clips ? j->clip / (p->norm + 1e-6) : 1;
    if (j->all && !together && !j->apart) {
        take_sums(j, j->all, j->exact_all, scale);
        p->norm *= sqrt(j->replicas);
    }
    if (!j->train) return;
    p->scale = (float)((factor < 1 ? factor : 1) / tokens / scale);
    if (j->scale > 0) { /* the updates are made; the norm is of the newest */
        p->norm *= tokens * (double)j->scale;
        p->finite = isfinite(p->loss) && isfinite(p->norm);
    }
    p->skip = p->skip || !p->finite || p->again;
    p->hold = p->skip || p->phase + 1 < j->phases;
}

static sk_status clip(const sk_clip_job *j, const sk_launch *l)
{
    SK_TRY(lucky());
    append(l->stream, do_clip, j, sizeof *j, true);
    return SK_OK;
}

typedef struct sumsq_call {
    void *sum;
    const void *data;
    sk_dtype type;
    int64_t n;
    bool exact;
} sumsq_call;

static void do_sumsq(void *what)
{
    const sumsq_call *c = what;
    for (int64_t i = 0; i < c->n; i++) {
        float x = (float)get(c->data, c->type, i);
        if (c->exact) sk_exact_add_squares(c->sum, &x, 1);
        else *(double *)c->sum += (double)x * (double)x;
    }
}

static sk_status sumsq(void *sum, const void *data, sk_dtype type, int64_t n, bool exact,
                       const sk_launch *l)
{
    SK_TRY(lucky());
    append(l->stream, do_sumsq, &(sumsq_call){sum, data, type, n, exact}, sizeof(sumsq_call),
           false);
    return SK_OK;
}

static void do_noise(void *what)
{
    move *m = what;
    memset(m->to, 0x3c, m->bytes);
}

static sk_status noise(void *to, int64_t bytes, void *stream)
{
    SK_TRY(lucky());
    append(stream, do_noise, &(move){to, NULL, (size_t)bytes}, sizeof(move), false);
    return SK_OK;
}

typedef struct pack_call {
    sk_pack_job job;
    int32_t *full;
} pack_call;

static void do_pack(void *what)
{
    pack_call *c = what;
    sk_threads *alone = sk_threads_open(1);
    if (!c->full) sk_unpack(alone, c->job);
    else if (!sk_pack(alone, c->job)) *c->full = 1;
    sk_threads_close(alone);
}

static sk_status pack(const void *data, char *packed, sk_dtype type, int64_t n, int64_t capacity,
                      int32_t *full, const sk_launch *l)
{
    SK_TRY(lucky());
    pack_call c = {{(void *)(uintptr_t)data, packed, type, n, capacity, {0}}, full};
    append(l->stream, do_pack, &c, sizeof c, false);
    return SK_OK;
}

static sk_status unpack(void *data, const char *packed, sk_dtype type, int64_t n, int64_t capacity,
                        const sk_launch *l)
{
    SK_TRY(lucky());
    pack_call c = {{data, (char *)(uintptr_t)packed, type, n, capacity, {0}}, NULL};
    append(l->stream, do_pack, &c, sizeof c, false);
    return SK_OK;
}

typedef struct reset_call {
    sk_feedback_reset_job job;
    const int32_t *skip;
} reset_call;

static void do_reset_feedback(void *what)
{
    reset_call *c = what;
    for (int k = 0; k < c->job.n && *c->skip; k++)
        memset(c->job.data[k], 0, (size_t)c->job.count[k] * sizeof(float));
}

static sk_status reset_feedback(const sk_feedback_reset_job *j, const int32_t *skip, void *stream)
{
    append(stream, do_reset_feedback, &(reset_call){*j, skip}, sizeof(reset_call), false);
    return SK_OK;
}

typedef struct average_call {
    float *to;
    const float *from;
    int64_t n;
    double decay;
    const sk_step_scalars *pulse;
} average_call;

static void do_average(void *what)
{
    const average_call *c = what;
    if (c->pulse->hold) return;
    float part = (float)sk_ema_part(c->decay, (double)(c->pulse->updates + 1));
    for (int64_t i = 0; i < c->n; i++) c->to[i] = sk_ema_step(c->to[i], c->from[i], part);
}

static sk_status average(float *to, const float *from, int64_t n, double decay,
                         const sk_step_scalars *pulse, void *stream)
{
    SK_TRY(lucky());
    average_call c = {to, from, n, decay, pulse};
    append(stream, do_average, &c, sizeof c, false);
    return SK_OK;
}

static void do_combine(void *what)
{
    const sk_combine_job *j = what;
    for (int64_t i = 0; i < j->n; i++) {
        float x[SK_COMBINE_IN] = {0};
        for (int k = 0; k < j->by.n_in; k++) x[k] = j->in[k][i];
        for (int o = 0; o < j->by.n_out; o++)
            j->out[o][i] = sk_combine_one(j->by.by[o], x, j->by.n_in);
    }
}

static sk_status combine(const sk_combine_job *j, void *stream)
{
    SK_TRY(lucky());
    append(stream, do_combine, j, sizeof *j, false);
    return SK_OK;
}

const sk_inst_kernels sk_inst_kernels_cuda = {.noise = noise,
                                              .combine = combine,
                                              .slice = slice,
                                              .paste = paste,
                                              .add = add,
                                              .tree = tree,
                                              .convert = convert,
                                              .keep = keep,
                                              .stats = stats,
                                              .clip = clip,
                                              .sumsq = sumsq,
                                              .average = average,
                                              .gather = gather,
                                              .pack = pack,
                                              .unpack = unpack,
                                              .reset_feedback = reset_feedback};

/* --- what is joined --- */

static int64_t span(const sk_lt_matrix *x, int64_t rows, int64_t cols)
{
    int64_t lines = x->turned ? cols : rows, each = x->turned ? rows : cols;
    return ((lines - 1) * x->ld + each) * (int64_t)sk_dtype_size(x->type);
}

/* A product reads while it writes: its result lies apart from all it reads, or exactly there. */
static bool lies_apart(const sk_product *p, const sk_lt_matrix *x, int64_t rows, int64_t cols)
{
    const char *a = x->data, *d = p->d.data;
    return a >= d + span(&p->d, p->m, p->n) || d >= a + span(x, rows, cols);
}

static float at(const sk_lt_matrix *x, int64_t i, int64_t k)
{
    return get(x->data, x->type, x->turned ? k * x->ld + i : i * x->ld + k);
}

static double bend(double z)
{
    return 1 / (1 + exp(-1.5957691216057308 * z * (1 + 0.044715 * z * z)));
}

static double slope(double z)
{
    double s = bend(z);
    return s * (1 + z * (1 - s) * 1.5957691216057308 * (1 + 3 * 0.044715 * z * z));
}

static void do_element(const sk_product *p, int64_t i, int64_t k)
{
    double sum = 0, b = p->bias.data ? (double)get(p->bias.data, p->bias.type, k) : 0;
    for (int64_t x = 0; x < p->k; x++) sum += (double)at(&p->a, i, x) * (double)at(&p->b, x, k);
    sum = sum * (double)p->alpha + b;
    if (p->beta != 0)
        sum += (double)p->beta *
               (double)get(p->c.data ? p->c.data : p->d.data, p->d.type, i * p->d.ld + k);
    if (p->after == SK_AFTER_GELU_AUX_BIAS)
        put(p->aux.data, p->aux.type, i * p->aux.ld + k, (float)sum);
    if (p->after == SK_AFTER_GELU_AUX_BIAS || p->after == SK_AFTER_GELU_BIAS) sum *= bend(sum);
    if (p->after == SK_AFTER_DGELU)
        sum *= slope((double)get(p->aux.data, p->aux.type, i * p->aux.ld + k));
    put(p->d.data, p->d.type, i * p->d.ld + k, (float)sum);
}

static void do_product(void *what)
{
    const sk_product *p = what;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t k = 0; k < p->n; k++) do_element(p, i, k);
}

static void go_on(sk_lt_matrix *x, int64_t i)
{
    if (x->data) x->data = (char *)x->data + i * x->step * (int64_t)sk_dtype_size(x->type);
}

/* One of the batch. */
static sk_product nth(const sk_product *p, int64_t i)
{
    sk_product q = *p;
    sk_lt_matrix *all[] = {&q.a, &q.b, &q.c, &q.d, &q.bias, &q.aux};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) go_on(all[k], i);
    q.batch = 1;
    return q;
}

/* The result of `p` apart from what it reads, and from all of another of the batch. */
static bool keeps_apart(const sk_product *p, const sk_product *x)
{
    bool own = p->d.data == x->d.data;
    return lies_apart(p, &x->a, p->m, p->k) && lies_apart(p, &x->b, p->k, p->n) &&
           (own || lies_apart(p, &x->d, p->m, p->n)) &&
           (!x->aux.data || p->after == SK_AFTER_GELU_BIAS || lies_apart(p, &x->aux, p->m, p->n)) &&
           (!x->c.data || (own && x->c.data == p->d.data) || lies_apart(p, &x->c, p->m, p->n));
}

/* Only what somebody joined comes here: ops of the fake are the CPU's. */
sk_status sk_lt_run(const sk_product *p, void *stream, void *workspace, size_t workspace_bytes,
                    bool *ran)
{
    (void)workspace, (void)workspace_bytes;
    for (int64_t i = 0; i < p->batch; i++) {
        sk_product q = nth(p, i);
        for (int64_t k = 0; k < p->batch; k++) {
            sk_product x = nth(p, k);
            sk_assert(keeps_apart(&q, &x) && (i == k || x.d.data != q.d.data));
        }
        append(stream, do_product, &q, sizeof q, false);
    }
    if (ran) *ran = true;
    return SK_OK;
}

sk_status sk_lt_prepare(const sk_product *p, void *stream, void *workspace, size_t workspace_bytes,
                        bool *found)
{
    (void)p, (void)stream, (void)workspace, (void)workspace_bytes;
    if (found) *found = true;
    return SK_OK;
}

static void do_xent_row(const sk_xent_job *j, int64_t r, double *x)
{
    size_t size = sk_dtype_size(j->type), begin = (size_t)(r * j->n) * size;
    int64_t target = j->target[r] - j->at;
    double m = -INFINITY, s = 0, all = 0, w = (double)j->weight[r] * (double)*j->scale;
    for (int64_t i = 0; i < j->n; i++) {
        x[i] = (double)get((const char *)j->logits + begin, j->type, i);
        m = fmax(m, x[i]);
    }
    for (int64_t i = 0; i < j->n; i++) s += exp(x[i] - m), all += x[i];
    double own = 1 - (double)j->smooth, even = (double)j->smooth / (double)j->n;
    double factor = 1 + 2 * (double)j->z * (m + log(s));
    j->m[r] = (float)m, j->s[r] = (float)s;
    j->t[r] = (float)(own * (target >= 0 && target < j->n ? x[target] : 0) + even * all);
    for (int64_t i = 0; i < j->n; i++)
        put((char *)j->dlogits + begin, j->type, i,
            (float)(exp(x[i] - m) * factor * w / s - (i == target ? own * w : 0) - even * w));
}

static void do_xent(void *what)
{
    const sk_xent_job *j = what;
    double *x = calloc((size_t)j->n + 1, sizeof *x);
    for (int64_t r = 0; r < j->rows; r++) do_xent_row(j, r, x);
    free(x);
}

sk_status sk_xent_rows(const sk_xent_job *j, const sk_launch *l)
{
    append(l->stream, do_xent, j, sizeof *j, false);
    return SK_OK;
}

/* A row: dx, and what it gives to dw, db and the sum of dx, which lie one behind the other.  x, dy
 * and res are read before dx is written. */
static void do_norm_row(const sk_norm_grad_job *j, int64_t r, double *g, double *dw)
{
    double *db = dw + j->n, *sum = db + j->n;
    double mean = j->mean.data ? (double)get(j->mean.data, j->mean.type, r) : 0;
    double rstd = (double)get(j->rstd.data, j->rstd.type, r), a = 0, b = 0;
    double *hat = g + j->n, *more = hat + j->n;
    for (int64_t i = 0, k = r * j->n; i < j->n; i++, k++) {
        double dy = (double)get(j->dy, j->type, k);
        hat[i] = ((double)get(j->x, j->type, k) - mean) * rstd;
        g[i] = dy * (double)get(j->w, j->type, i);
        more[i] = j->res ? (double)get(j->res, j->type, k) : 0;
        more[i] += j->add_dx ? (double)get(j->dx, j->type, k) : 0;
        a += j->mean.data ? g[i] / (double)j->n : 0;
        b += g[i] * hat[i] / (double)j->n;
        dw[i] += dy * hat[i];
        db[i] += dy;
    }
    for (int64_t i = 0, k = r * j->n; i < j->n; i++, k++) {
        put(j->dx, j->type, k, (float)(rstd * (g[i] - a - hat[i] * b) + more[i]));
        sum[i] += (double)get(j->dx, j->type, k);
    }
}

static void leave_sums(const sk_any *to, const double *x, int64_t n, bool add)
{
    for (int64_t i = 0; to->data && i < n; i++)
        put(to->data, to->type, i, (float)x[i] + (add ? get(to->data, to->type, i) : 0));
}

static void do_norm_grad(void *what)
{
    const sk_norm_grad_job *j = what;
    double *x = calloc(6 * (size_t)j->n + 1, sizeof *x), *dw = x + 3 * j->n;
    for (int64_t r = 0; r < j->rows; r++) do_norm_row(j, r, x, dw);
    leave_sums(&j->dw, dw, j->n, j->add_dw);
    leave_sums(&j->db, dw + j->n, j->n, j->add_db);
    leave_sums(&j->sum, dw + 2 * j->n, j->n, j->add_sum);
    free(x);
}

sk_status sk_norm_grad(const sk_norm_grad_job *j, const sk_launch *l)
{
    append(l->stream, do_norm_grad, j, sizeof *j, false);
    return SK_OK;
}

/* --- codecs --- */

typedef struct code_call {
    sk_codec codec; /* with its value */
    sk_code_job job;
} code_call;

static void read_row(const void *of, int64_t at, int64_t n, float *to)
{
    memcpy(to, (const float *)of + at, (size_t)n * sizeof *to);
}

static sk_code_row row_of(const sk_code_job *j, int64_t row, const float *x)
{
    uint64_t shared = sk_code_shared(j->seed, j->stream, *j->step);
    return (sk_code_row){.n = j->row,
                         .first = j->first + row * j->place,
                         .shared = shared,
                         .own = sk_code_own(shared, j->term, j->micro),
                         .upscale = !j->error && !j->adds,
                         .read = read_row,
                         .of = x};
}

static void encode_row(const code_call *c, int64_t row, float *x, float *y)
{
    const sk_code_job *j = &c->job;
    size_t at = (size_t)(row * j->row);
    float *error = j->error ? j->error + at : NULL;
    float scale = error && j->loss_scale ? (float)*j->loss_scale : 1, unscale = 1 / scale;
    bool hold = j->hold && *j->hold;
    sk_code_row r = row_of(j, row, x);
    sk_convert(x, SK_F32, (const char *)j->x + at * sk_dtype_size(j->type), j->type, j->row);
    for (int64_t i = 0; error && !j->adds && i < j->row; i++) x[i] = fmaf(scale, error[i], x[i]);
    sk_encode(&c->codec, &r, j->code + row * j->bytes);
    sk_decode(&c->codec, &r, j->code + row * j->bytes, 0, j->row, y);
    for (int64_t i = 0; error && !hold && i < j->row; i++)
        error[i] = fmaf(unscale, x[i] - y[i], j->adds ? error[i] : 0);
}

static void decode_row(const code_call *c, int64_t row, float *x, float *y)
{
    const sk_code_job *j = &c->job;
    const uint8_t *from = j->code + row * j->bytes;
    sk_code_row r = row_of(j, row, NULL);
    sk_decode(&c->codec, &r, from, 0, j->row, x);
    for (int64_t k = 1; k < j->pieces; k++) {
        sk_decode(&c->codec, &r, from + k * j->rows * j->bytes, 0, j->row, y);
        for (int64_t i = 0; i < j->row; i++) x[i] += y[i];
    }
    sk_convert((char *)j->x + (size_t)(row * j->row) * sk_dtype_size(j->type), j->type, x, SK_F32,
               j->row);
}

static void do_rows(const code_call *c, void row(const code_call *, int64_t, float *, float *))
{
    float *x = malloc(2 * (size_t)c->job.row * sizeof *x + 1);
    for (int64_t i = 0; i < c->job.rows; i++) row(c, i, x, x + c->job.row);
    free(x);
}

static void do_encode(void *what) { do_rows(what, encode_row); }
static void do_decode(void *what) { do_rows(what, decode_row); }

static sk_status code(const char *name, deed *f, const sk_code_job *j, void *stream)
{
    SK_TRY(sk_code_takes(name, j->type));
    code_call c = {*sk_codec_find(name), *j};
    c.codec.value = j->value;
    append(stream, f, &c, sizeof c, false);
    return SK_OK;
}

/* A kernel does not know its codec either. */
#define CODEC(name)                                                    \
    static sk_status encode_##name(const sk_code_job *j, void *stream) \
    {                                                                  \
        return code(#name, do_encode, j, stream);                      \
    }                                                                  \
    static sk_status decode_##name(const sk_code_job *j, void *stream) \
    {                                                                  \
        return code(#name, do_decode, j, stream);                      \
    }                                                                  \
    static const sk_codec_kernel codec_##name = {#name, encode_##name, decode_##name};
CODEC(bf16)
CODEC(chunks)
CODEC(f16)
CODEC(fp8)
CODEC(int4)
CODEC(int8)
CODEC(q2)
CODEC(q4)
CODEC(q8)
CODEC(randk)
CODEC(sign)
CODEC(threshold)
CODEC(topk)
CODEC(topk4)
CODEC(topk8)
const sk_codec_kernel *const sk_codec_kernel_parts[] = {
    &codec_bf16, &codec_chunks, &codec_f16,   &codec_fp8,   &codec_int4, &codec_int8,
    &codec_q2,   &codec_q4,     &codec_q8,    &codec_randk, &codec_sign, &codec_threshold,
    &codec_topk, &codec_topk4,  &codec_topk8, NULL};

/* --- optimizers --- */

enum { AHEAD = -1, PERTURB = -2 };

typedef struct pass_call {
    const sk_optim *optim;
    int pass; /* or AHEAD, PERTURB */
    sk_update_job job;
} pass_call;

static sk_piece piece_of(const pass_call *c, const sk_update *u)
{
    const sk_step_scalars *pulse = c->job.pulse;
    sk_piece x = {.n = u->n, .param = u->param, .delay = u->delay, .scalar = u->scalar};
    x.scale = u->scale > 0 ? u->scale / (float)pulse->loss_scale : pulse->scale;
    x.step = pulse->updates + u->update + 1;
    x.warmup = c->job.warmup;
    x.share = c->job.share;
    x.pass = c->pass;
    x.elements = u->elements;
    x.norm = pulse->norm;
    for (int s = 0; s < SK_MAX_STATE; s++) x.state[s] = u->state[s];
    for (int k = 0; c->optim->knobs[k].name; k++) {
        sk_knob_role role = c->optim->knobs[k].role;
        bool cycled = pulse->momentum > 0 && c->job.momentum >> k & 1;
        x.knob[k] = role == SK_KNOB_LR      ? (float)(pulse->lr * u->rate)
                    : role == SK_KNOB_DECAY ? u->decay
                    : cycled                ? (float)pulse->momentum
                                            : c->job.knob[k];
    }
    return x;
}

/* State of bf16 is computed on in f32, and rounded stochastically, with random numbers of its
 * logical places; blocks of 8 bits are decoded and encoded: run/cpu/optim_passes.c.
 */
static float *widen_state(const pass_call *c, const sk_update *u, sk_piece *x)
{
    if (u->state_type == SK_F32 || u->bias_update != 0) return NULL;
    float *wide = malloc((size_t)(sk_optim_arrays(c->optim) * u->n) * sizeof *wide + 1);
    for (int s = 0; s < sk_optim_arrays(c->optim); s++) {
        x->state[s] = wide + s * u->n;
        sk_dtype type = u->state_type == SK_U8 ? SK_F32 : u->state_type;
        if (u->q8[s]) sk_q8_decode(u->q8[s], u->state[s], u->n, 0, x->state[s], u->n);
        else sk_convert(x->state[s], SK_F32, u->state[s], type, u->n);
    }
    return wide;
}

static void narrow_state(const pass_call *c, const sk_update *u, const sk_piece *x)
{
    for (int s = 0; s < sk_optim_arrays(c->optim); s++) {
        uint64_t stream = (uint64_t)x->step * SK_ROUNDED_STATES + (uint64_t)s;
        uint64_t key = sk_rng(c->job.seed, u->name, stream).a;
        if (u->q8[s]) sk_q8_encode(u->q8[s], u->state[s], u->n, 0, x->state[s], u->n);
        else if (u->state_type == SK_U8)
            memcpy(u->state[s], x->state[s], (size_t)u->n * sizeof(float));
        if (u->state_type == SK_U8) continue;
        for (int64_t i = 0; i < u->n; i++) {
            uint64_t at = (uint64_t)sk_logical(&u->shape, i), four = sk_rng(key, 0, at / 4).a;
            ((uint16_t *)u->state[s])[i] =
                sk_to_bf16_stochastic(x->state[s][i], (uint16_t)(four >> 16 * (at % 4)));
        }
    }
}

/* One element after the other, whose sums are integers: no order changes them. */
static void pass_ordered(const pass_call *c, const sk_piece *all, const sk_update *u)
{
    sk_fixed sum[SK_MAX_SUM] = {{0, 0}};
    double most[SK_MAX_SUM] = {0};
    for (int64_t i = 0; i < u->n; i++) {
        sk_piece x = *all;
        x.n = 1;
        x.param += i;
        x.grad += i;
        for (int s = 0; s < sk_optim_arrays(c->optim); s++) x.state[s] += i;
        c->optim->pass[c->pass](&x);
        for (int s = 0; s < SK_MAX_SUM && u->after && u->owner; s++)
            if (c->optim->maxima >> s & 1) most[s] = fmax(most[s], x.sum[s]);
            else sk_fixed_add(&sum[s], x.sum[s]);
    }
    if (u->after) memcpy(u->after, sum, sizeof sum);
    if (u->after_most) memcpy(u->after_most, most, sizeof most);
}

static void do_piece(const pass_call *c, const sk_update *u)
{
    const sk_step_scalars *pulse = c->job.pulse;
    bool skip = (pulse->skip || pulse->phase + 1 < c->job.phases) && !(u->scale > 0);
    float *grad = malloc((size_t)u->n * sizeof *grad + 1);
    sk_piece x = piece_of(c, u);
    float *wide = widen_state(c, u, &x);
    x.grad = grad;
    for (int64_t i = 0; i < u->n; i++) grad[i] = get(u->grad, u->grad_type, i);
    for (int s = 0; s < SK_MAX_SUM && u->before; s++)
        x.sum[s] = c->job.ordered ? sk_fixed_value((const sk_fixed *)u->before + s)
                                  : ((const double *)u->before)[s];
    for (int s = 0; s < SK_MAX_SUM && u->before_most; s++)
        if (c->optim->maxima >> s & 1) x.sum[s] = u->before_most[s];
    if (u->scalar && sk_optim_settles(c->optim, c->pass) && !skip) c->optim->settle(&x);
    if (u->bias_update != 0)
        for (int64_t i = 0; i < u->n && !skip; i++)
            u->param[i] -= grad[i] > 0 ? u->bias_update : grad[i] < 0 ? -u->bias_update : 0;
    else if (!skip && c->job.ordered) pass_ordered(c, &x, u);
    else if (!skip) {
        c->optim->pass[c->pass](&x);
        if (!u->owner) memset(x.sum, 0, sizeof x.sum); /* another rank counts the shard */
        if (u->after_most) memcpy(u->after_most, x.sum, sizeof x.sum);
        for (int s = 0; s < SK_MAX_SUM && u->after_most; s++)
            if (c->optim->maxima >> s & 1) x.sum[s] = 0;
        if (u->after) memcpy(u->after, x.sum, sizeof x.sum);
    }
    if (wide && !skip) narrow_state(c, u, &x);
    for (int64_t i = 0; u->narrow && i < u->n; i++) put(u->narrow, u->narrow_type, i, u->param[i]);
    free(wide);
    free(grad);
}

static void foresee(const pass_call *c, const sk_update *u)
{
    sk_piece x = piece_of(c, u);
    sk_assert(u->grad_type == SK_F32 && !u->narrow);
    float *wide = widen_state(c, u, &x);
    memcpy(u->param, u->grad, (size_t)u->n * sizeof *u->param);
    c->optim->ahead(&x);
    free(wide);
}

static void move_weights(const pass_call *c, const sk_update *u)
{
    const sk_step_scalars *pulse = c->job.pulse;
    if (pulse->skip || pulse->phase + 1 >= c->job.phases || u->bias_update != 0) return;
    for (int64_t i = 0; i < u->n; i++) {
        float w = u->param[i], g = get(u->grad, u->grad_type, i);
        sk_piece x = piece_of(c, u);
        x.n = 1, x.param = &w, x.grad = &g;
        memset(x.state, 0, sizeof x.state);
        c->optim->perturb(&x);
        put(u->narrow, u->narrow_type, i, w);
    }
}

static void do_pass(void *what)
{
    const pass_call *c = what;
    for (int i = 0; i < c->job.n_pieces; i++)
        (c->pass == AHEAD     ? foresee
         : c->pass == PERTURB ? move_weights
                              : do_piece)(c, &c->job.pieces[i]);
}

static sk_status update(int part, int pass, const sk_update_job *j, const sk_launch *l)
{
    const sk_optim *o = sk_optim_parts[part];
    SK_TRY(lucky());
    SK_TRY(sk_update_takes(o->name, j));
    pass_call c = {.optim = o, .pass = pass};
    c.job = *j; /* as in launch() */
    append(l->stream, do_pass, &c, sizeof c, false);
    return SK_OK;
}

/* Kernels have no context: those of the n-th optimizer know their number. */
#define PASS(n, p)                                                              \
    static sk_status pass_##n##_##p(const sk_update_job *j, const sk_launch *l) \
    {                                                                           \
        return update(n, p, j, l);                                              \
    }
#define OPTIM(n)                                                                \
    PASS(n, 0)                                                                  \
    PASS(n, 1)                                                                  \
    PASS(n, 2)                                                                  \
    PASS(n, 3)                                                                  \
    PASS(n, 4)                                                                  \
    static sk_status ahead_##n(const sk_update_job *j, const sk_launch *l)      \
    {                                                                           \
        return update(n, AHEAD, j, l);                                          \
    }                                                                           \
    static sk_status perturb_##n(const sk_update_job *j, const sk_launch *l)    \
    {                                                                           \
        return update(n, PERTURB, j, l);                                        \
    }                                                                           \
    static sk_optim_kernel optim_##n = {                                        \
        "",                                                                     \
        {pass_##n##_0, pass_##n##_1, pass_##n##_2, pass_##n##_3, pass_##n##_4}, \
        ahead_##n,                                                              \
        perturb_##n};
/* clang-format off */
#define EIGHT(x, a) x(a##0) x(a##1) x(a##2) x(a##3) x(a##4) x(a##5) x(a##6) x(a##7)
#define ALL(x) EIGHT(x, 0) EIGHT(x, 01) EIGHT(x, 02) EIGHT(x, 03) /* places in the table, octal */
#define THIS(n) &optim_##n,
ALL(OPTIM)
static sk_optim_kernel *const optims[] = {ALL(THIS)};
const sk_optim_kernel *const sk_optim_kernel_parts[] = {ALL(THIS) NULL};
/* clang-format on */

__attribute__((constructor)) static void name_optims(void)
{
    int n = 0;
    for (; sk_optim_parts[n]; n++) {
        sk_assert(n < (int)(sizeof optims / sizeof *optims));
        optims[n]->optim = sk_optim_parts[n]->name;
    }
}

/* SKEIN_FAKE_SLOW=1: a kernel that did not get what it wanted. */
static sk_status prepare_slowly(const sk_args *a, const sk_launch *l, sk_variant *took)
{
    (void)a, (void)l;
    if (getenv("SKEIN_FAKE_SLOW"))
        *took = (sk_variant){"walk", "run", "the fake GPU was told to", 40};
    return SK_OK;
}

void sk_fake_gpu(int delay_us)
{
    most_delay = delay_us;
    lazy = getenv("SKEIN_FAKE_LAZY") != NULL;
    setenv("SKEIN_FUSE", "none", 0);
    for (int i = 0; sk_op_parts[i]; i++) {
        sk_assert(FIRST + i < LAST);
        kernels[FIRST + i].op = sk_op_parts[i]->name;
        if (!strcmp(sk_op_parts[i]->name, "contract")) kernels[FIRST + i].prepare = prepare_slowly;
    }
}
