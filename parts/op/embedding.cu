/* embedding.cu - the GPU half of embedding.c.
 *
 * Threads keep their columns and go down the ids, four of them under way at a time.  In canonical
 * order a zero is added, as shards' sums have it. */
#include "kernel/cuda/map.h"

enum { DEPTH = 4 };

typedef struct job {
    const void *w;
    const int32_t *id;
    void *y;
    int64_t rows, n, first, size; /* of the result; of the table's shard */
    bool add, zero;               /* added to what is there; to a zero */
} job;

template <typename T, int V> static __global__ void __launch_bounds__(SK_MAP_BLOCK) choose(job j)
{
    int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    int64_t step = (int64_t)gridDim.y * blockDim.y;
    if (c >= j.n) return;
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < j.rows;
         r += DEPTH * step) {
        float x[DEPTH][V], old[DEPTH][V] = {};
        int64_t word[DEPTH];
#pragma unroll
        for (int k = 0; k < DEPTH; k++)
            word[k] = r + k * step < j.rows ? j.id[r + k * step] - j.first : -1;
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            for (int e = 0; e < V; e++) x[k][e] = 0; /* of words that lie elsewhere */
            if (word[k] >= 0 && word[k] < j.size)
                sk_load<V>((const T *)j.w + word[k] * j.n + c, x[k]);
            if (j.add && r + k * step < j.rows)
                sk_load<V>((const T *)j.y + (r + k * step) * j.n + c, old[k]);
        }
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            if (r + k * step >= j.rows) break;
            for (int e = 0; e < V && (j.add || j.zero); e++) x[k][e] += old[k][e];
            sk_store<V>((T *)j.y + (r + k * step) * j.n + c, x[k]);
        }
    }
}

template <typename T> static sk_status run(const sk_args *a, const job &j, cudaStream_t s)
{
    constexpr int v = sk_pack<T>();
    bool packs = sk_cuda_rows(&a->in[0], j.n) && sk_cuda_rows(&a->out[0], j.n);
    int64_t n_packs = packs ? j.n / v : j.n;
    dim3 block = sk_down_block(n_packs), grid = sk_down_grid(n_packs, j.rows, block, DEPTH);
    if (packs) choose<T, v><<<grid, block, 0, s>>>(j);
    else choose<T, 1><<<grid, block, 0, s>>>(j);
    return sk_cuda_launched("embedding");
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *table = &a->in[0];
    job j = {table->data,         (const int32_t *)a->in[1].data,
             a->out[0].data,      sk_count(&a->in[1]),
             table->size[1],      table->at[0],
             table->size[0],      (a->add & 1) != 0,
             sk_args_canonical(a)};
    if (!j.rows || !j.n) return SK_OK;
    return SK_FLOAT(table->type, run<T>(a, j, (cudaStream_t)l->stream));
}

extern "C" const sk_kernel sk_kernel_embedding = {"embedding", launch};
