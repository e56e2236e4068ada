/* rms_clip.c - matrices whose root mean square is over d brought down to it:
 * x / max(1, rms(x) / d).
 *
 * attr: d.  A letter without '!' counts matrices, as in unit.c.  Squares are added in double, in an
 * order that no number of threads changes. */
#include "graph/graph.h"
#include "kernel/unit_batch.h"

#include <math.h>

enum { D, LANES = 8 };

static double squares(const real *x, int64_t n)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += (double)x[i + k] * (double)x[i + k];
    for (; i < n; i++) sum += (double)x[i] * (double)x[i];
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

static void cpu(const sk_args *a)
{
    const real *x = a->in[0].data;
    real *y = a->out[0].data;
    const sk_view *v = &a->in[0];
    int dim = sk_unit_batch(a->dims);
    int64_t batch = dim < 0 ? 1 : v->size[dim], outer = dim < 0 ? 1 : sk_span(v, 0, dim);
    int64_t inner = sk_span(v, dim + 1, v->n), from, to;
    sk_share(a, inner, &from, &to);
    for (int64_t k = 0; k < batch; k++) {
        double sum = 0;
        for (int64_t o = 0; o < outer; o++) sum += squares(x + (o * batch + k) * inner, inner);
        double rms = sqrt(sum / (double)(outer * inner));
        real by = (real)(rms > a->attr[D] ? a->attr[D] / rms : rms - rms + 1); /* NaN stays */
        for (int64_t o = 0; o < outer; o++)
            for (int64_t i = from; i < to; i++)
                y[(o * batch + k) * inner + i] = x[(o * batch + k) * inner + i] * by;
    }
}

static void infer(sk_graph *g, const sk_node *n)
{
    if (!(n->attr[D] > 0))
        sk_graph_fail(g, SK_ECONF, "rms_clip: d is %g and must be over 0 (%s)", n->attr[D],
                      n->where);
}

static const sk_sample samples[] = {
    {.in = {"m5n7"}, .dims = "m!n!->mn", .attr = {0.25}},
    {.in = {"m5n7"}, .dims = "m!n!->mn", .attr = {2}},
    {.in = {"e3m5n17"}, .dims = "em!n!->emn", .attr = {0.5}},
    {.in = {"m4e3n9"}, .dims = "m!en!->men", .attr = {0.55}},
    {.in = {"n19"}, .dims = "n!->n", .attr = {0.1}},
    {.in = {"m1n1"}, .dims = "m!n!->mn", .attr = {0.1}},
    {.in = {0}},
};

const sk_op sk_op_rms_clip = {
    .name = "rms_clip",
    .doc = "matrices brought down to a root mean square of d",
    .n_in = 1,
    .types = "f>f",
    .infer = infer,
    .cpu = cpu,
    .samples = samples,
};
