/* unit.c - matrices divided by their Frobenius norms: x / (|x| + eps).  Rows lie along the last
 * dim.
 *
 * attr: eps.  A letter without '!' counts matrices; it is the first or the one before the last, as
 * weights of experts have it.  Squares are added in double, in an order that no number of threads
 * changes. */
#include "graph/graph.h"
#include "kernel/unit_batch.h"

#include <math.h>

enum { EPS, LANES = 8 };

typedef struct rows {
    int64_t n, cols;         /* all rows */
    int64_t batch, step, of; /* matrix k has rows k * of + i * step, i below n / batch */
} rows;

static rows rows_of(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    int dim = sk_unit_batch(a->dims);
    rows r = {.cols = v->n ? v->size[v->n - 1] : 1, .batch = 1, .step = 1};
    r.n = r.cols ? sk_count(v) / r.cols : 0;
    if (dim >= 0) r.batch = v->size[dim];
    if (dim > 0) r.step = r.batch, r.of = 1;
    else r.of = r.batch ? r.n / r.batch : 0;
    return r;
}

static double squares(const real *x, int64_t n)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += (double)x[i + k] * (double)x[i + k];
    for (; i < n; i++) lane[0] += (double)x[i] * (double)x[i];
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

static void cpu(const sk_args *a)
{
    const real *x = a->in[0].data;
    real *y = a->out[0].data;
    rows r = rows_of(a);
    int64_t each = r.batch ? r.n / r.batch : 0, from, to;
    sk_share(a, each, &from, &to);
    for (int64_t k = 0; k < r.batch; k++) {
        double sum = 0;
        for (int64_t i = 0; i < each; i++)
            sum += squares(x + (k * r.of + i * r.step) * r.cols, r.cols);
        real by = (real)(1 / (sqrt(sum) + a->attr[EPS]));
        for (int64_t i = from; i < to; i++)
            for (int64_t c = 0; c < r.cols; c++) {
                int64_t at = (k * r.of + i * r.step) * r.cols + c;
                y[at] = x[at] * by;
            }
    }
}

static const sk_sample samples[] = {
    {.in = {"m5n7"}, .dims = "m!n!->mn", .attr = {1e-7}},
    {.in = {"e3m5n17"}, .dims = "em!n!->emn", .attr = {1e-7}},
    {.in = {"m4e3n9"}, .dims = "m!en!->men", .attr = {0.5}},
    {.in = {"n19"}, .dims = "n!->n", .attr = {1e-7}},
    {.in = {0}},
};

const sk_op sk_op_unit = {
    .name = "unit",
    .doc = "matrices divided by their Frobenius norms",
    .n_in = 1,
    .types = "f>f",
    .cpu = cpu,
    .samples = samples,
};
