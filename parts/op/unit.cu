/* unit.cu - the GPU half of unit.c: partial sums of squares in double, then all blocks add them up
 * in one order and divide. */
#include "kernel/cuda/cuda.h"
#include "kernel/unit_batch.h"

enum { BLOCK = 256, PARTS = 256 }; /* PARTS: blocks that share a matrix */

typedef struct job {
    sk_any x, y;
    int64_t rows, cols, step, of; /* of a matrix, as in unit.c */
    double eps, *sums;            /* [batch][PARTS] */
} job;

static __device__ int64_t place(const job &j, int64_t i)
{
    return (blockIdx.y * j.of + i / j.cols * j.step) * j.cols + i % j.cols;
}

static __global__ void __launch_bounds__(BLOCK) squares(const job j)
{
    __shared__ double part[BLOCK];
    double sum = 0;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < j.rows * j.cols;
         i += (int64_t)PARTS * BLOCK) {
        double v = sk_get(j.x, place(j, i));
        sum += v * v;
    }
    part[threadIdx.x] = sum;
    for (int k = BLOCK / 2; k; k /= 2) {
        __syncthreads();
        if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];
    }
    if (!threadIdx.x) j.sums[(int64_t)blockIdx.y * PARTS + blockIdx.x] = part[0];
}

static __global__ void __launch_bounds__(BLOCK) divide(const job j)
{
    __shared__ double part[PARTS];
    part[threadIdx.x] = j.sums[(int64_t)blockIdx.y * PARTS + threadIdx.x];
    for (int k = PARTS / 2; k; k /= 2) {
        __syncthreads();
        if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];
    }
    __syncthreads();
    float by = (float)(1 / (sqrt(part[0]) + j.eps));
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < j.rows * j.cols;
         i += (int64_t)PARTS * BLOCK)
        sk_put(j.y, place(j, i), sk_get(j.x, place(j, i)) * by);
}

static_assert((int)BLOCK == (int)PARTS, "a thread takes one partial sum");

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *v = &a->in[0];
    int dim = sk_unit_batch(a->dims);
    int64_t cols = v->n ? v->size[v->n - 1] : 1, batch = dim >= 0 ? v->size[dim] : 1;
    job j = {sk_any_of(v), sk_any_of(&a->out[0]), 0, cols, 1, 0,
             a->attr[0],   (double *)l->workspace};
    if (!sk_count(v)) return SK_OK;
    j.rows = sk_count(v) / cols / batch;
    if (dim > 0) j.step = batch, j.of = 1;
    else j.of = j.rows;
    if (batch > 65535 || (size_t)batch * PARTS * sizeof(double) > l->workspace_bytes)
        return sk_fail(SK_ECONF, "unit: %lld matrices at once, 65535 are possible",
                       (long long)batch);
    dim3 grid(PARTS, (unsigned)batch);
    squares<<<grid, BLOCK, 0, (cudaStream_t)l->stream>>>(j);
    divide<<<grid, BLOCK, 0, (cudaStream_t)l->stream>>>(j);
    return sk_cuda_launched("unit");
}

extern "C" const sk_kernel sk_kernel_unit = {"unit", launch};
