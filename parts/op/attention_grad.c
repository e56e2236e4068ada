/* attention_grad.c - the gradient of attention, with its probabilities computed again.
 *
 * Per block of ROWS queries, with p = exp(scale q.k - lse) and
 * delta = sum of dy * y over d (Dao et al. 2022):
 *     dv += p' dy      ds = p (dy v' - delta) scale      dq = ds k      dk += ds' q
 * Keys and values of a head group gather from all its queries, so a thread owns
 * whole groups.  Blocks go from the last, which meets every key and so writes
 * what the earlier ones add to. */
#include "graph/graph.h"
#include "tensor/blas.h"
#include "tensor/vecmath.h"

enum { ROWS = 64 };

typedef struct head { /* one query head with the key and value of its group */
    const real *q, *k, *v, *y, *dy, *lse;
    real *dq, *dk, *dv;
    int64_t step, step_y, d; /* step: elements from one time to the next */
} head;

static head head_at(const sk_args *a, int64_t group, int64_t j)
{
    const sk_view *x = &a->in[0];
    int64_t time = x->size[1], heads = x->size[2], slots = x->size[3], d = x->size[4];
    int64_t r = slots - 2, b = group / heads, h = group % heads;
    int64_t at = (b * time * heads + h) * slots * d, at_y = ((b * time * heads + h) * r + j) * d;
    const real *p = (const real *)x->data + at;
    real *dp = (real *)a->out[0].data + at;
    return (head){
        .q = p + j * d,
        .k = p + r * d,
        .v = p + (r + 1) * d,
        .y = (const real *)a->in[1].data + at_y,
        .lse = (const real *)a->in[2].data + (group * r + j) * time,
        .dy = (const real *)a->in[3].data + at_y,
        .dq = dp + j * d,
        .dk = dp + r * d,
        .dv = dp + (r + 1) * d,
        .step = heads * slots * d,
        .step_y = heads * r * d,
        .d = d,
    };
}

/* One row: scores become probabilities, dp becomes ds; both end in zeros. */
static void one_row(real *restrict p, real *restrict dp, int64_t n, int64_t width, real lse,
                    real delta, real scale)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        p[i] = sk_exp(p[i] - lse);
        dp[i] = p[i] * (dp[i] - delta) * scale;
    }
    memset(p + n, 0, (size_t)(width - n) * sizeof(real));
    memset(dp + n, 0, (size_t)(width - n) * sizeof(real));
}

static real dot(const real *x, const real *y, int64_t n)
{
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* Queries [at, at + rows) against keys [0, at + rows); keep: 0 to write dk and dv, 1 to add. */
static void block(const head *h, int64_t at, int64_t rows, real keep, real *p, real *dp)
{
    int64_t width = at + rows;
    int d = (int)h->d, ld = (int)h->step, ld_y = (int)h->step_y, m = (int)rows, n = (int)width;
    real scale = (real)(1 / sqrt((double)h->d));
    const real *q = h->q + at * h->step, *dy = h->dy + at * h->step_y, *y = h->y + at * h->step_y;
    GEMM(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, d, scale, q, ld, h->k, ld, (real)0, p, n);
    GEMM(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, d, (real)1, dy, ld_y, h->v, ld, (real)0, dp,
         n);
    for (int64_t i = 0; i < rows; i++)
        one_row(p + i * width, dp + i * width, at + i + 1, width, h->lse[at + i],
                dot(dy + i * h->step_y, y + i * h->step_y, h->d), scale);
    GEMM(CblasRowMajor, CblasTrans, CblasNoTrans, n, d, m, (real)1, p, n, dy, ld_y, keep, h->dv,
         ld);
    GEMM(CblasRowMajor, CblasTrans, CblasNoTrans, n, d, m, (real)1, dp, n, q, ld, keep, h->dk, ld);
    GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, d, n, (real)1, dp, n, h->k, ld, (real)0,
         h->dq + at * h->step, ld);
}

static void cpu(const sk_args *a)
{
    const sk_view *x = &a->in[0];
    int64_t time = x->size[1], r = x->size[3] - 2, from, to;
    int64_t last = (time - 1) / ROWS * ROWS;
    real *p = a->scratch, *dp = p + ROWS * time;
    sk_share(a, time ? x->size[0] * x->size[2] : 0, &from, &to);
    for (int64_t group = from; group < to; group++)
        for (int64_t j = 0; j < r; j++) {
            head h = head_at(a, group, j);
            for (int64_t at = last; at >= 0; at -= ROWS)
                block(&h, at, time - at < ROWS ? time - at : ROWS, j || at < last, p, dp);
        }
}

static size_t scratch(const sk_args *a)
{
    return 2 * ROWS * (size_t)a->in[0].size[1] * sizeof(real);
}

/* Five products over half of the square. */
static double flops(const sk_args *a)
{
    return 5 * (double)sk_count(&a->in[1]) * (double)(a->in[0].size[1] + 1);
}

static const sk_sample samples[] = {
    {.in = {"b2t5h2s3d4", "b2t5h2r1d4", "b2h2r1t5", "b2t5h2r1d4"}, .positive = true},
    {.in = {"b1t3h3s5d7", "b1t3h3r3d7", "b1h3r3t3", "b1t3h3r3d7"}, .positive = true},
    {.in = {"b2t67h1s4d3", "b2t67h1r2d3", "b2h1r2t67", "b2t67h1r2d3"}, .positive = true},
    {.in = {0}},
};

const sk_op sk_op_attention_grad = {
    .name = "attention_grad",
    .doc = "gradient of attention with respect to queries, keys and values",
    .dims = "bt!hs!d!,bthr!d,bhr!t,bthr!d->bthsd",
    .n_in = 4,
    .flops = flops,
    .scratch = scratch,
    .cpu = cpu,
    .samples = samples,
};
