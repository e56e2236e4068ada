/* inverse.c - damped inverses of symmetric positive semi-definite matrices: (A + d I)^-1, by a
 * Cholesky factorisation (kernel/cholesky.h).
 *
 * attr: eps, eps_abs; d = eps max(trace / n, 2^-126) + eps_abs, and 2^-126 at least: relative to
 * the mean eigenvalue, where inv_root's is relative to the largest.  A matrix that even so is not
 * positive definite gets a larger d.  If A is zero and eps_abs too, the result is the identity.
 * What would be over the largest f32 is that.
 *
 * The lower triangle is read, both are written.  A letter in front counts matrices, each of which
 * one thread takes.  A matrix with a NaN or an infinity gives NaN. */
#include "graph/infer_square.h"
#include "kernel/cholesky.h"
#include "kernel/eigen.h"

enum { EPS, EPS_ABS };

static void one(const sk_args *a, int64_t n, const real *x, real *y)
{
    sk_square_put(y, n, sk_inverse_of(x, n, a->attr, sk_args_canonical(a), a->scratch));
}

static void cpu(const sk_args *a) { sk_squares_each(a, one); }

static void infer(sk_graph *g, const sk_node *n)
{
    sk_square_infer(g, n);
    if (!(n->attr[EPS] >= 0) || !(n->attr[EPS_ABS] >= 0))
        sk_graph_fail(g, SK_ECONF, "inverse: eps is %g and %g; it must not be below 0 (%s)",
                      n->attr[EPS], n->attr[EPS_ABS], n->where);
}

static size_t scratch(const sk_args *a) { return sk_inverse_scratch(sk_squares_of(a).n); }
static size_t workspace(const sk_args *a) { return sk_inverse_workspace(sk_squares_of(a).n); }

/* A third of n^3 for the factorisation, the rest for the inverse. */
static double flops(const sk_args *a)
{
    sk_squares s = sk_squares_of(a);
    return (double)s.batch * pow((double)s.n, 3);
}

static const sk_sample samples[] = {
    {.in = {"m5n5"}, .dims = "m!n!->mn", .attr = {0.1, 6}},
    {.in = {"m1n1"}, .dims = "m!n!->mn", .attr = {1e-3}, .positive = true},
    {.in = {"m2n2"}, .dims = "m!n!->mn", .attr = {0, 4}},
    {.in = {"m37n37"}, .dims = "m!n!->mn", .attr = {0.05, 20}},
    {.in = {"e5m7n7"}, .dims = "em!n!->emn", .attr = {0.01, 9}},
    {.in = {"e3m1n1"}, .dims = "em!n!->emn", .attr = {0.1}, .positive = true},
    {.in = {"m65n65"}, .dims = "m!n!->mn", .attr = {0.1}},
    {.in = {0}},
};

const sk_op sk_op_inverse = {
    .name = "inverse",
    .doc = "damped inverses of symmetric positive semi-definite matrices",
    .n_in = 1,
    .types = "f>f",
    .infer = infer,
    .flops = flops,
    .scratch = scratch,
    .workspace = workspace,
    .cpu = cpu,
    .samples = samples,
};
