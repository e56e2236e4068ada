/* sk_xent_rows against the four ops that it does the work of, on the CPU: m, s, t and the gradient,
 * from the same logits as rounded; in place, apart, and apart with another alignment.  Differences
 * are |gpu - cpu| / (1 + |cpu|), those of narrow gradients less half a unit in the last place; of m
 * and t there are none.  s is compared with a sum in double, since the op's own in f32 is off by
 * 2e-5 of 151936 terms.  Then the speed, counting one read and one write of the logits. */
#include "base/rng.h"
#include "device/device.h"
#include "graph/xent_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GAP = 256, N_WARM = 5, N_TIMED = 21, N_FORMS = 4 };

static int n_checks, n_bad;

typedef struct gpu {
    sk_device *d;
    sk_stream *s;
    sk_event *from, *to;
    sk_launch l;
} gpu;

typedef struct shape {
    int64_t rows, n;
    sk_dtype type;
    bool in_place;
    int off, off_to; /* elements that logits and gradients are off from alignment */
} shape;

/* Everything of one case on the host; numbers of the CPU are f32. */
typedef struct side {
    float *x, *dx, *w, *m, *s, *t, *ds, *dt, dl;
    int32_t *target;
    void *narrow;
} side;

static void *take(sk_arena *a, int64_t n, size_t size)
{
    return sk_alloc(a, (size_t)n * size + GAP);
}

static void fill(sk_arena *a, const shape *p, side *h)
{
    int64_t n = p->rows * p->n;
    h->x = (float *)take(a, n, 4), h->dx = (float *)take(a, n, 4);
    h->narrow = take(a, n, sk_dtype_size(p->type));
    float **small[] = {&h->w, &h->m, &h->s, &h->t, &h->ds, &h->dt};
    for (int i = 0; i < 6; i++) *small[i] = (float *)take(a, p->rows, 4);
    h->target = (int32_t *)take(a, p->rows, 4);
    h->dl = 8;
    for (int64_t i = 0; i < n; i++)
        h->x[i] = (float)(12 * sk_rng_uniform(1, (uint64_t)p->n, (uint64_t)i) - 6);
    for (int64_t r = 0; r < p->rows; r++) {
        double u = sk_rng_uniform(2, 0, (uint64_t)r);
        h->target[r] = r % 5 == 4 ? -1 : (int32_t)(u * (double)p->n);
        h->w[r] = r % 3 == 1 ? 0 : (float)(0.5 + u);
    }
    sk_convert(h->narrow, p->type, h->x, SK_F32, n);
    sk_convert(h->x, SK_F32, h->narrow, p->type, n);
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

static void apply(const char *op, int n_in, const sk_view *in, int n_out, const sk_view *out)
{
    sk_args a = {};
    a.n_in = n_in, a.n_out = n_out, a.of = 1;
    for (int i = 0; i < n_in; i++) a.in[i] = in[i];
    for (int o = 0; o < n_out; o++) a.out[o] = out[o];
    sk_op_run_cpu(sk_op_find(op), &a);
}

static void on_cpu(const shape *p, const side *h)
{
    sk_view x = view(h->x, SK_F32, 2, p->rows, p->n), dx = view(h->dx, SK_F32, 2, p->rows, p->n);
    sk_view target = view(h->target, SK_I32, 1, p->rows, 0), dl;
    float *small[] = {h->m, h->s, h->t, h->w, h->ds, h->dt};
    sk_view v[6];
    for (int i = 0; i < 6; i++) v[i] = view(small[i], SK_F32, 1, p->rows, 0);
    dl = view((void *)&h->dl, SK_F32, 0, 0, 0);
    sk_view terms[] = {x, v[0], target}, loss[] = {v[1], v[3], dl};
    sk_view grad[] = {x, v[0], target, v[4], v[5]};
    apply("row_max", 1, &x, 1, v);
    apply("xent_terms", 3, terms, 2, v + 1);
    apply("xent_loss_grad", 3, loss, 2, v + 4);
    apply("xent_terms_grad", 5, grad, 1, &dx);
    for (int64_t r = 0; r < p->rows; r++) {
        double sum = 0;
        for (int64_t i = 0; i < p->n; i++) sum += (double)expf(h->x[r * p->n + i] - h->m[r]);
        h->s[r] = (float)sum;
    }
}

/* ---- the GPU */

/* Where things lie in the pool. */
typedef struct places {
    size_t x, dx, target, w, dl, m, s, t, all;
} places;

static places lay_out(const shape *p)
{
    places at = {};
    size_t size = sk_dtype_size(p->type), n = (size_t)(p->rows * p->n) * size, end = GAP;
    size_t *each[] = {&at.x, &at.dx, &at.target, &at.w, &at.dl, &at.m, &at.s, &at.t};
    for (int i = 0; i < 8; i++) {
        size_t off = i == 0 ? (size_t)p->off : i == 1 ? (size_t)p->off_to : 0;
        *each[i] = end + off * size;
        end = (*each[i] + (i < 2 ? n : (size_t)p->rows * 4) + 3 * GAP) / GAP * GAP;
    }
    if (p->in_place) at.dx = at.x;
    at.all = end;
    return at;
}

static sk_xent_job job_of(const shape *p, const places *at, char *base)
{
    sk_xent_job j = {};
    j.rows = p->rows, j.n = p->n, j.type = p->type;
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

/* The largest difference of n numbers.  What was looked at becomes NaN. */
static double worst_of(char *have, sk_dtype type, const float *want, int64_t n)
{
    double worst = 0, half = type == SK_BF16 ? 0x1p-8 : type == SK_F16 ? 0x1p-11 : 0;
    size_t size = sk_dtype_size(type);
    for (int64_t i = 0; i < n; i++) {
        double x, y = (double)want[i];
        sk_convert(&x, SK_F64, have + (size_t)i * size, type, 1);
        /* f16 has a smallest unit too */
        double d = x == y ? 0 : fabs(x - y) - half * fabs(y) - (type == SK_F16 ? 0x1p-25 : 0);
        d /= 1 + fabs(y);
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
    }
    memset(have, 0xff, (size_t)n * size);
    return worst;
}

/* Of rows that may lie in registers there are several forms. */
static int n_forms(const shape *p)
{
    return p->type != SK_F32 && p->n >= 12 * 2048 && p->n <= 65536 && p->n % 8 == 0 ? N_FORMS : 1;
}

static void set_form(int form)
{
    char x[] = {(char)('0' + form), 0};
    setenv("SKEIN_XENT_FORM", x, 1);
}

static void check(const shape *p, const char *what, double have, double most)
{
    n_checks++;
    if (have <= most) return;
    n_bad++;
    printf("%lld rows of %lld, %s, %s, %d and %d off, form %s: %s is off by %g\n",
           (long long)p->rows, (long long)p->n, sk_dtype_name(p->type),
           p->in_place ? "in place" : "apart", p->off, p->off_to, getenv("SKEIN_XENT_FORM"), what,
           have);
}

static sk_status compare(const gpu *g, const shape *p, const side *h, char *image, double *worst)
{
    places at = lay_out(p);
    int64_t n = p->rows * p->n, astray = 0;
    SK_TRY(on_gpu(g, p, h, &at, image));
    double d = worst_of(image + at.dx, p->type, h->dx, n);
    check(p, "the gradient", d, 1e-5);
    check(p, "m", worst_of(image + at.m, SK_F32, h->m, p->rows), 0);
    check(p, "s", worst_of(image + at.s, SK_F32, h->s, p->rows), 2e-5);
    check(p, "t", worst_of(image + at.t, SK_F32, h->t, p->rows), 0);
    if (!p->in_place) astray += memcmp(image + at.x, h->narrow, (size_t)n * sk_dtype_size(p->type));
    memset(image + at.x, 0xff, (size_t)n * sk_dtype_size(p->type));
    memset(image + at.target, 0xff, (size_t)p->rows * 4);
    memset(image + at.w, 0xff, (size_t)p->rows * 4);
    memset(image + at.dl, 0xff, sizeof h->dl);
    for (size_t i = 0; i < at.all; i++) astray += image[i] != (char)0xff;
    check(p, "something else", (double)(astray != 0), 0);
    if (d > *worst) *worst = d;
    return SK_OK;
}

static sk_status one(const gpu *g, const shape *p, double *worst)
{
    sk_arena a = {};
    side h = {};
    places at = lay_out(p);
    char *image = (char *)sk_alloc(&a, at.all);
    fill(&a, p, &h);
    on_cpu(p, &h);
    for (int f = 0; f < n_forms(p); f++) {
        set_form(f);
        SK_TRY(compare(g, p, &h, image, worst));
    }
    sk_arena_end(&a);
    return SK_OK;
}

/* Rows that lie in registers.  Where there are 2000 of them, blocks have more than four each. */
static sk_status kept(const gpu *g, int64_t n, int64_t rows)
{
    double worst[3] = {0};
    for (int k = 1; k < 3; k++) {
        sk_dtype type = k == 1 ? SK_BF16 : SK_F16;
        shape in_place = {k == 1 ? rows : 300, n, type, true, 0, 0},
              apart = {133, n, type, false, 0, 0};
        SK_TRY(one(g, &in_place, &worst[k]));
        SK_TRY(one(g, &apart, &worst[k]));
    }
    printf("%-12s %10lld %9s %9.1e %9.1e\n", "xent_rows", (long long)n, "", worst[1], worst[2]);
    fflush(stdout);
    return SK_OK;
}

static sk_status width(const gpu *g, int64_t n)
{
    static const sk_dtype types[] = {SK_F32, SK_BF16, SK_F16};
    static const int64_t heights[] = {1, 2, 133, 300, 9001};
    double worst[3] = {0};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 5; i++) {
            shape p = {heights[i], n, types[k], true, 0, 0};
            if (n > 256 && i == 4) break;
            SK_TRY(one(g, &p, &worst[k]));
            p.in_place = false;
            SK_TRY(one(g, &p, &worst[k]));
            p.off_to = 1;
            if (i < 3) SK_TRY(one(g, &p, &worst[k]));
            p.off = 1;
            if (i < 3) SK_TRY(one(g, &p, &worst[k]));
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
    shape p = {rows, n, type, true, 0, 0}, few = {some, n, type, true, 0, 0};
    sk_arena a = {};
    side h = {};
    places at = lay_out(&p);
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
    for (int f = 0; f < n_forms(&p); f++) {
        set_form(f);
        SK_TRY(timed(g, &j, seconds));
        printf("%lld rows of %lld in %s, form %d: %.3f ms, %.0f GB/s\n", (long long)rows,
               (long long)n, sk_dtype_name(type), f, 1e3 * seconds[N_TIMED / 2],
               2e-9 * bytes / seconds[N_TIMED / 2]);
    }
    sk_pool_close(g->d, base);
    sk_arena_end(&a);
    return SK_OK;
}

static sk_status all(gpu *g)
{
    static const int64_t widths[] = {1, 7, 256, 50257, 50304, 151936};
    static const int64_t held[] = {32768, 50304, 24576, 32776, 51208, 65536};
    void *base;
    SK_TRY(sk_stream_open(g->d, &g->s));
    SK_TRY(sk_event_open(g->d, &g->from));
    SK_TRY(sk_event_open(g->d, &g->to));
    SK_TRY(sk_pool_open(g->d, SK_ROOM, &base));
    g->l.stream = g->s, g->l.room = (char *)base, g->l.room_bytes = SK_ROOM;
    SK_TRY(speed(g, 16384, 50304, SK_BF16));
    SK_TRY(speed(g, 16384, 32768, SK_BF16));
    SK_TRY(speed(g, 16384, 65536, SK_BF16));
    SK_TRY(speed(g, 16384, 50257, SK_BF16));
    SK_TRY(speed(g, 8192, 50304, SK_F32));
    SK_TRY(speed(g, 4096, 151936, SK_BF16));
    printf("%-12s %10s %9s %9s %9s\n", "", "columns", "f32 diff", "bf16 diff", "f16 diff");
    for (int i = 0; i < 6; i++) SK_TRY(width(g, widths[i]));
    for (int i = 0; i < 6; i++) SK_TRY(kept(g, held[i], i < 2 ? 2000 : 300));
    return SK_OK;
}

int main(void)
{
    gpu g = {};
    sk_status st = sk_device_open("cuda:0", &g.d);
    if (st == SK_ECONF) {
        printf("%s\nno GPU\n", sk_error_line());
        return 77;
    }
    if (!st) st = all(&g);
    if (st) printf("%s\n", sk_error());
    sk_device_close(g.d);
    printf("fused: %d checks, %d bad%s\n", n_checks, n_bad, st ? ", and not all were made" : "");
    return st || n_bad;
}
