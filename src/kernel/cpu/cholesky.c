/* cholesky.c - see kernel/cholesky.h.
 *
 * Matrices are stored row by row, the lower triangle is replaced in place, and every inner loop
 * runs along a row: L, then its inverse, then the product of that with its transpose. */
#include "kernel/cholesky.h"
#include "kernel/cpu/ordered_vectors.h"
#include "kernel/kernel_launch.h"

#include <string.h>

/* Of LAPACK, which a BLAS may lack; ints are of 32 bits.  Rows here are columns there: the lower
 * triangle is the upper one. */
extern void dpotrf_(const char *uplo, const int *n, double *a, const int *lda, int *info)
    __attribute__((weak));
extern void dpotri_(const char *uplo, const int *n, double *a, const int *lda, int *info)
    __attribute__((weak));

/* false: a pivot is not over 0. */
static bool factorise(double *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double *row = a + i * n;
        for (int64_t j = 0; j < i; j++)
            row[j] = (row[j] - sk_dot(row, a + j * n, j)) / a[j * n + j];
        row[i] -= sk_dot(row, row, i);
        if (!(row[i] > 0)) return false;
        row[i] = sqrt(row[i]);
    }
    return true;
}

/* L becomes L^-1; row[n] is scratch. */
static void invert_triangle(double *a, int64_t n, double *row)
{
    for (int64_t i = 0; i < n; i++) {
        double *to = a + i * n, pivot = 1 / to[i];
        memset(row, 0, (size_t)i * sizeof *row);
        for (int64_t k = 0; k < i; k++) sk_axpy(row, to[k], a + k * n, k + 1);
        for (int64_t j = 0; j < i; j++) to[j] = -pivot * row[j];
        to[i] = pivot;
    }
}

/* The lower triangle of M' M of a lower triangle M.  Row i needs rows i and below of M. */
static void square(double *m, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double *to = m + i * n, by = to[i];
        for (int64_t j = 0; j <= i; j++) to[j] *= by;
        for (int64_t k = i + 1; k < n; k++) sk_axpy(to, m[k * n + i], m + k * n, i + 1);
    }
}

static bool by_own(double *a, int64_t n, double *row)
{
    if (!factorise(a, n)) return false;
    invert_triangle(a, n, row);
    square(a, n);
    return true;
}

static bool by_lapack(double *a, int64_t rows)
{
    int n = (int)rows, info = 0;
    dpotrf_("U", &n, a, &n, &info);
    if (!info) dpotri_("U", &n, a, &n, &info);
    return !info;
}

typedef struct measure {
    double trace, most;
    bool finite;
} measure;

static measure measure_of(const real *x, int64_t n)
{
    measure m = {0, 0, true};
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j <= i; j++) {
            double at = fabs((double)x[i * n + j]);
            if (!isfinite(at)) m.finite = false;
            if (at > m.most) m.most = at;
        }
        m.trace += (double)x[i * n + i];
    }
    return m;
}

static void load(const real *x, int64_t n, double damping, double *a)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            a[i * n + j] = j > i ? 0 : (double)x[i * n + j] + (j == i ? damping : 0);
}

size_t sk_inverse_scratch(int64_t n) { return (size_t)(n * n + n) * sizeof(double); }

/* The matrix, the right sides, and what cusolverDnDpotrf is likely to ask for. */
size_t sk_inverse_workspace(int64_t n)
{
    size_t m = (size_t)n, need = (2 * m * m + 256 * m + (1 << 17)) * sizeof(double);
    return need > SK_WORKSPACE ? need - SK_WORKSPACE : 0;
}

const double *sk_inverse_of(const real *x, int64_t n, const double *attr, bool own, void *scratch)
{
    double *a = scratch;
    measure m = measure_of(x, n);
    bool lapack = n && !own && dpotrf_ && dpotri_;
    for (int k = 0; k < SK_DAMPING_TRIES && m.finite; k++) {
        load(x, n, sk_damping_of(attr, n, m.trace, m.most, k), a);
        if (lapack ? by_lapack(a, n) : by_own(a, n, a + n * n)) return a;
    }
    return NULL;
}
