/* mean_square.c - the mean of squares over the letters that the result lacks: "m!n!->m",
 * "em!n!->en", "m!en!->em", "m!n!->".
 *
 * Letters that go are marked '!': a mean of parts is no mean of the whole.  Squares are added in
 * double, in an order that no number of threads changes: first along the operand's last dim.  The
 * mean of nothing is NaN. */
#include "graph/graph.h"
#include "kernel/letters.h"

enum { STRIP = 256, LANES = 8 };

static double squares(const real *x, int64_t n, int64_t step)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; step == 1 && i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += (double)x[i + k] * (double)x[i + k];
    for (; i < n; i++) sum += (double)x[i * step] * (double)x[i * step];
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

/* One element: the last dim that goes in the inner loop. */
static void element(const sk_reduction *r, const real *x, real *y)
{
    sk_walk outer = r->go;
    int64_t n = 1, step = 0;
    double sum = 0;
    if (outer.n) n = outer.size[--outer.n], step = outer.step[outer.n];
    for (int64_t i = 0; n && i < r->n_go / n; i++)
        sum += squares(x + sk_walk_at(&outer, i), n, step);
    *y = (real)(sum / (double)r->n_go);
}

/* Elements that lie beside each other in the operand and in the result. */
static void strip(const sk_reduction *r, const real *x, real *y, int64_t n)
{
    double sum[STRIP] = {0};
    for (int64_t i = 0; i < r->n_go; i++) {
        const real *from = x + sk_walk_at(&r->go, i);
#pragma omp simd
        for (int64_t c = 0; c < n; c++) sum[c] += (double)from[c] * (double)from[c];
    }
    for (int64_t c = 0; c < n; c++) y[c] = (real)(sum[c] / (double)r->n_go);
}

static void cpu(const sk_args *a)
{
    const real *x = a->in[0].data;
    real *y = a->out[0].data;
    sk_reduction r = sk_reduction_of(a);
    int last = r.stay.n - 1;
    int64_t from, to, row = last >= 0 && r.stay.step[last] == 1 ? r.stay.size[last] : 1;
    bool strips = last >= 0 && r.stay.step[last] == 1;
    sk_share(a, r.n_stay, &from, &to);
    for (int64_t n; from < to; from += n) {
        n = row - from % row < to - from ? row - from % row : to - from;
        if (n > STRIP) n = STRIP;
        const real *at = x + sk_walk_at(&r.stay, from);
        if (strips) strip(&r, at, y + from, n);
        else element(&r, at, y + from);
    }
}

static void infer(sk_graph *g, const sk_node *n)
{
    const char *in = n->letters_in[0], *out = n->letters_out[0];
    for (const char *p = out; *p; p++)
        if (!strchr(in, *p))
            sk_graph_fail(g, SK_ECONF,
                          "mean_square: '%c' in \"%s\" is not a letter of the operand (%s)", *p,
                          n->dims, n->where);
    for (const char *p = in; *p; p++)
        if (!strchr(out, *p) && !strchr(n->not_split, *p))
            sk_graph_fail(g, SK_ECONF,
                          "mean_square: \"%s\" lets %c, which it averages over, be split; '!' is "
                          "needed behind it (%s)",
                          n->dims, *p, n->where);
}

static double flops(const sk_args *a) { return 2 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"m5n7"}, .dims = "m!n!->m"},      {.in = {"m5n7"}, .dims = "m!n!->n"},
    {.in = {"m5n7"}, .dims = "m!n!->"},       {.in = {"m67n301"}, .dims = "m!n!->n"},
    {.in = {"m67n301"}, .dims = "mn!->m"},    {.in = {"e3m5n17"}, .dims = "em!n!->em"},
    {.in = {"e3m5n17"}, .dims = "em!n!->en"}, {.in = {"e3m5n17"}, .dims = "em!n!->e"},
    {.in = {"m4e3n9"}, .dims = "m!en!->em"},  {.in = {"m4e3n9"}, .dims = "m!en!->en"},
    {.in = {"m4e3n9"}, .dims = "m!en!->e"},   {.in = {"m1n1"}, .dims = "m!n!->n"},
    {.in = {"m300n200"}, .dims = "m!n!->"},   {.in = {"n19"}, .dims = "n!->"},
    {.in = {"m5n7"}, .dims = "mn->nm"},       {.in = {0}},
};

const sk_op sk_op_mean_square = {
    .name = "mean_square",
    .doc = "the mean of squares over the letters missing in the result",
    .n_in = 1,
    .types = "f>f",
    .infer = infer,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
