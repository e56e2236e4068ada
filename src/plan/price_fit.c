/* price_fit.c - least squares without negative numbers, for two models of a link. */
#include "plan/price_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = SK_LOGGP_N, TURNS = 50 };
#define GOOD 0.1 /* off in the median: the measured o stays, whatever fits better by noise */

/* --- least squares --- */

/* Columns of the set `in` of the normal equations, by elimination with pivots; false: singular. */
static bool solve(const double *normal, const double *right, unsigned in, double x[N])
{
    double m[N][N + 1];
    int col[N], k = 0;
    for (int i = 0; i < N; i++)
        if (x[i] = 0, in >> i & 1) col[k++] = i;
    for (int i = 0; i < k; i++) {
        for (int j = 0; j < k; j++) m[i][j] = normal[col[i] * N + col[j]];
        m[i][k] = right[col[i]];
    }
    for (int i = 0; i < k; i++) {
        int best = i;
        for (int r = i + 1; r < k; r++)
            if (fabs(m[r][i]) > fabs(m[best][i])) best = r;
        if (fabs(m[best][i]) < 1e-12) return false; /* columns have length 1 */
        for (int j = 0; j <= k; j++) {
            double keep = m[i][j];
            m[i][j] = m[best][j];
            m[best][j] = keep;
        }
        for (int r = 0; r < k; r++)
            for (int j = k; r != i && j >= i; j--) m[r][j] -= m[r][i] / m[i][i] * m[i][j];
    }
    for (int i = 0; i < k; i++) x[col[i]] = m[i][k] / m[i][i];
    return true;
}

static double left_over(const double *row, const double *want, const double *scale, int n, int k,
                        const double *x)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double off = want ? -want[i] : -1;
        for (int j = 0; j < k; j++)
            if (scale[j] > 0) off += row[i * k + j] / scale[j] * x[j];
        sum += off * off;
    }
    return sum;
}

/* sk_fit_rows with want[i] in place of 1; NULL: 1. */
static void fit_rows(const double *row, const double *want, int n, int k, double *x)
{
    double scale[N] = {0}, normal[N * N] = {0}, right[N] = {0}, best[N] = {0}, least = INFINITY;
    sk_assert(k <= N);
    for (int i = 0; i < n * k; i++) scale[i % k] += row[i] * row[i];
    for (int j = 0; j < k; j++) scale[j] = sqrt(scale[j]);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < k; j++) {
            if (scale[j] <= 0) continue;
            right[j] += row[i * k + j] / scale[j] * (want ? want[i] : 1);
            for (int l = 0; l < k; l++)
                if (scale[l] > 0)
                    normal[j * N + l] += row[i * k + j] / scale[j] * row[i * k + l] / scale[l];
        }
    for (unsigned in = 1; in < 1u << k; in++) {
        double y[N];
        bool fits = solve(normal, right, in, y);
        for (int j = 0; j < k && fits; j++) fits = y[j] >= 0 && (scale[j] > 0 || !(in >> j & 1));
        double left = fits ? left_over(row, want, scale, n, k, y) : INFINITY;
        if (left >= least * (1 - 1e-12)) continue; /* of equals the one with fewer numbers */
        least = left;
        memcpy(best, y, sizeof best);
    }
    for (int j = 0; j < k; j++) x[j] = scale[j] > 0 ? best[j] / scale[j] : 0;
}

void sk_fit_rows(const double *row, int n, int k, double *x) { fit_rows(row, NULL, n, k, x); }

/* --- models --- */

/* A unit machine per number tells the counts: closed forms are sums of them. */
static void count_closed(const sk_fit_point *p, double row[N])
{
    for (int j = 0; j < N; j++) {
        sk_costs c = {.shm = {.tiny = 0}};
        sk_link *l = &c.between;
        if (j == SK_LOGGP_LATENCY) l->alpha = 1;
        if (j == SK_LOGGP_OVERHEAD) l->each = 1;
        if (j == SK_LOGGP_BYTE) l->beta = 1;
        if (j == SK_LOGGP_INCAST) l->beta = l->incast = 1;
        if (j == SK_LOGGP_SUM) c.gamma = 1;
        row[j] = sk_closed_price(&c, p->algorithm, &p->ask, p->ask.n, p->bytes);
    }
    row[SK_LOGGP_INCAST] -= row[SK_LOGGP_BYTE];
}

static void count_played(const double *number, const sk_fit_point *p, double row[N])
{
    sk_loggp m = {.burst = p->burst, .steady = true}, path; /* calls back to back */
    memcpy(m.between, number, sizeof m.between);
    (void)sk_loggp_play(&m, p->algorithm, &p->ask, p->ask.n, p->bytes, &path);
    memcpy(row, path.between, sizeof path.between);
}

static double said_by(const double *number, bool loggp, const sk_fit_point *p)
{
    double row[N], sum = 0;
    if (loggp) count_played(number, p, row);
    else count_closed(p, row);
    for (int j = 0; j < N; j++) sum += row[j] * number[j];
    return sum;
}

double sk_fit_said(const sk_fit *f, bool loggp, const sk_fit_point *p)
{
    return said_by(f->number, loggp, p);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void judge(sk_arena *a, const sk_fit_point *v, int n, bool loggp, sk_fit *out)
{
    double *off = sk_many(a, double, n);
    out->worst = -1;
    out->squares = 0;
    for (int i = 0; i < n; i++) {
        off[i] = fabs(said_by(out->number, loggp, &v[i]) / v[i].seconds - 1);
        out->squares += off[i] * off[i];
        if (off[i] <= out->worst) continue;
        out->worst = off[i];
        out->worst_at = i;
    }
    qsort(off, (size_t)n, sizeof *off, by_size);
    out->median = n % 2 ? off[n / 2] : (off[n / 2 - 1] + off[n / 2]) / 2;
}

static sk_status enough(const sk_fit_point *v, int n)
{
    int sizes = 0;
    for (int i = 0; i < n; i++) {
        sk_assert(v[i].seconds > 0);
        sizes += v[i].bytes != v[0].bytes;
    }
    if (n >= SK_FIT_LEAST && sizes) return SK_OK;
    return sk_fail(SK_EUSAGE,
                   "fitting links: %d points of %s; at least %d with two sizes are needed (more of "
                   "--algorithm, --op and --sizes)",
                   n, sizes ? "several sizes" : "one size", SK_FIT_LEAST);
}

/* Sums grow as bytes do: only what moves without adding tells them apart. */
static bool tells_sums(const sk_fit_point *v, int n)
{
    for (int i = 0; i < n; i++)
        if (!sk_kind_sums(v[i].ask.kind)) return true;
    return false;
}

sk_status sk_fit_alpha_beta(sk_arena *a, const sk_fit_point *v, int n, sk_fit *out)
{
    double *row = sk_many(a, double, (int64_t)n *N);
    *out = (sk_fit){.median = 0};
    SK_TRY(enough(v, n));
    for (int i = 0; i < n; i++) {
        count_closed(&v[i], &row[(int64_t)i * N]);
        if (!tells_sums(v, n)) row[i * N + SK_LOGGP_SUM] = 0;
        for (int j = 0; j < N; j++) row[i * N + j] /= v[i].seconds;
    }
    sk_fit_rows(row, n, N, out->number);
    judge(a, v, n, false, out);
    return SK_OK;
}

/* The counts of a turn over the times, and what is left of 1 without the part of o: x stands for
 * the other numbers. */
static void turn(const sk_fit_point *v, int n, const double *number, double *row, double *want)
{
    for (int i = 0; i < n; i++) {
        double *at = &row[(int64_t)i * N];
        count_played(number, &v[i], at);
        want[i] = 1 - at[SK_LOGGP_OVERHEAD] * number[SK_LOGGP_OVERHEAD] / v[i].seconds;
        at[SK_LOGGP_OVERHEAD] = 0;
        if (!tells_sums(v, n)) at[SK_LOGGP_SUM] = 0;
        for (int j = 0; j < N; j++) at[j] /= v[i].seconds;
    }
}

/* From these numbers on, with their o; the best of all turns, if it is better than *out. */
static void fit_from(sk_arena *a, const sk_fit_point *v, int n, sk_fit now, sk_fit *out)
{
    double *row = sk_many(a, double, (int64_t)n *N), *want = sk_many(a, double, n);
    double overhead = now.number[SK_LOGGP_OVERHEAD];
    for (int i = 0; i < TURNS; i++) {
        judge(a, v, n, true, &now);
        if (now.squares < out->squares) *out = now;
        turn(v, n, now.number, row, want);
        fit_rows(row, want, n, N, now.number);
        now.number[SK_LOGGP_OVERHEAD] = overhead;
    }
}

/* Where cores are waited for, START may have taken longer than whole calls do: then the measured o
 * fits badly, and one of the others is better. */
sk_status sk_fit_loggp(sk_arena *a, const sk_fit_point *v, int n, double overhead, sk_fit *out)
{
    sk_fit now;
    SK_TRY(sk_fit_alpha_beta(a, v, n, &now));
    double each = now.number[SK_LOGGP_OVERHEAD];
    *out = now;
    out->squares = INFINITY;
    fit_from(a, v, n, now, out); /* alpha-beta itself: o is `each` */
    now.number[SK_LOGGP_GAP] = each;
    now.number[SK_LOGGP_OVERHEAD] = 0;
    fit_from(a, v, n, now, out);
    sk_fit other = *out;
    *out = now;
    out->squares = INFINITY;
    now.number[SK_LOGGP_OVERHEAD] = overhead;
    fit_from(a, v, n, now, out);
    if (out->median > GOOD && other.squares < out->squares) *out = other;
    return SK_OK;
}
