/* mean_square.cu - the GPU half of mean_square.c, in double.
 *
 * Results that lie beside each other in the operand, 32 of them, have a block, whose warps share
 * what goes.  Any other result has a block, or several if much goes, whose sums a second kernel
 * adds.  How many depends on what goes alone, which is whole on every rank: so the bits do not
 * depend on how the rest is cut. */
#include "kernel/cuda/cuda.h"
#include "kernel/letters.h"

enum { BLOCK = 256, WARP = 32, WARPS = 32, EACH = 1 << 14, MOST_PARTS = 256 };

typedef struct job {
    sk_any x, y;
    sk_reduction r;
    int64_t parts;
    double *sums; /* [n_stay][parts] */
} job;

static __global__ void __launch_bounds__(WARP *WARPS) columns(const __grid_constant__ job j)
{
    __shared__ double part[WARPS][WARP];
    for (int64_t at = (int64_t)blockIdx.x * WARP; at < j.r.n_stay;
         at += (int64_t)gridDim.x * WARP) {
        int64_t o = at + threadIdx.x;
        double sum = 0;
        int64_t base = o < j.r.n_stay ? sk_walk_at(&j.r.stay, o) : 0;
        for (int64_t i = threadIdx.y; o < j.r.n_stay && i < j.r.n_go; i += WARPS) {
            double v = sk_get(j.x, base + sk_walk_at(&j.r.go, i));
            sum += v * v;
        }
        part[threadIdx.y][threadIdx.x] = sum;
        for (int k = WARPS / 2; k; k /= 2) {
            __syncthreads();
            if (threadIdx.y < k)
                part[threadIdx.y][threadIdx.x] += part[threadIdx.y + k][threadIdx.x];
        }
        if (!threadIdx.y && o < j.r.n_stay)
            sk_put(j.y, o, (float)(part[0][threadIdx.x] / (double)j.r.n_go));
        __syncthreads(); /* before the next sums */
    }
}

static __global__ void __launch_bounds__(BLOCK) elements(const __grid_constant__ job j)
{
    __shared__ double part[BLOCK];
    for (int64_t o = blockIdx.x; o < j.r.n_stay; o += gridDim.x) {
        int64_t base = sk_walk_at(&j.r.stay, o);
        double sum = 0;
        for (int64_t i = (int64_t)blockIdx.y * BLOCK + threadIdx.x; i < j.r.n_go;
             i += j.parts * BLOCK) {
            double v = sk_get(j.x, base + sk_walk_at(&j.r.go, i));
            sum += v * v;
        }
        part[threadIdx.x] = sum;
        for (int k = BLOCK / 2; k; k /= 2) {
            __syncthreads();
            if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];
        }
        if (!threadIdx.x) j.sums[o * j.parts + blockIdx.y] = part[0];
        __syncthreads();
    }
}

static __global__ void __launch_bounds__(BLOCK) finish(const __grid_constant__ job j)
{
    for (int64_t o = (int64_t)blockIdx.x * BLOCK + threadIdx.x; o < j.r.n_stay;
         o += (int64_t)gridDim.x * BLOCK) {
        double sum = 0;
        for (int64_t k = 0; k < j.parts; k++) sum += j.sums[o * j.parts + k];
        sk_put(j.y, o, (float)(sum / (double)j.r.n_go));
    }
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    job j = {sk_any_of(&a->in[0]), sk_any_of(&a->out[0]), sk_reduction_of(a), 1,
             (double *)l->workspace};
    const sk_walk *stay = &j.r.stay;
    if (!j.r.n_stay) return SK_OK;
    if (stay->n && stay->step[stay->n - 1] == 1) {
        columns<<<sk_cuda_blocks(j.r.n_stay, WARP), dim3(WARP, WARPS), 0, s>>>(j);
        return sk_cuda_launched("mean_square");
    }
    j.parts = j.r.n_go / EACH + 1;
    if (j.parts > MOST_PARTS) j.parts = MOST_PARTS;
    if ((size_t)(j.r.n_stay * j.parts) * sizeof(double) > l->workspace_bytes)
        return sk_fail(SK_ECONF, "mean_square: %lld results at once, %zu are possible",
                       (long long)j.r.n_stay,
                       l->workspace_bytes / sizeof(double) / (size_t)j.parts);
    elements<<<dim3(sk_cuda_blocks(j.r.n_stay, 1), (unsigned)j.parts), BLOCK, 0, s>>>(j);
    finish<<<sk_cuda_blocks(j.r.n_stay, BLOCK), BLOCK, 0, s>>>(j);
    return sk_cuda_launched("mean_square");
}

extern "C" const sk_kernel sk_kernel_mean_square = {"mean_square", launch};
