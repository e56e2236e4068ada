/* Every op that has a GPU half, CPU against GPU: the op's own samples, widths around the places
 * where kernels change their ways, an empty piece and one large shape; in f32, bf16 and f16,
 * aligned and one element off, adding to what is there where the op can.
 *
 * All operands of a case lie in one pool.  It is written from an image on the host, which is NaN
 * wherever there is no operand, and read back whole after the launch: an element left out is NaN,
 * and a byte changed outside the results is a kernel that went astray.  Every case runs twice and
 * must give the same bits.  The CPU computes in f32, in narrow cases from the operands as
 * rounded.  Differences are |gpu - cpu| / (1 + |cpu|), at most 1e-5, and more for long sums; from
 * that of a narrow result its own rounding, half a unit in the last place, is taken off
 * first.  GB/s count each operand
 * read once and each result written once, over the median time of the launches between two events;
 * compare with the line "copy".  The only argument is a seed. */
#include "base/rng.h"
#include "base/text.h"
#include "device/device.h"
#include "graph/dims.h"
#include "graph/kernel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GAP = 256, N_WARM = 5, N_TIMED = 51, STEP = 5, MORE_ROOM = 512 << 20 };

static uint64_t seed = 1;
static int n_checks, n_bad;

typedef struct gpu {
    sk_device *d;
    sk_stream *s;
    sk_event *from, *to;
    sk_launch l;
} gpu;

/* What a case looks like; the shape itself is in the graph. */
typedef struct variant {
    sk_dtype type;
    int shift;  /* elements that every operand is off from alignment */
    char empty; /* a letter of which this piece has nothing; 0: none */
    unsigned add;
    bool timed;
    bool stats; /* numbers of which there is one a row stay f32, as in real programs */
    bool sums;  /* results stay f32, as gradients of weights may; a kernel may refuse it */
} variant;

typedef struct trial {
    sk_arena arena;
    sk_graph g;
    const sk_op *op;
    const sk_kernel *kernel;
    const sk_sample *s;
    sk_node *y;
    char shape[64]; /* "b2t3c8, c8, c8" */
} trial;

/* One run: the arguments as both halves see them, and the image of the pool. */
typedef struct side {
    sk_args cpu, gpu;
    char *image, *back, *again;
    size_t bytes;
    size_t at[SK_MAX_IN + SK_MAX_OUT]; /* where each operand, then each result, starts */
} side;

static void bad(const trial *t, const variant *v, const char *what)
{
    n_bad++;
    printf("%s of %s, %s%s%s, %d off, add %u%s: %s\n", t->op->name, t->shape,
           sk_dtype_name(v->type), v->stats ? " with f32 rows" : "", v->sums ? " to f32" : "",
           v->shift, v->add, v->empty ? ", empty" : "", what);
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

/* Is input i a number for each row of input 0: of its letters, but not of the last? */
static bool per_row(const trial *t, int i)
{
    const char *rows = t->y->letters_in[0], *mine = t->y->letters_in[i];
    size_t n = strlen(rows);
    if (!i || !n || t->y->in[i]->type != SK_F32) return false;
    return strspn(mine, rows) == strlen(mine) && !strchr(mine, rows[n - 1]);
}

static bool has_stats(const trial *t)
{
    bool any = false;
    for (int i = 1; i < t->y->n_in; i++) any = any || per_row(t, i);
    return any;
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
        *w = o < 0 ? view_of(t, y->in[i], v, v->stats && per_row(t, i))
                   : view_of(t, y->out[o], v, v->sums || t->op->stats >> o & 1);
        p->at[i] = p->bytes + GAP + (size_t)v->shift * sk_dtype_size(w->type);
        p->bytes = (p->at[i] + bytes_of(w) + 2 * GAP - 1) / GAP * GAP;
    }
    p->bytes += GAP;
}

static void put(const sk_view *v, int64_t i, double x)
{
    sk_convert((char *)v->data + (size_t)i * sk_dtype_size(v->type), v->type, &x, SK_F64, 1);
}

static double value(const sk_view *v, const void *data, int64_t i)
{
    double x;
    sk_convert(&x, SK_F64, (const char *)data + (size_t)i * sk_dtype_size(v->type), v->type, 1);
    return x;
}

static void fill(const sk_view *v, const char *text, bool positive, uint64_t stream)
{
    const char *range = strchr(text, '%');
    int64_t n = sk_count(v);
    for (int64_t i = 0; i < n; i++) {
        double u = sk_rng_uniform(seed, stream, (uint64_t)i);
        put(v, i, range ? floor(u * atof(range + 1)) : positive ? 0.5 + u : 2 * u - 1);
    }
}

/* The same values in f32, for the CPU, in memory of their own. */
static void widen(trial *t, sk_view *v)
{
    sk_dtype from = v->type, to = from == SK_BF16 || from == SK_F16 ? SK_F32 : from;
    void *data = sk_alloc(&t->arena, (size_t)sk_count(v) * sk_dtype_size(to) + 1);
    sk_convert(data, to, v->data, from, sk_count(v));
    v->data = data;
    v->type = to;
}

static void prepare(trial *t, const variant *v, side *p, char *base)
{
    sk_args *c = &p->cpu;
    p->image = (char *)sk_alloc(&t->arena, p->bytes);
    p->back = (char *)sk_alloc(&t->arena, p->bytes);
    p->again = (char *)sk_alloc(&t->arena, p->bytes);
    memset(p->image, 0xff, p->bytes); /* NaN in every type */
    p->gpu = *c;
    for (int i = 0; i < c->n_in + c->n_out; i++) {
        int o = i - c->n_in;
        sk_view *w = o < 0 ? &c->in[i] : &c->out[o];
        w->data = p->image + p->at[i];
        (o < 0 ? p->gpu.in[i] : p->gpu.out[o]).data = base + p->at[i];
        if (o < 0) fill(w, t->s->in[i], t->s->positive, (uint64_t)i);
        else if (v->add >> o & 1) fill(w, "", false, (uint64_t)(200 + o));
        widen(t, w);
    }
    c->scratch = sk_alloc(&t->arena, sk_op_scratch(t->op, c) + 1);
}

static sk_status once(const gpu *g, const trial *t, const side *p, char *base, char *back)
{
    if (t->kernel->prepare) SK_TRY(t->kernel->prepare(&p->gpu, &g->l));
    SK_TRY(sk_device_copy(g->d, base, p->image, p->bytes, g->s));
    SK_TRY(t->kernel->launch(&p->gpu, &g->l));
    SK_TRY(sk_device_copy(g->d, back, base, p->bytes, g->s));
    SK_TRY(sk_stream_sync(g->d, g->s));
    return SK_OK;
}

/* Both halves add in f32, in another order: of n terms of random signs sums differ by sqrt(n). */
static double allowed(const side *p, int o)
{
    double in = (double)sk_count(&p->cpu.in[0]), out = (double)sk_count(&p->cpu.out[o]);
    return 1e-5 * (1 + (in > out ? sqrt(in / out) / 8 : 0));
}

/* The largest difference in the results, and whether all are small enough.  Results are then as
 * they were in the image, so that what still differs from it was written where nothing should
 * be. */
static double compare(const side *p, bool *fits)
{
    double worst = 0;
    *fits = true;
    for (int o = 0; o < p->cpu.n_out; o++) {
        const sk_view *want = &p->cpu.out[o], *have = &p->gpu.out[o];
        size_t at = p->at[p->cpu.n_in + o];
        double half = have->type == SK_BF16 ? 0x1p-8 : have->type == SK_F16 ? 0x1p-11 : 0;
        int64_t n = sk_count(want);
        for (int64_t i = 0; i < n; i++) {
            double x = value(have, p->back + at, i), y = value(want, want->data, i);
            double d = x == y ? 0 : (fabs(x - y) - half * fabs(y)) / (1 + fabs(y));
            if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
            if (!(d <= allowed(p, o))) *fits = false;
        }
        memcpy(p->back + at, p->image + at, bytes_of(have));
    }
    return worst;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median seconds of one launch; a NULL kernel is a copy of n bytes. */
static sk_status median(const gpu *g, const sk_kernel *k, const sk_args *a, char *to,
                        const char *from, size_t n, double *out)
{
    double seconds[N_TIMED];
    for (int i = -N_WARM; i < N_TIMED; i++) {
        SK_TRY(sk_event_record(g->d, g->from, g->s));
        if (k) SK_TRY(k->launch(a, &g->l));
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

static sk_status refused(const gpu *g, trial *t, void *base, sk_mark mark)
{
    SK_TRY(sk_stream_sync(g->d, g->s));
    sk_pool_close(g->d, base);
    sk_arena_back(&t->arena, mark);
    return SK_OK;
}

static sk_status one(const gpu *g, trial *t, const variant *v, double *worst, double *speed)
{
    side p = {};
    void *base = NULL;
    double seconds = 0;
    sk_mark mark = sk_arena_mark(&t->arena);
    lay_out(t, v, &p);
    SK_TRY(sk_pool_open(g->d, p.bytes, &base));
    prepare(t, v, &p, (char *)base);
    sk_status st = once(g, t, &p, (char *)base, p.back);
    if (st == SK_ECONF && v->sums) return refused(g, t, base, mark);
    SK_TRY(st);
    SK_TRY(once(g, t, &p, (char *)base, p.again));
    if (v->timed) {
        SK_TRY(median(g, t->kernel, &p.gpu, NULL, NULL, 0, &seconds));
        *speed = rate(&p.gpu, seconds);
    }
    sk_pool_close(g->d, base);
    n_checks += 3;
    if (memcmp(p.back, p.again, p.bytes)) bad(t, v, "the second run gave other bits");
    sk_op_run_cpu(t->op, &p.cpu);
    bool fits;
    double d = compare(&p, &fits);
    if (!fits) bad(t, v, sk_print(&t->arena, "off by %g", d));
    if (memcmp(p.back, p.image, p.bytes)) bad(t, v, "bytes outside the results were changed");
    if (d > *worst) *worst = d;
    sk_arena_back(&t->arena, mark);
    return SK_OK;
}

/* A letter along which operand 0 may be cut; 0: none. */
static char cuttable(const trial *t)
{
    for (const char *p = t->y->letters_in[0]; *p; p++)
        if (!strchr(t->y->whole, *p)) return *p;
    return 0;
}

/* Narrow operands and some numbers in f32. */
static sk_status mixed(const gpu *g, trial *t, sk_dtype type, unsigned adds, double *worst)
{
    variant v = {type};
    v.stats = has_stats(t);
    if (v.stats) SK_TRY(one(g, t, &v, worst, NULL));
    if (!adds) return SK_OK;
    v.sums = true;
    SK_TRY(one(g, t, &v, worst, NULL));
    v.add = adds;
    v.shift = 1;
    return one(g, t, &v, worst, NULL);
}

static sk_status shape(const gpu *g, const sk_kernel *k, const sk_op *op, const sk_sample *s,
                       const int64_t *wanted, bool timed)
{
    static const sk_dtype types[] = {SK_F32, SK_BF16, SK_F16};
    double worst[3] = {0}, speed[3] = {0};
    trial t;
    if (!build(&t, k, op, s, wanted))
        return sk_fail(SK_EBUG, "%s: the sample cannot be built: %s", op->name, t.g.story);
    unsigned adds = op->flags & SK_OP_ADDS ? (1u << t.y->n_out) - 1 : 0;
    for (int i = 0; i < 3; i++) {
        variant v = {types[i], 0, 0, 0, timed};
        SK_TRY(one(g, &t, &v, &worst[i], &speed[i]));
        v.timed = false;
        v.shift = 1;
        if (!timed) SK_TRY(one(g, &t, &v, &worst[i], NULL));
        v.add = adds;
        if (adds) SK_TRY(one(g, &t, &v, &worst[i], NULL));
        v.empty = cuttable(&t);
        if (v.empty) SK_TRY(one(g, &t, &v, &worst[i], NULL));
        if (types[i] != SK_F32 && !timed) SK_TRY(mixed(g, &t, types[i], adds, &worst[i]));
    }
    printf("%-17s %-32s %9.1e %9.1e %9.1e", op->name, t.shape, worst[0], worst[1], worst[2]);
    if (timed) printf(" %8.0f %8.0f %8.0f", speed[0], speed[1], speed[2]);
    printf("\n");
    fflush(stdout);
    sk_arena_end(&t.arena);
    return SK_OK;
}

/* Samples as they are; sample 0 with other widths; sample 0 large, several times a GPU's cache. */
static sk_status pair(const gpu *g, const sk_kernel *k)
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
    wanted['c'] = wanted['f'] = 4096;
    wanted['b'] = 16;
    wanted['t'] = 1024;
    return shape(g, k, op, op->samples, wanted, true);
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
    for (const sk_kernel *const *k = sk_kernel_parts; *k; k++) {
        sk_args a = {};
        a.n_in = 1;
        a.in[0].type = SK_U8;
        n_checks++;
        if (!(*k)->launch(&a, &g->l)) n_bad++, printf("%s took u8\n", (*k)->op);
    }
}

static sk_status open_launch(gpu *g)
{
    static const uint64_t step = STEP;
    void *base;
    g->l.stream = g->s;
    g->l.room_bytes = (size_t)SK_ROOM + MORE_ROOM;
    SK_TRY(sk_pool_open(g->d, g->l.room_bytes + GAP, &base));
    g->l.room = (char *)base + GAP;
    g->l.step = (const uint64_t *)base;
    return sk_device_copy(g->d, base, &step, sizeof step, g->s);
}

static sk_status all(gpu *g)
{
    sk_device_facts f;
    sk_arena a = {};
    SK_TRY(sk_device_look(g->d, &f));
    SK_TRY(sk_stream_open(g->d, &g->s));
    SK_TRY(sk_event_open(g->d, &g->from));
    SK_TRY(sk_event_open(g->d, &g->to));
    SK_TRY(open_launch(g));
    printf("%s: %s, %s, %s available; seed %llu\n", sk_device_name(g->d), f.model,
           sk_bytes(&a, f.bytes), sk_bytes(&a, f.available), (unsigned long long)seed);
    printf("%-17s %-32s %9s %9s %9s %8s %8s %8s\n", "op", "sample", "f32 diff", "bf16 diff",
           "f16 diff", "f32 GB/s", "bf16", "f16");
    sk_arena_end(&a);
    refusals(g);
    SK_TRY(copies(g));
    for (const sk_kernel *const *k = sk_kernel_parts; *k; k++) SK_TRY(pair(g, *k));
    return SK_OK;
}

int main(int argc, char **argv)
{
    gpu g = {};
    if (argc > 1) seed = strtoull(argv[1], NULL, 10);
    sk_status st = sk_device_open("cuda:0", &g.d);
    if (st == SK_ECONF) {
        printf("%s\nno CUDA device: skipped\n", sk_error_line());
        return 77;
    }
    if (!st) st = all(&g);
    if (st) printf("%s\n", sk_error());
    sk_device_close(g.d);
    printf("cuda: %d checks, %d bad%s\n", n_checks, n_bad, st ? ", and not all were made" : "");
    return st || n_bad;
}
