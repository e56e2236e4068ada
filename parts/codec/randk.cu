/* randk.cu - the GPU half of randk.c: a thread for each stretch of a row, which has one element
 * that is sent. */
#include "kernel/cuda/codec_rows.h"

enum { THREADS = 256 };
static const uint32_t NO_NUMBER = 0x7fc00000u;

typedef struct stretches {
    int64_t k, total; /* of a row; of all */
} stretches;

typedef struct stretch {
    int64_t row, from, size, place; /* of a row; which elements of it; the one that is sent */
} stretch;

static __device__ inline stretch stretch_of(const sk_code_job &j, const stretches &s, int64_t at)
{
    int64_t row = at / s.k, i = at % s.k, each = j.row / s.k, more = j.row % s.k;
    stretch x = {row, i * each + (i < more ? i : more), each + (i < more), 0};
    uint64_t shared = sk_code_shared(j.seed, j.stream, *j.step);
    uint64_t first = (uint64_t)(j.first + row * j.place);
    x.place = x.from + (int64_t)(sk_rng(shared, first + 1, (uint64_t)i).a % (uint64_t)x.size);
    return x;
}

/* x times n.  A NaN keeps its bits, as on x86. */
static __device__ inline float upscaled(float x, int64_t n)
{
    return x == x ? __fmul_rn(x, (float)n) : __uint_as_float(__float_as_uint(x) | 0x400000u);
}

/* With what is owed of it. */
template <typename T>
static __device__ inline float element(const sk_code_job &j, int64_t e, float scale)
{
    float x = sk_wide(((const T *)j.x)[e]);
    return j.error && !j.adds ? sk_code_owed(x, j.error[e], scale) : x;
}

static __device__ inline void lose(const sk_code_job &j, int64_t e, float unscale, float lost)
{
    if (j.error) j.error[e] = __fmaf_rn(unscale, lost, j.adds ? j.error[e] : 0);
}

template <typename T>
static __global__ void encode_stretches(const __grid_constant__ sk_code_job j,
                                        const __grid_constant__ stretches s)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float scale = j.error && *j.loss_scale > 0 ? (float)*j.loss_scale : 1;
    float unscale = __fdiv_rn(1.0f, scale);
    for (; at < s.total; at += (int64_t)gridDim.x * THREADS) {
        stretch t = stretch_of(j, s, at);
        float x, y;
        bool bad = false;
        for (int64_t i = t.from; i < t.from + t.size; i++) {
            if (i == t.place) continue;
            x = element<T>(j, t.row * j.row + i, scale);
            bad |= !isfinite(x);
            lose(j, t.row * j.row + i, unscale, x);
        }
        x = element<T>(j, t.row * j.row + t.place, scale);
        y = bad && isfinite(x)  ? __uint_as_float(NO_NUMBER)
            : j.error || j.adds ? x
                                : upscaled(x, t.size);
        sk_bytes_put(j.code + t.row * j.bytes + at % s.k * 4, __float_as_uint(y), 4);
        lose(j, t.row * j.row + t.place, unscale, __fsub_rn(x, y));
    }
}

template <typename T>
static __global__ void decode_stretches(const __grid_constant__ sk_code_job j,
                                        const __grid_constant__ stretches s)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    for (; at < s.total; at += (int64_t)gridDim.x * THREADS) {
        stretch t = stretch_of(j, s, at);
        float sum = 0;
        for (int64_t p = 0; p < j.pieces; p++) {
            const uint8_t *from = j.code + (p * j.rows + t.row) * j.bytes + at % s.k * 4;
            float y = __uint_as_float(sk_bytes_get(from, 4));
            sum = p ? __fadd_rn(sum, y) : y;
        }
        for (int64_t i = t.from; i < t.from + t.size; i++)
            sk_thin(i == t.place ? sum : 0, (T *)j.x + t.row * j.row + i);
    }
}

static stretches lay_out(const sk_code_job *j, unsigned *grid)
{
    stretches s = {j->bytes / 4, j->rows * (j->bytes / 4)};
    int64_t n = (s.total + THREADS - 1) / THREADS;
    *grid = (unsigned)(n < INT32_MAX ? n : INT32_MAX);
    return s;
}

static sk_status encode(const sk_code_job *j, void *stream)
{
    unsigned grid;
    stretches s = lay_out(j, &grid);
    cudaStream_t on = (cudaStream_t)stream;
    SK_TRY(sk_code_takes("randk", j->type));
    if (!s.total) return SK_OK;
    if (j->type == SK_BF16) encode_stretches<__nv_bfloat16><<<grid, THREADS, 0, on>>>(*j, s);
    else if (j->type == SK_F16) encode_stretches<__half><<<grid, THREADS, 0, on>>>(*j, s);
    else encode_stretches<float><<<grid, THREADS, 0, on>>>(*j, s);
    return sk_code_launched("randk");
}

static sk_status decode(const sk_code_job *j, void *stream)
{
    unsigned grid;
    stretches s = lay_out(j, &grid);
    cudaStream_t on = (cudaStream_t)stream;
    SK_TRY(sk_code_takes("randk", j->type));
    if (!s.total) return SK_OK;
    if (j->type == SK_BF16) decode_stretches<__nv_bfloat16><<<grid, THREADS, 0, on>>>(*j, s);
    else if (j->type == SK_F16) decode_stretches<__half><<<grid, THREADS, 0, on>>>(*j, s);
    else decode_stretches<float><<<grid, THREADS, 0, on>>>(*j, s);
    return sk_code_launched("randk");
}

extern "C" const sk_codec_kernel sk_codec_kernel_randk = {"randk", encode, decode};
