/* factored.c - Adafactor's step (Shazeer and Stern 2018), as torch.optim.Adafactor has it: a
 * gradient divided by the root of a second moment of which only the means of rows and of columns
 * are kept.
 *
 *     y_ij = g_ij / sqrt(max(v_ij, eps^2)),  v_ij = row_i col_j / max(mean(row), eps)
 *
 * attr: eps.  Operands: g, row, col; "m!n,m!,n->mn", or with a letter that counts matrices
 * "em!n,em!,en->emn" and "m!en,em!,en->men".  In double, since products of two second moments are
 * below what f32 holds. */
#include "graph/graph.h"
#include "kernel/factors.h"

#include <math.h>

enum { EPS };

static double mean_of(const real *row, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)row[i];
    return sum / (double)n;
}

static void one_row(const real *g, double row, const real *col, double least, real *y, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        double v = row * (double)col[j];
        y[j] = (real)((double)g[j] / sqrt(v < least ? least : v));
    }
}

static void cpu(const sk_args *a)
{
    const real *g = a->in[0].data, *row = a->in[1].data, *col = a->in[2].data;
    real *y = a->out[0].data;
    double eps = a->attr[EPS];
    sk_factors f = sk_factors_of(a);
    int64_t from, to;
    sk_share(a, f.rows, &from, &to);
    for (int64_t k = 0; k < f.batch && from < to; k++) {
        double mean = mean_of(row + k * f.rows, f.rows), by = mean < eps ? eps : mean;
        for (int64_t i = from; i < to; i++) {
            int64_t at = k * f.batch_step + i * f.step;
            one_row(g + at, (double)row[k * f.rows + i] / by, col + k * f.cols, eps * eps, y + at,
                    f.cols);
        }
    }
}

/* "mn,m,n->mn" or one letter more. */
static bool right_dims(const sk_node *n)
{
    const char *g = n->letters_in[0], *row = n->letters_in[1], *col = n->letters_in[2];
    size_t dims = strlen(g);
    if (strcmp(g, n->letters_out[0]) || strlen(row) != dims - 1 || strlen(col) != dims - 1)
        return false;
    if (dims == 2) return row[0] == g[0] && col[0] == g[1];
    if (dims != 3 || col[1] != g[2] || row[0] != col[0]) return false;
    return (row[0] == g[0] && row[1] == g[1]) || (row[0] == g[1] && row[1] == g[0]);
}

static void infer(sk_graph *g, const sk_node *n)
{
    if (!right_dims(n))
        sk_graph_fail(g, SK_ECONF,
                      "factored: \"%s\" is not \"m!n,m!,n->mn\", \"em!n,em!,en->emn\" or "
                      "\"m!en,em!,en->men\" (%s)",
                      n->dims, n->where);
    else if (!strchr(n->not_split, n->letters_in[1][strlen(n->letters_in[1]) - 1]))
        sk_graph_fail(g, SK_ECONF, "factored: \"%s\" lets rows be split; '!' is needed (%s)",
                      n->dims, n->where);
    else if (!(n->attr[EPS] > 0))
        sk_graph_fail(g, SK_ECONF, "factored: eps is %g and must be over 0 (%s)", n->attr[EPS],
                      n->where);
}

static double flops(const sk_args *a) { return 4 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"m5n7", "m5", "n7"}, .dims = "m!n,m!,n->mn", .attr = {1e-7}, .positive = true},
    {.in = {"e3m5n17", "e3m5", "e3n17"},
     .dims = "em!n,em!,en->emn",
     .attr = {1e-3},
     .positive = true},
    {.in = {"m4e3n9", "e3m4", "e3n9"},
     .dims = "m!en,em!,en->men",
     .attr = {1e-3},
     .positive = true},
    {.in = {"m5n7", "m5", "n7"}, .dims = "m!n,m!,n->mn", .attr = {0.5}},
    {.in = {"m1n1", "m1", "n1"}, .dims = "m!n,m!,n->mn", .attr = {1e-7}, .positive = true},
    {.in = {"m67n301", "m67", "n301"}, .dims = "m!n,m!,n!->mn", .attr = {1e-7}, .positive = true},
    {.in = {0}},
};

const sk_op sk_op_factored = {
    .name = "factored",
    .doc = "a gradient by the root of a factored second moment",
    .n_in = 3,
    .types = "fff>f",
    .reuse = 1,
    .infer = infer,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
