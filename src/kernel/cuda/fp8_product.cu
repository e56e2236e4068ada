/* fp8_product.cu - copies of operands in 8 bits, for contractions that are taken so; see
 * fp8_product.h.
 *
 *     largest   a part of the largest magnitude for each block; what a maximum is does not depend
 *               on the order, so the same numbers give the same bits
 *     settle    the parts of both operands, and from them the scales
 *     along     copies of rows that lie along k, 16 elements a thread
 *     turn      copies of rows that lie across: a block turns 128 k of 64 rows in shared memory,
 *               so that it both reads and writes runs of 128 bytes
 *     spread    the rounded numbers in 16 bits, not scaled, where they lie
 *
 * Elements are rounded by the hardware (to nearest even, beyond the largest to the largest), which
 * is what tensor/fp8_format.h does on the CPU. */
#include "kernel/cuda/cuda.h"
#include "kernel/fp8_product.h"
#include "tensor/fp8_format.h"

#include <cuda_fp8.h>

enum {
    BLOCK = 256,
    WARP = 32,
    FLIGHT = 4, /* loads of a thread that are on their way together */
    PACK = 16,  /* elements that `along` writes at a time */
    DEEP = 128, /* k of a turned tile */
    WIDE = 64,  /* rows of it */
    EACH = 8,   /* rows, and FLIGHT k, that one thread reads */
    MANY = 132 * 16
};

/* ---- the largest */

static __device__ float block_max(float x)
{
    __shared__ float of_warp[BLOCK / WARP];
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    for (int i = WARP / 2; i; i /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, i));
    if (!lane) of_warp[warp] = x;
    __syncthreads();
    x = of_warp[lane % (BLOCK / WARP)];
    for (int i = BLOCK / WARP / 2; i; i /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, i));
    return x;
}

/* fmaxf passes over NaN, as the CPU does. */
template <typename T, int V>
static __global__ void __launch_bounds__(BLOCK) largest(const T *x, int64_t n, float *part)
{
    int64_t packs = n / V, stride = (int64_t)gridDim.x * BLOCK;
    int64_t me = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    float most = 0, v[FLIGHT][V];
    for (int64_t p = me; p < packs; p += FLIGHT * stride) {
#pragma unroll
        for (int i = 0; i < FLIGHT; i++) { /* beyond the end: the first of them once more */
            int64_t at = p + i * stride;
            sk_load<V>(x + (at < packs ? at : p) * V, v[i]);
        }
#pragma unroll
        for (int i = 0; i < FLIGHT; i++)
#pragma unroll
            for (int e = 0; e < V; e++) most = fmaxf(most, fabsf(v[i][e]));
    }
    if (packs * V + me < n) most = fmaxf(most, fabsf((float)x[packs * V + me])); /* less than V */
    most = block_max(most);
    if (!threadIdx.x) part[blockIdx.x] = most;
}

template <typename T>
static sk_status find_largest(const sk_view *x, float *part, int *parts, cudaStream_t s)
{
    constexpr int V = sk_pack<T>();
    int64_t n = sk_count(x), each = (int64_t)BLOCK * V * FLIGHT, blocks = (n + each - 1) / each;
    *parts = blocks < 1 ? 1 : blocks > SK_FP8_PARTS ? (int)SK_FP8_PARTS : (int)blocks;
    if ((uintptr_t)x->data % 16)
        largest<T, 1><<<*parts, BLOCK, 0, s>>>((const T *)x->data, n, part);
    else largest<T, V><<<*parts, BLOCK, 0, s>>>((const T *)x->data, n, part);
    return sk_cuda_launched("contract");
}

typedef struct sums {
    const float *part[2];
    int parts[2];
    bool e5m2[2];
    float *line; /* the first of the workspace */
} sums;

static __global__ void __launch_bounds__(BLOCK) settle(sums j)
{
    sk_fp8_scale s[2];
    for (int o = 0; o < 2; o++) {
        float most = 0;
        for (int i = (int)threadIdx.x; i < j.parts[o]; i += BLOCK) most = fmaxf(most, j.part[o][i]);
        s[o] = sk_fp8_scale_of(block_max(most), j.e5m2[o]);
        __syncthreads();
    }
    if (threadIdx.x) return;
    for (int o = 0; o < 2; o++) {
        j.line[SK_FP8_UP + SK_FP8_SLOT * o] = s[o].up;
        j.line[SK_FP8_DOWN + SK_FP8_SLOT * o] = s[o].down;
    }
    j.line[SK_FP8_BOTH] = s[0].down * s[1].down;
    j.line[SK_FP8_ZERO] = 0;
    j.line[SK_FP8_ONE] = 1;
}

/* ---- copies */

/* One operand: x[batch][row][k] as it lies, and where its copy goes. */
typedef struct copy {
    const void *x;
    int64_t rows, k, batch;
    int64_t ld, step; /* elements of x: between rows (turned: between k), and between batches */
    bool whole;       /* 16 bytes of x at a time */
    const float *up;  /* its scale */
    uint8_t *to;      /* [batch][row][deep] */
    int64_t deep;     /* k, filled up */
} copy;

template <bool E5M2> static __device__ uint32_t pair8(float a, float b)
{
    return __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE,
                                    E5M2 ? __NV_E5M2 : __NV_E4M3);
}

/* The first is the lowest byte. */
template <bool E5M2> static __device__ uint32_t four8(float a, float b, float c, float d, float up)
{
    return pair8<E5M2>(a * up, b * up) | pair8<E5M2>(c * up, d * up) << 16;
}

template <typename T, bool E5M2> static __global__ void __launch_bounds__(BLOCK) along(copy c)
{
    int64_t packs = c.deep / PACK, n = c.batch * c.rows * packs;
    bool flat = c.rows == 1 && c.batch == 1;
    float up = *c.up;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * BLOCK) {
        int64_t row = flat ? 0 : i / packs, k = (i - row * packs) * PACK;
        const T *x = (const T *)c.x + (flat ? k : row / c.rows * c.step + row % c.rows * c.ld + k);
        float v[PACK];
        if (k + PACK <= c.k) sk_load_at<PACK>(x, v, c.whole);
        else
            for (int e = 0; e < PACK; e++) v[e] = k + e < c.k ? (float)x[e] : 0;
        uint4 y;
        y.x = four8<E5M2>(v[0], v[1], v[2], v[3], up);
        y.y = four8<E5M2>(v[4], v[5], v[6], v[7], up);
        y.z = four8<E5M2>(v[8], v[9], v[10], v[11], up);
        y.w = four8<E5M2>(v[12], v[13], v[14], v[15], up);
        *reinterpret_cast<uint4 *>(c.to + i * PACK) = y;
    }
}

/* EACH rows from `row` at one k: they lie side by side. */
template <typename T>
static __device__ void read_rows(const copy *c, const T *x, int64_t row, int64_t k, float *v)
{
    if (k < c->k && row + EACH <= c->rows) sk_load_at<EACH>(x + k * c->ld + row, v, c->whole);
    else
        for (int e = 0; e < EACH; e++)
            v[e] = k < c->k && row + e < c->rows ? (float)x[k * c->ld + row + e] : 0;
}

/* Threads read FLIGHT k of EACH rows, so that what they put into a row is one word. */
template <typename T, bool E5M2> static __global__ void __launch_bounds__(BLOCK) turn(copy c)
{
    static_assert(WIDE / EACH * (DEEP / FLIGHT) == BLOCK && FLIGHT == 4, "a tile is one turn");
    __shared__ uint32_t held[WIDE][DEEP / FLIGHT + 1];
    int64_t across = (c.rows + WIDE - 1) / WIDE, down = (c.deep + DEEP - 1) / DEEP;
    int r = (int)threadIdx.x % (WIDE / EACH) * EACH, q = (int)threadIdx.x / (WIDE / EACH);
    float up = *c.up;
    for (int64_t job = blockIdx.x; job < across * down * c.batch; job += gridDim.x) {
        int64_t row = job % across * WIDE, k = job / across % down * DEEP;
        int64_t b = job / across / down;
        const T *x = (const T *)c.x + b * c.step;
        float v[FLIGHT][EACH];
#pragma unroll
        for (int i = 0; i < FLIGHT; i++) read_rows(&c, x, row + r, k + q * FLIGHT + i, v[i]);
#pragma unroll
        for (int e = 0; e < EACH; e++)
            held[r + e][q] = four8<E5M2>(v[0][e], v[1][e], v[2][e], v[3][e], up);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < WIDE * DEEP / PACK / BLOCK; i++) {
            int at = (int)threadIdx.x + i * BLOCK, mine = at / (DEEP / PACK),
                w = at % (DEEP / PACK);
            const uint32_t *from = &held[mine][w * 4];
            if (row + mine < c.rows && k + w * PACK < c.deep)
                *reinterpret_cast<uint4 *>(c.to + (b * c.rows + row + mine) * c.deep + k +
                                           w * PACK) =
                    make_uint4(from[0], from[1], from[2], from[3]);
        }
        __syncthreads();
    }
}

/* To a half or a bf16: both have all numbers of both kinds of 8 bits. */
template <typename T, typename To, bool E5M2>
static __global__ void __launch_bounds__(BLOCK)
    spread(const T *x, int64_t n, const float *scale, To *to)
{
    const __nv_fp8_interpretation_t kind = E5M2 ? __NV_E5M2 : __NV_E4M3;
    float up = *scale;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * BLOCK) {
        __nv_fp8_storage_t y = __nv_cvt_float_to_fp8((float)x[i] * up, __NV_SATFINITE, kind);
        to[i] = (To)__half2float(__half(__nv_cvt_fp8_to_halfraw(y, kind)));
    }
}

static unsigned blocks_for(int64_t n)
{
    unsigned blocks = sk_cuda_blocks(n, BLOCK);
    return blocks < MANY ? blocks : (unsigned)MANY;
}

/* ---- an operand */

static bool aligned(const copy *c, size_t size)
{
    size_t lines = (size_t)c->ld * size % 16 + (c->batch > 1 ? (size_t)c->step * size % 16 : 0);
    return !((uintptr_t)c->x % 16) && !lines;
}

template <typename T, bool E5M2> static sk_status start(copy c, bool turned, cudaStream_t s)
{
    c.whole = aligned(&c, sizeof(T));
    if (turned) {
        int64_t tiles = (c.rows + WIDE - 1) / WIDE * ((c.deep + DEEP - 1) / DEEP) * c.batch;
        turn<T, E5M2><<<sk_cuda_blocks(tiles, 1), BLOCK, 0, s>>>(c);
        return sk_cuda_launched("contract");
    }
    bool dense = c.ld == c.k && c.k == c.deep && (c.batch == 1 || c.step == c.rows * c.k);
    if (dense) { /* one long row */
        c.k = c.deep = c.batch * c.rows * c.k;
        c.rows = c.batch = 1;
    }
    along<T, E5M2><<<blocks_for(c.batch * c.rows * (c.deep / PACK)), BLOCK, 0, s>>>(c);
    return sk_cuda_launched("contract");
}

/* The copy of a contraction's operand i, along k. */
template <typename T>
static sk_status copy8(const sk_args *a, const sk_fp8_plan *f, int i, const sk_launch *l)
{
    const sk_product *p = &f->p;
    bool first = (i == 0) != p->crossed; /* it is the product's a */
    const sk_lt_matrix *x = first ? &p->a : &p->b;
    cudaStream_t s = (cudaStream_t)l->stream;
    copy c = {};
    c.x = a->in[i].data;
    c.rows = first ? p->m : p->n;
    c.k = p->k, c.batch = p->batch;
    c.ld = x->ld, c.step = x->step;
    c.up = (const float *)l->workspace + SK_FP8_UP + SK_FP8_SLOT * i;
    c.to = (uint8_t *)l->workspace + f->at[i];
    c.deep = f->k;
    bool turned = first ? x->turned : !x->turned;
    if (sk_fp8_gradient(a, i)) return start<T, true>(c, turned, s);
    return start<T, false>(c, turned, s);
}

template <typename T, typename To>
static sk_status copy_to(const sk_args *a, const sk_fp8_plan *f, int i, const sk_launch *l)
{
    const T *x = (const T *)a->in[i].data;
    int64_t n = sk_count(&a->in[i]);
    const float *up = (const float *)l->workspace + SK_FP8_UP + SK_FP8_SLOT * i;
    To *to = (To *)(l->workspace + f->at[i]);
    cudaStream_t s = (cudaStream_t)l->stream;
    if (!n) return SK_OK;
    if (sk_fp8_gradient(a, i)) spread<T, To, true><<<blocks_for(n), BLOCK, 0, s>>>(x, n, up, to);
    else spread<T, To, false><<<blocks_for(n), BLOCK, 0, s>>>(x, n, up, to);
    return sk_cuda_launched("contract");
}

template <typename T>
static sk_status copy16(const sk_args *a, const sk_fp8_plan *f, int i, const sk_launch *l)
{
    if (f->type == SK_F16) return copy_to<T, __half>(a, f, i, l);
    return copy_to<T, __nv_bfloat16>(a, f, i, l);
}

sk_status sk_fp8_fill(const sk_args *a, const sk_fp8_plan *f, const sk_launch *l)
{
    float *part = (float *)(l->workspace + f->parts);
    cudaStream_t s = (cudaStream_t)l->stream;
    sums j = {};
    j.line = (float *)l->workspace;
    for (int i = 0; i < 2; i++) {
        float *mine = part + i * SK_FP8_PARTS;
        j.part[i] = mine;
        j.e5m2[i] = sk_fp8_gradient(a, i);
        SK_TRY(SK_FLOAT(a->in[i].type, find_largest<T>(&a->in[i], mine, &j.parts[i], s)));
    }
    settle<<<1, BLOCK, 0, s>>>(j);
    SK_TRY(sk_cuda_launched("contract"));
    for (int i = 0; i < 2; i++)
        if (f->eight) SK_TRY(SK_FLOAT(a->in[i].type, copy8<T>(a, f, i, l)));
        else SK_TRY(SK_FLOAT(a->in[i].type, copy16<T>(a, f, i, l)));
    return SK_OK;
}
