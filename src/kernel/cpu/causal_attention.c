/* causal_attention.c - see causal_attention.h.
 *
 * Scores of a block are a matrix with a row per query and a column per key that the
 * last query sees, in stored order.  The same walk over the keys therefore finds the same columns
 * again: to multiply (whole stretches), to hide the future (only runs that
 * the block's own positions reach into), to multiply back.
 *
 * The gradient computes the probabilities again (Dao et al. 2022), p = exp(scale q.k - lse), with
 * delta = sum of dy * y over d:
 *     dv += p' dy      ds = p (dy v' - delta) scale      dq = ds k      dk += ds' q
 * As lse is over all keys, every shard of keys can do so by itself. */
#include "kernel/causal_attention.h"
#include "base/zigzag.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/vecmath.h"

enum { ROWS = SK_ATTEND_ROWS };

typedef struct rows { /* of one block: where in the shard, and the first one's position */
    int64_t at, n, pos;
} rows;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- who sees whom */

/* Position of query i of the shard, and how many in the shard go on from there. */
static int64_t query_run(const sk_times *t, int64_t i, int64_t *n)
{
    int64_t pos = sk_zigzag_run(t->q_at + i, t->full, t->deal, n);
    *n = least(*n, t->q_n - i);
    return pos;
}

static int64_t key_run(const sk_times *t, int64_t i, int64_t *n)
{
    int64_t pos = sk_zigzag_run(t->k_at + i, t->full, t->deal, n);
    *n = least(*n, t->k_n - i);
    return pos;
}

static int64_t blocks_of(int64_t n) { return (n + ROWS - 1) / ROWS; }

int64_t sk_attend_blocks(const sk_times *t)
{
    int64_t sum = 0;
    for (int64_t i = 0, n; i < t->q_n; i += n) {
        query_run(t, i, &n);
        sum += blocks_of(n);
    }
    return sum;
}

static rows rows_of(const sk_times *t, int64_t block)
{
    for (int64_t i = 0, n; i < t->q_n; i += n) {
        int64_t pos = query_run(t, i, &n), at = block * ROWS;
        if (at < n) return (rows){i + at, least(ROWS, n - at), pos + at};
        block -= blocks_of(n);
    }
    return (rows){0};
}

/* Of the *n keys that follow each other from key i on, those up to position `last`. */
static int64_t seen_of_run(const sk_times *t, int64_t i, int64_t last, int64_t *n)
{
    int64_t pos = key_run(t, i, n);
    return pos > last ? 0 : least(*n, last + 1 - pos);
}

static int64_t seen_in_all(const sk_times *t, int64_t last)
{
    int64_t sum = 0;
    for (int64_t i = 0, n; i < t->k_n; i += n) sum += seen_of_run(t, i, last, &n);
    return sum;
}

/* The next keys, from *to on, that lie side by side and are all seen; false: no more. */
static bool next_stretch(const sk_times *t, int64_t last, int64_t *from, int64_t *to)
{
    *from = *to;
    while (*to < t->k_n) {
        int64_t n, seen = seen_of_run(t, *to, last, &n);
        if (!seen && *to > *from) break;
        *to += seen ? seen : n;
        if (!seen) *from = *to;
    }
    return *to > *from;
}

/* Keys in [0, n) of a run at or below each of the queries 1 to `upto` places above its start. */
static double stairs(double upto, double n)
{
    double up = upto < n ? upto : n;
    return upto <= 0 ? 0 : up * (up + 1) / 2 + (upto - up) * n;
}

double sk_attend_pairs(const sk_times *t)
{
    double sum = 0;
    for (int64_t i = 0, m; i < t->q_n; i += m) {
        int64_t q = query_run(t, i, &m);
        for (int64_t j = 0, n; j < t->k_n; j += n) {
            int64_t k = key_run(t, j, &n);
            sum += stairs((double)(q + m - k), (double)n) - stairs((double)(q - k), (double)n);
        }
    }
    return sum;
}

/* ---- what both directions do */

/* out = scale x (queries of the block) times the keys or values that the last of them sees. */
static void meet(const sk_times *t, const rows *r, int64_t width, const real *x, int64_t step_x,
                 const real *k, int64_t step_k, int64_t d, real scale, real *out)
{
    int64_t last = r->pos + r->n - 1, from, to = 0;
    while (next_stretch(t, last, &from, &to)) {
        GEMM(CblasRowMajor, CblasNoTrans, CblasTrans, (int)r->n, (int)(to - from), (int)d, scale,
             x + r->at * step_x, (int)step_x, k + from * step_k, (int)step_k, (real)0, out,
             (int)width);
        out += to - from;
    }
}

/* out = weights (of the block) times keys or values; keep: 1 adds to what is there. */
static void weigh(const sk_times *t, const rows *r, int64_t width, const real *p, const real *v,
                  int64_t step_v, int64_t d, real keep, real *out, int64_t step_out)
{
    int64_t last = r->pos + r->n - 1, from, to = 0;
    for (; next_stretch(t, last, &from, &to); keep = 1) {
        GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)r->n, (int)d, (int)(to - from),
             (real)1, p, (int)width, v + from * step_v, (int)step_v, keep, out, (int)step_out);
        p += to - from;
    }
}

/* out += weights turned around times x of the block: what each key gathers from the queries. */
static void gather(const sk_times *t, const rows *r, int64_t width, const real *p, const real *x,
                   int64_t step_x, int64_t d, real *out, int64_t step_out)
{
    int64_t last = r->pos + r->n - 1, from, to = 0;
    while (next_stretch(t, last, &from, &to)) {
        GEMM(CblasRowMajor, CblasTrans, CblasNoTrans, (int)(to - from), (int)d, (int)r->n, (real)1,
             p, (int)width, x + r->at * step_x, (int)step_x, (real)1, out + from * step_out,
             (int)step_out);
        p += to - from;
    }
}

/* Scores of the future become -infinity.  sees[i]: the keys that are left to query i. */
static void hide(const sk_times *t, const rows *r, int64_t width, real *p, int64_t sees[ROWS])
{
    int64_t last = r->pos + r->n - 1, column = 0, seen;
    for (int64_t i = 0; i < r->n; i++) sees[i] = width;
    for (int64_t k = 0, n; k < t->k_n; k += n, column += seen) {
        int64_t pos = key_run(t, k, &n);
        seen = seen_of_run(t, k, last, &n);
        for (int64_t i = 0; i < r->n && r->pos + i < pos + seen - 1; i++) {
            int64_t mine = r->pos + i < pos ? 0 : r->pos + i + 1 - pos;
            real *row = p + i * width + column;
            for (int64_t c = mine; c < seen; c++) row[c] = (real)-INFINITY;
            sees[i] -= seen - mine;
        }
    }
}

static real scale_of(int64_t d) { return (real)(1 / sqrt((double)d)); }

/* ---- forward */

/* p[0, n) becomes exponentials against the largest; returns their sum. */
static real exponentials(real *p, int64_t n, real *top)
{
    real m = sk_largest(p, n), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        p[i] = sk_exp(p[i] - m);
        sum += p[i];
    }
    *top = m;
    return sum;
}

/* Weights of what is in y and of the new row, whose exponentials against `top` add up to `sum`;
 * *lse is then over both.  In double: lse may be large, and weights are its differences. */
static void blend(double top, double sum, real *lse, bool merge, real *keep, real *take)
{
    double was = merge ? (double)*lse : (double)-INFINITY, is = top + log(sum);
    double high = was > is ? was : is, a = exp(was - high), b = exp(is - high);
    *lse = (real)(high + log(a + b));
    *keep = (real)(a / (a + b));
    *take = (real)(b / (a + b) / sum);
}

static void put_row(real *y, const real *x, int64_t d, real keep, real take)
{
    if (keep > 0) {
#pragma omp simd
        for (int64_t c = 0; c < d; c++) y[c] = keep * y[c] + take * x[c];
        return;
    }
#pragma omp simd
    for (int64_t c = 0; c < d; c++) y[c] = take * x[c];
}

static void see_nothing(const sk_attend *h, int64_t i)
{
    if (h->merge) return;
    memset(h->y + i * h->step_y, 0, (size_t)h->d * sizeof(real));
    h->lse[i] = (real)-INFINITY;
}

void sk_attend_block(const sk_attend *h, int64_t block, real *scratch)
{
    const sk_times *t = &h->time;
    rows r = rows_of(t, block);
    int64_t width = seen_in_all(t, r.pos + r.n - 1), sees[ROWS];
    real *x = scratch, *p = x + ROWS * h->d, top[ROWS], sum[ROWS], keep, take;
    meet(t, &r, width, h->q, h->step_q, h->k, h->step_kv, h->d, scale_of(h->d), p);
    hide(t, &r, width, p, sees);
    for (int64_t i = 0; i < r.n; i++) /* NaN in a row that sees nothing, which is not used */
        sum[i] = exponentials(p + i * width, width, &top[i]);
    weigh(t, &r, width, p, h->v, h->step_kv, h->d, 0, x, h->d);
    for (int64_t i = 0; i < r.n; i++) {
        if (!sees[i]) {
            see_nothing(h, r.at + i);
            continue;
        }
        blend((double)top[i], (double)sum[i], h->lse + r.at + i, h->merge, &keep, &take);
        put_row(h->y + (r.at + i) * h->step_y, x + i * h->d, h->d, keep, take);
    }
}

size_t sk_attend_scratch(const sk_times *t, int64_t d)
{
    return ROWS * (size_t)(t->k_n + d) * sizeof(real);
}

/* ---- backward */

/* One row: scores become probabilities, dp becomes ds.  A query that saw nothing gives nothing. */
static void one_row(real *restrict p, real *restrict dp, int64_t n, real lse, real delta,
                    real scale)
{
    if (lse == (real)-INFINITY) {
        memset(p, 0, (size_t)n * sizeof(real));
        memset(dp, 0, (size_t)n * sizeof(real));
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        p[i] = sk_exp(p[i] - lse);
        dp[i] = p[i] * (dp[i] - delta) * scale;
    }
}

static real dot(const real *x, const real *y, int64_t n)
{
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

static void clear(real *x, int64_t step, int64_t times, int64_t d)
{
    for (int64_t i = 0; i < times; i++) memset(x + i * step, 0, (size_t)d * sizeof(real));
}

static void grad_block(const sk_attend_grad *h, const rows *r, int64_t width, real *p, real *dp)
{
    const sk_times *t = &h->time;
    int64_t d = h->d, sees[ROWS];
    real scale = scale_of(d);
    meet(t, r, width, h->q, h->step_q, h->k, h->step_kv, d, scale, p);
    meet(t, r, width, h->dy, h->step_y, h->v, h->step_kv, d, 1, dp);
    hide(t, r, width, p, sees);
    for (int64_t i = 0; i < r->n; i++) {
        int64_t at = r->at + i;
        real delta = dot(h->dy + at * h->step_y, h->y + at * h->step_y, d);
        one_row(p + i * width, dp + i * width, width, h->lse[at], delta, scale);
    }
    gather(t, r, width, p, h->dy, h->step_y, d, h->dv, h->step_kv);
    gather(t, r, width, dp, h->q, h->step_q, d, h->dk, h->step_kv);
    weigh(t, r, width, dp, h->k, h->step_kv, d, h->add, h->dq + r->at * h->step_q, h->step_q);
}

void sk_attend_grad_head(const sk_attend_grad *h, real *scratch)
{
    int64_t blocks = sk_attend_blocks(&h->time);
    for (int64_t b = 0; b < blocks; b++) {
        rows r = rows_of(&h->time, b);
        int64_t width = seen_in_all(&h->time, r.pos + r.n - 1);
        if (width) grad_block(h, &r, width, scratch, scratch + ROWS * width);
        else if (!h->add) clear(h->dq + r.at * h->step_q, h->step_q, r.n, h->d);
    }
}

size_t sk_attend_grad_scratch(const sk_times *t)
{
    return 2 * ROWS * (size_t)t->k_n * sizeof(real);
}
