/* ratio.c - a / (sqrt(b) + eps), element by element: a step by its second moment.  attr: eps, and
 * 1: a / max(sqrt(b), eps), where 0 / 0 is 0.  b below 0, by rounding, counts as 0. */
#include "graph/graph.h"

#include <math.h>

enum { EPS, LARGEST };

static real root(real b) { return b < 0 ? 0 : (real)sqrt((double)b); }

static void cpu(const sk_args *args)
{
    const real *a = args->in[0].data, *b = args->in[1].data;
    real *y = args->out[0].data, eps = (real)args->attr[EPS];
    bool largest = args->attr[LARGEST] != 0;
    int64_t from, to;
    sk_share(args, sk_count(&args->out[0]), &from, &to);
    for (int64_t i = from; i < to; i++) {
        real s = root(b[i]), under = !largest ? s + eps : s < eps ? eps : s;
        y[i] = largest && a[i] == 0 && under == 0 ? 0 : a[i] / under;
    }
}

static const sk_sample samples[] = {
    {.in = {"m5n7", "m5n7"}, .attr = {1e-2}, .positive = true},
    {.in = {"n67", "n67"}, .attr = {0.25}},
    {.in = {"n67", "n67"}, .attr = {0.3, 1}},
    {.in = {"m5n7", "m5n7"}, .attr = {0, 1}, .positive = true},
    {.in = {"", ""}, .attr = {1}},
    {.in = {0}},
};

const sk_op sk_op_ratio = {
    .name = "ratio",
    .doc = "a / (sqrt(b) + eps), element by element",
    .dims = "*,*->*",
    .n_in = 2,
    .types = "ff>f",
    .reuse = 1 | 2,
    .cpu = cpu,
    .samples = samples,
};
