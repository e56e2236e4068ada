/* factored.cu - the GPU half of factored.c: a block for the mean of a matrix's rows, then element
 * by element, in double. */
#include "kernel/cuda/cuda.h"
#include "kernel/factors.h"

enum { BLOCK = 256, MOST_BLOCKS = 65536 };

typedef struct job {
    sk_any g, row, col, y;
    sk_factors f;
    double eps, *mean; /* [batch] */
} job;

static __global__ void __launch_bounds__(BLOCK) means(const job j)
{
    __shared__ double part[BLOCK];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < j.f.rows; i += BLOCK)
        sum += sk_get(j.row, blockIdx.x * j.f.rows + i);
    part[threadIdx.x] = sum;
    for (int k = BLOCK / 2; k; k /= 2) {
        __syncthreads();
        if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];
    }
    if (!threadIdx.x) j.mean[blockIdx.x] = part[0] / (double)j.f.rows;
}

static __global__ void __launch_bounds__(BLOCK) divide(const job j)
{
    int64_t all = j.f.batch * j.f.rows * j.f.cols;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < all;
         i += (int64_t)gridDim.x * BLOCK) {
        int64_t c = i % j.f.cols, line = i / j.f.cols, k = line / j.f.rows, r = line % j.f.rows;
        int64_t at = k * j.f.batch_step + r * j.f.step + c;
        double by = j.mean[k] < j.eps ? j.eps : j.mean[k];
        double v = sk_get(j.row, line) / by * sk_get(j.col, k * j.f.cols + c);
        double least = j.eps * j.eps;
        sk_put(j.y, at, (float)(sk_get(j.g, at) / sqrt(v < least ? least : v)));
    }
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    job j = {sk_any_of(&a->in[0]),  sk_any_of(&a->in[1]), sk_any_of(&a->in[2]),
             sk_any_of(&a->out[0]), sk_factors_of(a),     a->attr[0],
             (double *)l->workspace};
    int64_t n = sk_count(&a->out[0]);
    if (!n) return SK_OK;
    if ((size_t)j.f.batch * sizeof(double) > l->workspace_bytes)
        return sk_fail(SK_ECONF, "factored: %lld matrices at once, %zu are possible",
                       (long long)j.f.batch, l->workspace_bytes / sizeof(double));
    unsigned blocks = sk_cuda_blocks(n, BLOCK);
    if (blocks > MOST_BLOCKS) blocks = MOST_BLOCKS;
    means<<<(unsigned)j.f.batch, BLOCK, 0, s>>>(j);
    divide<<<blocks, BLOCK, 0, s>>>(j);
    return sk_cuda_launched("factored");
}

extern "C" const sk_kernel sk_kernel_factored = {"factored", launch};
