/* scale_queries.cu - the GPU half of scale_queries.c: a thread keeps its place in a head group and
 * goes down the groups. */
#include "kernel/cuda/map.h"

typedef struct job {
    const void *x;
    void *y;
    int64_t rows, row, queries; /* head groups; elements of one; those of its queries */
    float by;
} job;

template <typename T, int V> static __global__ void __launch_bounds__(SK_MAP_BLOCK) scale(job j)
{
    int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (c >= j.row) return;
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < j.rows;
         r += (int64_t)gridDim.y * blockDim.y) {
        float x[V];
        sk_load<V>((const T *)j.x + r * j.row + c, x);
#pragma unroll
        for (int e = 0; e < V; e++) x[e] *= c + e < j.queries ? j.by : 1;
        sk_store<V>((T *)j.y + r * j.row + c, x);
    }
}

template <typename T> static sk_status run(const sk_args *a, const job &j, cudaStream_t s)
{
    constexpr int v = sk_pack<T>();
    bool packs = sk_cuda_packs(a, j.row);
    int64_t n = packs ? j.row / v : j.row;
    dim3 block = sk_down_block(n), grid = sk_down_grid(n, j.rows, block, 4);
    if (packs) scale<T, v><<<grid, block, 0, s>>>(j);
    else scale<T, 1><<<grid, block, 0, s>>>(j);
    return sk_cuda_launched("scale_queries");
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *v = &a->in[0];
    if (!sk_count(v)) return SK_OK;
    job j = {v->data, a->out[0].data, sk_span(v, 0, 3), sk_span(v, 3, 5)};
    j.queries = j.row - 2 * v->size[4], j.by = (float)a->attr[0];
    return SK_FLOAT(v->type, run<T>(a, j, (cudaStream_t)l->stream));
}

extern "C" const sk_kernel sk_kernel_scale_queries = {"scale_queries", launch};
