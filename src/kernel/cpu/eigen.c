/* eigen.c - see kernel/eigen.h.  Golub and Van Loan, Matrix Computations, 8.3, has the method.
 *
 * Matrices are stored row by row and only the lower triangle is used while it is reduced, so that
 * every inner loop runs along a row. */
#include "kernel/eigen.h"
#include "kernel/cpu/ordered_vectors.h"
#include "kernel/kernel_launch.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { MOST_SWEEPS = 60 }; /* sweeps: of QL for one eigenvalue; 2 are usual */

/* Of LAPACK, which a BLAS may lack; ints are of 32 bits. */
extern void dsyevd_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda,
                    double *w, double *work, const int *lwork, int *iwork, const int *liwork,
                    int *info) __attribute__((weak));

enum { MOST_LAPACK = 30000 }; /* lwork is 2 n^2 */

bool sk_eigen_lapack(void) { return dsyevd_ != NULL; }

/* --- to a tridiagonal matrix --- */

/* p = A v / h for the leading m x m block, of which the lower triangle is there. */
static void times(const double *a, int64_t n, int64_t m, const double *v, double h, double *p)
{
    for (int64_t i = 0; i < m; i++) {
        const double *row = a + i * n;
        p[i] = sk_dot(row, v, i) + row[i] * v[i];
        sk_axpy(p, v[i], row, i);
    }
    for (int64_t i = 0; i < m; i++) p[i] /= h;
}

/* A becomes H A H with H = I - v v' / h: A - v w' - w v'. */
static void reflect(double *a, int64_t n, int64_t m, const double *v, double h, double *w)
{
    times(a, n, m, v, h, w);
    sk_axpy(w, -sk_dot(v, w, m) / (2 * h), v, m);
    for (int64_t i = 0; i < m; i++) {
        double *restrict row = a + i * n, vi = v[i], wi = w[i];
#pragma omp simd
        for (int64_t j = 0; j <= i; j++) row[j] -= vi * w[j] + wi * v[j];
    }
}

/* Row i, of the last rows first, keeps diagonal[i] and its neighbour off[i - 1] on the left; its
 * reflection v stays in the row, with h, which is 0 if none was needed. */
static void tridiagonal(double *a, int64_t n, double *diagonal, double *off, double *h, double *w)
{
    for (int64_t i = n - 1; i >= 0; i--) {
        double *v = a + i * n;
        diagonal[i] = v[i];
        h[i] = 0;
        if (!i) break;
        double last = v[i - 1], rest = sk_dot(v, v, i - 1);
        off[i - 1] = last;
        if (!(rest > 0)) continue;
        off[i - 1] = -copysign(sqrt(last * last + rest), last);
        h[i] = off[i - 1] * (off[i - 1] - last);
        v[i - 1] = last - off[i - 1];
        reflect(a, n, i, v, h[i], w);
    }
}

/* The product of the reflections, transposed, instead of them. */
static void product(double *a, int64_t n, const double *h)
{
    for (int64_t i = 1; i <= n; i++) {
        double *unit = a + (i - 1) * n; /* its reflection has been taken */
        memset(unit, 0, (size_t)i * sizeof *unit);
        for (int64_t r = 0; r < i; r++) a[r * n + i - 1] = r == i - 1;
        if (i == n || !(h[i] > 0)) continue;
        const double *v = a + i * n;
        for (int64_t r = 0; r < i; r++) sk_axpy(a + r * n, -sk_dot(a + r * n, v, i) / h[i], v, i);
    }
}

/* --- to a diagonal one --- */

static void rotate(double *restrict x, double *restrict y, double c, double s, int64_t n)
{
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        double t = y[k];
        y[k] = s * x[k] + c * t;
        x[k] = c * x[k] - s * t;
    }
}

/* Where the block that begins at l ends: the element to the right of it is as good as 0. */
static int64_t block_end(const double *d, const double *e, int64_t l, int64_t n, double norm)
{
    for (int64_t m = l; m < n - 1; m++) {
        double local = DBL_EPSILON * (fabs(d[m]) + fabs(d[m + 1]));
        if (fabs(e[m]) <= local || fabs(e[m]) <= 0.01 * DBL_EPSILON * norm) return m;
    }
    return n - 1;
}

/* One implicit QL sweep over the block [l, m], with Wilkinson's shift; rows of z turn along. */
static void sweep(double *d, double *e, double *z, int64_t l, int64_t m, int64_t n)
{
    double half = (d[l + 1] - d[l]) / (2 * e[l]);
    double g = d[m] - d[l] + e[l] / (half + copysign(hypot(half, 1), half));
    double s = 1, c = 1, p = 0;
    for (int64_t i = m - 1; i >= l; i--) {
        double f = s * e[i], b = c * e[i], r = hypot(f, g);
        e[i + 1] = r;
        if (!(r > 0)) { /* the block has come apart */
            d[i + 1] -= p;
            e[m] = 0;
            return;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
        rotate(z + i * n, z + (i + 1) * n, c, s, n);
    }
    d[l] -= p;
    e[l] = g;
    e[m] = 0;
}

static bool diagonalize(double *d, double *e, double *z, int64_t n)
{
    double norm = 0;
    e[n - 1] = 0;
    for (int64_t i = 0; i < n; i++) norm = fmax(norm, fabs(d[i]) + fabs(e[i]));
    for (int64_t l = 0; l < n; l++)
        for (int k = 0;; k++) {
            int64_t m = block_end(d, e, l, n, norm);
            if (m == l) break;
            if (k == MOST_SWEEPS) return false;
            sweep(d, e, z, l, m, n);
        }
    return true;
}

static void swap(double *restrict x, double *restrict y, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        double t = x[k];
        x[k] = y[k];
        y[k] = t;
    }
}

static void ascend(double *d, double *z, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t least = i;
        for (int64_t k = i + 1; k < n; k++)
            if (d[k] < d[least]) least = k;
        if (least == i) continue;
        swap(&d[i], &d[least], 1);
        swap(z + i * n, z + least * n, n);
    }
}

static bool by_ql(sk_eigen *v, double *rest)
{
    int64_t n = v->n;
    double *off = rest, *h = rest + n, *w = rest + 2 * n;
    tridiagonal(v->vector, n, v->value, off, h, w);
    product(v->vector, n, h);
    if (!diagonalize(v->value, off, v->vector, n)) return false;
    ascend(v->value, v->vector, n);
    return true;
}

/* --- both --- */

/* Rows here are columns there: the lower triangle is the upper one, and eigenvectors are rows. */
static bool by_lapack(sk_eigen *v, int *ints)
{
    int n = (int)v->n, lwork = 2 * n * n + 6 * n + 1, liwork = 5 * n + 3, info = 0;
    dsyevd_("V", "U", &n, v->vector, &n, v->value, v->work, &lwork, ints, &liwork, &info);
    return !info;
}

static bool load(const real *x, sk_eigen *v)
{
    int64_t n = v->n;
    bool finite = true;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            v->vector[i * n + j] = j <= i ? (double)x[i * n + j] : 0;
            if (!isfinite(v->vector[i * n + j])) finite = false;
        }
    return finite;
}

static void fix_signs(sk_eigen *v)
{
    for (int64_t k = 0; k < v->n; k++) {
        double *row = v->vector + k * v->n, most = 0;
        int64_t first = 0;
        for (int64_t i = 0; i < v->n; i++) most = fmax(most, fabs(row[i]));
        while (fabs(row[first]) < (1 - SK_EIGEN_TIE) * most) first++;
        if (row[first] >= 0) continue;
        for (int64_t i = 0; i < v->n; i++) row[i] = -row[i];
    }
}

size_t sk_eigen_scratch(int64_t n)
{
    size_t m = (size_t)n;
    return (m * m + m + 2 * m * m + 6 * m + 1) * sizeof(double) + (5 * m + 3) * sizeof(int);
}

/* The matrix, eigenvalues, and what cusolverDnDsyevd is likely to ask for. */
size_t sk_eigen_workspace(int64_t n)
{
    size_t m = (size_t)n, need = (4 * m * m + 64 * m + (1 << 17)) * sizeof(double);
    return need > SK_WORKSPACE ? need - SK_WORKSPACE : 0;
}

bool sk_eigen_of(const real *x, int64_t n, bool own, void *scratch, sk_eigen *out)
{
    double *at = scratch;
    *out = (sk_eigen){n, at, at + n, at + n + n * n};
    if (!n) return true;
    if (!load(x, out)) return false;
    bool lapack = !own && sk_eigen_lapack() && n <= MOST_LAPACK;
    if (lapack && !by_lapack(out, (int *)(out->work + 2 * n * n + 6 * n + 1))) {
        lapack = false;
        load(x, out);
    }
    if (!lapack && !by_ql(out, out->work)) return false;
    fix_signs(out);
    return true;
}
