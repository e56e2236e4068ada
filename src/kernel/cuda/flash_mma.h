/* flash_mma.h - what the flash attention kernels that use tensor cores share; see flash.h.
 *
 * A block is four warps, and a warp owns 16 rows (32 in the forward pass up to d = 64) of what the
 * block owns: queries in `forward` and `grad_q`, keys in `grad_kv`.  Products are mma.m16n8k16 with
 * f32 sums.  The result of a product has the register layout that the next product needs on its
 * left side, so that probabilities never leave the registers; grad_kv computes its scores
 * transposed for this reason.  The right side comes by cp.async, two tiles in flight, into rows
 * padded by 16 bytes, of which ldmatrix reads eight without a bank conflict.
 *
 * D is d rounded up to 64 or 128; columns beyond d are zeros.  Only flash_forward.cu and
 * flash_backward.cu include this header. */
#ifndef SK_KERNEL_FLASH_MMA_H
#define SK_KERNEL_FLASH_MMA_H

#include "kernel/cuda/flash_tile.h"

enum { WARPS = 4, THREADS = 32 * WARPS, GAP = 8 /* elements behind a row of a tile */ };

constexpr float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;

/* ---- instructions */

static __device__ __forceinline__ void copy16(void *to, const void *from, bool real)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    int bytes = real ? 16 : 0; /* the rest becomes zeros */
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(at), "l"(from), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void copies_end()
{
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

template <int N>
static __device__ __forceinline__ void copies_wait() /* all but the last N groups */
{
    asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}

static __device__ __forceinline__ void load4(uint32_t (&x)[4], const void *from)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}

static __device__ __forceinline__ void load4_turned(uint32_t (&x)[4], const void *from)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}

static __device__ __forceinline__ void mma(__nv_bfloat16, float (&c)[4], const uint32_t (&a)[4],
                                           uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ void mma(__half, float (&c)[4], const uint32_t (&a)[4],
                                           uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ float power2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ uint32_t two(__nv_bfloat16, float x, float y)
{
    __nv_bfloat162 v = __floats2bfloat162_rn(x, y);
    return *reinterpret_cast<uint32_t *>(&v);
}

static __device__ __forceinline__ uint32_t two(__half, float x, float y)
{
    __half2 v = __floats2half2_rn(x, y);
    return *reinterpret_cast<uint32_t *>(&v);
}

/* ---- tiles: rows of D elements and GAP more */

/* `rows` rows of which the first `here` are there, and d of their D elements. */
template <int D, typename T>
static __device__ __forceinline__ void fetch(T *to, const T *from, int64_t step, int rows,
                                             int64_t here, int d)
{
    for (int i = (int)threadIdx.x; i < rows * (D / 8); i += THREADS) {
        int row = i / (D / 8), c = i % (D / 8) * 8;
        bool real = row < here && c < d;
        copy16(to + row * (D + GAP) + c, real ? from + row * step + c : from, real);
    }
}

/* This lane's address for load4 of 16 x 16 elements at (row, c): as the left side of a product,
 * as the right side where a row of the tile is a column of it, and the same turned around. */
template <int D, typename T>
static __device__ __forceinline__ const T *left(const T *tile, int row, int c)
{
    int lane = (int)threadIdx.x % 32;
    return tile + (row + lane % 16) * (D + GAP) + c + lane / 16 * 8;
}

template <int D, typename T>
static __device__ __forceinline__ const T *right(const T *tile, int row, int c)
{
    int lane = (int)threadIdx.x % 32;
    return tile + (row + lane / 16 * 8 + lane % 8) * (D + GAP) + c + lane / 8 % 2 * 8;
}

/* c += a times the columns of tile rows [0, N), over elements [at, at + 16): for M times 16 rows at
 * once, so that what is loaded serves them all. */
template <int D, int M, int N, typename T>
static __device__ __forceinline__ void meet(float (&c)[M][N / 8][4], const uint32_t (&a)[M][4],
                                            const T *tile, int at)
{
#pragma unroll
    for (int n = 0; n < N / 16; n++) {
        uint32_t b[4];
        load4(b, right<D>(tile, 16 * n, at));
#pragma unroll
        for (int m = 0; m < M; m++) {
            mma(T(), c[m][2 * n], a[m], b[0], b[1]);
            mma(T(), c[m][2 * n + 1], a[m], b[2], b[3]);
        }
    }
}

/* out += weights p times the tile's N rows. */
template <int D, int M, int N, typename T>
static __device__ __forceinline__ void weigh(float (&out)[M][D / 8][4],
                                             const float (&p)[M][N / 8][4], const T *tile)
{
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            const float *x = p[m][2 * k], *y = p[m][2 * k + 1];
            a[m][0] = two(T(), x[0], x[1]), a[m][1] = two(T(), x[2], x[3]);
            a[m][2] = two(T(), y[0], y[1]), a[m][3] = two(T(), y[2], y[3]);
        }
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];
            load4_turned(b, left<D>(tile, 16 * k, 16 * n));
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma(T(), out[m][2 * n], a[m], b[0], b[1]);
                mma(T(), out[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* Two neighbours of a row. */
static __device__ __forceinline__ void put2(__nv_bfloat16 *p, float x, float y)
{
    *reinterpret_cast<__nv_bfloat162 *>(p) = __floats2bfloat162_rn(x, y);
}

static __device__ __forceinline__ void put2(__half *p, float x, float y)
{
    *reinterpret_cast<__half2 *>(p) = __floats2half2_rn(x, y);
}

/* to[row] (+)= scale * sums, for the two rows that a lane has; `here` rows are there. */
template <int D, typename T>
static __device__ __forceinline__ void put_rows(T *to, int64_t step, int row, int64_t here, int d,
                                                const float (&sums)[D / 8][4], float scale,
                                                bool add)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int at = row + lane / 4 + 8 * half;
        if (at >= here) continue;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            int c = 8 * n + lane % 4 * 2;
            if (c >= d) continue;
            T *p = to + at * step + c;
            float x = sums[n][2 * half] * scale, y = sums[n][2 * half + 1] * scale;
            if (add) x += (float)p[0], y += (float)p[1];
            put2(p, x, y);
        }
    }
}

/* Starts copies of a tile of keys and values. */
template <int D, typename T>
static __device__ __forceinline__ void fetch_keys(const sk_flash &f, const T *k, const T *v,
                                                  int64_t tile, int64_t end, T *to_k, T *to_v,
                                                  int *place)
{
    if (tile < end) {
        int64_t at = tile * 64, step = f.at_kv.time;
        fetch<D>(to_k, k + at * step, step, 64, f.time.k_n - at, (int)f.d);
        fetch<D>(to_v, v + at * step, step, 64, f.time.k_n - at, (int)f.d);
        if (threadIdx.x < 64)
            place[threadIdx.x] =
                sk_place(f.time, f.time.k_at, f.time.k_n, at + threadIdx.x, INT32_MAX);
    }
    copies_end();
}

#endif
