/* pack_kernels.cu - PACK and UNPACK: run/cpu/pack_bits.h says what packed results look like.
 *
 * A thread has 8 elements: one byte of bits.  Where values are kept, the set bits of each segment
 * are counted first; a prefix sum then says where the values of each segment begin; at last a block
 * of threads writes the values of a segment, counting its bytes once more. */
#include "run/gpu/inst_kernels_cuda.h"

enum { SEGMENT = 8 * BLOCK * 8 }; /* elements of a block */

typedef struct packed_data {
    void *data;
    unsigned char *bits;
    char *values;
    int64_t n, bytes; /* bytes of bits: whole words of 64 elements */
    int64_t capacity;
    unsigned most; /* a bit is set if the element, read as an unsigned integer, is 1 to this */
    unsigned one;  /* what a set bit is unpacked to where no values are kept */
    bool packs;
} packed_data;

/* 8 elements as unsigned integers; those beyond the end are 0. */
template <typename U> static __device__ void take_bits(const packed_data &p, int64_t byte, U *x)
{
    const U *from = (const U *)p.data + 8 * byte;
    if (p.packs && 8 * byte + 8 <= p.n) {
#pragma unroll
        for (int k = 0; k < (int)sizeof(U) / 2; k++)
            *reinterpret_cast<uint4 *>((char *)x + 16 * k) = ((const uint4 *)from)[k];
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; e++) x[e] = 8 * byte + e < p.n ? from[e] : (U)0;
}

template <typename U> static __device__ void leave_bits(const packed_data &p, int64_t byte, U *x)
{
    U *to = (U *)p.data + 8 * byte;
    if (p.packs && 8 * byte + 8 <= p.n) {
#pragma unroll
        for (int k = 0; k < (int)sizeof(U) / 2; k++)
            ((uint4 *)to)[k] = *reinterpret_cast<const uint4 *>((char *)x + 16 * k);
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; e++)
        if (8 * byte + e < p.n) to[e] = x[e];
}

/* Exclusive prefix sum over the threads of a block; *all is the sum of all. */
static __device__ int sum_before(int x, int *all)
{
    __shared__ int part[BLOCK / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, up = x;
#pragma unroll
    for (int k = 1; k < 32; k *= 2) {
        int y = __shfl_up_sync(~0u, up, k);
        if (lane >= k) up += y;
    }
    __syncthreads(); /* the sums of the call before have been read */
    if (lane == 31) part[warp] = up;
    __syncthreads();
    int before = 0, total = 0;
#pragma unroll
    for (int w = 0; w < BLOCK / 32; w++) {
        if (w < warp) before += part[w];
        total += part[w];
    }
    *all = total;
    return before + up - x;
}

/* The bits of a segment, and how many are set. */
template <typename U>
static __global__ void __launch_bounds__(BLOCK)
    pack_bits(const __grid_constant__ packed_data p, int64_t *count)
{
    int64_t at = (int64_t)blockIdx.x * (SEGMENT / 8) + threadIdx.x;
    int set = 0, all = 0;
#pragma unroll 4
    for (int k = 0; k < SEGMENT / 8 / BLOCK; k++) {
        alignas(16) U x[8];
        unsigned bits = 0;
        if (at + k * BLOCK >= p.bytes) break;
        take_bits(p, at + k * BLOCK, x);
#pragma unroll
        for (int e = 0; e < 8; e++) bits |= (unsigned)(x[e] > 0 && x[e] <= p.most) << e;
        p.bits[at + k * BLOCK] = (unsigned char)bits;
        set += __popc(bits);
    }
    if (!count) return;
    sum_before(set, &all);
    if (threadIdx.x == 0) count[blockIdx.x] = all;
}

static __global__ void __launch_bounds__(BLOCK)
    count_bits(const __grid_constant__ packed_data p, int64_t *count)
{
    int64_t at = (int64_t)blockIdx.x * (SEGMENT / 8) + threadIdx.x;
    int set = 0, all = 0;
    for (int k = 0; k < SEGMENT / 8 / BLOCK; k++)
        if (at + k * BLOCK < p.bytes) set += __popc(p.bits[at + k * BLOCK]);
    sum_before(set, &all);
    if (threadIdx.x == 0) count[blockIdx.x] = all;
}

/* count[i] becomes the sum of those before it; by one block, BLOCK of them at a time. */
static __global__ void __launch_bounds__(BLOCK)
    add_up(int64_t *count, int64_t n, int64_t capacity, int32_t *full)
{
    int64_t base = 0;
    for (int64_t i = 0; i < n; i += BLOCK) {
        int all, mine = i + threadIdx.x < n ? (int)count[i + threadIdx.x] : 0;
        int before = sum_before(mine, &all);
        if (i + threadIdx.x < n) count[i + threadIdx.x] = base + before;
        base += all;
    }
    if (full && threadIdx.x == 0 && base > capacity) *full = 1;
}

template <typename U>
static __global__ void __launch_bounds__(BLOCK)
    pack_values(const __grid_constant__ packed_data p, const int64_t *before)
{
    int64_t first = (int64_t)blockIdx.x * (SEGMENT / 8) + threadIdx.x, base = before[blockIdx.x];
    for (int k = 0; k < SEGMENT / 8 / BLOCK; k++) {
        int64_t byte = first + k * BLOCK;
        alignas(16) U x[8];
        int all;
        unsigned bits = byte < p.bytes ? p.bits[byte] : 0;
        int64_t at = base + sum_before(__popc(bits), &all);
        if (bits) take_bits(p, byte, x);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            if (!(bits >> e & 1)) continue;
            if (at < p.capacity) ((U *)p.values)[at] = x[e];
            at++;
        }
        base += all;
    }
}

/* The reverse of pack_values; without values, a set bit becomes 1. */
template <typename U>
static __global__ void __launch_bounds__(BLOCK)
    unpack_values(const __grid_constant__ packed_data p, const int64_t *before)
{
    int64_t first = (int64_t)blockIdx.x * (SEGMENT / 8) + threadIdx.x;
    int64_t base = before ? before[blockIdx.x] : 0;
    for (int k = 0; k < SEGMENT / 8 / BLOCK; k++) {
        int64_t byte = first + k * BLOCK, at = base;
        alignas(16) U x[8];
        int all = 0;
        unsigned bits = byte < p.bytes ? p.bits[byte] : 0;
        if (before) at += sum_before(__popc(bits), &all);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            bool set = bits >> e & 1;
            x[e] = !set              ? (U)0
                   : !before         ? (U)p.one
                   : at < p.capacity ? ((const U *)p.values)[at]
                                     : (U)0;
            at += set;
        }
        if (byte < p.bytes) leave_bits(p, byte, x);
        base += all;
    }
}

static sk_status lay_out(const char *what, void *data, char *packed, sk_dtype type, int64_t n,
                         int64_t capacity, const sk_launch *l, packed_data *p)
{
    size_t need = (size_t)blocks_for(n, SEGMENT) * sizeof(int64_t);
    SK_TRY(sk_inst_kernel_takes(what, type));
    if (capacity && need > l->workspace_bytes)
        return sk_fail(SK_ECONF,
                       "%s: %lld elements need %zu bytes to be counted, the workspace has %zu",
                       what, (long long)n, need, l->workspace_bytes);
    *p = packed_data{data, (unsigned char *)packed, packed + (n + 511) / 512 * 64,
                     n,    (n + 63) / 64 * 8,       capacity};
    p->most = capacity ? ~0u : type == SK_F32 ? 0x7f800000u : type == SK_BF16 ? 0x7f80u : 0x7c00u;
    p->one = type == SK_F32 ? 0x3f800000u : type == SK_BF16 ? 0x3f80u : 0x3c00u;
    p->packs = !((uintptr_t)data % 16);
    return SK_OK;
}

template <typename U>
static void pack_as(const packed_data &p, int32_t *full, int64_t *count, cudaStream_t s)
{
    unsigned blocks = blocks_for(p.n, SEGMENT);
    pack_bits<U><<<blocks, BLOCK, 0, s>>>(p, p.capacity ? count : NULL);
    if (!p.capacity) return;
    add_up<<<1, BLOCK, 0, s>>>(count, blocks, p.capacity, full);
    pack_values<U><<<blocks, BLOCK, 0, s>>>(p, count);
}

sk_status sk_gpu_pack(const void *data, char *packed, sk_dtype type, int64_t n, int64_t capacity,
                      int32_t *full, const sk_launch *l)
{
    packed_data p;
    cudaStream_t s = (cudaStream_t)l->stream;
    SK_TRY(lay_out("pack", (void *)data, packed, type, n, capacity, l, &p));
    if (n && type == SK_F32) pack_as<unsigned>(p, full, (int64_t *)l->workspace, s);
    else if (n) pack_as<unsigned short>(p, full, (int64_t *)l->workspace, s);
    return sk_cuda_launched("pack");
}

sk_status sk_gpu_unpack(void *data, const char *packed, sk_dtype type, int64_t n, int64_t capacity,
                        const sk_launch *l)
{
    packed_data p;
    cudaStream_t s = (cudaStream_t)l->stream;
    int64_t *count = capacity ? (int64_t *)l->workspace : NULL;
    unsigned blocks = blocks_for(n, SEGMENT);
    SK_TRY(lay_out("unpack", data, (char *)packed, type, n, capacity, l, &p));
    if (!n) return SK_OK;
    if (capacity) count_bits<<<blocks, BLOCK, 0, s>>>(p, count);
    if (capacity) add_up<<<1, BLOCK, 0, s>>>(count, blocks, capacity, NULL);
    if (type == SK_F32) unpack_values<unsigned><<<blocks, BLOCK, 0, s>>>(p, count);
    else unpack_values<unsigned short><<<blocks, BLOCK, 0, s>>>(p, count);
    return sk_cuda_launched("unpack");
}
