/* rms_clip.cu - the GPU half of rms_clip.c: partial sums of squares in double, then all blocks add
 * them up in one order and scale. */
#include "kernel/cuda/cuda.h"
#include "kernel/unit_batch.h"

enum { BLOCK = 256, PARTS = 256 }; /* PARTS: blocks that share a matrix */

typedef struct job {
    sk_any x, y;
    int64_t batch, outer,
        inner;       /* element i of matrix k: (i / inner * batch + k) * inner + i % inner */
    double d, *sums; /* [batch][PARTS] */
} job;

static __device__ int64_t place(const job &j, int64_t i)
{
    return (i / j.inner * j.batch + blockIdx.y) * j.inner + i % j.inner;
}

/* Of BLOCK numbers in shared memory, to the first. */
static __device__ void add_up(double *part)
{
    for (int k = BLOCK / 2; k; k /= 2) {
        __syncthreads();
        if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];
    }
    __syncthreads();
}

static __global__ void __launch_bounds__(BLOCK) squares(const job j)
{
    __shared__ double part[BLOCK];
    double sum = 0;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < j.outer * j.inner;
         i += (int64_t)PARTS * BLOCK) {
        double v = sk_get(j.x, place(j, i));
        sum += v * v;
    }
    part[threadIdx.x] = sum;
    add_up(part);
    if (!threadIdx.x) j.sums[(int64_t)blockIdx.y * PARTS + blockIdx.x] = part[0];
}

static __global__ void __launch_bounds__(BLOCK) scale(const job j)
{
    __shared__ double part[PARTS];
    part[threadIdx.x] = j.sums[(int64_t)blockIdx.y * PARTS + threadIdx.x];
    add_up(part);
    double rms = sqrt(part[0] / (double)(j.outer * j.inner));
    float by = (float)(rms > j.d ? j.d / rms : rms - rms + 1); /* NaN stays */
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < j.outer * j.inner;
         i += (int64_t)PARTS * BLOCK)
        sk_put(j.y, place(j, i), sk_get(j.x, place(j, i)) * by);
}

static_assert((int)BLOCK == (int)PARTS, "a thread takes one partial sum");

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *v = &a->in[0];
    int dim = sk_unit_batch(a->dims);
    int64_t batch = dim < 0 ? 1 : v->size[dim], outer = dim < 0 ? 1 : sk_span(v, 0, dim);
    job j = {sk_any_of(v), sk_any_of(&a->out[0]), batch, outer, sk_span(v, dim + 1, v->n),
             a->attr[0],   (double *)l->workspace};
    if (!sk_count(v)) return SK_OK;
    if (batch > 65535 || (size_t)batch * PARTS * sizeof(double) > l->workspace_bytes)
        return sk_fail(SK_ECONF, "rms_clip: %lld matrices at once, %zu are possible",
                       (long long)batch, l->workspace_bytes / (PARTS * sizeof(double)));
    dim3 grid(PARTS, (unsigned)batch);
    squares<<<grid, BLOCK, 0, (cudaStream_t)l->stream>>>(j);
    scale<<<grid, BLOCK, 0, (cudaStream_t)l->stream>>>(j);
    return sk_cuda_launched("rms_clip");
}

extern "C" const sk_kernel sk_kernel_rms_clip = {"rms_clip", launch};
