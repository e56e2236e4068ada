/* attention.c - causal attention over packed queries, keys and values.
 *
 * Each of the h head groups has s = r + 2 slots of d elements: r query heads,
 * the key and the value that they share (r = 1 is plain attention, r > 1 is
 * grouped-query attention).  The result keeps the r slots, and lse, the
 * logarithm of each row's sum of exponentials, for the gradient.
 *
 * The square of scores is never stored: ROWS queries at a time meet the keys up
 * to their own place, which skips the upper half, and scores of ROWS x T live in
 * scratch (Rabe and Staats 2021, without the split of keys: a row of scores fits
 * a cache).  Threads take (block, head) in turn; what one computes does not
 * depend on how many there are. */
#include "graph/graph.h"
#include "tensor/blas.h"
#include "tensor/vecmath.h"

enum { ROWS = 64 };

typedef struct head { /* one query head with its key and value */
    const real *q, *k, *v;
    real *y, *lse;
    int64_t step, step_y, d; /* step: elements from one time to the next */
} head;

static head head_at(const sk_args *a, int64_t i)
{
    const sk_view *x = &a->in[0];
    int64_t time = x->size[1], heads = x->size[2], slots = x->size[3], d = x->size[4];
    int64_t r = slots - 2, j = i % r, h = i / r % heads, b = i / r / heads;
    const real *group = (const real *)x->data + (b * time * heads + h) * slots * d;
    return (head){
        .q = group + j * d,
        .k = group + r * d,
        .v = group + (r + 1) * d,
        .y = (real *)a->out[0].data + ((b * time * heads + h) * r + j) * d,
        .lse = (real *)a->out[1].data + i * time,
        .step = heads * slots * d,
        .step_y = heads * r * d,
        .d = d,
    };
}

/* p[0, n) becomes exponentials against the largest, and zeros follow up to `width`. */
static real exponentials(real *p, int64_t n, int64_t width, real *top)
{
    real m = sk_largest(p, n), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        p[i] = sk_exp(p[i] - m);
        sum += p[i];
    }
    memset(p + n, 0, (size_t)(width - n) * sizeof(real));
    *top = m;
    return sum;
}

/* Queries [at, at + rows) against keys [0, at + rows). */
static void block(const head *h, int64_t at, int64_t rows, real *p)
{
    int64_t width = at + rows;
    int d = (int)h->d, ld = (int)h->step, ld_y = (int)h->step_y, m = (int)rows, n = (int)width;
    real scale = (real)(1 / sqrt((double)h->d)), sum[ROWS], top;
    real *y = h->y + at * h->step_y;
    GEMM(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, d, scale, h->q + at * h->step, ld, h->k, ld,
         (real)0, p, n);
    for (int64_t i = 0; i < rows; i++) {
        sum[i] = exponentials(p + i * width, at + i + 1, width, &top);
        h->lse[at + i] = top + (real)log((double)sum[i]);
    }
    GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, d, n, (real)1, p, n, h->v, ld, (real)0, y,
         ld_y);
    for (int64_t i = 0; i < rows; i++) {
        real part = 1 / sum[i];
#pragma omp simd
        for (int64_t c = 0; c < h->d; c++) y[i * h->step_y + c] *= part;
    }
}

static void cpu(const sk_args *a)
{
    const sk_view *x = &a->in[0];
    int64_t time = x->size[1], heads = x->size[0] * x->size[2] * (x->size[3] - 2);
    int64_t units = (time + ROWS - 1) / ROWS * heads;
    for (int64_t u = a->part; u < units; u += a->of) {
        int64_t at = u / heads * ROWS;
        head h = head_at(a, u % heads);
        block(&h, at, time - at < ROWS ? time - at : ROWS, a->scratch);
    }
}

static void infer(sk_graph *g, const sk_node *n)
{
    int64_t slots = g->size[(int)n->letters_in[0][3] & 127];
    sk_graph_size(g, n->letters_out[0][3], slots - 2);
}

static size_t scratch(const sk_args *a) { return ROWS * (size_t)a->in[0].size[1] * sizeof(real); }

/* Two products over half of the square. */
static double flops(const sk_args *a)
{
    return 2 * (double)sk_count(&a->out[0]) * (double)(a->in[0].size[1] + 1);
}

static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    if (!dy[0]) return;
    dx[0] = sk_apply(g, "attention_grad", .in = {y->in[0], y->out[0], y->out[1], dy[0]})->out[0];
}

static const sk_sample samples[] = {
    {.in = {"b2t5h2s3d4"}},
    {.in = {"b1t3h3s5d7"}},
    {.in = {"b2t67h1s4d3"}},
    {.in = {"b1t1h1s3d1"}},
    {.in = {0}},
};

const sk_op sk_op_attention = {
    .name = "attention",
    .doc = "causal attention over packed queries, keys and values; also gives log-sum-exp",
    .dims = "bt!hs!d!->bthr!d,bhr!t",
    .n_in = 1,
    .n_out = 2,
    .stats = 2,
    .infer = infer,
    .grad = grad,
    .flops = flops,
    .scratch = scratch,
    .cpu = cpu,
    .samples = samples,
};
