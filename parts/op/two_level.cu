/* two_level.cu - the GPU half of two_level.c: a warp a token, group after group. */
#include "kernel/cuda/cuda_rows.h"

typedef struct job {
    sk_any u, x, y;
    int64_t rows;
    int groups, in_group;
} job;

/* The logarithm of the sum of exponentials of n logits. */
static __device__ float log_sum(sk_any x, int64_t at, int n)
{
    float top = -INFINITY, sum = 0;
    for (int i = (int)threadIdx.x; i < n; i += 32) top = fmaxf(top, sk_get(x, at + i));
    top = sk_row_most<1>(top);
    for (int i = (int)threadIdx.x; i < n; i += 32) sum += expf(sk_get(x, at + i) - top);
    return top + (float)log((double)sk_row_sum<1>(sum));
}

static __global__ void __launch_bounds__(32 * SK_ROW_WARPS) levels(job j)
{
    for (SK_EACH_ROW(r, j.rows)) {
        float all = log_sum(j.u, r * j.groups, j.groups);
        for (int k = 0; k < j.groups; k++) {
            int64_t at = (r * j.groups + k) * j.in_group;
            float shift = sk_get(j.u, r * j.groups + k) - all - log_sum(j.x, at, j.in_group);
            for (int i = (int)threadIdx.x; i < j.in_group; i += 32)
                sk_put(j.y, at + i, sk_get(j.x, at + i) + shift);
        }
    }
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *u = &a->in[0], *x = &a->in[1];
    job j = {sk_any_of(u), sk_any_of(x), sk_any_of(&a->out[0]), sk_span(u, 0, u->n - 1)};
    j.groups = (int)u->size[u->n - 1];
    j.in_group = (int)(x->size[x->n - 1] / j.groups);
    if (!j.rows) return SK_OK;
    levels<<<sk_row_grid<1>(j.rows), sk_row_block<1>(), 0, (cudaStream_t)l->stream>>>(j);
    return sk_cuda_launched("two_level");
}

extern "C" const sk_kernel sk_kernel_two_level = {"two_level", launch};
