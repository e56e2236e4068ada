/* inv_root.c - inverse roots of symmetric positive semi-definite matrices: (A + d I)^(-1/p).
 *
 * attr: p, eps, eps_abs; d = eps max(largest eigenvalue, 2^-126) + eps_abs, and 2^-126 at least, so
 * that eigenvalues of 0 stay finite.  Eigenvalues below 0, by rounding, count as 0.  If A is zero
 * and eps_abs too, the result is the identity.  What would be over the largest f32 (p below 1) is
 * that.
 *
 * The lower triangle is read, both are written.  A letter in front counts matrices, each of which
 * one thread takes.  A matrix with a NaN or an infinity gives NaN. */
#include "graph/infer_square.h"
#include "kernel/cpu/gemm.h"
#include "kernel/eigen.h"

enum { P, EPS, EPS_ABS, ROWS = 4 };

/* Rows [first, first + ROWS) of the lower triangle of v' v. */
static void some_rows(const sk_eigen *v, int64_t first)
{
    int64_t n = v->n, rows = n - first < ROWS ? n - first : ROWS, cols = first + rows;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++) v->work[(first + r) * n + j] = 0;
    for (int64_t k = 0; k < n; k++) {
        const double *restrict from = v->vector + k * n;
        for (int64_t r = 0; r < rows; r++) {
            double *restrict to = v->work + (first + r) * n, by = from[first + r];
#pragma omp simd
            for (int64_t j = 0; j < cols; j++) to[j] += by * from[j];
        }
    }
}

static void multiply(const sk_eigen *v, bool own)
{
    int n = (int)v->n;
    if (!own)
        cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, n, n, 1, v->vector, n, 0, v->work, n);
    for (int64_t i = 0; own && i < v->n; i += ROWS) some_rows(v, i);
}

/* Eigenvectors times the root of what becomes of their eigenvalues. */
static void weigh(const sk_eigen *v, const double *attr)
{
    sk_root r = sk_root_of(attr, v->value[v->n - 1]);
    for (int64_t k = 0; k < v->n; k++) {
        double by = r.none ? 1 : pow(fmax(v->value[k], 0) + r.shift, r.power);
        by = sqrt(fmin(by, FLT_MAX));
        for (int64_t i = 0; i < v->n; i++) v->vector[k * v->n + i] *= by;
    }
}

static void one(const sk_args *a, int64_t n, const real *x, real *y)
{
    sk_eigen v;
    bool own = sk_args_canonical(a), found = sk_eigen_of(x, n, own, a->scratch, &v);
    if (found && n) {
        weigh(&v, a->attr);
        multiply(&v, own);
    }
    sk_square_put(y, n, found ? v.work : NULL);
}

static void cpu(const sk_args *a) { sk_squares_each(a, one); }

static void infer(sk_graph *g, const sk_node *n)
{
    sk_square_infer(g, n);
    if (!(n->attr[P] > 0) || !(n->attr[EPS] >= 0) || !(n->attr[EPS_ABS] >= 0))
        sk_graph_fail(g, SK_ECONF,
                      "inv_root: p is %g, eps %g and %g; p must be over 0, eps not below it (%s)",
                      n->attr[P], n->attr[EPS], n->attr[EPS_ABS], n->where);
}

static size_t scratch(const sk_args *a) { return sk_eigen_scratch(sk_squares_of(a).n); }
static size_t workspace(const sk_args *a) { return sk_eigen_workspace(sk_squares_of(a).n); }

static double flops(const sk_args *a)
{
    sk_squares s = sk_squares_of(a);
    return 10 * (double)s.batch * pow((double)s.n, 3);
}

static const sk_sample samples[] = {
    {.in = {"m5n5"}, .dims = "m!n!->mn", .attr = {4, 0.1}},
    {.in = {"m1n1"}, .dims = "m!n!->mn", .attr = {2, 1e-3}, .positive = true},
    {.in = {"m2n2"}, .dims = "m!n!->mn", .attr = {1, 0, 0.5}},
    {.in = {"m37n37"}, .dims = "m!n!->mn", .attr = {2, 0.05, 0.1}},
    {.in = {"e5m7n7"}, .dims = "em!n!->emn", .attr = {4, 0.01, 0.01}},
    {.in = {"e3m1n1"}, .dims = "em!n!->emn", .attr = {2, 0.1}, .positive = true},
    {.in = {"m65n65"}, .dims = "m!n!->mn", .attr = {3, 0.1}},
    {.in = {0}},
};

const sk_op sk_op_inv_root = {
    .name = "inv_root",
    .doc = "inverse roots of symmetric positive semi-definite matrices",
    .n_in = 1,
    .types = "f>f",
    .infer = infer,
    .flops = flops,
    .scratch = scratch,
    .workspace = workspace,
    .cpu = cpu,
    .samples = samples,
};
