/* same_ids.c - which rows of a sample have the same id: "bt,bs->bts" is 1 where ids of t and of s
 * are equal, else 0.  A negative id is no id, and equal to none. */
#include "graph/graph.h"

static void cpu(const sk_args *a)
{
    const int32_t *x = a->in[0].data, *y = a->in[1].data;
    int64_t rows = sk_span(&a->in[0], 1, a->in[0].n), cols = sk_span(&a->in[1], 1, a->in[1].n);
    int64_t from, to;
    sk_share(a, a->in[0].size[0] * rows, &from, &to);
    for (int64_t r = from; r < to; r++) {
        const int32_t *other = y + r / rows * cols;
        real *z = (real *)a->out[0].data + r * cols;
        for (int64_t s = 0; s < cols; s++) z[s] = x[r] >= 0 && x[r] == other[s];
    }
}

static const sk_sample samples[] = {
    {.in = {"b2t5%3", "b2s7%3"}, .dims = "bt,bs->bts"},
    {.in = {"b3t2k2%4", "b3s3l2%4"}, .dims = "btk,bsl->btksl"},
    {.in = {"b4%2", "b4%2"}, .dims = "b,b->b"},
    {.in = {0}},
};

const sk_op sk_op_same_ids = {
    .name = "same_ids",
    .doc = "1 where two rows of a sample have the same id, else 0",
    .n_in = 2,
    .types = "ii>f",
    .stats = 1,
    .cpu = cpu,
    .samples = samples,
};
