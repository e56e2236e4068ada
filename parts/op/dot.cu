/* dot.cu - the GPU half of dot.c, in double: a result has several blocks if the sum is long, whose
 * sums a second kernel adds; in canonical order, one for each reduction block. */
#include "kernel/cuda/ordered_reduce.h"
#include "kernel/letters.h"

enum { BLOCK = 256, EACH = 1 << 14, MOST_PARTS = 256 };

typedef struct job {
    sk_any x, y, z;
    sk_reduction r;
    int64_t parts;
    double *sums; /* [n_stay][parts] */
    bool ordered; /* parts are reduction blocks */
    sk_borders cells;
} job;

static __global__ void __launch_bounds__(BLOCK) products(const __grid_constant__ job j)
{
    __shared__ double part[BLOCK];
    for (int64_t o = blockIdx.x; o < j.r.n_stay; o += gridDim.x) {
        int64_t base = sk_walk_at(&j.r.stay, o);
        double sum = 0;
        int64_t i = j.ordered ? j.cells.at[blockIdx.y] : (int64_t)blockIdx.y * BLOCK;
        int64_t end = j.ordered ? j.cells.at[blockIdx.y + 1] : j.r.n_go;
        for (i += threadIdx.x; i < end; i += j.ordered ? BLOCK : j.parts * BLOCK) {
            int64_t at = base + sk_walk_at(&j.r.go, i);
            sum += (double)sk_get(j.x, at) * (double)sk_get(j.y, at);
        }
        part[threadIdx.x] = sum;
        for (int k = BLOCK / 2; k; k /= 2) {
            __syncthreads();
            if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];
        }
        if (!threadIdx.x) j.sums[o * j.parts + blockIdx.y] = part[0];
        __syncthreads(); /* before the next sums */
    }
}

static __global__ void __launch_bounds__(BLOCK) finish(const __grid_constant__ job j)
{
    for (int64_t o = (int64_t)blockIdx.x * BLOCK + threadIdx.x; o < j.r.n_stay;
         o += (int64_t)gridDim.x * BLOCK) {
        const double *part = j.sums + o * j.parts;
        sk_pairs<1> pairs;
        double sum = 0;
        float s = 0;
        for (int k = 0; k < j.parts; k++) {
            sum += part[k];
            s = (float)part[k];
            if (j.ordered) pairs.end(k, &s);
        }
        sk_put(j.z, o, j.ordered ? s : (float)sum);
    }
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    job j = {
        sk_any_of(&a->in[0]),  sk_any_of(&a->in[1]), sk_any_of(&a->out[0]), sk_reduction_of(a), 1,
        (double *)l->workspace};
    const sk_view *x = &a->in[0];
    if (!j.r.n_stay) return SK_OK;
    j.ordered = j.r.first >= 0 && x->cells[j.r.first] && j.r.n_go;
    j.parts = j.r.n_go / EACH + 1;
    if (j.parts > MOST_PARTS) j.parts = MOST_PARTS;
    if (j.ordered) {
        j.cells = sk_borders_of(x, j.r.first, j.r.n_go / x->size[j.r.first]);
        j.parts = j.cells.n;
    }
    if ((size_t)(j.r.n_stay * j.parts) * sizeof(double) > l->workspace_bytes)
        return sk_fail(SK_ECONF, "dot: %lld results at once, %zu are possible",
                       (long long)j.r.n_stay,
                       l->workspace_bytes / sizeof(double) / (size_t)j.parts);
    products<<<dim3(sk_cuda_blocks(j.r.n_stay, 1), (unsigned)j.parts), BLOCK, 0, s>>>(j);
    finish<<<sk_cuda_blocks(j.r.n_stay, BLOCK), BLOCK, 0, s>>>(j);
    return sk_cuda_launched("dot");
}

extern "C" const sk_kernel sk_kernel_dot = {"dot", launch};
