/* dropout.cu - the GPU half of dropout.c.
 *
 * Drawing is most of the work: six rounds of a 64 by 64 bit product for every element.  A block
 * takes TALL rows; the logical place of each, which takes divisions, is found once and shared. */
#include "base/rng.h"
#include "kernel/cuda/map.h"

enum { TALL = 16 };

typedef struct job {
    const void *x;
    void *y;
    sk_view shape;
    int64_t rows, n;
    uint64_t seed, least; /* a draw's upper 53 bits must reach this to keep the element */
    int64_t place;        /* attr[1] */
    float scale;
} job;

template <typename T, int V>
static __device__ void one_pack(const job &j, int64_t i, uint64_t stream, uint64_t at)
{
    float x[V];
    sk_load<V>((const T *)j.x + i, x);
#pragma unroll
    for (int e = 0; e < V; e++) {
        bool keep = (sk_rng(j.seed, stream, at + (uint64_t)e).a >> 11) >= j.least;
        x[e] = keep ? x[e] * j.scale : 0;
    }
    sk_store<V>((T *)j.y + i, x);
}

template <typename T, int V>
static __global__ void __launch_bounds__(SK_MAP_BLOCK) drop(job j, const uint64_t *step)
{
    __shared__ uint64_t at[TALL];
    uint64_t stream = *step * 1000003u + (uint64_t)j.place;
    int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    int me = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    for (int64_t first = (int64_t)blockIdx.y * TALL; first < j.rows;
         first += (int64_t)gridDim.y * TALL) {
        __syncthreads(); /* the places before these have been read */
        if (me < TALL && first + me < j.rows)
            at[me] = (uint64_t)sk_logical(&j.shape, (first + me) * j.n);
        __syncthreads();
        for (int k = (int)threadIdx.y; k < TALL && first + k < j.rows && c < j.n;
             k += (int)blockDim.y)
            one_pack<T, V>(j, (first + k) * j.n + c, stream, at[k] + (uint64_t)c);
    }
}

template <typename T> static sk_status run(const sk_args *a, const sk_launch *l, const job &j)
{
    constexpr int v = sk_pack<T>();
    cudaStream_t s = (cudaStream_t)l->stream;
    bool packs = sk_cuda_packs(a, j.n);
    int64_t n_packs = packs ? j.n / v : j.n;
    dim3 block = sk_down_block(n_packs), grid = sk_down_grid(n_packs, j.rows, dim3(1, TALL), 1);
    grid.x = (unsigned)((n_packs + block.x - 1) / block.x);
    if (packs) drop<T, v><<<grid, block, 0, s>>>(j, l->step);
    else drop<T, 1><<<grid, block, 0, s>>>(j, l->step);
    return sk_cuda_launched("dropout");
}

/* Nothing falls. */
static sk_status pass(const sk_args *a, const sk_launch *l)
{
    const sk_view *x = &a->in[0], *y = &a->out[0];
    if (x->data == y->data) return SK_OK;
    (void)cudaMemcpyAsync(y->data, x->data, (size_t)sk_count(x) * sk_dtype_size(x->type),
                          cudaMemcpyDeviceToDevice, (cudaStream_t)l->stream);
    return sk_cuda_launched("dropout");
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *v = &a->in[0];
    job j = {v->data, a->out[0].data, *v};
    double p = a->validation ? 0 : a->attr[0];
    j.n = v->n ? v->size[v->n - 1] : 1;
    j.rows = j.n ? sk_count(v) / j.n : 0;
    if (!j.rows) return SK_OK;
    if (p == 0) return pass(a, l);
    j.seed = a->seed;
    j.least = (uint64_t)ceil(p * 0x1p53); /* uniform >= p, in whole numbers */
    j.place = (int64_t)a->attr[1];
    j.scale = (float)(1 / (1 - p));
    return SK_FLOAT(v->type, run<T>(a, l, j));
}

extern "C" const sk_kernel sk_kernel_dropout = {"dropout", launch};
