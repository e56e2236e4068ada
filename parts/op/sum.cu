/* sum.cu - the GPU half of sum.c.
 *
 * Keeping the last letters is a sum of columns (kernel/cuda/column_sums.h) at the speed of memory;
 * so is keeping the first and the last (kernel/cuda/sample_columns.h).  Every other pattern is a
 * strided reduction in double: a thread for each element of the result, or a block where many
 * elements make one.  Neighbouring dims that are all reduced, or all kept, and are contiguous with
 * each other are coalesced.
 *
 * In canonical order (kernel/cuda/ordered_reduce.h) both sum the reduction blocks of the first
 * reduced letter one by one, and have the CPU's bits. */
#include "kernel/cuda/ordered_reduce.h"
#include "kernel/cuda/sample_columns.h"

enum { BLOCK = 256, LONG = 64 }; /* elements that are worth a block */

template <typename T> static sk_status columns(const sk_args *a, const sk_launch *l)
{
    int64_t n = sk_count(&a->out[0]), rows = n ? sk_count(&a->in[0]) / n : 0;
    sk_columns_plain<T> f = {(const T *)a->in[0].data};
    sk_columns_out out = {{sk_any_of(&a->out[0])}, a->add};
    const sk_view *x = &a->in[0];
    int goes = x->n - a->out[0].n;
    if (goes && x->cells[0])
        return sk_ordered_columns("sum", f, sk_borders_of(x, 0, sk_span(x, 1, goes)), n, out, l);
    if (sk_cuda_rows(&a->in[0], n))
        return sk_columns<sk_columns_plain<T>, sk_pack<T>()>("sum", f, rows, n, out, l);
    return sk_columns<sk_columns_plain<T>, 1>("sum", f, rows, n, out, l);
}

/* Some dims of the operand, the innermost last. */
typedef struct strided_dims {
    int n;
    int64_t size[SK_MAX_DIM], step[SK_MAX_DIM];
} strided_dims;

static void push_dim(strided_dims *w, int64_t size, int64_t step)
{
    int k = w->n - 1;
    if (w->n && w->step[k] == size * step) w->size[k] *= size, w->step[k] = step;
    else w->size[w->n] = size, w->step[w->n++] = step;
}

static __device__ int64_t offset_of(const strided_dims &w, int64_t i)
{
    int64_t at = 0;
    for (int k = w.n - 1; k > 0; k--) {
        at += i % w.size[k] * w.step[k];
        i /= w.size[k];
    }
    return w.n ? at + i * w.step[0] : 0;
}

/* The sum over a block of BLOCK threads, for thread 0; in a fixed order. */
static __device__ double block_sum(double x)
{
    __shared__ double warp[BLOCK / 32];
    for (int k = 16; k; k /= 2) x += __shfl_xor_sync(~0u, x, k);
    __syncthreads(); /* the sum before this one has been read */
    if (threadIdx.x % 32 == 0) warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int w = 0; w < BLOCK / 32; w++) x += warp[w];
    return x;
}

/* WIDE threads for each element of the result: 1 or BLOCK. */
template <typename T, int WIDE>
static __global__ void __launch_bounds__(BLOCK)
    reduce_dims(const T *x, strided_dims kept, strided_dims reduced, int64_t n, int64_t n_sum,
                sk_any y, bool add)
{
    int64_t step = (int64_t)gridDim.x * (BLOCK / WIDE);
    for (int64_t o = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) / WIDE; o < n; o += step) {
        const T *base = x + offset_of(kept, o);
        double sum = 0;
        for (int64_t i = threadIdx.x % WIDE; i < n_sum; i += WIDE)
            sum += (double)(float)base[offset_of(reduced, i)];
        if (WIDE > 1) sum = block_sum(sum);
        if (threadIdx.x % WIDE) continue;
        sk_put(y, o, (float)(add ? sum + (double)sk_get(y, o) : sum));
    }
}

/* Elements [from, to) of those that make one of the result: in double, or as the CPU sums single
 * samples, in blocks of rows. */
static __device__ float reduce_range(const float *base, const strided_dims &reduced, int64_t from,
                                     int64_t to, bool rows)
{
    double sum = 0;
    float all = 0;
    for (int64_t i = from; i < to && !rows; i++) sum += (double)base[offset_of(reduced, i)];
    for (int64_t r = from; r < to && rows; r += SK_CELLS_ROWS) {
        float block = 0;
        for (int64_t i = r; i < min(r + SK_CELLS_ROWS, to); i++)
            block += base[offset_of(reduced, i)];
        all += block;
    }
    return rows ? all : (float)sum;
}

/* Of results [first, first + n) what reduction block blockIdx.y adds. */
static __global__ void __launch_bounds__(BLOCK)
    reduce_blocks(const float *x, const strided_dims kept, const strided_dims reduced,
                  const __grid_constant__ sk_borders cells, int64_t first, int64_t n, bool rows,
                  float *part)
{
    int64_t o = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (o >= n) return;
    const float *base = x + offset_of(kept, first + o);
    part[blockIdx.y * n + o] =
        reduce_range(base, reduced, cells.at[blockIdx.y], cells.at[blockIdx.y + 1], rows);
}

/* As many results at a time as the workspace has place for. */
static sk_status ordered(const sk_args *a, const strided_dims &kept, const strided_dims &reduced,
                         const sk_borders &cells, bool rows, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    sk_columns_out out = {{sk_any_of(&a->out[0])}, a->add};
    int64_t all = sk_count(&a->out[0]),
            most = (int64_t)(l->workspace_bytes / sizeof(float)) / cells.n;
    for (int64_t first = 0, n; first < all; first += n) {
        n = all - first < most ? all - first : most;
        reduce_blocks<<<dim3(sk_cuda_blocks(n, BLOCK), (unsigned)cells.n), BLOCK, 0, s>>>(
            (const float *)a->in[0].data, kept, reduced, cells, first, n, rows,
            (float *)l->workspace);
        SK_TRY(sk_cuda_launched("sum"));
        SK_TRY(sk_ordered_end("sum", (const float *)l->workspace, cells.n, 1, first, n, out, s));
    }
    return SK_OK;
}

template <typename T> struct middle { /* of "bth->bh": a row is b and t */
    const T *x;
    int64_t cols;
    __device__ float operator()(int64_t r, int64_t c) const { return (float)x[r * cols + c]; }
};

/* The reduced letters lie between kept ones, and the kept ones behind them fill a warp. */
static bool is_middle(const strided_dims &kept, const strided_dims &reduced)
{
    return kept.n == 2 && reduced.n == 1 && kept.step[1] == 1 && kept.size[1] >= 32 &&
           reduced.step[0] == kept.size[1] && kept.step[0] == reduced.size[0] * reduced.step[0];
}

template <typename T>
static sk_status strided(const sk_args *a, const char *in, const char *out, const sk_launch *l)
{
    const sk_view *x = &a->in[0];
    int64_t n = sk_count(&a->out[0]), n_sum = 1;
    int first = -1; /* reduced dim */
    strided_dims kept = {}, reduced = {};
    for (const char *p = out; *p; p++) {
        int d = (int)(strchr(in, *p) - in);
        push_dim(&kept, x->size[d], x->step[d]);
    }
    for (int d = 0; d < x->n; d++) {
        if (strchr(out, in[d])) continue;
        push_dim(&reduced, x->size[d], x->step[d]);
        n_sum *= x->size[d];
        if (first < 0) first = d;
    }
    if (!n) return SK_OK;
    if (first >= 0 && x->cells[first]) {
        int64_t inner = x->size[first] ? n_sum / x->size[first] : 0;
        bool samples = *out && *in == *out && !strcmp(in + x->n - (a->out[0].n - 1), out + 1);
        return ordered(a, kept, reduced, sk_borders_of(x, first, inner), samples, l);
    }
    if (is_middle(kept, reduced) && !sk_args_canonical(a))
        return sk_sum_sample_columns("sum", middle<T>{(const T *)x->data, kept.size[1]},
                                     kept.size[0], n_sum, kept.size[1], sk_any_of(&a->out[0]),
                                     a->add & 1, l);
    bool wide = n_sum > LONG;
    int64_t blocks = wide ? n : (n + BLOCK - 1) / BLOCK;
    unsigned grid = blocks < INT32_MAX ? (unsigned)blocks : INT32_MAX; /* the kernel first round */
    auto *kernel = wide ? reduce_dims<T, BLOCK> : reduce_dims<T, 1>;
    kernel<<<grid, BLOCK, 0, (cudaStream_t)l->stream>>>((const T *)x->data, kept, reduced, n, n_sum,
                                                        sk_any_of(&a->out[0]), a->add & 1);
    return sk_cuda_launched("sum");
}

/* Letters of one side of "bthsd->hsd", without marks. */
static void side(const char *p, char letters[SK_MAX_DIM + 1])
{
    int n = 0;
    for (; *p && *p != '-'; p++)
        if (*p != '!') letters[n++] = *p;
    letters[n] = 0;
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    char in[SK_MAX_DIM + 1], out[SK_MAX_DIM + 1];
    side(a->dims, in);
    side(strstr(a->dims, "->") + 2, out);
    if (!strcmp(in + a->in[0].n - a->out[0].n, out))
        return SK_FLOAT(a->in[0].type, columns<T>(a, l));
    return SK_FLOAT(a->in[0].type, strided<T>(a, in, out, l));
}

extern "C" const sk_kernel sk_kernel_sum = {"sum", launch};
