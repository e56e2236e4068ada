/* route_grad.cu - the GPU half of route_grad.c: a warp a token, a lane an expert. */
#include "kernel/cuda/cuda_experts.h"
#include "kernel/cuda/cuda_slots.h"

typedef struct job {
    sk_any logit, slot, d, to;
    int64_t tokens;
    int experts, choices, capacity;
    bool among;
} job;

/* The gradient of expert e's gate, and whether it was chosen. */
static __device__ inline float gate_grad(const job &j, int64_t i, int e, bool *chosen)
{
    float d = 0;
    *chosen = false;
    for (int64_t k = i * j.choices; k < (i + 1) * j.choices; k++) {
        if (sk_cuda_slot_expert(j.slot, k, j.capacity, j.experts) != e) continue;
        d += sk_get(j.d, k);
        *chosen = true;
    }
    return d;
}

/* The logit of expert e, -infinity if it does not count; *d: the gradient of its gate. */
static __device__ inline float logit_of(const job &j, int64_t i, int e, float *d)
{
    bool chosen;
    *d = gate_grad(j, i, e, &chosen);
    return chosen || !j.among ? sk_get(j.logit, i * j.experts + e) : -INFINITY;
}

static __global__ void __launch_bounds__(32 * SK_ROW_WARPS) logit_grad(job j)
{
    for (SK_EACH_ROW(i, j.tokens)) {
        float top = -INFINITY, sum = 0, mean = 0, d;
        for (int e = (int)threadIdx.x; e < j.experts; e += 32)
            top = fmaxf(top, logit_of(j, i, e, &d));
        top = sk_row_most<1>(top);
        for (int e = (int)threadIdx.x; e < j.experts; e += 32) {
            float x = logit_of(j, i, e, &d), p = x == -INFINITY ? 0 : expf(x - top);
            sum += p;
            mean += p * d;
        }
        sum = sk_row_sum<1>(sum);
        mean = sk_row_sum<1>(mean);
        if (sum > 0) mean /= sum;
        for (int e = (int)threadIdx.x; e < j.experts; e += 32) {
            float x = logit_of(j, i, e, &d), p = x == -INFINITY ? 0 : expf(x - top);
            if (sum > 0) p /= sum;
            sk_put(j.to, i * j.experts + e, p * (d - mean));
        }
    }
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *slot = &a->in[1], *to = &a->out[0];
    job j = {};
    j.logit = sk_any_of(&a->in[0]), j.slot = sk_any_of(slot);
    j.d = sk_any_of(&a->in[2]), j.to = sk_any_of(to);
    j.tokens = sk_span(to, 0, to->n - 1);
    j.experts = (int)to->size[to->n - 1], j.choices = (int)slot->size[slot->n - 1];
    j.capacity = (int)a->attr[0], j.among = a->attr[1] != 0;
    if (!j.tokens) return SK_OK;
    logit_grad<<<sk_row_grid<1>(j.tokens), sk_row_block<1>(), 0, (cudaStream_t)l->stream>>>(j);
    return sk_cuda_launched("route_grad");
}

extern "C" const sk_kernel sk_kernel_route_grad = {"route_grad", launch};
