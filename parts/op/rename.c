/* rename.c - the same elements, a dim under another letter.
 *
 * A product of queries and keys has time twice, and each needs a letter of its own: the call names
 * both, as in "bt!hd->bs!hd".  Both letters are marked '!', since nothing says that they are split
 * alike. */
#include "graph/graph.h"

static void infer(sk_graph *g, const sk_node *n)
{
    const char *x = n->letters_in[0], *y = n->letters_out[0];
    bool fits = strlen(x) == strlen(y);
    for (int d = 0; fits && x[d]; d++) {
        if (x[d] == y[d]) continue;
        fits = strchr(n->not_split, x[d]) && strchr(n->not_split, y[d]) && !strchr(x, y[d]);
        if (fits) sk_graph_size(g, y[d], g->size[(int)x[d] & 127]);
    }
    if (!fits)
        sk_graph_fail(g, SK_ECONF, "rename: \"%s\" is not like \"bt!hd->bs!hd\" (%s)", n->dims,
                      n->where);
}

static void cpu(const sk_args *a)
{
    int64_t from, to;
    sk_share(a, sk_count(&a->out[0]), &from, &to);
    if (a->out[0].data == a->in[0].data) return;
    memcpy((real *)a->out[0].data + from, (const real *)a->in[0].data + from,
           (size_t)(to - from) * sizeof(real));
}

/* "bt!hd->bs!hd" read backwards. */
static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    const char *arrow = strstr(y->dims, "->");
    char *dims = sk_print(g->arena, "%s->%.*s", arrow + 2, (int)(arrow - y->dims), y->dims);
    dx[0] = sk_apply(g, "rename", .in = {dy[0]}, .dims = dims)->out[0];
}

static const sk_sample samples[] = {
    {.in = {"b2t3h2d4"}, .dims = "bt!hd->bs!hd"},
    {.in = {"t7c3"}, .dims = "t!c->s!c"},
    {.in = {"b5"}, .dims = "b->b"},
    {.in = {0}},
};

const sk_op sk_op_rename = {
    .name = "rename",
    .doc = "the same elements, a dim under another letter",
    .n_in = 1,
    .reuse = 1,
    .infer = infer,
    .grad = grad,
    .cpu = cpu,
    .samples = samples,
};
