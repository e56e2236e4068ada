/* What test/cuda/parts.cu does not reach: gradients of norms in one pass (kernel/cuda/norm_grad.h),
 * with a second gradient, sums of it and sums added to; and gradients of a piece of a large table,
 * where places are sorted in several passes and frequent words cross tiles.  The truth is computed
 * here, in double.  Every case runs twice and must give the same bits.  Then both at real sizes,
 * timed.
 */
#include "base/rng.h"
#include "base/strings.h"
#include "device/device.h"
#include "kernel/cuda/norm_grad.h"
#include "lib/go_on.h"
#include "lib/on_gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { POOL = 1 << 30, N_TIMED = 21 };

typedef struct gpu {
    sk_device *d;
    sk_stream *s;
    sk_event *from, *to;
    sk_launch l;
    char *base;
    size_t used;
    sk_arena arena;
} gpu;

static int n_checks, n_bad;

/* n numbers: as the GPU holds them, and as they are. */
typedef struct numbers {
    int64_t n;
    sk_dtype type;
    void *there;
    float *x;
} numbers;

static sk_status put(gpu *g, numbers *v)
{
    size_t bytes = (size_t)v->n * sk_dtype_size(v->type);
    void *narrow = sk_alloc(&g->arena, bytes + 1);
    sk_convert(narrow, v->type, v->x, SK_F32, v->n);
    sk_convert(v->x, SK_F32, narrow, v->type, v->n);
    SK_TRY(sk_device_copy(g->d, v->there, narrow, bytes, g->s));
    return sk_stream_sync(g->d, g->s);
}

static numbers draw(gpu *g, int64_t n, sk_dtype type, uint64_t stream)
{
    numbers v = {n, type, g->base + g->used, (float *)sk_alloc(&g->arena, (size_t)n * 4 + 1)};
    for (int64_t i = 0; i < n; i++)
        v.x[i] = (float)(2 * sk_rng_uniform(3, stream, (uint64_t)i) - 1);
    g->used += ((size_t)n * sk_dtype_size(type) + 255) / 256 * 256;
    sk_assert(g->used <= POOL);
    if (put(g, &v)) sk_assert(!"a copy failed");
    return v;
}

static sk_status get(gpu *g, const numbers *v, float *to)
{
    size_t bytes = (size_t)v->n * sk_dtype_size(v->type);
    void *narrow = sk_alloc(&g->arena, bytes + 1);
    SK_TRY(sk_device_copy(g->d, narrow, v->there, bytes, g->s));
    SK_TRY(sk_stream_sync(g->d, g->s));
    sk_convert(to, SK_F32, narrow, v->type, v->n);
    return SK_OK;
}

/* Reads v twice, before and after `again` made it anew, and compares with the truth. */
static sk_status check(gpu *g, const char *what, const numbers *v, const double *want,
                       const float *first, double limit)
{
    float *x = (float *)sk_alloc(&g->arena, (size_t)v->n * 4 + 1);
    double half = v->type == SK_BF16 ? 0x1p-8 : v->type == SK_F16 ? 0x1p-11 : 0, worst = 0;
    SK_TRY(get(g, v, x));
    for (int64_t i = 0; i < v->n; i++) {
        double d = (fabs(x[i] - want[i]) - half * fabs(want[i])) / (1 + fabs(want[i]));
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
    }
    n_checks += 2;
    if (!(worst <= limit)) n_bad++, tell("%s: off by %g", what, worst);
    if (memcmp(first, x, (size_t)v->n * 4)) n_bad++, tell("%s: other bits", what);
    return SK_OK;
}

/* ---- norms */

typedef struct norms_case {
    int64_t rows, n;
    numbers x, w, dy, res, mean, rstd, dx, dw, db, sum;
    bool has_mean, add, has_res;
    char over; /* dx lies where 'x', 'y' (dy) or 'r' (res) does; 0: nowhere else */
    double *want_dx, *want_dw, *want_db, *want_sum;
} norms_case;

static void one_row(norms_case *t, int64_t r)
{
    const float *x = t->x.x + r * t->n, *dy = t->dy.x + r * t->n;
    double m = t->has_mean ? t->mean.x[r] : 0, s = t->rstd.x[r], sum = 0, dot = 0;
    for (int64_t i = 0; i < t->n; i++) {
        double g = (double)t->w.x[i] * dy[i], hat = (x[i] - m) * s;
        sum += t->has_mean ? g : 0;
        dot += g * hat;
        t->want_dw[i] += dy[i] * hat;
        t->want_db[i] += dy[i];
    }
    for (int64_t i = 0; i < t->n; i++) {
        double g = (double)t->w.x[i] * dy[i], hat = (x[i] - m) * s;
        double old = t->add ? t->dx.x[r * t->n + i] : 0;
        if (t->has_res) old += t->res.x[r * t->n + i];
        t->want_dx[r * t->n + i] = s * (g - sum / (double)t->n - hat * dot / (double)t->n) + old;
    }
}

static void truth(gpu *g, norms_case *t)
{
    t->want_dx = (double *)sk_alloc(&g->arena, (size_t)(t->rows * t->n) * 8);
    t->want_dw = (double *)sk_alloc(&g->arena, (size_t)t->n * 8);
    t->want_db = (double *)sk_alloc(&g->arena, (size_t)t->n * 8);
    t->want_sum = (double *)sk_alloc(&g->arena, (size_t)t->n * 8);
    for (int64_t i = 0; i < t->n; i++) {
        t->want_dw[i] = t->add ? t->dw.x[i] : 0;
        t->want_db[i] = t->add ? t->db.x[i] : 0;
    }
    for (int64_t r = 0; r < t->rows; r++) one_row(t, r);
}

/* The sum of dx as the GPU rounded it. */
static void truth_of_sum(norms_case *t, const float *dx)
{
    for (int64_t i = 0; i < t->n; i++) t->want_sum[i] = t->add ? t->sum.x[i] : 0;
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t i = 0; i < t->n; i++) t->want_sum[i] += dx[r * t->n + i];
}

static sk_any any_of(const numbers *v) { return sk_any{v->there, v->type}; }

static sk_norm_grad_job job_of(const norms_case *t)
{
    sk_norm_grad_job j = {};
    j.op = "norm_grad", j.rows = t->rows, j.n = t->n, j.type = t->x.type;
    j.x = t->x.there, j.w = t->w.there, j.dy = t->dy.there;
    if (t->has_res) j.res = t->res.there;
    j.dx = t->dx.there, j.rstd = any_of(&t->rstd), j.dw = any_of(&t->dw);
    j.sum = any_of(&t->sum);
    if (t->has_mean) j.mean = any_of(&t->mean), j.db = any_of(&t->db);
    j.add_dx = j.add_dw = j.add_db = j.add_sum = t->add;
    return j;
}

static norms_case norm_of(gpu *g, int64_t rows, int64_t n, sk_dtype type, bool has_mean, bool add,
                          bool has_res)
{
    norms_case t = {rows, n};
    g->used = 0;
    t.has_mean = has_mean, t.add = add, t.has_res = has_res;
    t.x = draw(g, rows * n, type, 1), t.w = draw(g, n, type, 2), t.dy = draw(g, rows * n, type, 3);
    t.res = draw(g, rows * n, type, 4), t.mean = draw(g, rows, SK_F32, 5);
    t.rstd = draw(g, rows, SK_F32, 6), t.dx = draw(g, rows * n, type, 7);
    t.dw = draw(g, n, SK_F32, 8), t.db = draw(g, n, type, 9);
    t.sum = draw(g, n, type, 10);
    return t;
}

/* Runs it twice, the second time from what was there before the first. */
static sk_status norms(gpu *g, norms_case t)
{
    sk_norm_grad_job j = job_of(&t);
    numbers *out[] = {&t.dx, &t.dw, &t.db, &t.sum};
    float *first[4];
    truth(g, &t);
    SK_TRY(sk_norm_grad(&j, &g->l));
    for (int i = 0; i < 4; i++) {
        first[i] = (float *)sk_alloc(&g->arena, (size_t)out[i]->n * 4);
        SK_TRY(get(g, out[i], first[i]));
        SK_TRY(put(g, out[i]));
    }
    SK_TRY(sk_norm_grad(&j, &g->l));
    const char *where = t.over == 'x' ? ", over x" : t.over == 'y' ? ", over dy" : ", over res";
    char *what =
        sk_print(&g->arena, "norm_grad of %lld rows of %lld, %s%s%s%s%s", (long long)t.rows,
                 (long long)t.n, sk_dtype_name(t.x.type), t.has_mean ? ", mean" : "",
                 t.add ? ", added" : "", t.has_res ? ", two" : "", t.over ? where : "");
    double limit = 1e-5 * (1 + sqrt((double)t.rows) / 8);
    SK_TRY(check(g, what, &t.dx, t.want_dx, first[0], 1e-5));
    SK_TRY(check(g, what, &t.dw, t.want_dw, first[1], limit));
    if (t.has_mean) SK_TRY(check(g, what, &t.db, t.want_db, first[2], limit));
    truth_of_sum(&t, first[0]);
    return check(g, what, &t.sum, t.want_sum, first[3], limit);
}

/* dx in the place of an operand, while rows further on are under way. */
static norms_case over(norms_case t, char what)
{
    t.over = what;
    t.dx = what == 'x' ? t.x : what == 'y' ? t.dy : t.res;
    return t;
}

/* ---- a table */

typedef struct words {
    numbers dy, table;
    int32_t *id;
    sk_args a;
} words;

/* Words are drawn so that a few are frequent and some lie in other pieces. */
static sk_status words_of(gpu *g, words *t, int64_t n, int64_t cols, int64_t size, sk_dtype type)
{
    sk_view dy = {}, id = {}, table = {};
    g->used = 0;
    t->dy = draw(g, n * cols, SK_BF16, 1), t->table = draw(g, size * cols, type, 2);
    t->id = (int32_t *)sk_alloc(&g->arena, (size_t)n * 4);
    for (int64_t i = 0; i < n; i++)
        t->id[i] = 50 + (int32_t)(1.2 * (double)size * pow(sk_rng_uniform(3, 3, (uint64_t)i), 4));
    dy.data = t->dy.there, dy.type = SK_BF16, dy.n = 2, dy.size[0] = n, dy.size[1] = cols;
    id.data = g->base + g->used, id.type = SK_I32, id.n = 1, id.size[0] = n;
    table.data = t->table.there, table.type = type, table.n = 2;
    table.size[0] = size, table.size[1] = cols, table.at[0] = 51;
    t->a = sk_args{{dy, id}, {table}, 2, 1, "nc,n->vc"};
    SK_TRY(sk_device_copy(g->d, id.data, t->id, (size_t)n * 4, g->s));
    return sk_stream_sync(g->d, g->s);
}

static sk_status tables(gpu *g, int64_t n, int64_t cols, int64_t size, sk_dtype type, bool add)
{
    const sk_kernel *k = sk_kernel_find("embedding_grad");
    sk_mark mark = sk_arena_mark(&g->arena);
    words t = {};
    SK_TRY(words_of(g, &t, n, cols, size, type));
    t.a.add = add;
    double *want = (double *)sk_alloc(&g->arena, (size_t)(size * cols) * 8);
    for (int64_t i = 0; i < size * cols; i++) want[i] = add ? t.table.x[i] : 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0, w = t.id[i] - 51; c < cols && w >= 0 && w < size; c++)
            want[w * cols + c] += t.dy.x[i * cols + c];
    float *first = (float *)sk_alloc(&g->arena, (size_t)(size * cols) * 4);
    SK_TRY(k->launch(&t.a, &g->l));
    SK_TRY(get(g, &t.table, first));
    SK_TRY(put(g, &t.table));
    SK_TRY(k->launch(&t.a, &g->l));
    char *what = sk_print(&g->arena, "embedding_grad of %lld places, %lld columns, %lld words, %s",
                          (long long)n, (long long)cols, (long long)size, sk_dtype_name(type));
    SK_TRY(check(g, what, &t.table, want, first, 1e-4));
    sk_arena_back(&g->arena, mark);
    return SK_OK;
}

/* ---- speed */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static sk_status timed(gpu *g, const char *what, const sk_norm_grad_job *j, const sk_args *a,
                       double bytes)
{
    const sk_kernel *k = sk_kernel_find("embedding_grad");
    double seconds[N_TIMED];
    for (int i = 0; i < N_TIMED; i++) {
        SK_TRY(sk_event_record(g->d, g->from, g->s));
        SK_TRY(j ? sk_norm_grad(j, &g->l) : k->launch(a, &g->l));
        SK_TRY(sk_event_record(g->d, g->to, g->s));
        SK_TRY(sk_stream_sync(g->d, g->s));
        SK_TRY(sk_event_seconds(g->d, g->from, g->to, &seconds[i]));
    }
    qsort(seconds, N_TIMED, sizeof *seconds, by_size);
    double s = seconds[N_TIMED / 2];
    printf("%-52s %7.1f us %6.0f GB/s\n", what, 1e6 * s, 1e-9 * bytes / s);
    return SK_OK;
}

static sk_status speed(gpu *g)
{
    static const int64_t widths[] = {768, 1600, 2048, 4096};
    for (int i = 0; i < 4; i++) {
        int64_t n = widths[i], rows = 16384;
        sk_mark mark = sk_arena_mark(&g->arena);
        norms_case t = norm_of(g, rows, n, SK_BF16, true, false, true);
        sk_norm_grad_job j = job_of(&t);
        char *what =
            sk_print(&g->arena, "norm_grad, all at once, 16384 rows of %lld", (long long)n);
        SK_TRY(timed(g, what, &j, NULL, 8.0 * (double)(rows * n)));
        j.sum.data = NULL;
        SK_TRY(timed(g, "  without the sum of dx", &j, NULL, 8.0 * (double)(rows * n)));
        j.res = NULL, j.dw.data = NULL;
        SK_TRY(timed(g, "  dx alone", &j, NULL, 6.0 * (double)(rows * n)));
        sk_arena_back(&g->arena, mark);
    }
    words t = {};
    int64_t n = 65536, cols = 768, size = 50304;
    SK_TRY(words_of(g, &t, n, cols, size, SK_BF16));
    SK_TRY(timed(g, "embedding_grad, 65536 of 768, 50304 words", NULL, &t.a,
                 2.0 * (double)((n + size) * cols)));
    t.a.add = 1;
    return timed(g, "  added", NULL, &t.a, 2.0 * (double)((n + 2 * size) * cols));
}

static sk_status one_norm(gpu *g, const int64_t *shape, sk_dtype type, int has_mean, int adds,
                          int has_res, char place)
{
    sk_mark mark = sk_arena_mark(&g->arena);
    norms_case t = norm_of(g, shape[0], shape[1], type, has_mean, adds, has_res);
    sk_status st = norms(g, place ? over(t, place) : t);
    sk_arena_back(&g->arena, mark);
    return go_on(g->d, g->s, st, &n_bad, "norms of %lld x %lld, %s, mean %d, add %d, res %d",
                 (long long)shape[0], (long long)shape[1], sk_dtype_name(type), has_mean, adds,
                 has_res);
}

static sk_status one_table(gpu *g, int64_t n, int64_t cols, int64_t size, sk_dtype type, int add)
{
    sk_status st = tables(g, n, cols, size, type, add);
    return go_on(g->d, g->s, st, &n_bad, "%lld rows of %lld into %lld, %s, add %d", (long long)n,
                 (long long)cols, (long long)size, sk_dtype_name(type), add);
}

static sk_status open_all(gpu *g)
{
    void *base;
    SK_TRY(sk_stream_open(g->d, &g->s));
    SK_TRY(sk_event_open(g->d, &g->from));
    SK_TRY(sk_event_open(g->d, &g->to));
    SK_TRY(sk_pool_open(g->d, (size_t)POOL + SK_WORKSPACE + 256, &base));
    g->l.stream = g->s, g->l.workspace = (char *)base, g->l.workspace_bytes = SK_WORKSPACE;
    g->base = (char *)base + SK_WORKSPACE;
    return SK_OK;
}

static sk_status all(gpu *g)
{
    /* Of the first two a group of threads has more rows than its ring has stages. */
    static const int64_t shape[][2] = {{40001, 8},  {9001, 264}, {1, 8},    {37, 24},   {403, 768},
                                       {301, 1600}, {515, 2048}, {2, 4096}, {20, 4104}, {7, 8192},
                                       {5, 8200},   {9, 601},    {13, 4},   {6, 1}};
    static const sk_dtype types[] = {SK_F32, SK_BF16, SK_F16};
    SK_TRY(open_all(g));
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        for (int k = 0; k < 24; k++)
            SK_TRY(one_norm(g, shape[i], types[k % 3], k / 3 % 2, k / 6 % 2, k / 12, 0));
        for (int k = 0; k < 9; k++)
            SK_TRY(one_norm(g, shape[i], types[k % 3], k % 2, 0, 1, "xyr"[k / 3]));
    }
    for (int k = 0; k < 6; k++) {
        SK_TRY(one_table(g, 5000, 40, 1500, types[k % 3], k / 3));
        SK_TRY(one_table(g, 2100, 37, 300000, types[k % 3], k / 3));
        SK_TRY(one_table(g, 3000, 272, 3, types[k % 3], k / 3));
    }
    return speed(g);
}

int main(void)
{
    gpu g = {};
    return on_gpu("rows", &g, all, &n_checks, &n_bad);
}
