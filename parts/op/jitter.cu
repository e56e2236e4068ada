/* jitter.cu - the GPU half of jitter.c. */
#include "base/rng.h"
#include "kernel/cuda/map.h"

typedef struct job {
    const void *x;
    void *y;
    sk_view shape;
    int64_t n;
    uint64_t seed, stream;
    double scale;
} job;

template <typename T> static __global__ void __launch_bounds__(SK_MAP_BLOCK) shake(job j)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    float x[1];
    if (i >= j.n) return;
    uint64_t at = (uint64_t)sk_logical(&j.shape, i);
    sk_load<1>((const T *)j.x + i, x);
    x[0] += (float)(j.scale * (2 * sk_rng_uniform(j.seed, j.stream, at) - 1));
    sk_store<1>((T *)j.y + i, x);
}

template <typename T> static sk_status run(const sk_launch *l, const job &j)
{
    unsigned blocks = (unsigned)((j.n + SK_MAP_BLOCK - 1) / SK_MAP_BLOCK);
    shake<T><<<blocks, SK_MAP_BLOCK, 0, (cudaStream_t)l->stream>>>(j);
    return sk_cuda_launched("jitter");
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *v = &a->in[0];
    job j = {v->data,   a->out[0].data, *v, sk_count(v), a->seed, (uint64_t)(int64_t)a->attr[1],
             a->attr[0]};
    if (!j.n) return SK_OK;
    return SK_FLOAT(v->type, run<T>(l, j));
}

extern "C" const sk_kernel sk_kernel_jitter = {"jitter", launch};
