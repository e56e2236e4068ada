/* dot_products.cu - dot_products.h. */
#include "kernel/cuda/dot_products.h"
#include "kernel/cuda/cuda.h"

enum {
    BLOCK = 256,
    ENOUGH = 1056, /* blocks to keep a GPU busy: 8 for each of 132 SMs */
    SHORT = 8192   /* the least k of a part */
};

typedef struct job {
    sk_dots d;
    int64_t parts, deep; /* deep: k of one part */
    float *sums;         /* [batches][parts] where there are several parts */
} job;

/* For thread 0, in a fixed order. */
static __device__ float block_sum(float x)
{
    __shared__ float warp[BLOCK / 32];
    for (int k = 16; k; k /= 2) x += __shfl_xor_sync(~0u, x, k);
    if (threadIdx.x % 32 == 0) warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int w = 0; w < BLOCK / 32; w++) x += warp[w];
    return x;
}

static __device__ void put(const sk_dots &d, int64_t at, float sum)
{
    if (d.by) sum *= *d.by;
    sk_put(d.z, at, d.add ? sk_get(d.z, at) + sum : sum);
}

/* Packs of V where both operands are dense. */
template <int V, typename T>
static __device__ float part_of(const T *x, const T *y, int64_t from, int64_t to)
{
    float sum = 0, u[V], v[V];
    int64_t i = from + (int64_t)threadIdx.x * V;
#pragma unroll 4
    for (; i + V <= to; i += BLOCK * V) {
        sk_load<V>(x + i, u);
        sk_load<V>(y + i, v);
#pragma unroll
        for (int k = 0; k < V; k++) sum = fmaf(u[k], v[k], sum);
    }
    for (; i < to; i++) sum = fmaf((float)x[i], (float)y[i], sum); /* the last pack is not whole */
    return sum;
}

static __device__ float part_of(sk_any x, sk_any y, const int64_t at[3], const int64_t step[2],
                                int64_t from, int64_t to)
{
    float sum = 0;
    for (int64_t i = from + threadIdx.x; i < to; i += BLOCK)
        sum = fmaf(sk_get(x, at[SK_A] + i * step[0]), sk_get(y, at[SK_B] + i * step[1]), sum);
    return sum;
}

/* A block for each part of each product.  T char: any types and steps. */
template <typename T> static __global__ void __launch_bounds__(BLOCK) by_parts(job j)
{
    int64_t b = blockIdx.x / j.parts, p = blockIdx.x % j.parts, from = p * j.deep, at[3];
    int64_t to = from + j.deep < j.d.k ? from + j.deep : j.d.k;
    float sum;
    sk_axes_at(&j.d.batch, b, at);
    if constexpr (sizeof(T) == 1) sum = part_of(j.d.x, j.d.y, at, j.d.step, from, to);
    else
        sum = part_of<sk_pack<T>()>((const T *)j.d.x.data + at[SK_A],
                                    (const T *)j.d.y.data + at[SK_B], from, to);
    sum = block_sum(sum);
    if (threadIdx.x) return;
    if (j.sums) j.sums[blockIdx.x] = sum;
    else put(j.d, at[SK_OUT], sum);
}

/* A block for each product. */
static __global__ void __launch_bounds__(BLOCK) add_parts(job j)
{
    int64_t at[3];
    float sum = 0;
    for (int64_t p = threadIdx.x; p < j.parts; p += BLOCK) sum += j.sums[blockIdx.x * j.parts + p];
    sum = block_sum(sum);
    sk_axes_at(&j.d.batch, blockIdx.x, at);
    if (!threadIdx.x) put(j.d, at[SK_OUT], sum);
}

static bool aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

/* May a thread load 16 bytes of both, in every product of the batch? */
static bool in_packs(const sk_dots *d)
{
    int64_t pack = 16 / (int64_t)sk_dtype_size(d->x.type);
    if (d->x.type != d->y.type || d->step[0] != 1 || d->step[1] != 1) return false;
    for (int i = 0; i < d->batch.n; i++)
        if (d->batch.v[i].step[SK_A] % pack || d->batch.v[i].step[SK_B] % pack) return false;
    return aligned(d->x.data) && aligned(d->y.data);
}

sk_status sk_dot_products(const sk_dots *d, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    job j = {*d, (ENOUGH + d->batches - 1) / d->batches, 0, NULL};
    int64_t fit = (int64_t)(l->workspace_bytes / sizeof(float)) / d->batches;
    if (j.parts > d->k / SHORT) j.parts = d->k / SHORT;
    if (j.parts > fit) j.parts = fit;
    if (j.parts < 1) j.parts = 1;
    j.deep = ((d->k + j.parts - 1) / j.parts + 7) / 8 * 8; /* whole packs */
    j.parts = (d->k + j.deep - 1) / j.deep;
    j.sums = j.parts > 1 ? (float *)l->workspace : NULL;
    unsigned blocks = (unsigned)(d->batches * j.parts);
    if (!in_packs(d)) by_parts<char><<<blocks, BLOCK, 0, s>>>(j);
    else SK_FLOAT(d->x.type, (by_parts<T><<<blocks, BLOCK, 0, s>>>(j)));
    SK_TRY(sk_cuda_launched("contract"));
    if (!j.sums) return SK_OK;
    add_parts<<<(unsigned)d->batches, BLOCK, 0, s>>>(j);
    return sk_cuda_launched("contract");
}
