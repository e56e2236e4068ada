/* balance_grad.cu - the GPU half of balance_grad.c: a warp a token.  First choices are counted into
 * the workspace (whole numbers: it does not matter who counts first), then each token is looked at
 * again. */
#include "kernel/cuda/cuda_experts.h"

typedef struct job {
    sk_any logit, dl, to;
    int64_t tokens, time;
    int experts;
    float scale;
    int *firsts; /* [sequences][experts] */
} job;

static __global__ void __launch_bounds__(32 * SK_ROW_WARPS) count(job j)
{
    for (SK_EACH_ROW(i, j.tokens)) {
        int first = sk_first_choice(j.logit, i * j.experts, j.experts).expert;
        if (threadIdx.x == 0) atomicAdd(&j.firsts[i / j.time * j.experts + first], 1);
    }
}

static __global__ void __launch_bounds__(32 * SK_ROW_WARPS) logit_grad(job j)
{
    float scale = j.scale * sk_get(j.dl, 0);
    for (SK_EACH_ROW(i, j.tokens)) {
        const int *firsts = j.firsts + i / j.time * j.experts;
        int64_t at = i * j.experts;
        float top = -INFINITY, sum = 0, mean = 0;
        for (int e = (int)threadIdx.x; e < j.experts; e += 32)
            top = fmaxf(top, sk_get(j.logit, at + e));
        top = sk_row_most<1>(top);
        for (int e = (int)threadIdx.x; e < j.experts; e += 32) {
            float p = expf(sk_get(j.logit, at + e) - top);
            sum += p;
            mean += p * (float)firsts[e];
        }
        sum = sk_row_sum<1>(sum);
        mean = sk_row_sum<1>(mean) / sum;
        for (int e = (int)threadIdx.x; e < j.experts; e += 32) {
            float p = expf(sk_get(j.logit, at + e) - top) / sum;
            sk_put(j.to, at + e, p * (scale * ((float)firsts[e] - mean)));
        }
    }
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *x = &a->in[0];
    cudaStream_t s = (cudaStream_t)l->stream;
    job j = {sk_any_of(x), sk_any_of(&a->in[1]), sk_any_of(&a->out[0])};
    j.tokens = x->size[0] * x->size[1], j.time = x->size[1], j.experts = (int)x->size[2];
    j.scale = (float)(a->attr[0] * (double)j.experts / (double)j.time);
    j.firsts = (int *)l->workspace;
    size_t bytes = (size_t)(x->size[0] * x->size[2]) * sizeof(int);
    if (!j.tokens) return SK_OK;
    if (bytes > l->workspace_bytes)
        return sk_fail(SK_ECONF,
                       "balance_grad: %lld sequences with %d experts, too many for the GPU",
                       (long long)x->size[0], j.experts);
    cudaMemsetAsync(j.firsts, 0, bytes, s);
    count<<<sk_row_grid<1>(j.tokens), sk_row_block<1>(), 0, s>>>(j);
    logit_grad<<<sk_row_grid<1>(j.tokens), sk_row_block<1>(), 0, s>>>(j);
    return sk_cuda_launched("balance_grad");
}

extern "C" const sk_kernel sk_kernel_balance_grad = {"balance_grad", launch};
