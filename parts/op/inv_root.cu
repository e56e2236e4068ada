/* inv_root.cu - the GPU half of inv_root.c: eigenvectors by cuSOLVER, and their product, in double,
 * by a kernel with tiles in shared memory. */
#include "kernel/cuda/cusolver.h"

#include <float.h>

enum { BLOCK = 256, TILE = 32, TALL = 8 }; /* a thread has TILE / TALL results of a tile */

typedef struct job {
    sk_cuda_eigen v;
    int64_t n, at; /* where the result starts */
    double attr[3];
    sk_any y;
} job;

/* A block for an eigenvector: times the root of what becomes of its eigenvalue. */
static __global__ void __launch_bounds__(BLOCK) weigh(const job j)
{
    sk_root r = sk_root_of(j.attr, j.v.value[j.n - 1]);
    double by = r.none ? 1 : pow(fmax(j.v.value[blockIdx.x], 0.0) + r.shift, r.power);
    by = sqrt(fmin(by, (double)FLT_MAX));
    for (int64_t i = threadIdx.x; i < j.n; i += BLOCK) j.v.vector[blockIdx.x * j.n + i] *= by;
}

/* y = v' v */
static __global__ void __launch_bounds__(TILE *TALL) multiply(const job j)
{
    __shared__ double left[TILE][TILE + 1], right[TILE][TILE + 1];
    int64_t row = (int64_t)blockIdx.y * TILE, col = (int64_t)blockIdx.x * TILE + threadIdx.x;
    double sum[TILE / TALL] = {};
    for (int64_t k = 0; k < j.n; k += TILE) {
        __syncthreads();
        for (int t = (int)threadIdx.y; t < TILE; t += TALL) {
            const double *from = j.v.vector + (k + t) * j.n;
            bool in = k + t < j.n;
            left[t][threadIdx.x] = in && row + threadIdx.x < j.n ? from[row + threadIdx.x] : 0;
            right[t][threadIdx.x] = in && col < j.n ? from[col] : 0;
        }
        __syncthreads();
        for (int t = 0; t < TILE; t++)
#pragma unroll
            for (int r = 0; r < TILE / TALL; r++)
                sum[r] += left[t][threadIdx.y + r * TALL] * right[t][threadIdx.x];
    }
    bool bad = j.v.bad[0] || j.v.bad[1];
    for (int r = 0; r < TILE / TALL; r++) {
        int64_t i = row + threadIdx.y + r * TALL;
        double v = fmax(fmin(sum[r], (double)FLT_MAX), -(double)FLT_MAX);
        if (i < j.n && col < j.n) sk_put(j.y, j.at + i * j.n + col, bad ? nanf("") : (float)v);
    }
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    sk_squares m = sk_squares_of(a);
    job j = {{}, m.n, 0, {a->attr[0], a->attr[1], a->attr[2]}, sk_any_of(&a->out[0])};
    unsigned tiles = sk_cuda_blocks(m.n, TILE);
    for (int64_t k = 0; k < m.batch && m.n; k++) {
        j.at = k * m.n * m.n;
        SK_TRY(sk_cuda_eigen_of("inv_root", sk_any_of(&a->in[0]), j.at, m.n, l, &j.v));
        weigh<<<(unsigned)m.n, BLOCK, 0, s>>>(j);
        multiply<<<dim3(tiles, tiles), dim3(TILE, TALL), 0, s>>>(j);
        SK_TRY(sk_cuda_launched("inv_root"));
    }
    return SK_OK;
}

static sk_status prepare(const sk_args *a, const sk_launch *l, sk_variant *took)
{
    took->name = "cuSOLVER";
    return sk_cuda_eigen_prepare(sk_squares_of(a).n, l);
}

extern "C" const sk_kernel sk_kernel_inv_root = {"inv_root", launch, prepare, NULL, true};
