/* combine_grad_gate.c - the gradient of a gate: the product of the token's gradient and the row of
 * the slot, summed over c.
 *
 * A slot belongs to one expert: the sum over e, the first missing letter, has one term, and a rank
 * without that expert adds a zero. */
#include "graph/graph.h"
#include "kernel/slots.h"

enum { LANES = 16 };

/* In lanes of our own: their order does not depend on where the rows lie in memory. */
static real dot(const real *restrict x, const real *restrict y, int64_t n)
{
    real lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
#pragma omp simd
        for (int k = 0; k < LANES; k++) lane[k] += x[i + k] * y[i + k];
    for (; i < n; i++) sum += x[i] * y[i];
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

static void cpu(const sk_args *a)
{
    const sk_view *bank = &a->in[0], *dy = &a->in[1], *slot = &a->in[2];
    const real *rows = bank->data;
    real *d = a->out[0].data;
    int64_t cols = dy->size[2], choices = slot->size[2], in_sequence = slot->size[1] * choices;
    int64_t from, to;
    sk_share(a, sk_count(slot), &from, &to);
    for (int64_t i = from; i < to; i++) {
        int64_t row = sk_slot_row(bank, sk_slot(slot, i), i / in_sequence);
        const real *x = (const real *)dy->data + i / choices * cols;
        d[i] = row < 0 ? 0 : dot(x, rows + row * cols, cols);
    }
}

static double flops(const sk_args *a)
{
    return 2 * (double)sk_count(&a->out[0]) * (double)a->in[1].size[2];
}

static const sk_sample samples[] = {
    {.in = {"e4b2x2c8", "b2t5c8", "b2t5k2%9"}},
    {.in = {"e3b3x4c37", "b3t4c37", "b3t4k3%12"}},
    {.in = {"e1b1x1c1", "b1t1c1", "b1t1k1%2"}},
    {.in = {0}},
};

const sk_op sk_op_combine_grad_gate = {
    .name = "combine_grad_gate",
    .doc = "gradient of combine with respect to the gates",
    .dims = "ebxc,bt!c,bt!k!->btk",
    .n_in = 3,
    .types = "xxs>f",
    .stats = 1,
    .flops = flops,
    .cpu = cpu,
    .samples = samples,
};
