/* two_level_grad.cu - the GPU half of two_level_grad.c: a warp a token.  First group after group;
 * then each lane adds up its groups' gradients again, for those of the groups' own logits. */
#include "kernel/cuda/cuda_rows.h"

typedef struct job {
    sk_any u, x, dy, du, dx;
    int64_t rows;
    int groups, in_group;
} job;

typedef struct soft {
    float top, sum;
} soft;

/* What the softmax of n logits is made with. */
static __device__ soft soft_of(sk_any x, int64_t at, int n)
{
    soft s = {-INFINITY, 0};
    for (int i = (int)threadIdx.x; i < n; i += 32) s.top = fmaxf(s.top, sk_get(x, at + i));
    s.top = sk_row_most<1>(s.top);
    for (int i = (int)threadIdx.x; i < n; i += 32) s.sum += expf(sk_get(x, at + i) - s.top);
    s.sum = sk_row_sum<1>(s.sum);
    return s;
}

/* One group: its dx; returns the sum of its dy. */
static __device__ float group(const job &j, int64_t at)
{
    float sum = 0;
    for (int i = (int)threadIdx.x; i < j.in_group; i += 32) sum += sk_get(j.dy, at + i);
    sum = sk_row_sum<1>(sum);
    soft s = soft_of(j.x, at, j.in_group);
    for (int i = (int)threadIdx.x; i < j.in_group; i += 32) {
        float p = expf(sk_get(j.x, at + i) - s.top) / s.sum;
        sk_put(j.dx, at + i, sk_get(j.dy, at + i) - sum * p);
    }
    return sum;
}

static __global__ void __launch_bounds__(32 * SK_ROW_WARPS) levels_grad(job j)
{
    for (SK_EACH_ROW(r, j.rows)) {
        float all = 0;
        int64_t first = r * j.groups;
        for (int k = 0; k < j.groups; k++) all += group(j, (first + k) * j.in_group);
        soft s = soft_of(j.u, first, j.groups);
        for (int k = (int)threadIdx.x; k < j.groups; k += 32) {
            float mine = 0;
            for (int i = 0; i < j.in_group; i++) mine += sk_get(j.dy, (first + k) * j.in_group + i);
            sk_put(j.du, first + k, mine - all * (expf(sk_get(j.u, first + k) - s.top) / s.sum));
        }
    }
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *u = &a->in[0], *x = &a->in[1];
    job j = {sk_any_of(u),          sk_any_of(x),          sk_any_of(&a->in[2]),
             sk_any_of(&a->out[0]), sk_any_of(&a->out[1]), sk_span(u, 0, u->n - 1)};
    j.groups = (int)u->size[u->n - 1];
    j.in_group = (int)(x->size[x->n - 1] / j.groups);
    if (!j.rows) return SK_OK;
    levels_grad<<<sk_row_grid<1>(j.rows), sk_row_block<1>(), 0, (cudaStream_t)l->stream>>>(j);
    return sk_cuda_launched("two_level_grad");
}

extern "C" const sk_kernel sk_kernel_two_level_grad = {"two_level_grad", launch};
