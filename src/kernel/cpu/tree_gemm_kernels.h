/* tree_gemm_kernels.h - the inner loops of tree_gemm.c, one set per kind of processor.
 *
 * A kernel holds a tile of c in registers and carries its sums over one stretch of k.  a comes
 * packed as [k][rows], b as [k][cols].  The sums start from 0, or from `start` where a chain goes
 * on; at the end the tiles in join[] are added one after the other, left + right, and the
 * result is stored.  A tile in memory is [rows][cols] without gaps, on a border of 64 bytes.
 *
 * `turn` packs a matrix that lies along k: 4 or 8 of its lines become columns. */
#ifndef SK_KERNEL_TREE_GEMM_KERNELS_H
#define SK_KERNEL_TREE_GEMM_KERNELS_H

#include <math.h>
#include <stdint.h>

typedef struct kernel {
    int rows, cols;
    void (*chain)(int64_t k, const float *a, const float *b, const float *start, float *const *join,
                  int n_join, float *to);
    /* to[j * width + i] = from[i * line + j] for i < n, j < k */
    void (*turn)(int64_t k, int n, const float *from, int64_t line, float *to, int width);
} kernel;

static void turn_plain(int64_t k, int n, const float *from, int64_t line, float *to, int width)
{
    for (int64_t j = 0; j < k; j++)
        for (int i = 0; i < n; i++) to[j * width + i] = from[i * line + j];
}

static void chain_plain(int64_t k, const float *a, const float *b, const float *start,
                        float *const *join, int n_join, float *to)
{
    float s[4][8];
    for (int i = 0; i < 32; i++) s[i / 8][i % 8] = start ? start[i] : 0;
    for (; k > 0; k--, a += 4, b += 8)
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 8; j++) s[i][j] = fmaf(a[i], b[j], s[i][j]);
    for (int l = 0; l < n_join; l++)
        for (int i = 0; i < 32; i++) s[i / 8][i % 8] = join[l][i] + s[i / 8][i % 8];
    for (int i = 0; i < 32; i++) to[i] = s[i / 8][i % 8];
}

static const kernel plain = {4, 8, chain_plain, turn_plain};

#ifdef __x86_64__
#include <immintrin.h>

/* The sums stay in registers only if the loops over them are unrolled entirely. */
#ifdef __clang__
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif
/* Panels come from L2, a line of b every few cycles; asking for them early is worth a tenth. */
#define PREFETCH(x) _mm_prefetch((const char *)(x), _MM_HINT_T0)
#define WITH_AVX2   __attribute__((target("avx2,fma")))
/* The sanitizer's own stack frames (detect_stack_use_after_return) are not aligned to 64 bytes. */
#define WITH_AVX512 __attribute__((target("avx512f"), no_sanitize_address))

WITH_AVX2 static void chain_avx2(int64_t k, const float *a, const float *b, const float *start,
                                 float *const *join, int n_join, float *to)
{
    __m256 s[12];
    UNROLLED for (int i = 0; i < 12; i++) s[i] = _mm256_setzero_ps();
    if (start) { UNROLLED for (int i = 0; i < 12; i++) s[i] = _mm256_load_ps(start + 8 * i); }
    for (; k > 0; k--, a += 6, b += 16) {
        PREFETCH(b + 16 * 16);
        __m256 b0 = _mm256_load_ps(b), b1 = _mm256_load_ps(b + 8);
        UNROLLED for (int i = 0; i < 6; i++)
        {
            __m256 x = _mm256_broadcast_ss(a + i);
            s[2 * i] = _mm256_fmadd_ps(x, b0, s[2 * i]);
            s[2 * i + 1] = _mm256_fmadd_ps(x, b1, s[2 * i + 1]);
        }
    }
    for (int l = 0; l < n_join; l++) {
        UNROLLED for (int i = 0; i < 12; i++) s[i] =
            _mm256_add_ps(_mm256_load_ps(join[l] + 8 * i), s[i]);
    }
    UNROLLED for (int i = 0; i < 12; i++) _mm256_store_ps(to + 8 * i, s[i]);
}

/* 28 registers of sums, two of b, one of a: 14 cycles of both multipliers for 16 loads. */
WITH_AVX512 static void chain_avx512(int64_t k, const float *a, const float *b, const float *start,
                                     float *const *join, int n_join, float *to)
{
    __m512 s[28];
    UNROLLED for (int i = 0; i < 14; i++) s[2 * i] = s[2 * i + 1] = _mm512_setzero_ps();
    if (start) {
        UNROLLED for (int i = 0; i < 14; i++)
        {
            s[2 * i] = _mm512_load_ps(start + 32 * i);
            s[2 * i + 1] = _mm512_load_ps(start + 32 * i + 16);
        }
    }
    for (; k > 0; k--, a += 14, b += 32) {
        PREFETCH(b + 8 * 32);
        PREFETCH(b + 8 * 32 + 16);
        PREFETCH(a + 16 * 14);
        __m512 b0 = _mm512_load_ps(b), b1 = _mm512_load_ps(b + 16);
        UNROLLED for (int i = 0; i < 14; i++)
        {
            __m512 x = _mm512_set1_ps(a[i]);
            s[2 * i] = _mm512_fmadd_ps(x, b0, s[2 * i]);
            s[2 * i + 1] = _mm512_fmadd_ps(x, b1, s[2 * i + 1]);
        }
    }
    for (int l = 0; l < n_join; l++) {
        UNROLLED for (int i = 0; i < 14; i++)
        {
            s[2 * i] = _mm512_add_ps(_mm512_load_ps(join[l] + 32 * i), s[2 * i]);
            s[2 * i + 1] = _mm512_add_ps(_mm512_load_ps(join[l] + 32 * i + 16), s[2 * i + 1]);
        }
    }
    UNROLLED for (int i = 0; i < 14; i++)
    {
        _mm512_store_ps(to + 32 * i, s[2 * i]);
        _mm512_store_ps(to + 32 * i + 16, s[2 * i + 1]);
    }
}

/* Elements j to j + 4 of lines i and i + 4, side by side. */
WITH_AVX2 static inline __m256 two_lines(const float *from, int64_t line, int i)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from + i * line)),
                                _mm_loadu_ps(from + (i + 4) * line), 1);
}

/* 8 lines of 4 become 4 of 8. */
WITH_AVX2 static inline void turn_8x4(const float *from, int64_t line, float *to, int width)
{
    __m256 l0 = two_lines(from, line, 0), l1 = two_lines(from, line, 1);
    __m256 l2 = two_lines(from, line, 2), l3 = two_lines(from, line, 3);
    __m256 a = _mm256_unpacklo_ps(l0, l1), b = _mm256_unpackhi_ps(l0, l1);
    __m256 c = _mm256_unpacklo_ps(l2, l3), d = _mm256_unpackhi_ps(l2, l3);
    _mm256_storeu_ps(to, _mm256_shuffle_ps(a, c, 0x44));
    _mm256_storeu_ps(to + width, _mm256_shuffle_ps(a, c, 0xee));
    _mm256_storeu_ps(to + 2 * width, _mm256_shuffle_ps(b, d, 0x44));
    _mm256_storeu_ps(to + 3 * width, _mm256_shuffle_ps(b, d, 0xee));
}

WITH_AVX2 static inline void turn_4x4(const float *from, int64_t line, float *to, int width)
{
    __m128 l0 = _mm_loadu_ps(from), l1 = _mm_loadu_ps(from + line);
    __m128 l2 = _mm_loadu_ps(from + 2 * line), l3 = _mm_loadu_ps(from + 3 * line);
    _MM_TRANSPOSE4_PS(l0, l1, l2, l3);
    _mm_storeu_ps(to, l0);
    _mm_storeu_ps(to + width, l1);
    _mm_storeu_ps(to + 2 * width, l2);
    _mm_storeu_ps(to + 3 * width, l3);
}

WITH_AVX2 static void turn_avx2(int64_t k, int n, const float *from, int64_t line, float *to,
                                int width)
{
    int64_t j = 0;
    for (; n == 8 && j + 4 <= k; j += 4) turn_8x4(from + j, line, to + j * width, width);
    for (; n == 4 && j + 4 <= k; j += 4) turn_4x4(from + j, line, to + j * width, width);
    turn_plain(k - j, n, from + j, line, to + j * width, width);
}

static const kernel avx2 = {6, 16, chain_avx2, turn_avx2};
static const kernel avx512 = {14, 32, chain_avx512, turn_avx2};
#endif

#endif
