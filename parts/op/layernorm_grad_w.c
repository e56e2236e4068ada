/* layernorm_grad_w.c - dw = sum of dy * xhat, db = sum of dy, over all rows.
 * In strips of columns (kernel/cpu/column_strips.h). */
#include "graph/graph.h"
#include "kernel/cpu/column_strips.h"

static void sum_rows(const sk_strip *s, int64_t r, int64_t end, real *sum)
{
    const sk_view *in = s->a->in;
    const real *first = (const real *)in[0].data + s->at, *mean = in[1].data, *rstd = in[2].data;
    const real *first_dy = (const real *)in[3].data + s->at;
    int64_t n = s->n;
    real *restrict dw = sum, *restrict db = sum + n;
    memset(sum, 0, (size_t)(2 * n) * sizeof(real));
    for (; r < end; r++) {
        const real *restrict x = first + r * s->cols, *restrict dy = first_dy + r * s->cols;
        real m = mean[r], k = rstd[r];
#pragma omp simd
        for (int64_t c = 0; c < n; c++) {
            dw[c] += dy[c] * ((x[c] - m) * k);
            db[c] += dy[c];
        }
    }
}

static void cpu(const sk_args *a) { sk_sum_strips(a, sum_rows, SK_SUM_COLUMNS / 2); }

static double flops(const sk_args *a) { return 5 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t3c8", "b2t3", "b2t3", "b2t3c8"}},
    {.in = {"b7t3k5c37", "b7t3k5", "b7t3k5", "b7t3k5c37"}},
    {.in = {"b37t5c21", "b37t5", "b37t5", "b37t5c21"}},
    {.in = {"c5", "", "", "c5"}},
    {.in = {"b1c700", "b1", "b1", "b1c700"}},
    {.in = {0}},
};

const sk_op sk_op_layernorm_grad_w = {
    .name = "layernorm_grad_w",
    .doc = "gradient of layernorm with respect to its weight and bias",
    .dims = "*c,*,*,*c->c,c",
    .n_in = 4,
    .n_out = 2,
    .types = "xffx>ff",
    .flags = SK_OP_ADDS,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
