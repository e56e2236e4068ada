/* unit_by.c - matrices divided by norms that are known: x / (sqrt(s) + eps), where s has a sum of
 * squares for each matrix: "mn,->mn", "emn,e->emn", "men,e->men".
 *
 * attr: eps.  unit.c finds the norm itself, and needs the whole matrix for it. */
#include "graph/graph.h"
#include "kernel/unit_inner.h"

#include <math.h>

enum { EPS };

static void cpu(const sk_args *a)
{
    const real *x = a->in[0].data, *s = a->in[1].data;
    real *y = a->out[0].data;
    int64_t batch = sk_count(&a->in[1]), inner = sk_unit_inner(a), from, to;
    sk_share(a, sk_count(&a->in[0]), &from, &to);
    for (int64_t end; from < to; from = end) { /* elements of one matrix beside each other */
        end = (from / inner + 1) * inner < to ? (from / inner + 1) * inner : to;
        real by = (real)(1 / (sqrt((double)s[from / inner % batch]) + a->attr[EPS]));
        for (int64_t i = from; i < end; i++) y[i] = x[i] * by;
    }
}

static void infer(sk_graph *g, const sk_node *n)
{
    const char *x = n->letters_in[0], *s = n->letters_in[1];
    if (strcmp(x, n->letters_out[0]) || strlen(s) > 1 || (*s && !strchr(x, *s)))
        sk_graph_fail(g, SK_ECONF,
                      "unit_by: \"%s\" needs a result with the letters of the first operand, and a "
                      "second with one of them or none (%s)",
                      n->dims, n->where);
}

static double flops(const sk_args *a) { return 2 * (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"m5n7", ""}, .dims = "mn,->mn", .attr = {1e-7}, .positive = true},
    {.in = {"e3m5n17", "e3"}, .dims = "emn,e->emn", .attr = {1e-7}, .positive = true},
    {.in = {"m4e3n9", "e3"}, .dims = "men,e->men", .attr = {0.5}, .positive = true},
    {.in = {"n19", "n19"}, .dims = "n,n->n", .attr = {0.5}, .positive = true},
    {.in = {0}},
};

const sk_op sk_op_unit_by = {
    .name = "unit_by",
    .doc = "matrices divided by the roots of given sums",
    .n_in = 2,
    .types = "ff>f",
    .infer = infer,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
