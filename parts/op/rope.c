/* rope.c - rotary positions (Su et al. 2021), in the "rotate half" form of Hugging Face.
 *
 * In every head, d elements form the pairs (i, i + d/2), and pair i is turned by
 * the angle pos / theta^(2i/d), or as kernel/rope.h says, where attr is explained too.  Of the s
 * slots of a head the last holds values and is only copied.  The gradient turns the other way.
 * Sines are the expensive part: rows of one time usually have one position, so time is the outer
 * loop, and the table of sines is computed only when pos changes. */
#include "kernel/rope.h"
#include "graph/graph.h"

#include <math.h>

static void infer(sk_graph *g, const sk_node *n)
{
    int64_t d = g->size[(int)n->letters_in[0][4] & 127];
    if (d % 2)
        sk_graph_fail(g, SK_ECONF,
                      "rope: heads of %d elements have no pairs; an even size is "
                      "needed (%s)",
                      (int)d, n->where);
    if (!sk_rope_is(n->attr))
        sk_graph_fail(g, SK_ECONF,
                      "rope: factor %g, low_freq_factor %g, high_freq_factor %g, "
                      "original_max_position_embeddings %g; numbers above 0 are needed, the second "
                      "below the third (%s)",
                      n->attr[SK_ROPE_FACTOR], n->attr[SK_ROPE_LOW_FREQ],
                      n->attr[SK_ROPE_HIGH_FREQ], n->attr[SK_ROPE_ORIGINAL], n->where);
}

/* x and y may be the same memory. */
static void turn(const real *x, real *y, int64_t half, const real *cosine, const real *sine)
{
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
        real p = x[i], q = x[i + half];
        y[i] = p * cosine[i] - q * sine[i];
        y[i + half] = q * cosine[i] + p * sine[i];
    }
}

static void one_row(const sk_view *v, const real *x, real *y, const real *cosine, const real *sine)
{
    int64_t slots = v->size[3], d = v->size[4];
    for (int64_t k = 0; k < v->size[2] * slots; k++) {
        const real *from = x + k * d;
        real *to = y + k * d;
        if (k % slots < slots - 1) turn(from, to, d / 2, cosine, sine);
        else if (from != to) memcpy(to, from, (size_t)d * sizeof(real));
    }
}

static void cpu(const sk_args *a)
{
    const sk_view *v = &a->in[0];
    const int32_t *pos = a->in[1].data;
    int64_t batch = v->size[0], time = v->size[1], d = v->size[4], half = d / 2, from, to;
    int64_t row = sk_span(v, 2, 5), known = -1;
    double *freq = a->scratch;
    real *cosine = (real *)(freq + half), *sine = cosine + half;
    sk_share(a, time, &from, &to);
    for (int64_t i = 0; i < half && from < to; i++) freq[i] = sk_rope_frequency(a->attr, i, d);
    for (int64_t t = from; t < to; t++)
        for (int64_t b = 0; b < batch; b++) {
            int64_t r = b * time + t;
            for (int64_t i = 0; i < half && pos[r] != known; i++) {
                cosine[i] = (real)cos(pos[r] * freq[i]);
                sine[i] = (real)sin(pos[r] * freq[i]);
            }
            known = pos[r];
            one_row(v, (const real *)v->data + r * row, (real *)a->out[0].data + r * row, cosine,
                    sine);
        }
}

static size_t scratch(const sk_args *a)
{
    return (size_t)a->in[0].size[4] / 2 * (sizeof(double) + 2 * sizeof(real));
}

static double flops(const sk_args *a) { return 3 * (double)sk_count(&a->out[0]); }

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    sk_call call = {.in = {dy[0], y->in[1]}};
    memcpy(call.attr, y->attr, sizeof call.attr);
    call.attr[SK_ROPE_WAY] = -y->attr[SK_ROPE_WAY];
    dx[0] = sk_apply_at(g, SK_HERE, "rope", call)->out[0];
}

static const sk_sample samples[] = {
    {.in = {"b2t3h2s3d8", "b2t3%9"}, .attr = {10000, 1}},
    {.in = {"b3t5h1s4d6", "b3t5%100"}, .attr = {500000, 1}},
    {.in = {"b1t1h3s3d2", "b1t1%4"}, .attr = {10000, -1}},
    {.in = {"b2t3h1s3d8", "b2t3%99"}, .attr = {10000, 1, 2.5}},            /* linear */
    {.in = {"b1t5h1s3d32", "b1t5%900"}, .attr = {10000, 1, 8, 1, 4, 512}}, /* llama3 */
    {.in = {"b1t5h1s3d32", "b1t5%900"}, .attr = {500000, -1, 32, 1, 4, 8192}},
    {.in = {0}},
};

const sk_op sk_op_rope = {
    .name = "rope",
    .doc = "rotary position embedding of queries and keys",
    .dims = "bths!d!,bt->bthsd",
    .n_in = 2,
    .types = "xi>x",
    .reuse = 1,
    .infer = infer,
    .grad = grad,
    .flops = flops,
    .scratch = scratch,
    .cpu = cpu,
    .samples = samples,
};
