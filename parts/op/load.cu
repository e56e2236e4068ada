/* load.cu - the GPU half of load.c: choices are counted in the workspace, lanes of a warp that met
 * the same expert at once.  Whole numbers: it does not matter who counts first.  In canonical order
 * each reduction block is counted by itself; in fast order there is one. */
#include "kernel/cuda/cuda_slots.h"

enum { BLOCK = 256 };

typedef unsigned long long tally;

static __global__ void __launch_bounds__(BLOCK)
    count(sk_any slot, const __grid_constant__ sk_borders cells, int capacity, int experts,
          tally *counts)
{
    unsigned lane = threadIdx.x % 32;
    int64_t n = cells.at[blockIdx.y + 1];
    counts += (int64_t)blockIdx.y * (experts + 1);
    for (int64_t at = cells.at[blockIdx.y] + (int64_t)blockIdx.x * BLOCK; at < n;
         at += (int64_t)gridDim.x * BLOCK) {
        int64_t i = at + threadIdx.x;
        int e = i < n ? sk_cuda_slot_expert(slot, i, capacity, experts) : -1;
        unsigned same = __match_any_sync(~0u, e), any = __ballot_sync(~0u, e >= 0);
        if (e >= 0 && !(same & ((1u << lane) - 1))) atomicAdd(&counts[e], (tally)__popc(same));
        if (lane == 0 && any) atomicAdd(&counts[experts], (tally)__popc(any));
    }
}

static __global__ void __launch_bounds__(BLOCK)
    put(const tally *counts, int cells, int experts, int64_t first, int64_t n, sk_any y, bool add)
{
    for (int64_t c = (int64_t)blockIdx.x * BLOCK + threadIdx.x; c < n;
         c += (int64_t)gridDim.x * BLOCK) {
        sk_pairs<1> pairs;
        float more = 0;
        for (int i = 0; i < cells; i++) {
            const tally *cell = counts + (int64_t)i * (experts + 1);
            more = (float)(experts * (int64_t)cell[first + c] - (int64_t)cell[experts]);
            pairs.end(i, &more);
        }
        sk_put(y, c, add ? sk_get(y, c) + more : more);
    }
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *slot = &a->in[0], *y = &a->out[0];
    cudaStream_t s = (cudaStream_t)l->stream;
    sk_borders cells = sk_borders_of(slot, 0, sk_span(slot, 1, slot->n));
    int64_t n = sk_count(slot), blocks = (n / cells.n + BLOCK - 1) / BLOCK + 1;
    size_t bytes = (size_t)cells.n * ((size_t)y->full[0] + 1) * sizeof(tally);
    tally *counts = (tally *)l->workspace;
    if (!y->size[0]) return SK_OK;
    if (bytes > l->workspace_bytes)
        return sk_fail(SK_ECONF, "load: %lld experts are too many for the CUDA kernel",
                       (long long)y->full[0]);
    cudaMemsetAsync(counts, 0, bytes, s);
    if (n)
        count<<<dim3((unsigned)(blocks < 1024 ? blocks : 1024), (unsigned)cells.n), BLOCK, 0, s>>>(
            sk_any_of(slot), cells, (int)a->attr[0], (int)y->full[0], counts);
    put<<<sk_cuda_blocks(y->size[0], BLOCK), BLOCK, 0, s>>>(
        counts, cells.n, (int)y->full[0], y->at[0], y->size[0], sk_any_of(y), a->add & 1);
    return sk_cuda_launched("load");
}

extern "C" const sk_kernel sk_kernel_load = {"load", launch};
