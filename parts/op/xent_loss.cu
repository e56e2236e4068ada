/* xent_loss.cu - the GPU half of xent_loss.c: in double, like there.  Blocks add up their rows into
 * the workspace, and one block adds up the blocks, both in a fixed order.  In canonical order a
 * thread block has a reduction block, whose sums are rounded. */
#include "kernel/cuda/ordered_reduce.h"
#include "kernel/cuda/cuda_rows.h"

enum { WARPS = 8, BLOCK = 32 * WARPS, BLOCKS = 256 };

typedef struct sums {
    double loss, weight;
} sums;

static __device__ sums meet(sums x)
{
    return sums{sk_row_sum<WARPS>(x.loss), sk_row_sum<WARPS>(x.weight)};
}

typedef struct terms {
    sk_any m, s, t, w;
    double z;
} terms;

/* Rows [r, rows), `step` apart. */
static __device__ sums add_up(const terms &x, int64_t r, int64_t rows, int64_t step)
{
    sums y = {0, 0};
    for (; r < rows; r += step) {
        double weight = (double)sk_get(x.w, r);
        y.weight += weight;
        if (weight == 0) continue;
        double m = (double)sk_get(x.m, r), ln = log((double)sk_get(x.s, r));
        y.loss += weight * (m - (double)sk_get(x.t, r) + ln);
        if (x.z != 0) y.loss += weight * x.z * (m + ln) * (m + ln);
    }
    return meet(y);
}

static __global__ void __launch_bounds__(BLOCK) rows_of(terms x, sums *part, int64_t rows)
{
    sums y = add_up(x, (int64_t)blockIdx.x * BLOCK + threadIdx.x, rows, (int64_t)gridDim.x * BLOCK);
    if (threadIdx.x == 0) part[blockIdx.x] = y;
}

/* part: [reduction blocks][2] */
static __global__ void __launch_bounds__(BLOCK)
    cells_of(terms x, const __grid_constant__ sk_borders cells, float *part)
{
    sums y =
        add_up(x, cells.at[blockIdx.x] + threadIdx.x, cells.at[blockIdx.x + 1], (int64_t)BLOCK);
    if (threadIdx.x) return;
    part[2 * blockIdx.x] = (float)y.loss;
    part[2 * blockIdx.x + 1] = (float)y.weight;
}

static __global__ void __launch_bounds__(BLOCK)
    finish(const sums *part, int n, sk_any loss, sk_any weight, unsigned add)
{
    sums y = {0, 0};
    if ((int)threadIdx.x < n) y = part[threadIdx.x];
    y = meet(y);
    if (threadIdx.x) return;
    sk_put(loss, 0, (float)(y.loss + (add & 1 ? (double)sk_get(loss, 0) : 0)));
    sk_put(weight, 0, (float)(y.weight + (add & 2 ? (double)sk_get(weight, 0) : 0)));
}

static sk_status by_cells(const sk_args *a, const terms &x, const sk_launch *l)
{
    const sk_view *v = &a->in[0];
    sk_borders cells = sk_borders_of(v, 0, sk_span(v, 1, v->n));
    sk_columns_out out = {{sk_any_of(&a->out[0]), sk_any_of(&a->out[1])}, a->add};
    float *part = (float *)l->workspace;
    cells_of<<<(unsigned)cells.n, BLOCK, 0, (cudaStream_t)l->stream>>>(x, cells, part);
    SK_TRY(sk_cuda_launched("xent_loss"));
    return sk_ordered_end("xent_loss", part, cells.n, 2, 0, 1, out, (cudaStream_t)l->stream);
}

static_assert(BLOCKS <= BLOCK, "finish() has a thread for each block's sums");

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    int64_t rows = sk_count(&a->in[0]), blocks = (rows + BLOCK - 1) / BLOCK;
    int n = blocks < BLOCKS ? (int)blocks : (int)BLOCKS;
    sums *part = (sums *)l->workspace;
    terms x = {sk_any_of(&a->in[0]), sk_any_of(&a->in[1]), sk_any_of(&a->in[2]),
               sk_any_of(&a->in[3]), a->validation ? 0 : a->attr[0]};
    if (a->in[0].n && a->in[0].cells[0]) return by_cells(a, x, l);
    if (n) rows_of<<<n, BLOCK, 0, s>>>(x, part, rows);
    finish<<<1, BLOCK, 0, s>>>(part, n, sk_any_of(&a->out[0]), sk_any_of(&a->out[1]), a->add);
    return sk_cuda_launched("xent_loss");
}

extern "C" const sk_kernel sk_kernel_xent_loss = {"xent_loss", launch};
