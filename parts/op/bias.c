/* bias.c - a smaller tensor added along the leading dims of a larger one.
 *
 * The call names the letters, as in "bthsd,hsd->bthsd": those of the second
 * operand are the last ones of the first. */
#include "graph/extra.h"

static void infer(sk_graph *g, const sk_node *n)
{
    const char *x = n->letters_in[0], *b = n->letters_in[1];
    size_t nx = strlen(x), nb = strlen(b);
    if (strcmp(n->letters_out[0], x) || nb > nx || strcmp(x + nx - nb, b))
        sk_graph_fail(g, SK_ECONF, "bias: \"%s\" is not like \"bthsd,hsd->bthsd\" (%s)", n->dims,
                      n->where);
}

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    const real *b = a->in[1].data;
    int64_t n = sk_count(&a->in[1]), from, to;
    sk_share(a, sk_span(v, 0, v->n - a->in[1].n), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const real *x = (const real *)v->data + r * n;
        real *y = (real *)a->out[0].data + r * n;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = x[i] + b[i];
    }
}

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    char *dims = sk_print(g->arena, "%s->%s", y->letters_out[0], y->letters_in[1]);
    dx[0] = dy[0];
    dx[1] = sk_apply(g, "sum", .in = {dy[0]}, .dims = dims)->out[0];
}

static sk_tensor *sample(SK_EXTRA_ARGS)
{
    (void)dx;
    return sk_sum_samples(g, dy[0], y->letters_in[i]);
}

static const sk_extra_rules extra = {.sample = sample};

static const sk_sample samples[] = {
    {.in = {"b2t3h2s3d4", "h2s3d4"}, .dims = "bthsd,hsd->bthsd"},
    {.in = {"b3c37", "c37"}, .dims = "bc,c->bc"},
    {.in = {"c5", "c5"}, .dims = "c,c->c"},
    {.in = {"b3t2", ""}, .dims = "bt,->bt"},
    {.in = {0}},
};

const sk_op sk_op_bias = {
    .name = "bias",
    .doc = "x + b, where b has the last dims of x",
    .n_in = 2,
    .reuse = 1,
    .infer = infer,
    .grad = grad,
    .extra = &extra,
    .cpu = cpu,
    .samples = samples,
};
