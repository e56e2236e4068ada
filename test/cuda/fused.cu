/* sk_xent_rows against the four ops that it does the work of, on the CPU: m, s, t and the gradient,
 * from the same logits as rounded; in place, apart, and apart with other alignments.  Widths are
 * those at which it goes another way: rows of 24576 to 65536 columns go by registers if their
 * elements are narrow and aligned, others by shared memory, and those that are too long for it by
 * passes.  Differences are |gpu - cpu| / (1 + |cpu|), those of narrow gradients less half a unit in
 * the last place; of m and t there are none.  s is compared with a sum in double, since the op's
 * own in f32 is off by 2e-5 of 151936 terms.  Then the speed, counting one read and one write of
 * the logits. */
#include "base/entry.h"
#include "base/proc.h"
#include "base/rng.h"
#include "base/threads.h"
#include "device/device.h"
#include "graph/op.h"
#include "kernel/cuda/xent_rows.h"
#include "lib/go_on.h"
#include "lib/on_gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GAP = 256, N_WARM = 5, N_TIMED = 21, MOST_THREADS = 64 };

static int n_checks, n_bad;
static sk_threads *team;

typedef struct gpu {
    sk_device *d;
    sk_stream *s;
    sk_event *from, *to;
    sk_launch l;
} gpu;

typedef struct shape {
    int64_t rows, n;
    sk_dtype type;
    float smooth, z; /* label smoothing and z-loss */
} shape;

typedef struct lie {
    bool in_place;
    int off, off_to; /* elements that logits and gradients are off from alignment */
} lie;

/* Everything of one shape on the host; numbers of the CPU are f32. */
typedef struct side {
    float *x, *dx, *w, *m, *s, *t, *ds, *dt, dl;
    int32_t *target;
    void *narrow;
} side;

static void *take(sk_arena *a, int64_t n, size_t size)
{
    return sk_alloc(a, (size_t)n * size + GAP);
}

typedef struct task {
    const shape *p;
    const side *h;
} task;

static void fill_part(void *ctx, int part, int of)
{
    const shape *p = ((const task *)ctx)->p;
    const side *h = ((const task *)ctx)->h;
    int64_t n = p->rows * p->n, from = n * part / of, to = n * (part + 1) / of;
    char *narrow = (char *)h->narrow + (size_t)from * sk_dtype_size(p->type);
    for (int64_t i = from; i < to; i++)
        h->x[i] = (float)(12 * sk_rng_uniform(1, (uint64_t)p->n, (uint64_t)i) - 6);
    sk_convert(narrow, p->type, h->x + from, SK_F32, to - from);
    sk_convert(h->x + from, SK_F32, narrow, p->type, to - from);
}

static void fill(sk_arena *a, const shape *p, side *h)
{
    int64_t n = p->rows * p->n;
    task job = {p, h};
    h->x = (float *)take(a, n, 4), h->dx = (float *)take(a, n, 4);
    h->narrow = take(a, n, sk_dtype_size(p->type));
    float **small[] = {&h->w, &h->m, &h->s, &h->t, &h->ds, &h->dt};
    for (int i = 0; i < 6; i++) *small[i] = (float *)take(a, p->rows, 4);
    h->target = (int32_t *)take(a, p->rows, 4);
    h->dl = 8;
    sk_threads_run(team, fill_part, &job);
    for (int64_t r = 0; r < p->rows; r++) {
        double u = sk_rng_uniform(2, 0, (uint64_t)r);
        h->target[r] = r % 5 == 4 ? -1 : (int32_t)(u * (double)p->n);
        h->w[r] = r % 3 == 1 ? 0 : (float)(0.5 + u);
    }
}

/* ---- the CPU */

static sk_view view(void *data, sk_dtype type, int dims, int64_t rows, int64_t n)
{
    sk_view v = {};
    v.data = data, v.type = type, v.n = dims;
    v.size[0] = v.full[0] = rows;
    v.size[1] = v.full[1] = n;
    sk_view_dense(&v);
    return v;
}

typedef struct call {
    const sk_op *op;
    sk_args a;
} call;

static void apply_part(void *ctx, int part, int of)
{
    sk_args a = ((const call *)ctx)->a;
    a.part = part, a.of = of;
    sk_op_run_cpu(((const call *)ctx)->op, &a);
}

static void apply(const char *op, double attr, int n_in, const sk_view *in, int n_out,
                  const sk_view *out)
{
    call c = {};
    c.a.attr[0] = attr;
    c.op = sk_op_find(op), c.a.n_in = n_in, c.a.n_out = n_out;
    for (int i = 0; i < n_in; i++) c.a.in[i] = in[i];
    for (int o = 0; o < n_out; o++) c.a.out[o] = out[o];
    sk_threads_run(team, apply_part, &c);
}

static void sum_part(void *ctx, int part, int of)
{
    const shape *p = ((const task *)ctx)->p;
    const side *h = ((const task *)ctx)->h;
    for (int64_t r = p->rows * part / of; r < p->rows * (part + 1) / of; r++) {
        double sum = 0;
        for (int64_t i = 0; i < p->n; i++) sum += (double)expf(h->x[r * p->n + i] - h->m[r]);
        h->s[r] = (float)sum;
    }
}

static void on_cpu(const shape *p, const side *h)
{
    sk_view x = view(h->x, SK_F32, 2, p->rows, p->n), dx = view(h->dx, SK_F32, 2, p->rows, p->n);
    sk_view target = view(h->target, SK_I32, 1, p->rows, 0), dl;
    float *small[] = {h->m, h->s, h->t, h->w, h->ds, h->dt};
    sk_view v[6];
    for (int i = 0; i < 6; i++) v[i] = view(small[i], SK_F32, 1, p->rows, 0);
    dl = view((void *)&h->dl, SK_F32, 0, 0, 0);
    sk_view terms[] = {x, v[0], target}, loss[] = {v[1], v[3], dl, v[0]};
    sk_view grad[] = {x, v[0], target, v[4], v[5]};
    apply("row_max", 0, 1, &x, 1, v);
    apply("xent_terms", (double)p->smooth, 3, terms, 2, v + 1);
    if (p->z > 0) apply("xent_z_grad", (double)p->z, 4, loss, 2, v + 4);
    else apply("xent_loss_grad", 0, 3, loss, 2, v + 4);
    apply("xent_terms_grad", (double)p->smooth, 5, grad, 1, &dx);
    task job = {p, h};
    sk_threads_run(team, sum_part, &job);
}

/* ---- the GPU */

/* Where things lie in the pool. */
typedef struct places {
    size_t x, dx, target, w, dl, m, s, t, all;
} places;

static places lay_out(const shape *p, const lie *how)
{
    places at = {};
    size_t size = sk_dtype_size(p->type), n = (size_t)(p->rows * p->n) * size, end = GAP;
    size_t *each[] = {&at.x, &at.dx, &at.target, &at.w, &at.dl, &at.m, &at.s, &at.t};
    for (int i = 0; i < 8; i++) {
        size_t off = i == 0 ? (size_t)how->off : i == 1 ? (size_t)how->off_to : 0;
        *each[i] = end + off * size;
        end = (*each[i] + (i < 2 ? n : (size_t)p->rows * 4) + 3 * GAP) / GAP * GAP;
    }
    if (how->in_place) at.dx = at.x;
    at.all = end;
    return at;
}

static sk_xent_job job_of(const shape *p, const places *at, char *base)
{
    sk_xent_job j = {};
    j.rows = p->rows, j.n = p->n, j.type = p->type, j.smooth = p->smooth, j.z = p->z;
    j.logits = base + at->x, j.dlogits = base + at->dx;
    j.target = (const int32_t *)(base + at->target);
    j.weight = (const float *)(base + at->w), j.scale = (const float *)(base + at->dl);
    j.m = (float *)(base + at->m), j.s = (float *)(base + at->s), j.t = (float *)(base + at->t);
    return j;
}

static sk_status on_gpu(const gpu *g, const shape *p, const side *h, const places *at, char *image)
{
    void *base;
    size_t rows = (size_t)p->rows * 4;
    memset(image, 0xff, at->all); /* NaN in every type */
    memcpy(image + at->x, h->narrow, rows / 4 * (size_t)p->n * sk_dtype_size(p->type));
    memcpy(image + at->target, h->target, rows);
    memcpy(image + at->w, h->w, rows);
    memcpy(image + at->dl, &h->dl, sizeof h->dl);
    SK_TRY(sk_pool_open(g->d, at->all, &base));
    SK_TRY(sk_device_copy(g->d, base, image, at->all, g->s));
    sk_xent_job j = job_of(p, at, (char *)base);
    SK_TRY(sk_xent_rows(&j, &g->l));
    SK_TRY(sk_device_copy(g->d, image, base, at->all, g->s));
    SK_TRY(sk_stream_sync(g->d, g->s));
    sk_pool_close(g->d, base);
    return SK_OK;
}

typedef struct pairs {
    char *have;
    sk_dtype type;
    const float *want;
    int64_t n;
    double worst[SK_THREADS_MAX];
} pairs;

static void worst_part(void *ctx, int part, int of)
{
    pairs *x = (pairs *)ctx;
    double worst = 0, half = x->type == SK_BF16 ? 0x1p-8 : x->type == SK_F16 ? 0x1p-11 : 0;
    double least = x->type == SK_F16 ? 0x1p-25 : 0; /* half of f16's smallest unit */
    size_t size = sk_dtype_size(x->type);
    for (int64_t i = x->n * part / of; i < x->n * (part + 1) / of; i++) {
        double have, want = (double)x->want[i];
        sk_convert(&have, SK_F64, x->have + (size_t)i * size, x->type, 1);
        double d = have == want ? 0 : fabs(have - want) - half * fabs(want) - least;
        d /= 1 + fabs(want);
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
    }
    x->worst[part] = worst;
}

/* The largest difference of n numbers.  What was looked at becomes NaN. */
static double worst_of(char *have, sk_dtype type, const float *want, int64_t n)
{
    pairs x = {have, type, want, n, {0}};
    double worst = 0;
    sk_threads_run(team, worst_part, &x);
    for (int i = 0; i < sk_threads_count(team); i++) worst = fmax(worst, x.worst[i]);
    memset(have, 0xff, (size_t)n * sk_dtype_size(type));
    return worst;
}

static void check(const shape *p, const lie *how, const char *what, double have, double most)
{
    n_checks++;
    if (have <= most) return;
    n_bad++;
    tell("%lld rows of %lld, %s, %s, %d and %d off: %s is off by %g", (long long)p->rows,
         (long long)p->n, sk_dtype_name(p->type), how->in_place ? "in place" : "apart", how->off,
         how->off_to, what, have);
}

/* Is anything there but 0xff? */
static bool astray(const char *image, size_t n)
{
    return image[0] != (char)0xff || memcmp(image, image + 1, n - 1);
}

static sk_status compare(const gpu *g, const shape *p, const lie *how, const side *h, double *worst)
{
    sk_arena a = {};
    places at = lay_out(p, how);
    int64_t n = p->rows * p->n;
    size_t bytes = (size_t)n * sk_dtype_size(p->type), small = (size_t)p->rows * 4;
    char *image = (char *)sk_alloc(&a, at.all);
    SK_TRY(on_gpu(g, p, h, &at, image));
    double d = worst_of(image + at.dx, p->type, h->dx, n);
    check(p, how, "the gradient", d, 1e-5);
    check(p, how, "m", worst_of(image + at.m, SK_F32, h->m, p->rows), 0);
    check(p, how, "s", worst_of(image + at.s, SK_F32, h->s, p->rows), 4e-6);
    check(p, how, "t", worst_of(image + at.t, SK_F32, h->t, p->rows), p->smooth > 0 ? 1e-5 : 0);
    bool other = !how->in_place && memcmp(image + at.x, h->narrow, bytes);
    memset(image + at.x, 0xff, bytes);
    memset(image + at.target, 0xff, small);
    memset(image + at.w, 0xff, small);
    memset(image + at.dl, 0xff, sizeof h->dl);
    check(p, how, "something else", (double)(other || astray(image, at.all)), 0);
    if (d > *worst) *worst = d;
    sk_arena_end(&a);
    return SK_OK;
}

static sk_status one(const gpu *g, const shape *p, double *worst)
{
    static const lie all[] = {{true, 0, 0}, {false, 0, 0}, {false, 0, 1}, {false, 1, 1}};
    sk_arena a = {};
    side h = {};
    fill(&a, p, &h);
    on_cpu(p, &h);
    for (int i = 0; i < 4; i++) SK_TRY(compare(g, p, &all[i], &h, worst));
    sk_arena_end(&a);
    return SK_OK;
}

/* `most` rows in bf16; in other types no more than give some block a second one. */
static sk_status width(const gpu *g, int64_t n, int64_t most)
{
    static const sk_dtype types[] = {SK_F32, SK_BF16, SK_F16};
    double worst[3] = {0};
    for (int k = 0; k < 3; k++) {
        int64_t tall = types[k] == SK_BF16 || n <= 256 || most < 140 ? most : 140;
        const int64_t heights[] = {1, 2, tall};
        for (int i = 0; i < 3; i++) {
            for (int soft = 0; soft < 3; soft++) {
                if (soft && most > 300 && n > 256) continue; /* these are for registers */
                shape p = {heights[i], n, types[k], soft == 1 ? 0.1f : 0, soft ? 0.01f : 0};
                SK_TRY(go_on(g->d, g->s, one(g, &p, &worst[k]), &n_bad, "%lld x %lld, %s",
                             (long long)p.rows, (long long)n, sk_dtype_name(p.type)));
            }
        }
    }
    printf("%-12s %10lld %9.1e %9.1e %9.1e\n", "xent_rows", (long long)n, worst[0], worst[1],
           worst[2]);
    fflush(stdout);
    return SK_OK;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static sk_status timed(const gpu *g, const sk_xent_job *j, double *seconds)
{
    for (int i = -N_WARM; i < N_TIMED; i++) {
        SK_TRY(sk_event_record(g->d, g->from, g->s));
        SK_TRY(sk_xent_rows(j, &g->l));
        SK_TRY(sk_event_record(g->d, g->to, g->s));
        SK_TRY(sk_stream_sync(g->d, g->s));
        if (i >= 0) SK_TRY(sk_event_seconds(g->d, g->from, g->to, &seconds[i]));
    }
    qsort(seconds, N_TIMED, sizeof *seconds, by_size);
    return SK_OK;
}

/* In place, again and again: what it computes is the gradient of a gradient. */
static sk_status speed(const gpu *g, int64_t rows, int64_t n, sk_dtype type)
{
    const int64_t some = 128;
    const lie over = {true, 0, 0};
    shape p = {rows, n, type, 0, 0}, few = {some, n, type, 0, 0};
    sk_arena a = {};
    side h = {};
    places at = lay_out(&p, &over);
    double seconds[N_TIMED], bytes = (double)(rows * n) * (double)sk_dtype_size(type);
    size_t part = (size_t)(some * n) * sk_dtype_size(type);
    void *base;
    fill(&a, &few, &h);
    SK_TRY(sk_pool_open(g->d, at.all, &base));
    sk_xent_job j = job_of(&p, &at, (char *)base);
    for (int64_t i = 0; i < rows / some; i++) {
        SK_TRY(sk_device_copy(g->d, (char *)base + at.x + (size_t)i * part, h.narrow, part, g->s));
        size_t small = (size_t)(i * some * 4), few_bytes = (size_t)some * 4;
        SK_TRY(sk_device_copy(g->d, (char *)base + at.w + small, h.w, few_bytes, g->s));
        SK_TRY(sk_device_copy(g->d, (char *)base + at.target + small, h.target, few_bytes, g->s));
    }
    SK_TRY(sk_device_copy(g->d, (char *)base + at.dl, &h.dl, sizeof h.dl, g->s));
    SK_TRY(timed(g, &j, seconds));
    printf("%lld rows of %lld in %s: %.3f ms, %.0f GB/s\n", (long long)rows, (long long)n,
           sk_dtype_name(type), 1e3 * seconds[N_TIMED / 2], 2e-9 * bytes / seconds[N_TIMED / 2]);
    sk_pool_close(g->d, base);
    sk_arena_end(&a);
    return SK_OK;
}

static sk_status all(gpu *g)
{
    /* Where most is more than 300 some block has more than four rows, by registers. */
    static const struct {
        int64_t n, most;
    } widths[] = {{1, 9001},     {7, 9001},     {256, 9001},  {24568, 300},
                  {24576, 300},  {32768, 1700}, {32776, 300}, {50257, 300},
                  {50304, 1400}, {51208, 300},  {65536, 700}, {151936, 40}};
    void *base;
    SK_TRY(sk_stream_open(g->d, &g->s));
    SK_TRY(sk_event_open(g->d, &g->from));
    SK_TRY(sk_event_open(g->d, &g->to));
    SK_TRY(sk_pool_open(g->d, SK_WORKSPACE, &base));
    g->l.stream = g->s, g->l.workspace = (char *)base, g->l.workspace_bytes = SK_WORKSPACE;
    SK_TRY(speed(g, 16384, 50304, SK_BF16));
    SK_TRY(speed(g, 16384, 32768, SK_BF16));
    SK_TRY(speed(g, 16384, 65536, SK_BF16));
    SK_TRY(speed(g, 16384, 50257, SK_BF16));
    SK_TRY(speed(g, 8192, 50304, SK_F32));
    SK_TRY(speed(g, 4096, 151936, SK_BF16));
    printf("%-12s %10s %9s %9s %9s\n", "", "columns", "f32 diff", "bf16 diff", "f16 diff");
    for (const auto &w : widths) SK_TRY(width(g, w.n, w.most));
    return SK_OK;
}

int main(void)
{
    sk_enter(); /* as runs do: subnormal numbers are zero on both sides */
    gpu g = {};
    int cores = sk_proc_cores();
    team = sk_threads_open(cores < MOST_THREADS ? cores : MOST_THREADS);
    int rc = on_gpu("fused", &g, all, &n_checks, &n_bad);
    sk_threads_close(team);
    return rc;
}
