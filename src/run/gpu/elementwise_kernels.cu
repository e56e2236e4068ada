/* elementwise_kernels.cu - ADD, sums over members in a fixed order, conversions, error feedback,
 * averages of weights, noise. */
#include "kernel/weight_average.h"
#include "run/gpu/inst_kernels_cuda.h"

/* ---- ADD */

/* A block has BLOCK * FLIGHT packs of V elements; elements that are not in packs go one by one. */
template <int V, typename T>
static __global__ void __launch_bounds__(BLOCK)
    add_some(T *to, const T *from, int64_t n, bool packs)
{
    int64_t at = (int64_t)blockIdx.x * BLOCK * FLIGHT * V;
    int m = (int)(n - at < BLOCK * FLIGHT * V ? n - at : BLOCK * FLIGHT * V),
        full = packs ? m / V : 0;
    float x[FLIGHT][V], y[FLIGHT][V];
    to += at, from += at;
#pragma unroll
    for (int k = 0; k < FLIGHT; k++) {
        int i = ((int)threadIdx.x + k * BLOCK);
        if (i < full) sk_take<V>(to + i * V, x[k]), sk_take<V>(from + i * V, y[k]);
    }
#pragma unroll
    for (int k = 0; k < FLIGHT; k++) {
        int i = ((int)threadIdx.x + k * BLOCK);
#pragma unroll
        for (int e = 0; e < V; e++) x[k][e] += y[k][e];
        if (i < full) sk_leave<V>(to + i * V, x[k]);
    }
    for (int i = full * V + threadIdx.x; i < m; i += BLOCK)
        to[i] = (T)((float)to[i] + (float)from[i]);
}

template <typename T> static void add_as(void *to, const void *from, int64_t n, cudaStream_t s)
{
    const int V = sk_pack<T>();
    bool packs = !(((uintptr_t)to | (uintptr_t)from) % 16);
    add_some<V, T>
        <<<blocks_for(n, BLOCK * FLIGHT * V), BLOCK, 0, s>>>((T *)to, (const T *)from, n, packs);
}

sk_status sk_gpu_add(void *to, const void *from, int64_t n, sk_dtype type, void *stream)
{
    SK_TRY(sk_inst_kernel_takes("add", type));
    if (n) SK_FLOAT(type, add_as<T>(to, from, n, (cudaStream_t)stream));
    return sk_cuda_launched("add");
}

/* ---- a sum over members: like the carries of a binary counter, slot l has the sum of 2^l of them
 */

template <typename T>
static __global__ void __launch_bounds__(BLOCK) tree_some(const __grid_constant__ sk_tree_job j)
{
    enum { SLOTS = 20 };
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    T slot[SLOTS], x;
    if (i >= j.n) return;
    for (int k = 0; k < j.members; k++) {
        int l = 0;
        x = ((const T *)(k == j.me ? j.mine : j.terms + k * j.step))[i];
        for (; k >> l & 1; l++) x = slot[l] + x;
        slot[l] = x;
    }
    bool any = false;
    for (int l = 0; l < SLOTS; l++) {
        if (!(j.members >> l & 1)) continue;
        x = any ? slot[l] + x : slot[l];
        any = true;
    }
    ((T *)j.to)[i] = j.mean ? x / (T)j.members : x;
}

sk_status sk_gpu_tree(const sk_tree_job *j, void *stream)
{
    unsigned blocks = blocks_for(j->n, BLOCK);
    cudaStream_t s = (cudaStream_t)stream;
    if (j->type != SK_F32 && j->type != SK_F64)
        return sk_fail(SK_ECONF, "order=canonical: a sum of %s between GPUs; f32 and f64 are known",
                       sk_dtype_name(j->type));
    if (j->n && j->type == SK_F64) tree_some<double><<<blocks, BLOCK, 0, s>>>(*j);
    else if (j->n) tree_some<float><<<blocks, BLOCK, 0, s>>>(*j);
    return sk_cuda_launched("tree");
}

/* A pack is 16 bytes of the wider type. */
template <int V, typename T, typename F>
static __global__ void __launch_bounds__(BLOCK)
    convert_some(T *to, const F *from, int64_t n, bool packs)
{
    int64_t at = (int64_t)blockIdx.x * BLOCK * FLIGHT * V;
    int m = (int)(n - at < BLOCK * FLIGHT * V ? n - at : BLOCK * FLIGHT * V),
        full = packs ? m / V : 0;
    float x[FLIGHT][V];
    to += at, from += at;
#pragma unroll
    for (int k = 0; k < FLIGHT; k++)
        if ((int)threadIdx.x + k * BLOCK < full)
            sk_take<V>(from + ((int)threadIdx.x + k * BLOCK) * V, x[k]);
#pragma unroll
    for (int k = 0; k < FLIGHT; k++)
        if ((int)threadIdx.x + k * BLOCK < full)
            sk_leave<V>(to + ((int)threadIdx.x + k * BLOCK) * V, x[k]);
    for (int i = full * V + threadIdx.x; i < m; i += BLOCK) to[i] = (T)(float)from[i];
}

template <typename T, typename F>
static void convert_as(void *to, const void *from, int64_t n, cudaStream_t s)
{
    const int V = 16 / (int)(sizeof(T) > sizeof(F) ? sizeof(T) : sizeof(F));
    bool packs = !((uintptr_t)to % (V * sizeof(T))) && !((uintptr_t)from % (V * sizeof(F)));
    convert_some<V, T, F>
        <<<blocks_for(n, BLOCK * FLIGHT * V), BLOCK, 0, s>>>((T *)to, (const F *)from, n, packs);
}

template <typename F>
static void convert_from(void *to, sk_dtype type, const void *from, int64_t n, cudaStream_t s)
{
    SK_FLOAT(type, convert_as<T, F>(to, from, n, s));
}

static __device__ double number(const void *p, sk_dtype type, int64_t i)
{
    if (type == SK_F64) return ((const double *)p)[i];
    if (type == SK_I32) return ((const int32_t *)p)[i];
    if (type == SK_I64) return (double)((const int64_t *)p)[i];
    if (type == SK_U8) return ((const uint8_t *)p)[i];
    return sk_get(sk_any{(void *)p, type}, i);
}

/* Types that only small tensors have. */
static __global__ void __launch_bounds__(BLOCK)
    convert_rare(void *to, sk_dtype to_type, const void *from, sk_dtype type, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    double x = number(from, type, i);
    if (to_type == SK_F64) ((double *)to)[i] = x;
    else if (to_type == SK_I32) ((int32_t *)to)[i] = (int32_t)x;
    else if (to_type == SK_I64) ((int64_t *)to)[i] = (int64_t)x;
    else if (to_type == SK_U8) ((uint8_t *)to)[i] = (uint8_t)x;
    else sk_put(sk_any{to, to_type}, i, (float)x);
}

sk_status sk_gpu_convert(void *to, sk_dtype to_type, const void *from, sk_dtype type, int64_t n,
                         void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;
    int64_t bytes = n * (int64_t)sk_dtype_size(type);
    if (to_type == type) return sk_gpu_gather(to, bytes, from, bytes, bytes, 1, stream);
    if (n && (type > SK_F16 || to_type > SK_F16))
        convert_rare<<<blocks_for(n, BLOCK), BLOCK, 0, s>>>(to, to_type, from, type, n);
    else if (n) SK_FLOAT(type, convert_from<T>(to, to_type, from, n, s));
    return sk_cuda_launched("convert");
}

/* ---- state of a whole matrix */

template <typename F>
static __global__ void __launch_bounds__(BLOCK)
    keep_some(float *to, const F *from, int64_t n, const int32_t *skip)
{
    int64_t at = (int64_t)blockIdx.x * BLOCK * FLIGHT + threadIdx.x;
    if (*skip) return;
#pragma unroll
    for (int k = 0; k < FLIGHT; k++)
        if (at + k * BLOCK < n) to[at + k * BLOCK] = (float)from[at + k * BLOCK];
}

sk_status sk_gpu_keep(float *to, const void *from, sk_dtype type, int64_t n, const int32_t *skip,
                      void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;
    SK_TRY(sk_inst_kernel_takes("keep", type));
    if (n)
        SK_FLOAT(type, keep_some<T>
                 <<<blocks_for(n, BLOCK * FLIGHT), BLOCK, 0, s>>>(to, (const T *)from, n, skip));
    return sk_cuda_launched("keep");
}

/* ---- error feedback becomes 0 */

/* Mostly *skip is 0 and there is nothing to do, so blocks are few. */
static __global__ void __launch_bounds__(BLOCK)
    reset_all(const __grid_constant__ sk_feedback_reset_job j, const int32_t *skip)
{
    int64_t step = (int64_t)gridDim.x * BLOCK;
    if (!*skip) return;
    for (int k = 0; k < j.n; k++)
        for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < j.count[k]; i += step)
            j.data[k][i] = 0;
}

sk_status sk_gpu_reset_feedback(const sk_feedback_reset_job *j, const int32_t *skip, void *stream)
{
    if (j->n) reset_all<<<132 * 4, BLOCK, 0, (cudaStream_t)stream>>>(*j, skip);
    return sk_cuda_launched("reset_feedback");
}

/* ---- the average of weights */

template <int V>
static __global__ void __launch_bounds__(BLOCK)
    average_some(float *to, const float *from, int64_t n, double decay,
                 const sk_step_scalars *pulse, bool packs)
{
    __shared__ float part;
    if (pulse->hold) return;
    if (!threadIdx.x) part = (float)sk_ema_part(decay, (double)(pulse->updates + 1));
    __syncthreads();
    int64_t at = (int64_t)blockIdx.x * BLOCK * FLIGHT * V;
    int m = (int)(n - at < BLOCK * FLIGHT * V ? n - at : BLOCK * FLIGHT * V),
        full = packs ? m / V : 0;
    float x[FLIGHT][V], y[FLIGHT][V];
    to += at, from += at;
#pragma unroll
    for (int k = 0; k < FLIGHT; k++) {
        int i = ((int)threadIdx.x + k * BLOCK);
        if (i < full) sk_take<V>(to + i * V, x[k]), sk_take<V>(from + i * V, y[k]);
    }
#pragma unroll
    for (int k = 0; k < FLIGHT; k++) {
        int i = ((int)threadIdx.x + k * BLOCK);
#pragma unroll
        for (int e = 0; e < V; e++) x[k][e] = sk_ema_step(x[k][e], y[k][e], part);
        if (i < full) sk_leave<V>(to + i * V, x[k]);
    }
    for (int i = full * V + threadIdx.x; i < m; i += BLOCK)
        to[i] = sk_ema_step(to[i], from[i], part);
}

sk_status sk_gpu_average(float *to, const float *from, int64_t n, double decay,
                         const sk_step_scalars *pulse, void *stream)
{
    const int V = sk_pack<float>();
    bool packs = !(((uintptr_t)to | (uintptr_t)from) % 16);
    if (n)
        average_some<V><<<blocks_for(n, BLOCK * FLIGHT * V), BLOCK, 0, (cudaStream_t)stream>>>(
            to, from, n, decay, pulse, packs);
    return sk_cuda_launched("average");
}

/* ---- combinations: run/cpu/weight_average.c.  Rare, and bound by memory */

static __global__ void __launch_bounds__(BLOCK)
    combine_all(const __grid_constant__ sk_combine_job j)
{
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < j.n;
         i += (int64_t)gridDim.x * BLOCK) {
        float x[SK_COMBINE_IN], y[SK_COMBINE_OUT];
        for (int k = 0; k < SK_COMBINE_IN; k++) x[k] = k < j.by.n_in ? j.in[k][i] : 0;
        for (int o = 0; o < SK_COMBINE_OUT; o++) y[o] = sk_combine_one(j.by.by[o], x, j.by.n_in);
        for (int o = 0; o < j.by.n_out; o++) j.out[o][i] = y[o];
    }
}

sk_status sk_gpu_combine(const sk_combine_job *j, void *stream)
{
    int blocks = j->n < 132 * 8 * BLOCK ? (int)((j->n + BLOCK - 1) / BLOCK) : 132 * 8;
    if (j->n) combine_all<<<blocks, BLOCK, 0, (cudaStream_t)stream>>>(*j);
    return sk_cuda_launched("combine");
}

/* ---- noise */

/* Both halves of a word are bf16 between 1/64 and 1/32, of either sign; so is the word as f32. */
static __global__ void noise_all(unsigned *to, int64_t words)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
        unsigned x = (unsigned)i * 0x9E3779B1u ^ (unsigned)(i >> 32);
        x = (x ^ x >> 16) * 0x85EBCA6Bu;
        x ^= x >> 13;
        to[i] = (x & 0x807F807Fu) | 0x3C803C80u;
    }
}

sk_status sk_gpu_noise(void *to, int64_t bytes, void *stream)
{
    if (bytes < 4) return SK_OK;
    noise_all<<<132 * 16, BLOCK, 0, (cudaStream_t)stream>>>((unsigned *)to, bytes / 4);
    return sk_cuda_launched("noise");
}
