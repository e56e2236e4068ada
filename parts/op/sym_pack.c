/* sym_pack.c - half of symmetric matrices, for the way to other ranks (kernel/symmetric.h).
 *
 * "rR!->rk!": rows may be sharded, columns are complete.  Rows and columns may have several
 * letters, "hdH!D!->hdk!", and letters in front count matrices, "erR!->erk!".  Which of the two
 * numbers of a pair is taken is said by the place alone; that they are equal is not checked. */
#include "graph/graph.h"
#include "kernel/symmetric.h"

static void cpu(const sk_args *a)
{
    sk_symmetric s = sk_symmetric_of(&a->in[0], &a->out[0]);
    int64_t from, to;
    sk_share(a, s.all, &from, &to);
    for (int64_t r = from; r < to; r++) {
        const real *x = (const real *)a->in[0].data + r * s.n;
        real *y = (real *)a->out[0].data + r * s.half;
        int64_t i = sk_logical(&s.row, r % s.rows), end = s.n - i < s.half ? s.n - i : s.half;
        memcpy(y, x + i, (size_t)end * sizeof *y);
        memcpy(y + end, x, (size_t)(s.half - end) * sizeof *y);
    }
}

static int64_t sizes(const sk_graph *g, const char *letters, size_t n)
{
    int64_t all = 1;
    for (size_t i = 0; i < n; i++) all *= g->size[(int)letters[i] & 127];
    return all;
}

static void infer(sk_graph *g, const sk_node *n)
{
    const char *x = n->letters_in[0], *y = n->letters_out[0];
    size_t in = strlen(x), out = strlen(y), side = in + 1 - out;
    bool fits = out >= 2 && in >= out && in >= 2 * side && !strncmp(x, y, out - 1);
    for (size_t i = in - side; fits && i < in; i++) fits = strchr(n->not_split, x[i]) != NULL;
    fits = fits && strchr(n->not_split, y[out - 1]);
    int64_t rows = fits ? sizes(g, x + in - 2 * side, side) : 0;
    if (!fits || rows != sizes(g, x + in - side, side))
        sk_graph_fail(g, SK_ECONF,
                      "sym_pack: \"%s\" is not like \"rR!->rk!\", of square matrices (%s)", n->dims,
                      n->where);
    else sk_graph_size(g, y[out - 1], sk_symmetric_half(rows));
}

static const sk_sample samples[] = {
    {.in = {"r5n5"}, .dims = "rn!->rk!"},         {.in = {"r8n8"}, .dims = "rn!->rk!"},
    {.in = {"r1n1"}, .dims = "rn!->rk!"},         {.in = {"r2n2"}, .dims = "rn!->rk!"},
    {.in = {"r67n67"}, .dims = "rn!->rk!"},       {.in = {"e3r6n6"}, .dims = "ern!->erk!"},
    {.in = {"h2d3s2t3"}, .dims = "hds!t!->hdk!"}, {.in = {0}},
};

const sk_op sk_op_sym_pack = {
    .name = "sym_pack",
    .doc = "half of symmetric matrices: n rows of n / 2 + 1 numbers",
    .n_in = 1,
    .types = "4>4",
    .infer = infer,
    .cpu = cpu,
    .samples = samples,
};
