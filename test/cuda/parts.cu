/* Every op that has a GPU half against its CPU half in float64: the op's own samples, widths around
 * the places where kernels change their ways, an empty piece, and in f32 and bf16 one large shape;
 * in f32, bf16 and f16, aligned and one element off, adding to what is there where the op can.
 *
 * All operands of a case lie in one pool.  It is written from an image on the host, which is NaN
 * wherever there is no operand, and read back whole after the launch: an element left out is NaN,
 * and a byte changed outside the results is a kernel that went astray.  Every case runs twice and
 * must give the same bits.  Gradients that take results of their forward op are given the real
 * ones: with others, probabilities of attention would add up to hundreds, and the last bit of
 * a row sum with them.
 *
 * The CPU computes in float64 from the operands as rounded, so a difference is the GPU's alone:
 * |gpu - cpu| / (1 + |cpu| + rms), where rms is that of the whole result: the rounding of a long
 * sum goes with its terms, which random signs hide in any one element but not in all of them.
 * From a narrow result its own rounding, half a unit in the last place, is taken off first.  Tensor
 * cores cut off what lies below the last bit of a sum, always towards zero, so that it adds up, 16
 * products at a time: a contraction of narrow operands may lose half a unit of f32 with each.
 * Where tensor cores are given probabilities rounded to the storage type, the difference is that of
 * the whole result, sqrt(sum (gpu - cpu)^2 / sum cpu^2), and half a unit is allowed; for products
 * in 8 bits too, whose sums tensor cores keep in fewer bits than f32 has, and 1/512 at least.
 *
 * GB/s count each operand read once and each result written once, over the median time of the
 * launches between two events; compare with the line "copy".
 *
 *     parts_cuda [cpu] [SEED] [OP...]
 *
 * cpu: the CPU's half in float instead of a GPU, to see what the allowance is worth. */
#include "base/entry.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/strings.h"
#include "device/device.h"
#include "graph/dims.h"
#include "kernel/fp8_product.h"
#include "kernel/kernel_launch.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GAP = 256, N_WARM = 3, N_TIMED = 11, STEP = 5, MORE_ROOM = 512 << 20 };
enum { TEAM = 16, FEW = 1 << 15, STRIP = 512 };

static const double MOST_OFF = 4e-6;

extern "C" {
const sk_op *sk_op64_find(const char *name); /* the ops once more, where real is double */
void openblas_set_num_threads(int n) __attribute__((weak));
}

static uint64_t seed = 1;
static int n_checks, n_bad;

typedef struct gpu {
    sk_device *d;
    sk_stream *s;
    sk_event *from, *to;
    sk_launch l;
    int capability;
    bool cpu;     /* it is none */
    size_t bytes; /* of the pool, and of each of what follows on the host */
    char *base;   /* the pool */
    char *image, *back, *again;
    char *wide; /* operands in float64 */
    size_t wide_bytes;
} gpu;

/* What a case looks like; the shape itself is in the graph. */
typedef struct variant {
    sk_dtype type;
    int shift;  /* elements that every operand is off from alignment */
    char empty; /* a letter of which this piece has nothing; 0: none */
    unsigned add;
    bool timed;
    unsigned wide; /* bit i: operand i, or result i - n_in, stays f32; as op->types allows */
} variant;

typedef struct trial {
    sk_arena arena;
    sk_graph g;
    const sk_op *op;
    const sk_kernel *kernel;
    const sk_sample *s;
    sk_node *y;
    char shape[512]; /* "b2t3c8, c8, c8" */
} trial;

/* One run: the arguments as both halves see them. */
typedef struct side {
    sk_args cpu, gpu;
    size_t bytes;
    size_t at[SK_MAX_IN + SK_MAX_OUT]; /* where each operand, then each result, starts */
} side;

static void bad(const trial *t, const variant *v, const char *what)
{
    n_bad++;
    printf("%s of %s, %s, f32 are %#x, %d off, add %u%s: %s\n", t->op->name, t->shape,
           sk_dtype_name(v->type), v->wide, v->shift, v->add, v->empty ? ", empty" : "", what);
}

/* ---- threads */

typedef struct member {
    void (*work)(void *job, int part, int of);
    void *job;
    int part, of;
} member;

static void *join_in(void *at)
{
    member *m = (member *)at;
    m->work(m->job, m->part, m->of);
    return NULL;
}

/* All parts of a job of so many elements; a small one by this thread alone. */
static void team(void (*work)(void *job, int part, int of), void *job, double elements)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int of = elements < FEW ? 1 : cores < TEAM ? (int)cores : TEAM;
    member m[TEAM];
    pthread_t id[TEAM];
    for (int i = 0; i < of; i++) m[i] = member{work, job, i, of};
    for (int i = 1; i < of; i++) sk_assert(!pthread_create(&id[i], NULL, join_in, &m[i]));
    work(job, 0, of);
    for (int i = 1; i < of; i++) pthread_join(id[i], NULL);
}

static int64_t part_of(int64_t n, int part, int of) { return n * part / of; }

typedef struct bytes {
    char *a;
    const char *b; /* NULL: a becomes NaN in every type */
    size_t n;
    bool differ[TEAM];
} bytes;

static void bytes_part(void *job, int part, int of)
{
    bytes *j = (bytes *)job;
    int64_t from = part_of((int64_t)j->n, part, of),
            n = part_of((int64_t)j->n, part + 1, of) - from;
    if (!j->b) memset(j->a + from, 0xff, (size_t)n);
    else j->differ[part] = memcmp(j->a + from, j->b + from, (size_t)n) != 0;
}

static bool differ(char *a, const char *b, size_t n)
{
    bytes j = {a, b, n};
    bool any = false;
    team(bytes_part, &j, (double)n / 16);
    for (int i = 0; i < TEAM; i++) any = any || j.differ[i];
    return any;
}

/* ---- one shape of one op */

static bool build(trial *t, const sk_kernel *k, const sk_op *op, const sk_sample *s,
                  const int64_t *wanted)
{
    sk_call call = {};
    char letters[SK_MAX_DIM + 1];
    int64_t size[SK_MAX_DIM];
    size_t n = 0;
    memset(t, 0, sizeof *t);
    t->op = op, t->kernel = k, t->s = s;
    sk_graph_init(&t->g, &t->arena);
    call.dims = s->dims;
    memcpy(call.attr, s->attr, sizeof call.attr);
    if (s->fresh && sk_dims_sample(s->fresh, letters, size)) sk_graph_size(&t->g, *letters, *size);
    for (int i = 0; i < op->n_in; i++) {
        sk_assert(sk_dims_sample(s->in[i], letters, size));
        if (i) n += (size_t)snprintf(t->shape + n, sizeof t->shape - n, ", ");
        for (int j = 0; letters[j]; j++) {
            int64_t w = wanted ? wanted[(int)letters[j]] : 0;
            if (w) size[j] = w;
            sk_graph_size(&t->g, letters[j], size[j]);
            n += (size_t)snprintf(t->shape + n, sizeof t->shape - n, "%c%lld", letters[j],
                                  (long long)size[j]);
            sk_assert(n + 32 < sizeof t->shape);
        }
        call.in[i] = sk_input(&t->g, sk_print(&t->arena, "x%d", i), letters,
                              strchr(s->in[i], '%') ? SK_I32 : SK_F32);
    }
    t->y = sk_apply_at(&t->g, SK_HERE, op->name, call);
    return !sk_graph_status(&t->g);
}

static size_t bytes_of(const sk_view *v) { return (size_t)sk_count(v) * sk_dtype_size(v->type); }

static sk_view view_of(const trial *t, const sk_tensor *x, const variant *v, bool stat)
{
    sk_shape s = sk_tensor_shape(&t->g, x);
    sk_view w = {};
    w.type = x->type == SK_F32 && !stat ? v->type : x->type;
    w.n = s.n;
    for (int i = 0; i < s.n; i++) {
        w.size[i] = w.full[i] = s.d[i];
        if (v->empty && x->letters[i] == v->empty) w.size[i] = 0;
    }
    sk_view_dense(&w);
    return w;
}

/* The operands, or results, that may be f32 beside narrow ones; of results those that are not in
 * any case. */
static unsigned may_be_wide(const trial *t, bool results)
{
    int n_in = t->y->n_in, from = results ? n_in : 0, to = results ? n_in + t->y->n_out : n_in;
    unsigned mask = 0;
    for (int i = from; i < to; i++)
        if (strchr("fs", sk_op_type(t->op, n_in, i)) &&
            (results ? !(t->op->stats >> (i - n_in) & 1) : t->y->in[i]->type == SK_F32))
            mask |= 1u << i;
    return mask;
}

/* Views without data, and the place of each in the pool. */
static void lay_out(const trial *t, const variant *v, side *p)
{
    const sk_node *y = t->y;
    sk_args *a = &p->cpu;
    a->n_in = y->n_in, a->n_out = y->n_out, a->dims = y->dims;
    a->seed = 11, a->stream = STEP, a->add = v->add, a->of = 1;
    memcpy(a->attr, y->attr, sizeof a->attr);
    for (int i = 0; i < y->n_in + y->n_out; i++) {
        int o = i - y->n_in;
        sk_view *w = o < 0 ? &a->in[i] : &a->out[o];
        *w = o < 0 ? view_of(t, y->in[i], v, v->wide >> i & 1)
                   : view_of(t, y->out[o], v, (v->wide >> i | t->op->stats >> o) & 1);
        p->at[i] = p->bytes + GAP + (size_t)v->shift * sk_dtype_size(w->type);
        p->bytes = (p->at[i] + bytes_of(w) + 2 * GAP - 1) / GAP * GAP;
    }
    p->bytes += GAP;
}

/* Room for a case: in the pool, three times on the host, and wide. */
static sk_status make_room(gpu *g, const side *p)
{
    size_t wide = 0;
    for (int i = 0; i < p->cpu.n_in; i++) wide += 8 * (size_t)sk_count(&p->cpu.in[i]) + GAP;
    for (int o = 0; o < p->cpu.n_out; o++) wide += 8 * (size_t)sk_count(&p->cpu.out[o]) + GAP;
    if (wide > g->wide_bytes) {
        free(g->wide);
        g->wide_bytes = 2 * wide;
        g->wide = (char *)malloc(g->wide_bytes);
        sk_assert(g->wide);
    }
    if (p->bytes <= g->bytes) return SK_OK;
    if (g->base) sk_pool_close(g->d, g->base);
    g->bytes = p->bytes > 2 * g->bytes ? p->bytes : 2 * g->bytes;
    SK_TRY(sk_pool_open(g->d, g->bytes, (void **)&g->base));
    SK_TRY(sk_pinned_open(g->d, g->bytes, (void **)&g->image));
    SK_TRY(sk_pinned_open(g->d, g->bytes, (void **)&g->back));
    return sk_pinned_open(g->d, g->bytes, (void **)&g->again);
}

/* One operand: where it lies in the image and wide, and what is drawn for it. */
typedef struct operand {
    sk_view *wide;
    char *narrow;
    sk_dtype type;
    bool drawn, positive, apart;
    double range; /* of integers */
    uint64_t stream;
} operand;

typedef struct draft {
    operand x[SK_MAX_IN + SK_MAX_OUT];
    int n;
    bool draw;
} draft;

static double draw(const operand *x, int64_t i)
{
    uint64_t range = (uint64_t)x->range, at = (uint64_t)i;
    if (x->apart && range) return (double)((at + at / range) * 2654435761u % range); /* a prime */
    double u = sk_rng_uniform(seed, x->stream, at);
    return x->range > 0 ? floor(u * x->range) : x->positive ? 0.5 + u : 2 * u - 1;
}

/* Elements [from, to): drawn, as rounded into the image, and from there wide. */
static void strip(const operand *x, int64_t from, int64_t to, bool drawn)
{
    sk_dtype wide = x->type == SK_I32 ? SK_I32 : SK_F64;
    char *narrow = x->narrow + (size_t)from * sk_dtype_size(x->type);
    double v[STRIP];
    if (drawn) {
        for (int64_t i = from; i < to; i++) v[i - from] = draw(x, i);
        sk_convert(narrow, x->type, v, SK_F64, to - from);
    }
    sk_convert((char *)x->wide->data + (size_t)from * sk_dtype_size(wide), wide, narrow, x->type,
               to - from);
}

static void fill_part(void *job, int part, int of)
{
    const draft *d = (const draft *)job;
    for (int i = 0; i < d->n; i++) {
        const operand *x = &d->x[i];
        int64_t n = sk_count(x->wide), end = part_of(n, part + 1, of), to;
        for (int64_t at = part_of(n, part, of); at < end && x->drawn; at = to) {
            to = at + STRIP < end ? at + STRIP : end;
            strip(x, at, to, d->draw);
        }
    }
}

/* ---- in float64 */

typedef struct run64 {
    const sk_op *op;
    sk_args a;
    char *scratch;
    size_t each;
} run64;

static void run_part(void *job, int part, int of)
{
    const run64 *r = (const run64 *)job;
    sk_args a = r->a;
    a.part = part, a.of = of, a.scratch = r->scratch + (size_t)part * r->each;
    r->op->cpu(&a);
}

/* In a build where real is double, f32 is what such operands are called. */
static void run_wide(trial *t, const char *op, const sk_args *a)
{
    sk_mark mark = sk_arena_mark(&t->arena);
    run64 r = {sk_op64_find(op), *a, NULL, 0};
    sk_assert(r.op);
    if (r.op->scratch) r.each = (r.op->scratch(a) + 2 * GAP - 1) / GAP * GAP;
    r.scratch = (char *)sk_alloc(&t->arena, TEAM * r.each + 1);
    team(run_part, &r, sk_op_flops(r.op, a) + (double)sk_count(&a->in[0]));
    sk_arena_back(&t->arena, mark);
}

/* The op whose results, y and lse, stand before this one's last operand. */
static const char *forward_of(const char *op)
{
    if (!strcmp(op, "attention_grad")) return "attention";
    return strcmp(op, "attention_kv_grad") ? NULL : "attention_kv";
}

static void belong(trial *t, draft *d, const sk_args *c)
{
    sk_args f = *c;
    int n = c->n_in - 3;
    draft made = {{d->x[n], d->x[n + 1]}, 2, false};
    f.n_in = n, f.n_out = 2, f.add = 0;
    f.out[0] = c->in[n], f.out[1] = c->in[n + 1];
    run_wide(t, forward_of(t->op->name), &f);
    for (int i = 0; i < 2; i++)
        sk_convert(made.x[i].narrow, made.x[i].type, made.x[i].wide->data, SK_F64,
                   sk_count(made.x[i].wide));
    fill_part(&made, 0, 1); /* as rounded */
}

/* ---- both halves */

static operand operand_of(const trial *t, const variant *v, int i, int n_in)
{
    operand x = {};
    const char *text = i < n_in ? t->s->in[i] : "", *range = strchr(text, '%');
    x.drawn = i < n_in || v->add >> (i - n_in) & 1;
    x.positive = i < n_in && t->s->positive && !forward_of(t->op->name);
    x.stream = (uint64_t)(i < n_in ? i : 200 + i - n_in);
    x.range = range ? atof(range + 1) : 0;
    x.apart = v->timed; /* a large bank is filled as route would */
    return x;
}

static void prepare(const gpu *g, trial *t, const variant *v, side *p)
{
    sk_args *c = &p->cpu;
    char *wide = g->wide;
    draft d = {};
    double n = 0;
    bytes blank = {g->image, NULL, p->bytes};
    team(bytes_part, &blank, (double)p->bytes / 16);
    p->gpu = *c;
    d.n = c->n_in + c->n_out, d.draw = true;
    for (int i = 0; i < d.n; i++) {
        int o = i - c->n_in;
        sk_view *w = o < 0 ? &c->in[i] : &c->out[o];
        (o < 0 ? p->gpu.in[i] : p->gpu.out[o]).data = g->base + p->at[i];
        d.x[i] = operand_of(t, v, i, c->n_in);
        d.x[i].wide = w, d.x[i].type = w->type, d.x[i].narrow = g->image + p->at[i];
        n += (double)sk_count(w);
        w->data = wide;
        if (w->type != SK_I32) w->type = SK_F32;
        wide += (8 * (size_t)sk_count(w) + GAP - 1) / GAP * GAP;
    }
    team(fill_part, &d, n);
    if (forward_of(t->op->name)) belong(t, &d, c);
}

static sk_status launch(const gpu *g, const trial *t, const side *p)
{
    if (!g->cpu) return t->kernel->launch(&p->gpu, &g->l);
    sk_args a = p->gpu;
    a.scratch = malloc(sk_op_scratch(t->op, &a) + 1);
    sk_op_run_cpu(t->op, &a);
    free(a.scratch);
    return SK_OK;
}

static sk_status once(const gpu *g, const trial *t, const side *p, char *back)
{
    sk_variant took = {};
    if (t->kernel->prepare && !g->cpu) SK_TRY(t->kernel->prepare(&p->gpu, &g->l, &took));
    SK_TRY(sk_device_copy(g->d, g->base, g->image, p->bytes, g->s));
    SK_TRY(launch(g, t, p));
    SK_TRY(sk_device_copy(g->d, back, g->base, p->bytes, g->s));
    return sk_stream_sync(g->d, g->s);
}

/* ---- comparing */

typedef struct judged { /* one result */
    const sk_view *want;
    char *have;
    sk_dtype type;
    double half, rms;
    double allowed; /* of one element */
    double least;   /* of what is allowed of the whole */
    double squares[TEAM], off[TEAM], worst[TEAM];
} judged;

static double wanted_at(const sk_view *v, int64_t i)
{
    return v->type == SK_I32 ? (double)((const int32_t *)v->data)[i] : ((const double *)v->data)[i];
}

static void square_part(void *job, int part, int of)
{
    judged *j = (judged *)job;
    int64_t n = sk_count(j->want), end = part_of(n, part + 1, of);
    double sum = 0;
    for (int64_t i = part_of(n, part, of); i < end; i++) {
        double y = wanted_at(j->want, i);
        if (isfinite(y)) sum += y * y;
    }
    j->squares[part] = sum;
}

static void judge_part(void *job, int part, int of)
{
    judged *j = (judged *)job;
    int64_t n = sk_count(j->want), end = part_of(n, part + 1, of), to;
    double x[STRIP], off = 0, worst = 0;
    for (int64_t at = part_of(n, part, of); at < end; at = to) {
        to = at + STRIP < end ? at + STRIP : end;
        sk_convert(x, SK_F64, j->have + (size_t)at * sk_dtype_size(j->type), j->type, to - at);
        for (int64_t i = at; i < to; i++) {
            double y = wanted_at(j->want, i), d = fabs(x[i - at] - y);
            if (x[i - at] == y) continue; /* infinities too */
            off += d * d;
            d = (d - j->half * fabs(y)) / (1 + fabs(y) + j->rms);
            if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
        }
    }
    j->off[part] = off, j->worst[part] = worst;
}

/* Does this go through tensor cores, in 8 bits or with probabilities in the storage type? */
static bool by_norm(const side *p, const trial *t, sk_dtype type)
{
    const sk_view *x = &p->cpu.in[0];
    if (t->s->coarse) return true;
    return !strncmp(t->op->name, "attention", 9) && strcmp(t->op->name, "attention_cache") &&
           type != SK_F32 && x->size[x->n - 1] % 8 == 0;
}

/* How far one result is off, in units of what is allowed. */
static double judge(judged *j, bool whole)
{
    int64_t n = sk_count(j->want);
    double squares = 0, off = 0, worst = 0;
    j->half = j->type == SK_BF16 ? 0x1p-8 : j->type == SK_F16 ? 0x1p-11 : 0;
    team(square_part, j, (double)n);
    for (int i = 0; i < TEAM; i++) squares += j->squares[i];
    j->rms = n ? sqrt(squares / (double)n) : 0;
    team(judge_part, j, (double)n);
    for (int i = 0; i < TEAM; i++) {
        off += j->off[i];
        worst = fmax(worst, j->worst[i]);
    }
    if (!whole) return worst / j->allowed;
    double allowed = fmax(j->half, j->least);
    return isnan(off) ? INFINITY : off > 0 ? sqrt(off / squares) / allowed : 0;
}

/* Of one element: the product of bf16 with bf16 in f32, 4096 of them, takes 1.6 times MOST_OFF. */
static double allowed(const trial *t, const side *p)
{
    const sk_args *a = &p->gpu;
    if (strcmp(t->op->name, "contract") || a->in[0].type == SK_F32 || !sk_count(&a->out[0]))
        return MOST_OFF;
    double products = sk_op_flops(t->op, a) / (2 * (double)sk_count(&a->out[0]));
    return MOST_OFF + products / 16 * 0x1p-24;
}

/* attention_cache extends its memory in place. */
static bool changed(const trial *t, int i)
{
    return !strcmp(t->op->name, "attention_cache") && i == 1;
}

/* The largest difference in what was written, in units of what is allowed.  It is then as it was
 * in the image, so that what still differs from that was written where nothing should be. */
static double compare(const gpu *g, const trial *t, const side *p)
{
    double worst = 0;
    for (int i = 0; i < p->cpu.n_in + p->cpu.n_out; i++) {
        int o = i - p->cpu.n_in;
        if (o < 0 && !changed(t, i)) continue;
        const sk_view *have = o < 0 ? &p->gpu.in[i] : &p->gpu.out[o];
        judged j = {};
        j.want = o < 0 ? &p->cpu.in[i] : &p->cpu.out[o];
        j.have = g->back + p->at[i], j.type = have->type;
        j.least = t->s->coarse ? 0x1p-9 : 0;
        j.allowed = allowed(t, p);
        worst = fmax(worst, judge(&j, by_norm(p, t, j.type)));
        memcpy(j.have, g->image + p->at[i], bytes_of(have));
    }
    return worst;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median seconds of one launch; a NULL trial is a copy of n bytes. */
static sk_status median(const gpu *g, const trial *t, const side *p, char *to, const char *from,
                        size_t n, double *out)
{
    double seconds[N_TIMED];
    for (int i = -N_WARM; i < N_TIMED; i++) {
        SK_TRY(sk_event_record(g->d, g->from, g->s));
        if (t) SK_TRY(launch(g, t, p));
        else SK_TRY(sk_device_copy(g->d, to, from, n, g->s));
        SK_TRY(sk_event_record(g->d, g->to, g->s));
        SK_TRY(sk_stream_sync(g->d, g->s));
        if (i >= 0) SK_TRY(sk_event_seconds(g->d, g->from, g->to, &seconds[i]));
    }
    qsort(seconds, N_TIMED, sizeof *seconds, by_size);
    *out = seconds[N_TIMED / 2];
    return SK_OK;
}

static double rate(const sk_args *a, double seconds)
{
    size_t bytes = 0;
    for (int i = 0; i < a->n_in; i++) bytes += bytes_of(&a->in[i]);
    for (int o = 0; o < a->n_out; o++) bytes += bytes_of(&a->out[o]) << (a->add >> o & 1);
    return 1e-9 * (double)bytes / seconds;
}

/* What is to be done in 8 bits, and lies so that it can be, is: the way around it, which would give
 * the same, is slow.  Not before Hopper. */
static bool in_eight(const gpu *g, const sk_args *a)
{
    sk_fp8_plan f;
    sk_launch rest = g->l;
    bool found = false;
    if (g->cpu || g->capability < 90 || !sk_fp8_is(a)) return true;
    sk_fp8_plan_of(a, false, &f);
    if (!f.eight) return true;
    sk_product p = sk_fp8_product(a, &f, g->l.workspace);
    p.batch = 1;
    rest.workspace += f.bytes;
    rest.workspace_bytes -= f.bytes;
    if (sk_product_prepare(&p, &rest, &found)) printf("%s\n", sk_error());
    return found;
}

static sk_status one(gpu *g, trial *t, const variant *v, double *worst, double *speed)
{
    side p = {};
    double seconds = 0;
    sk_mark mark = sk_arena_mark(&t->arena);
    lay_out(t, v, &p);
    SK_TRY(sk_op_takes(t->op, &p.cpu));
    SK_TRY(make_room(g, &p));
    prepare(g, t, v, &p);
    SK_TRY(once(g, t, &p, g->back));
    SK_TRY(once(g, t, &p, g->again));
    if (v->timed) {
        SK_TRY(median(g, t, &p, NULL, NULL, 0, &seconds));
        *speed = rate(&p.gpu, seconds);
    }
    n_checks += 3;
    if (differ(g->back, g->again, p.bytes)) bad(t, v, "the second run gave other bits");
    run_wide(t, t->op->name, &p.cpu);
    double d = compare(g, t, &p);
    if (!(d <= 1)) bad(t, v, sk_print(&t->arena, "off by %.3g of what is allowed", d));
    if (differ(g->back, g->image, p.bytes)) bad(t, v, "bytes outside the results were changed");
    if (!strcmp(t->op->name, "contract") && !in_eight(g, &p.gpu))
        bad(t, v, "cuBLASLt does not do it in 8 bits");
    if (d > *worst) *worst = d;
    sk_arena_back(&t->arena, mark);
    return SK_OK;
}

/* The same, and what fails is told and counted; only a GPU that is lost ends the test. */
static sk_status attempt(gpu *g, trial *t, const variant *v, double *worst, double *speed)
{
    sk_status st = one(g, t, v, worst, speed);
    if (!st) return SK_OK;
    n_checks++;
    bad(t, v, sk_error());
    *worst = INFINITY;
    sk_error_set("");
    return sk_stream_sync(g->d, g->s);
}

/* A letter along which operand 0 may be cut; 0: none. */
static char cuttable(const trial *t)
{
    for (const char *p = t->y->letters_in[0]; *p; p++)
        if (!strchr(t->y->not_split, *p)) return *p;
    return 0;
}

/* Narrow operands, and in f32 one that may be, all of them, the results, everything. */
static sk_status mixed(gpu *g, trial *t, sk_dtype type, unsigned adds, double *worst)
{
    unsigned in = may_be_wide(t, false), out = may_be_wide(t, true), masks[SK_MAX_IN + 3], n = 0;
    for (int i = 0; i < SK_MAX_IN; i++)
        if (in >> i & 1 && in != 1u << i) masks[n++] = 1u << i;
    if (in) masks[n++] = in;
    if (out) masks[n++] = out;
    if (in && out) masks[n++] = in | out;
    for (unsigned k = 0; k < n; k++) {
        variant v = {type};
        v.wide = masks[k];
        SK_TRY(attempt(g, t, &v, worst, NULL));
        v.add = adds;
        v.shift = 1;
        if (adds) SK_TRY(attempt(g, t, &v, worst, NULL));
    }
    return SK_OK;
}

static sk_status shape(gpu *g, const sk_kernel *k, const sk_op *op, const sk_sample *s,
                       const int64_t *wanted, bool timed)
{
    static const sk_dtype types[] = {SK_F32, SK_BF16, SK_F16};
    double worst[3] = {0}, speed[3] = {0};
    trial t;
    if (!build(&t, k, op, s, wanted))
        return sk_fail(SK_EBUG, "%s: the sample cannot be built: %s", op->name, t.g.report);
    unsigned adds = op->flags & SK_OP_ADDS ? (1u << t.y->n_out) - 1 : 0;
    int n_types = sk_op_type(op, t.y->n_in, 0) == '4' ? 1 : timed ? 2 : 3; /* 4: f32 alone */
    for (int i = 0; i < n_types; i++) {
        variant v = {types[i], 0, 0, 0, timed};
        SK_TRY(attempt(g, &t, &v, &worst[i], &speed[i]));
        v.timed = false;
        v.shift = 1;
        if (!timed) SK_TRY(attempt(g, &t, &v, &worst[i], NULL));
        v.add = adds;
        if (adds && !(timed && types[i] == SK_F32)) SK_TRY(attempt(g, &t, &v, &worst[i], NULL));
        v.empty = cuttable(&t);
        if (v.empty && !timed) SK_TRY(attempt(g, &t, &v, &worst[i], NULL));
        if (types[i] != SK_F32 && !timed) SK_TRY(mixed(g, &t, types[i], adds, &worst[i]));
    }
    printf("%-17s %-32.32s %9.4f %9.4f", op->name, t.shape, worst[0], worst[1]);
    if (timed) printf(" %9s %8.0f %8.0f\n", "", speed[0], speed[1]);
    else printf(" %9.4f\n", worst[2]);
    fflush(stdout);
    sk_arena_end(&t.arena);
    return SK_OK;
}

/* ---- all shapes of one op */

/* Where sample 0 with more rows and columns is not what a GPU would meet, or takes too long. */
static const struct large {
    const char *op;
    sk_sample s;
} larges[] = {
    {"attention", {{"b2t512h4s3d64"}}},
    {"attention_cache", {{"b8t1h8s3d64", "b8n512h8z2d64", "b8t1%512"}}},
    {"attention_grad", {{"b2t512h4s3d64", "b2t512h4r1d64", "b2h4r1t512", "b2t512h4r1d64"}}},
    {"attention_kv", {{"b2t512h4r1d64", "b2t512h4z2d64"}}},
    {"attention_kv_grad",
     {{"b2t512h4r1d64", "b2t512h4z2d64", "b2t512h4r1d64", "b2h4r1t512", "b2t512h4r1d64"}}},
    {"balance", {{"b16t1024e64"}, NULL, NULL, {0.01}}},
    {"balance_grad", {{"b16t1024e64", ""}, NULL, NULL, {0.01}}},
    {"bias", {{"b16t512h16s3d64", "h16s3d64"}, "bthsd,hsd->bthsd"}},
    {"combine", {{"e8b16x128c2048", "b16t512k2%1024", "b16t512k2"}}},
    {"combine_grad_gate", {{"e8b16x128c2048", "b16t512c2048", "b16t512k2%1024"}}},
    {"combine_grad_rows", {{"b16t512c2048", "b16t512k2%1024", "b16t512k2"}, NULL, NULL, {8, 128}}},
    {"contract", {{"b8t512f768", "b8t512c1024"}, "btf,btc->fc"}},
    {"contract", {{"b8t512c768", "c768f3072"}, "btc,cf->btf", NULL, {1}, false, true}},
    {"contract", {{"b8t512c768", "b8t512f3072"}, "btc,btf->cf", NULL, {1, 2}, false, true}},
    {"contract", {{"b8t512f3072", "c768f3072"}, "btf,cf->btc", NULL, {1, 1}, false, true}},
    {"dispatch", {{"b16t512c2048", "b16t512k2%1024"}, NULL, NULL, {8, 128}}},
    {"dispatch_grad", {{"e8b16x128c2048", "b16t512k2%1024"}}},
    {"dot", {{"m4096n4096", "m4096n4096"}, "mn,mn->"}},
    {"drops", {{"b64t1024k8"}}},
    {"eigvec", {{"m512n512"}, "m!n!->mn"}},
    {"ema", {{"m4096n4096", "m4096n4096"}, NULL, NULL, {0.9, 1, -3}}},
    {"embedding", {{"v50304c768", "b16t512%50304"}}},
    {"embedding_grad", {{"b16t512c768", "b16t512%50304"}, "btc,bt->vc", "v50304"}},
    {"factored", {{"m4096n4096", "m4096", "n4096"}, "m!n,m!,n->mn", NULL, {1e-7}, true}},
    {"inv_root", {{"m512n512"}, "m!n!->mn", NULL, {4, 0.01}}},
    {"inverse", {{"m512n512"}, "m!n!->mn", NULL, {0.01, 100}}},
    {"load", {{"b16t1024k2%1024"}, "btk->e", "e64", {16}}},
    {"mean_square", {{"m4096n4096"}, "m!n!->m"}},
    {"mean_square", {{"m4096n4096"}, "m!n!->n"}},
    {"mean_square", {{"m4096n4096"}, "m!n!->"}},
    {"ratio", {{"m4096n4096", "m4096n4096"}, NULL, NULL, {0.1}}},
    {"rename", {{"b16t512h32d128"}, "bt!hd->bs!hd"}},
    {"rms_clip", {{"m4096n4096"}, "m!n!->mn", NULL, {0.25}}},
    {"rope", {{"b16t512h16s3d64", "b16t512%512"}, NULL, NULL, {10000, 1}}},
    {"route", {{"b16t1024e64"}, NULL, NULL, {2, 40, 1}}},
    {"route_biased", {{"b16t1024e8", "e8"}, NULL, NULL, {2, 300, 1}}},
    {"route_grad", {{"b16t1024e64", "b16t1024k2%1280", "b16t1024k2"}, NULL, NULL, {20, 1}}},
    {"row_max", {{"b1t512v50304"}}},
    {"scale_queries", {{"b16t512h16s3d64"}, NULL, NULL, {0.5}}},
    {"softmax", {{"b8h8t512s512"}, NULL, NULL, {0.5, 1}}},
    {"softmax_grad", {{"b8h8t512s512", "b8h8t512s512"}, NULL, NULL, {0.5}}},
    {"sum", {{"b16t512c4096"}, "btc->c"}},
    {"sym_pack", {{"r4096n4096"}, "rn!->rk!"}},
    {"sym_unpack", {{"r4096k2049"}, "r!k!->rn!"}},
    {"two_level", {{"b16t1024u8", "b16t1024e64"}}},
    {"two_level_grad", {{"b16t1024u8", "b16t1024e64", "b16t1024e64"}}},
    {"unpack", {{"b16t512h16s3d64"}}},
    {"unpack_grad", {{"b16t512h16r1d64", "b16t512h16z2d64"}}},
    {"xent_right", {{"b64t1024", "b64t1024", "b64t1024"}}},
    {"xent_terms", {{"b1t512v50304", "b1t512", "b1t512%50304"}}},
    {"xent_terms_grad", {{"b1t512v50304", "b1t512", "b1t512%50304", "b1t512", "b1t512"}}},
};

/* Several times a GPU's cache, if the op is one that is bound by memory. */
static sk_status large(gpu *g, const sk_kernel *k, const sk_op *op)
{
    int64_t wanted[128] = {0};
    bool any = false;
    for (size_t i = 0; i < sizeof larges / sizeof *larges; i++) {
        if (strcmp(larges[i].op, op->name)) continue;
        SK_TRY(shape(g, k, op, &larges[i].s, NULL, true));
        any = true;
    }
    if (any) return SK_OK;
    wanted['c'] = wanted['f'] = 4096;
    wanted['b'] = 16;
    wanted['t'] = 512;
    return shape(g, k, op, op->samples, wanted, true);
}

/* Samples as they are; sample 0 with other widths, and with more rows than fit together. */
static sk_status pair(gpu *g, const sk_kernel *k)
{
    static const int64_t widths[] = {1, 31, 1023, 1024, 1025, 8200, 20001};
    const sk_op *op = sk_op_find(k->op);
    if (!op) return sk_fail(SK_EBUG, "%s has a GPU half and no other", k->op);
    for (const sk_sample *s = op->samples; s->in[0]; s++) SK_TRY(shape(g, k, op, s, NULL, false));
    int64_t wanted[128] = {0};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        if (!strpbrk(op->samples->in[0], "cf")) break; /* it has no width */
        wanted['c'] = wanted['f'] = widths[i];
        SK_TRY(shape(g, k, op, op->samples, wanted, false));
    }
    wanted['c'] = wanted['f'] = 768;
    wanted['b'] = 3;
    wanted['t'] = 301;
    SK_TRY(shape(g, k, op, op->samples, wanted, false));
    return large(g, k, op);
}

/* ---- the device itself */

/* There and back over two streams that an event puts in order; then the ceiling for kernels. */
static sk_status copies(const gpu *g)
{
    const size_t n = (size_t)256 << 20;
    sk_arena a = {};
    sk_stream *other;
    void *base;
    double seconds;
    char *out = (char *)sk_alloc(&a, n), *in = (char *)sk_alloc(&a, n);
    for (size_t i = 0; i < n; i += 8) {
        uint64_t x = sk_rng(seed, 7, i).a;
        memcpy(out + i, &x, sizeof x);
    }
    SK_TRY(sk_pool_open(g->d, 2 * n, &base));
    SK_TRY(sk_stream_open(g->d, &other));
    SK_TRY(sk_device_copy(g->d, base, out, n, g->s));
    SK_TRY(sk_device_copy(g->d, (char *)base + n, base, n, g->s));
    SK_TRY(sk_event_record(g->d, g->from, g->s));
    SK_TRY(sk_event_wait(g->d, g->from, other));
    SK_TRY(sk_device_copy(g->d, in, (char *)base + n, n, other));
    SK_TRY(sk_stream_sync(g->d, other));
    n_checks++;
    if (memcmp(out, in, n)) n_bad++, printf("a copy there and back came back changed\n");
    SK_TRY(median(g, NULL, NULL, (char *)base + n, (const char *)base, n, &seconds));
    printf("%-17s %-32s %9s %9s %9s %8.0f\n", "copy", "256 MiB", "", "", "",
           2e-9 * (double)n / seconds);
    sk_pool_close(g->d, base);
    sk_arena_end(&a);
    return SK_OK;
}

/* What cannot be must be refused with a sentence, and do no harm to what comes after. */
static void refusals(const gpu *g)
{
    sk_device *d = NULL;
    void *base = NULL;
    n_checks += 2;
    if (!sk_device_open("cuda:4096", &d)) n_bad++, printf("cuda:4096 was opened\n");
    if (!sk_pool_open(g->d, (size_t)1 << 50, &base)) n_bad++, printf("a pool of 1 PiB fitted\n");
}

static sk_status open_launch(gpu *g)
{
    static const uint64_t step[2] = {STEP, 0}; /* and updates before it, as ops on the CPU see */
    void *base;
    if (g->cpu) return SK_OK;
    g->l.stream = g->s;
    g->l.workspace_bytes = (size_t)SK_WORKSPACE + MORE_ROOM;
    SK_TRY(sk_pool_open(g->d, g->l.workspace_bytes + GAP, &base));
    g->l.workspace = (char *)base + GAP;
    g->l.step = (const uint64_t *)base;
    g->l.updates = (const int64_t *)base + 1;
    return sk_device_copy(g->d, base, step, sizeof step, g->s);
}

static bool asked(const char *op, char **ops)
{
    bool any = !*ops;
    for (; *ops; ops++) any = any || !strcmp(op, *ops);
    return any;
}

static sk_status all(gpu *g, char **ops)
{
    sk_device_facts f;
    sk_arena a = {};
    SK_TRY(sk_device_look(g->d, &f));
    g->capability = f.capability;
    SK_TRY(sk_stream_open(g->d, &g->s));
    SK_TRY(sk_event_open(g->d, &g->from));
    SK_TRY(sk_event_open(g->d, &g->to));
    SK_TRY(open_launch(g));
    printf("%s: %s, %s, %s available; seed %llu\n", sk_device_name(g->d), f.model,
           sk_bytes(&a, f.bytes), sk_bytes(&a, f.available), (unsigned long long)seed);
    printf("differences as parts of what is allowed\n");
    printf("%-17s %-32s %9s %9s %9s %8s %8s\n", "op", "sample", "f32", "bf16", "f16", "f32 GB/s",
           "bf16");
    sk_arena_end(&a);
    if (openblas_set_num_threads) openblas_set_num_threads(1); /* the team is threads enough */
    if (!g->cpu) refusals(g);
    if (!g->cpu) SK_TRY(copies(g));
    for (const sk_kernel *const *k = sk_kernel_parts; *k; k++)
        if (asked((*k)->op, ops)) SK_TRY(pair(g, *k));
    return SK_OK;
}

static int skipped(void)
{
    printf("%s\nno GPU\n", sk_error_line());
    return 77;
}

int main(int argc, char **argv)
{
    sk_enter(); /* as runs do: subnormal numbers are zero on both sides */
    gpu g = {};
    double from = sk_now();
    char **rest = argv + 1;
    g.cpu = argc > 1 && !strcmp(*rest, "cpu");
    rest += g.cpu;
    if (*rest && **rest >= '0' && **rest <= '9') seed = strtoull(*rest++, NULL, 10);
    setenv("SKEIN_GEMM_SEARCH", "0", 0); /* hundreds of shapes, each of them once */
    sk_status st = sk_device_open(g.cpu ? sk_device_cpu.name : "cuda:0", &g.d);
    if (st == SK_ECONF) return skipped();
    if (!st) st = all(&g, rest);
    if (st) printf("%s\n", sk_error());
    sk_device_close(g.d);
    free(g.wide);
    printf("cuda: %d checks, %d bad%s, %.0f seconds\n", n_checks, n_bad,
           st ? ", and not all were made" : "", sk_now() - from);
    return st || n_bad;
}
