/* eigvec.c - eigenvectors of symmetric matrices, as columns, by ascending eigenvalue.
 *
 * The lower triangle is read.  Signs are fixed as kernel/eigen.h says; eigenvectors of equal
 * eigenvalues are some basis of their space.  A letter in front counts matrices, each of which one
 * thread takes.  A matrix with a NaN or an infinity gives NaN. */
#include "graph/infer_square.h"
#include "kernel/eigen.h"

#include <math.h>

static void one(const sk_args *a, int64_t n, const real *x, real *y)
{
    sk_eigen v;
    bool found = sk_eigen_of(x, n, sk_args_canonical(a), a->scratch, &v);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++)
            y[i * n + k] = found ? (real)v.vector[k * n + i] : (real)NAN;
}

static void cpu(const sk_args *a) { sk_squares_each(a, one); }

static size_t scratch(const sk_args *a) { return sk_eigen_scratch(sk_squares_of(a).n); }
static size_t workspace(const sk_args *a) { return sk_eigen_workspace(sk_squares_of(a).n); }

/* 4/3 n^3 to a tridiagonal matrix, the rest for the eigenvectors. */
static double flops(const sk_args *a)
{
    sk_squares s = sk_squares_of(a);
    return 9 * (double)s.batch * pow((double)s.n, 3);
}

static const sk_sample samples[] = {
    {.in = {"m5n5"}, .dims = "m!n!->mn"},
    {.in = {"m1n1"}, .dims = "m!n!->mn"},
    {.in = {"m2n2"}, .dims = "m!n!->mn"},
    {.in = {"m37n37"}, .dims = "m!n!->mn"},
    {.in = {"e5m7n7"}, .dims = "em!n!->emn"},
    {.in = {"e3m1n1"}, .dims = "em!n!->emn"},
    {.in = {"m64n64"}, .dims = "m!n!->mn"},
    {.in = {"m3n3"}, .dims = "m!n!->mn", .positive = true},
    {.in = {0}},
};

const sk_op sk_op_eigvec = {
    .name = "eigvec",
    .doc = "eigenvectors of symmetric matrices, as columns",
    .n_in = 1,
    .types = "f>f",
    .infer = sk_square_infer,
    .flops = flops,
    .scratch = scratch,
    .workspace = workspace,
    .cpu = cpu,
    .samples = samples,
};
