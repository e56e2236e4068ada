/* flash.cu - which of the flash attention kernels a call takes; see flash.h. */
#include "kernel/cuda/flash_tile.h"

enum { LANES = 8 }; /* of a row */

/* rows[i] = (lse, sum of dy * y); see sk_row_at. */
template <typename T, int V>
static __global__ void __launch_bounds__(256)
    row_sums(const __grid_constant__ sk_flash f, float2 *rows, int64_t n_rows)
{
    int64_t at = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / LANES;
    int lane = (int)threadIdx.x % LANES;
    float sum = 0;
    if (at >= n_rows) return; /* whole groups of lanes */
    int64_t j = at % f.r, g = at / f.r % f.h, i = at / f.r / f.h % f.time.q_n;
    int64_t b = at / f.r / f.h / f.time.q_n, from = sk_head(f.at_y, b, g, j) + i * f.at_y.time;
    for (int64_t c = lane * V; c < f.d; c += LANES * V) {
        float y[V], dy[V];
        sk_load<V>((const T *)f.y + from + c, y);
        sk_load<V>((const T *)f.dy + from + c, dy);
#pragma unroll
        for (int e = 0; e < V; e++) sum += y[e] * dy[e];
    }
    unsigned mine = 0xffu << ((threadIdx.x % 32) / LANES * LANES);
#pragma unroll
    for (int k = LANES / 2; k; k /= 2) sum += __shfl_xor_sync(mine, sum, k);
    int64_t to = ((b * f.h + g) * f.r + j) * f.time.q_n + i;
    float lse = sk_get(f.lse, to);
    if (!lane) rows[to] = make_float2(lse == -INFINITY ? INFINITY : lse, sum);
}

/* Do all rows start at 16 bytes? */
static bool aligned(const sk_flash *f)
{
    uintptr_t bits = (uintptr_t)f->q | (uintptr_t)f->k | (uintptr_t)f->v | (uintptr_t)f->y |
                     (uintptr_t)f->dy | (uintptr_t)f->dq | (uintptr_t)f->dk | (uintptr_t)f->dv;
    return !(bits % 16) && !((size_t)f->d * sk_dtype_size(f->type) % 16);
}

static bool quick(const sk_flash *f) { return f->type != SK_F32 && f->d <= 128 && aligned(f); }

const char *sk_flash_name(const sk_flash *f) { return quick(f) ? "flash" : "flash f32"; }

void sk_flash_took(const sk_flash *f, const char *why, double slower, sk_variant *took)
{
    took->name = sk_flash_name(f);
    if (f->type == SK_F32) return; /* cuDNN has none for it */
    took->wanted = "cuDNN", took->why = why;
    took->slower = quick(f) ? slower : SK_WITHOUT_TENSOR_CORES;
}

static sk_status check(const sk_flash *f)
{
    if (f->d > 256)
        return sk_fail(SK_ECONF, "%s: heads of %lld elements; the CUDA kernel knows up to 256",
                       f->op, (long long)f->d);
    if (f->time.full > INT32_MAX)
        return sk_fail(SK_ECONF, "%s: %lld positions; the CUDA kernel knows up to 2^31 - 1", f->op,
                       (long long)f->time.full);
    return SK_OK;
}

sk_status sk_flash_forward(const sk_flash *f, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    SK_TRY(check(f));
    if (f->b * f->h * f->r * f->time.q_n * f->d == 0) return SK_OK;
    if (!quick(f)) return sk_flash_plain_forward(f, s);
    return sk_flash_mma_forward(f, s);
}

template <typename T, int V>
static sk_status start_sums(const sk_flash *f, float2 *rows, int64_t n, cudaStream_t s)
{
    unsigned blocks;
    SK_TRY(sk_flash_blocks(f, (n * LANES + 255) / 256, &blocks));
    if (blocks) row_sums<T, V><<<blocks, 256, 0, s>>>(*f, rows, n);
    return sk_cuda_launched(f->op);
}

template <typename T>
static sk_status sums(const sk_flash *f, float2 *rows, int64_t n, cudaStream_t s)
{
    return aligned(f) ? start_sums<T, sk_pack<T>()>(f, rows, n, s)
                      : start_sums<T, 1>(f, rows, n, s);
}

sk_status sk_flash_backward(const sk_flash *f, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    float2 *rows = (float2 *)l->workspace;
    int64_t n = f->b * f->h * f->r * f->time.q_n;
    SK_TRY(check(f));
    if (f->b * f->h * f->d == 0) return SK_OK;
    if ((size_t)n * sizeof *rows > l->workspace_bytes)
        return sk_fail(SK_EBUG, "%s: %lld rows need %lld bytes of workspace, %zu are there", f->op,
                       (long long)n, (long long)n * 8, l->workspace_bytes);
    SK_TRY(SK_FLOAT(f->type, sums<T>(f, rows, n, s)));
    if (!quick(f)) return sk_flash_plain_backward(f, rows, s);
    return sk_flash_mma_backward(f, rows, s);
}
