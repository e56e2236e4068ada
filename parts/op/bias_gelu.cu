/* bias_gelu.cu - the GPU half of bias_gelu.c.
 *
 * A thread keeps its columns and goes down the rows: the bias is loaded once, and no index is
 * divided.  Four rows are under way at a time, to have enough loads in flight. */
#include "graph/cuda.h"

enum { BLOCK = 256, ROWS = 4, MAX_GRID_Y = 65535 };

/* The quick exp and quotient of the hardware: in bf16 the exact ones bound the kernel (2.7 instead
 * of 3.1 TB/s on an H200, tools/gpu.sh).  By its documented bound the relative error grows with
 * the exponent, to 3e-6 where gelu has fallen to 1e-8. */
static __device__ float gelu(float z)
{
    const float slope = 1.5957691216057308f, cube = 0.044715f;
    return __fdividef(z, 1 + __expf(-slope * (z + cube * z * z * z)));
}

template <typename T, int V>
static __global__ void __launch_bounds__(BLOCK)
    down(const T *__restrict__ x, const T *__restrict__ b, T *__restrict__ y, int64_t rows,
         int64_t n)
{
    int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    int64_t step = (int64_t)gridDim.y * blockDim.y;
    float bias[V], v[ROWS][V];
    if (c >= n) return;
    sk_load<V>(b + c, bias);
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += ROWS * step) {
#pragma unroll
        for (int k = 0; k < ROWS; k++)
            if (r + k * step < rows) sk_load<V>(x + (r + k * step) * n + c, v[k]);
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            if (r + k * step >= rows) break;
            for (int e = 0; e < V; e++) v[k][e] = gelu(v[k][e] + bias[e]);
            sk_store<V>(y + (r + k * step) * n + c, v[k]);
        }
    }
}

template <typename T, int V> static sk_status start(const sk_args *a, cudaStream_t s)
{
    const sk_view *v = &a->in[0];
    int64_t n = v->size[v->n - 1], rows = sk_span(v, 0, v->n - 1), columns = (n + V - 1) / V;
    unsigned across = 1; /* threads along a row; the others of the block take the next rows */
    while (across < BLOCK && across < columns) across *= 2;
    dim3 block(across, BLOCK / across);
    int64_t grid_y = (rows + block.y * ROWS - 1) / (block.y * ROWS);
    if (grid_y > MAX_GRID_Y) grid_y = MAX_GRID_Y; /* the kernel goes round */
    dim3 grid((unsigned)((columns + across - 1) / across), (unsigned)grid_y);
    down<T, V><<<grid, block, 0, s>>>((const T *)v->data, (const T *)a->in[1].data,
                                      (T *)a->out[0].data, rows, n);
    return sk_cuda_launched("bias_gelu");
}

template <typename T> static sk_status run(const sk_args *a, cudaStream_t s)
{
    const sk_view *v = &a->in[0];
    if (!sk_count(v)) return SK_OK;
    return sk_cuda_packs(a, v->size[v->n - 1]) ? start<T, sk_pack<T>()>(a, s) : start<T, 1>(a, s);
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    SK_TRY(sk_cuda_types("bias_gelu", a, 0));
    return SK_FLOAT(a->in[0].type, run<T>(a, (cudaStream_t)l->stream));
}

extern "C" const sk_kernel sk_kernel_bias_gelu = {"bias_gelu", launch};
