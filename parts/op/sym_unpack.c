/* sym_unpack.c - symmetric matrices of their halves (kernel/symmetric.h): "r!k!->rR!".
 *
 * A letter in front counts matrices, "er!k!->erR!".  Both numbers of a pair are the one that was
 * packed. */
#include "graph/graph.h"
#include "kernel/symmetric.h"

static void cpu(const sk_args *a)
{
    sk_symmetric s = sk_symmetric_of(&a->out[0], &a->in[0]);
    int64_t from, to;
    sk_share(a, s.all, &from, &to);
    for (int64_t r = from; r < to; r++) {
        int64_t i = r % s.n;
        const real *x = (const real *)a->in[0].data + (r - i) * s.half;
        real *y = (real *)a->out[0].data + r * s.n;
        for (int64_t j = 0; j < s.n; j++) y[j] = x[sk_symmetric_place(s.n, s.half, i, j)];
    }
}

static void infer(sk_graph *g, const sk_node *n)
{
    const char *x = n->letters_in[0], *y = n->letters_out[0];
    size_t dims = strlen(x);
    bool fits = (dims == 2 || dims == 3) && strlen(y) == dims && !strncmp(x, y, dims - 1) &&
                strchr(n->not_split, x[dims - 2]) && strchr(n->not_split, x[dims - 1]) &&
                strchr(n->not_split, y[dims - 1]);
    int64_t rows = fits ? g->size[(int)x[dims - 2] & 127] : 0;
    if (!fits || g->size[(int)x[dims - 1] & 127] != sk_symmetric_half(rows))
        sk_graph_fail(g, SK_ECONF,
                      "sym_unpack: \"%s\" is not like \"r!k!->rR!\", with k of r / 2 + 1 (%s)",
                      n->dims, n->where);
    else sk_graph_size(g, y[dims - 1], rows);
}

static const sk_sample samples[] = {
    {.in = {"r5k3"}, .dims = "r!k!->rn!"},
    {.in = {"r8k5"}, .dims = "r!k!->rn!"},
    {.in = {"r1k1"}, .dims = "r!k!->rn!"},
    {.in = {"r2k2"}, .dims = "r!k!->rn!"},
    {.in = {"e3r6k4"}, .dims = "er!k!->ern!"},
    {.in = {"r67k34"}, .dims = "r!k!->rn!"},
    {.in = {0}},
};

const sk_op sk_op_sym_unpack = {
    .name = "sym_unpack",
    .doc = "symmetric matrices of their halves",
    .n_in = 1,
    .types = "4>4",
    .infer = infer,
    .cpu = cpu,
    .samples = samples,
};
