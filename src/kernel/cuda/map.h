/* map.h - GPU halves that go element by element; only parts/op/NAME.cu include it.
 *
 * An op is a struct F with
 *
 *     enum { IN = 2, OUT = 1 };                                  operands and results
 *     static __device__ void one(const float *x, float *y);      y[OUT] from x[IN]
 *
 * and `sk_map<F>("add", a, l)` launches it; sk_map_add<F> where results may be added to.  Operands
 * along rows of which one, in[F::BIAS], is a single row are for sk_down<F>: a thread keeps its
 * columns and goes down the rows, so that the row is loaded once and no index is divided.  It may
 * have no address: then it is all zeros (parts/fuse/linear_gelu.c).  In canonical order single
 * elements are moved: where packs would begin depends on how operands are cut, and a compiler might
 * fuse products with sums in one kernel and not in the other.
 *
 * A result may lie where an operand lies: a thread loads all it needs of both before it stores,
 * and nobody else looks there.  So pointers are not restrict, and several packs are loaded
 * before the first is used, to have enough loads in flight. */
#ifndef SK_KERNEL_MAP_H
#define SK_KERNEL_MAP_H

#include "kernel/cuda/cuda.h"

enum { SK_MAP_BLOCK = 256, SK_MAP_MAX_Y = 65535 };

typedef struct sk_map_job {
    const void *in[SK_MAX_IN];
    void *out[SK_MAX_OUT];
    int64_t n;    /* elements; sk_down: of a row */
    int64_t rows; /* sk_down only */
} sk_map_job;

static inline sk_map_job sk_map_job_of(const sk_args *a)
{
    sk_map_job j = {};
    for (int i = 0; i < a->n_in; i++) j.in[i] = a->in[i].data;
    for (int o = 0; o < a->n_out; o++) j.out[o] = a->out[o].data;
    return j;
}

/* Packs that a thread has under way: four of one operand, two of each of two, one of more. */
__host__ __device__ constexpr int sk_map_depth(int operands)
{
    return operands == 1 ? 4 : operands == 2 ? 2 : 1;
}

/* The V results of one pack at element i, from x[IN][V]; old: what they are added to, or NULL. */
template <typename F, typename T, int V>
static __device__ inline void sk_map_put(const sk_map_job &j, int64_t i, const float (*x)[V],
                                         const float (*old)[V])
{
    float y[F::OUT][V];
#pragma unroll
    for (int e = 0; e < V; e++) {
        float from[F::IN], to[F::OUT];
        for (int k = 0; k < F::IN; k++) from[k] = x[k][e];
        F::one(from, to);
        for (int o = 0; o < F::OUT; o++) y[o][e] = old ? old[o][e] + to[o] : to[o];
    }
#pragma unroll
    for (int o = 0; o < F::OUT; o++) sk_store<V>((T *)j.out[o] + i, y[o]);
}

template <typename F, typename T, int V, bool ADD>
static __global__ void __launch_bounds__(SK_MAP_BLOCK) sk_map_all(sk_map_job j)
{
    constexpr int depth = sk_map_depth(F::IN);
    const int64_t wide = (int64_t)SK_MAP_BLOCK * V, all = wide * depth;
    for (int64_t at = blockIdx.x * all + (int64_t)threadIdx.x * V; at < j.n;
         at += gridDim.x * all) {
        float x[depth][F::IN][V], old[depth][F::OUT][V];
#pragma unroll
        for (int k = 0; k < depth; k++) {
            int64_t i = at + k * wide;
            if (i >= j.n) break;
            for (int p = 0; p < F::IN; p++) sk_load<V>((const T *)j.in[p] + i, x[k][p]);
            for (int o = 0; o < F::OUT && ADD; o++) sk_load<V>((const T *)j.out[o] + i, old[k][o]);
        }
#pragma unroll
        for (int k = 0; k < depth; k++)
            if (at + k * wide < j.n)
                sk_map_put<F, T, V>(j, at + k * wide, x[k], ADD ? old[k] : nullptr);
    }
}

template <typename F, typename T, bool ADD>
static sk_status sk_map_run(const char *op, const sk_args *a, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    sk_map_job j = sk_map_job_of(a);
    bool packs = !sk_args_canonical(a);
    j.n = sk_count(&a->in[0]);
    if (!j.n) return SK_OK;
    for (int i = 0; i < a->n_in; i++) packs = packs && sk_cuda_rows(&a->in[i], j.n);
    for (int o = 0; o < a->n_out; o++) packs = packs && sk_cuda_rows(&a->out[o], j.n);
    constexpr int v = sk_pack<T>();
    int64_t each = (int64_t)SK_MAP_BLOCK * sk_map_depth(F::IN) * (packs ? v : 1);
    int64_t blocks = (j.n + each - 1) / each;
    unsigned grid = blocks < INT32_MAX ? (unsigned)blocks : INT32_MAX; /* the kernel goes round */
    if (packs) sk_map_all<F, T, v, ADD><<<grid, SK_MAP_BLOCK, 0, s>>>(j);
    else sk_map_all<F, T, 1, ADD><<<grid, SK_MAP_BLOCK, 0, s>>>(j);
    return sk_cuda_launched(op);
}

template <typename F> static sk_status sk_map(const char *op, const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, sk_map_run<F, T, false>(op, a, l));
}

template <typename F>
static sk_status sk_map_add(const char *op, const sk_args *a, const sk_launch *l)
{
    if (!(a->add & 1)) return sk_map<F>(op, a, l);
    return SK_FLOAT(a->in[0].type, sk_map_run<F, T, true>(op, a, l));
}

template <typename F, typename T, int V>
static __global__ void __launch_bounds__(SK_MAP_BLOCK) sk_down_all(sk_map_job j)
{
    constexpr int depth = sk_map_depth(F::IN - 1);
    int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    int64_t step = (int64_t)gridDim.y * blockDim.y;
    float x[depth][F::IN][V], bias[V];
    if (c >= j.n) return;
    for (int e = 0; e < V; e++) bias[e] = 0;
    if (j.in[F::BIAS]) sk_load<V>((const T *)j.in[F::BIAS] + c, bias);
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < j.rows;
         r += depth * step) {
#pragma unroll
        for (int k = 0; k < depth; k++) {
            if (r + k * step >= j.rows) break;
            for (int p = 0; p < F::IN; p++)
                if (p != F::BIAS)
                    sk_load<V>((const T *)j.in[p] + (r + k * step) * j.n + c, x[k][p]);
        }
#pragma unroll
        for (int k = 0; k < depth; k++) {
            if (r + k * step >= j.rows) break;
            for (int e = 0; e < V; e++) x[k][F::BIAS][e] = bias[e];
            sk_map_put<F, T, V>(j, (r + k * step) * j.n + c, x[k], nullptr);
        }
    }
}

/* Threads of a block along a row of so many packs; the others take the next rows. */
static inline dim3 sk_down_block(int64_t packs)
{
    unsigned across = 1;
    while (across < SK_MAP_BLOCK && across < packs) across *= 2;
    return dim3(across, SK_MAP_BLOCK / across);
}

/* Blocks for them, if each thread takes `depth` rows. */
static inline dim3 sk_down_grid(int64_t packs, int64_t rows, dim3 block, int depth)
{
    int64_t each = (int64_t)block.y * depth, y = (rows + each - 1) / each;
    if (y > SK_MAP_MAX_Y) y = SK_MAP_MAX_Y; /* kernels go round */
    return dim3((unsigned)((packs + block.x - 1) / block.x), (unsigned)y);
}

template <typename F, typename T>
static sk_status sk_down_run(const char *op, const sk_args *a, const sk_launch *l)
{
    constexpr int v = sk_pack<T>(), depth = sk_map_depth(F::IN - 1);
    cudaStream_t s = (cudaStream_t)l->stream;
    sk_map_job j = sk_map_job_of(a);
    j.n = sk_count(&a->in[F::BIAS]);
    j.rows = j.n ? sk_count(&a->out[0]) / j.n : 0;
    if (!j.rows) return SK_OK;
    bool packs = sk_cuda_packs(a, j.n) && !sk_args_canonical(a);
    int64_t n_packs = packs ? j.n / v : j.n;
    dim3 block = sk_down_block(n_packs), grid = sk_down_grid(n_packs, j.rows, block, depth);
    if (packs) sk_down_all<F, T, v><<<grid, block, 0, s>>>(j);
    else sk_down_all<F, T, 1><<<grid, block, 0, s>>>(j);
    return sk_cuda_launched(op);
}

template <typename F> static sk_status sk_down(const char *op, const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, sk_down_run<F, T>(op, a, l));
}

#endif
