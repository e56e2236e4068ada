/* scaling_law.c - fitting scaling laws: linear terms are solved, exponents are searched. */
#include "plan/scaling_law.h"
#include "base/rng.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { TERMS = 3, GRID = 25, MOST_MOVES = 400 };

/* Exponents that are searched.  Published ones lie between 0.05 and 0.7. */
#define LEAST 0.01
#define MOST  3.0
#define FINE  1e-7 /* relative precision of exponents */

typedef struct problem {
    sk_law_kind kind;
    const sk_law_point *p;
    int n;
    double n0, d0;  /* geometric means: powers are taken of N/n0 and D/d0, which are near 1 */
    double *column; /* TERMS x n, scratch */
} problem;

typedef struct solution {
    double x[TERMS]; /* E, and the terms of N and D at n0 and d0 */
    double sum;      /* of squared relative errors */
} solution;

static bool has_n(sk_law_kind k) { return k != SK_LAW_D; }
static bool has_d(sk_law_kind k) { return k != SK_LAW_N; }

/* ---- the linear half */

/* Columns divided by the losses, so that errors are relative and the right side is 1. */
static void set_columns(const problem *q, double alpha, double beta)
{
    for (int i = 0; i < q->n; i++) {
        double w = 1 / q->p[i].loss;
        q->column[i] = w;
        q->column[q->n + i] = w * pow(q->p[i].n / q->n0, -alpha);
        q->column[2 * q->n + i] = w * pow(q->p[i].d / q->d0, -beta);
    }
}

static double dot(const double *x, const double *y, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* Gram-Schmidt of the chosen columns in `v` (k of n numbers); false: they are dependent. */
static bool orthogonalise(double *v, int k, int n, double r[TERMS][TERMS])
{
    for (int j = 0; j < k; j++) {
        double *x = v + j * n, before = sqrt(dot(x, x, n));
        for (int i = 0; i < j; i++) {
            r[i][j] = dot(v + i * n, x, n);
            for (int t = 0; t < n; t++) x[t] -= r[i][j] * v[i * n + t];
        }
        r[j][j] = sqrt(dot(x, x, n));
        if (r[j][j] <= 1e-10 * before) return false;
        for (int t = 0; t < n; t++) x[t] /= r[j][j];
    }
    return true;
}

/* Least squares with the terms of `mask` alone; false if they are dependent or one is negative. */
static bool solve_some(const problem *q, unsigned mask, double *scratch, solution *out)
{
    double r[TERMS][TERMS] = {{0}}, y[TERMS], x[TERMS];
    int which[TERMS], k = 0, n = q->n;
    for (int t = 0; t < TERMS; t++)
        if (mask >> t & 1) {
            memcpy(scratch + k * n, q->column + t * n, (size_t)n * sizeof *scratch);
            which[k++] = t;
        }
    if (!orthogonalise(scratch, k, n, r)) return false;
    *out = (solution){.sum = 0};
    for (int j = k; j-- > 0;) {
        y[j] = 0;
        for (int i = 0; i < n; i++) y[j] += scratch[j * n + i];
        x[j] = y[j];
        for (int i = j + 1; i < k; i++) x[j] -= r[j][i] * x[i];
        x[j] /= r[j][j];
        if (x[j] < 0) return false;
        out->x[which[j]] = x[j];
    }
    for (int i = 0; i < n; i++) {
        double off = -1;
        for (int t = 0; t < TERMS; t++) off += out->x[t] * q->column[t * n + i];
        out->sum += off * off;
    }
    return true;
}

/* The best of all sets of terms that come out positive: with three terms that is all of
 * non-negative least squares.  One term alone is always positive. */
static solution solve(const problem *q, const double u[2])
{
    solution best = {.sum = DBL_MAX}, s;
    unsigned may = 1u | (has_n(q->kind) ? 2u : 0) | (has_d(q->kind) ? 4u : 0);
    double *scratch = q->column + TERMS * q->n;
    set_columns(q, exp(u[0]), exp(u[1]));
    for (unsigned mask = 1; mask <= may; mask++)
        if ((mask & may) == mask && solve_some(q, mask, scratch, &s) && s.sum < best.sum) best = s;
    return best;
}

/* ---- the search of exponents, by their logarithms */

static double clamp(double u) { return fmin(fmax(u, log(LEAST)), log(MOST)); }

static solution search_grid(const problem *q, double u[2])
{
    solution best = {.sum = DBL_MAX};
    double step = (log(MOST) - log(LEAST)) / (GRID - 1);
    int rows = has_n(q->kind) ? GRID : 1, cols = has_d(q->kind) ? GRID : 1;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            double at[2] = {log(LEAST) + i * step, log(LEAST) + j * step};
            solution s = solve(q, at);
            if (s.sum < best.sum) best = s, u[0] = at[0], u[1] = at[1];
        }
    return best;
}

/* The best neighbour at a distance of `step`, diagonal ones too; false: none is better. */
static bool move(const problem *q, double step, double u[2], solution *best)
{
    double from[2] = {u[0], u[1]};
    bool moved = false;
    for (int i = -1; i <= 1; i++)
        for (int j = -1; j <= 1; j++) {
            if ((i && !has_n(q->kind)) || (j && !has_d(q->kind)) || (!i && !j)) continue;
            double at[2] = {clamp(from[0] + i * step), clamp(from[1] + j * step)};
            solution s = solve(q, at);
            if (s.sum < best->sum) *best = s, u[0] = at[0], u[1] = at[1], moved = true;
        }
    return moved;
}

static solution search(const problem *q, double u[2])
{
    solution best = search_grid(q, u);
    double step = (log(MOST) - log(LEAST)) / (GRID - 1) / 2;
    for (int i = 0; i < MOST_MOVES && step > FINE; i++)
        if (!move(q, step, u, &best)) step /= 2;
    return best;
}

/* ---- what can be fitted at all */

static double value(const sk_law_point *p, bool of_d) { return of_d ? p->d : p->n; }

static int distinct(const sk_law_point *p, int n, bool of_d)
{
    int count = 0;
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < i && value(&p[k], of_d) != value(&p[i], of_d)) k++;
        count += k == i;
    }
    return count;
}

static sk_status check_points(const sk_law_point *p, int n)
{
    for (int i = 0; i < n; i++) {
        const double v[] = {p[i].loss, p[i].n, p[i].d};
        static const char *const what[] = {"loss", "number of parameters", "number of tokens"};
        for (int k = 0; k < 3; k++)
            if (!isfinite(v[k]) || v[k] <= 0)
                return sk_fail(SK_EDATA,
                               "scaling law: the %s of point %d of %d is %g; a finite number above "
                               "0 is needed",
                               what[k], i + 1, n, v[k]);
    }
    return SK_OK;
}

sk_status sk_law_enough(sk_law_kind kind, const sk_law_point *p, int n)
{
    static const char *const of[] = {"parameters", "tokens"};
    int need = kind == SK_LAW_ND ? 3 : 4, points = kind == SK_LAW_ND ? 6 : 4;
    for (int d = 0; d < 2; d++) {
        int have = distinct(p, n, d);
        bool wanted = d ? has_d(kind) : has_n(kind);
        if (wanted && have < need)
            return sk_fail(SK_EDATA,
                           "scaling law: the points have %d different number%s of %s; at least %d "
                           "are needed",
                           have, have == 1 ? "" : "s", of[d], need);
        if (!wanted && have > 1)
            return sk_fail(SK_EDATA,
                           "scaling law: the points have %d different numbers of %s, which a law "
                           "of %s alone does not know",
                           have, of[d], of[!d]);
    }
    if (n < points)
        return sk_fail(SK_EDATA, "scaling law: %d point%s; at least %d are needed", n,
                       n == 1 ? "" : "s", points);
    return SK_OK;
}

/* Tokens in proportion to a power of the parameters: the two terms cannot be told apart. */
static sk_status check_apart(const problem *q)
{
    double nn = 0, dd = 0, nd = 0;
    for (int i = 0; i < q->n; i++) {
        double x = log(q->p[i].n / q->n0), y = log(q->p[i].d / q->d0);
        nn += x * x, dd += y * y, nd += x * y;
    }
    if (q->kind != SK_LAW_ND || nd * nd < 0.995 * nn * dd) return SK_OK;
    return sk_fail(SK_EDATA,
                   "scaling law: tokens go with parameters in all points (correlation %.3f of "
                   "their logarithms); several numbers of tokens for one model are needed",
                   nd / sqrt(nn * dd));
}

/* A term that came out as 0, or an exponent at the end of what is searched. */
static sk_status check_law(const sk_law *l)
{
    static const char *const of[] = {"parameters", "tokens"};
    for (int d = 0; d < 2; d++) {
        if (!(d ? has_d(l->kind) : has_n(l->kind))) continue;
        double exponent = d ? l->beta : l->alpha;
        if ((d ? l->b : l->a) <= 0 || exponent < 1.001 * LEAST)
            return sk_fail(SK_EDATA, "scaling law: the losses do not fall with more %s", of[d]);
        if (exponent > 0.999 * MOST)
            return sk_fail(SK_EDATA,
                           "scaling law: the exponent of %s is above %g: the losses stop falling "
                           "after the smallest sizes, and these points do not determine it",
                           of[d], MOST);
    }
    return SK_OK;
}

/* ---- the fit */

static double mean_log(const sk_law_point *p, int n, bool of_d)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += log(value(&p[i], of_d));
    return exp(sum / n);
}

static sk_law fit(const problem *q)
{
    double u[2] = {0, 0};
    solution s = search(q, u);
    int free = q->n - (q->kind == SK_LAW_ND ? 5 : 3);
    sk_law l = {.kind = q->kind, .e = s.x[0], .n_points = q->n};
    l.spread = sqrt(s.sum / (free > 0 ? free : 1));
    if (has_n(q->kind)) l.alpha = exp(u[0]), l.a = s.x[1] * pow(q->n0, l.alpha);
    if (has_d(q->kind)) l.beta = exp(u[1]), l.b = s.x[2] * pow(q->d0, l.beta);
    return l;
}

static problem pose(sk_arena *a, sk_law_kind kind, const sk_law_point *p, int n)
{
    return (problem){.kind = kind,
                     .p = p,
                     .n = n,
                     .n0 = mean_log(p, n, false),
                     .d0 = mean_log(p, n, true),
                     .column = sk_many(a, double, 2 * TERMS * n)};
}

sk_status sk_law_fit(sk_arena *a, sk_law_kind kind, const sk_law_point *p, int n, sk_law *out)
{
    SK_TRY(check_points(p, n));
    SK_TRY(sk_law_enough(kind, p, n));
    sk_mark mark = sk_arena_mark(a);
    problem q = pose(a, kind, p, n);
    sk_status st = check_apart(&q);
    sk_law l = {0};
    if (!st) l = fit(&q);
    sk_arena_back(a, mark);
    if (st) return sk_trail(st, SK_HERE);
    SK_TRY(check_law(&l));
    *out = l;
    return SK_OK;
}

double sk_law_loss(const sk_law *l, double n, double d)
{
    double loss = l->e;
    if (has_n(l->kind)) loss += l->a * pow(n, -l->alpha);
    if (has_d(l->kind)) loss += l->b * pow(d, -l->beta);
    return loss;
}

int sk_law_draws(sk_arena *a, const sk_law *l, const sk_law_point *p, int n, int n_draws,
                 uint64_t seed, sk_law **out)
{
    int fitted = 0;
    *out = sk_many(a, sk_law, n_draws);
    sk_mark mark = sk_arena_mark(a);
    sk_law_point *drawn = sk_many(a, sk_law_point, n);
    problem q = pose(a, l->kind, p, n);
    q.p = drawn;
    for (int k = 0; k < n_draws; k++) {
        for (int i = 0; i < n; i++) {
            double off = l->spread * sk_rng_normal(seed, (uint64_t)k, (uint64_t)i);
            drawn[i] = p[i];
            drawn[i].loss = sk_law_loss(l, p[i].n, p[i].d) * exp(off);
        }
        (*out)[fitted] = fit(&q);
        if (!check_law(&(*out)[fitted])) fitted++;
    }
    sk_error_set(""); /* of draws that have no law */
    sk_arena_back(a, mark);
    return fitted;
}

/* The derivative along C = 6 N D is zero where alpha A / N^alpha = beta B / D^beta. */
void sk_law_optimum(const sk_law *l, double compute, double *n, double *d)
{
    sk_assert(l->kind == SK_LAW_ND);
    double sum = l->alpha + l->beta, product = compute / 6;
    *n = pow(l->alpha * l->a / (l->beta * l->b), 1 / sum) * pow(product, l->beta / sum);
    *d = product / *n;
}
