/* xent_curvature.c - a column of a square root of the Hessian of the cross-entropy by the logits.
 *
 * The Hessian of a row is diag(p) - p p' = sum over classes k of p_k (p - e_k)(p - e_k)'.  So the
 * columns of a root are sqrt(p_k) (p - e_k), and one column with k drawn from p, p - e_k, has the
 * Hessian as its expectation.  Times the root of the row's weight, and the loss scale.
 *
 * attr[0]: the class k, or -1 to draw it by inversion of the distribution function; attr[1] tells
 * this draw of the model from others.  Draws depend on seed, step and logical row alone. */
#include "graph/graph.h"
#include "base/rng.h"
#include "kernel/cpu/vecmath.h"

#include <math.h>

static void infer(sk_graph *g, const sk_node *n)
{
    int64_t classes = g->size[(int)n->letters_in[0][strlen(n->letters_in[0]) - 1] & 127];
    if (!(n->attr[0] >= -1 && n->attr[0] < (double)classes))
        sk_graph_fail(g, SK_ECONF, "xent_curvature: class %g; -1 to %g is needed (%s)", n->attr[0],
                      (double)classes - 1, n->where);
}

/* The first class at which the sum of p passes u. */
static int64_t draw(const real *p, int64_t n, double u)
{
    double sum = 0;
    for (int64_t i = 0; i < n - 1; i++)
        if ((sum += (double)p[i]) > u) return i;
    return n - 1;
}

/* y = the distribution; returns the class. */
static int64_t one_row(const sk_args *a, const real *x, int64_t n, int64_t row, real *y)
{
    real most = x[0], sum = 0;
    for (int64_t i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < n; i++) sum += y[i] = sk_exp(x[i] - most);
    for (int64_t i = 0; i < n; i++) y[i] /= sum;
    if (a->attr[0] >= 0) return (int64_t)a->attr[0];
    uint64_t stream = a->stream * 1000003u + (uint64_t)(int64_t)a->attr[1];
    return draw(y, n, sk_rng_uniform(a->seed, stream, (uint64_t)sk_logical(&a->in[1], row)));
}

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    const real *w = a->in[1].data, scale = *(const real *)a->in[2].data;
    int64_t n = v->size[v->n - 1], from, to;
    sk_share(a, sk_count(&a->in[1]), &from, &to);
    for (int64_t r = from; r < to; r++) {
        real *y = (real *)a->out[0].data + r * n;
        int64_t k = one_row(a, (const real *)v->data + r * n, n, r, y);
        double part = a->attr[0] >= 0 ? (double)y[k] : 1;
        real size = (real)sqrt(part * (double)w[r]) * scale;
        y[k] -= 1;
        for (int64_t i = 0; i < n; i++) y[i] *= size;
    }
}

static double flops(const sk_args *a) { return 8 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t3v8", "b2t3", ""}, .positive = true, .attr = {2}},
    {.in = {"b2t3v8", "b2t3", ""}, .positive = true, .attr = {-1, 1}},
    {.in = {"b5v700", "b5", ""}, .positive = true, .attr = {-1, 2}},
    {.in = {"b37v3", "b37", ""}, .positive = true, .attr = {0}},
    {.in = {0}},
};

const sk_op sk_op_xent_curvature = {
    .name = "xent_curvature",
    .doc = "a column of a root of the Hessian of cross-entropies by the logits",
    .dims = "*v!,*,->*v!",
    .n_in = 3,
    .types = "xff>x",
    .infer = infer,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
