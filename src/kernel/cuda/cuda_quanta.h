/* cuda_quanta.h - the GPU half of sk_quanta_put() and sk_quanta_get() of coll/codec_select.c: the
 * largest elements of a row with their indices, and their values in 8 or 4 bits, BLOCK of them with
 * a scale.  A block of threads has a row: it writes indices, and then takes the values by blocks.
 */
#ifndef SK_KERNEL_CUDA_QUANTA_H
#define SK_KERNEL_CUDA_QUANTA_H

#include "kernel/cuda/cuda_select.h"

/* Indices of elements over `above`, and of the first `left` of those equal to it; all others are
 * lost. */
template <typename T>
static __device__ void sk_quanta_indices(const sk_code_job &j, const sk_select &t, int64_t row,
                                         float scale, sk_select_state *s)
{
    uint8_t *to = j.code + row * j.bytes;
    int64_t kept = 0, ties = 0;
    float unscale = __fdiv_rn(1.0f, scale);
    for (int64_t from = 0; from < j.row; from += SK_SELECT_THREADS) {
        int64_t i = from + threadIdx.x, at = row * j.row + i;
        bool here = i < j.row;
        float x = here ? sk_select_element<T>(j, at, scale) : 0;
        unsigned all, tied = here && sk_select_key(x) == s->above;
        bool goes = ties + sk_select_before(tied, &all, s) < s->left && tied;
        ties += all;
        goes = goes || (here && sk_select_key(x) > s->above);
        int64_t place = kept + sk_select_before(goes, &all, s);
        kept += all;
        if (goes) sk_bytes_put(to + place * t.wide, (unsigned)i, t.wide);
        else if (here) sk_select_lose(j, at, x, false, unscale);
    }
}

template <int BLOCK, int BITS> struct sk_quanta {
    enum { BYTES = SK_SCALE_BYTES + BLOCK * BITS / 8, BIAS = BITS == 4 ? 8 : 0 };
    static __device__ constexpr int most() { return BITS == 8 ? 127 : 7; }

    static __device__ float back(int q, float scale) { return __fmul_rn(scale, (float)q); }

    /* Values [from, from + n) of the row, a thread each. */
    template <typename T>
    static __device__ void block(const sk_code_job &j, const sk_select &t, int64_t row,
                                 int64_t from, int n, float loss_scale, uint64_t own,
                                 sk_select_state *s)
    {
        const uint8_t *index = j.code + row * j.bytes;
        uint8_t *to = j.code + row * j.bytes + t.k * t.wide + from / BLOCK * BYTES;
        int i = (int)threadIdx.x, half = (n + 1) / 2;
        int64_t place = i < n ? (int64_t)sk_bytes_get(index + (from + i) * t.wide, t.wide) : 0;
        int64_t at = row * j.row + place;
        float x = i < n ? sk_select_element<T>(j, at, loss_scale) : 0, by;
        if (i == 0) s->left = 0;
        __syncthreads();
        atomicMax(&s->left, sk_select_key(x));
        __syncthreads();
        unsigned bits = sk_code_scale(s->left, (float)most(), &by);
        uint16_t random = sk_code_random(own, (uint64_t)(j.first + row * j.place + place));
        int q = i < n && by != 0 ? sk_quantum(x, by, random, most()) : 0;
        s->bins[i] = (unsigned)(q + BIAS);
        __syncthreads();
        if (i == 0) sk_bytes_put(to, bits, SK_SCALE_BYTES);
        to += SK_SCALE_BYTES;
        if (BITS == 8 && i < n) to[i] = (uint8_t)s->bins[i];
        if (BITS == 4 && i < half)
            to[i] = (uint8_t)(s->bins[i] | (half + i < n ? s->bins[half + i] : BIAS) << 4);
        if (j.error && i < n) {
            float lost = __fsub_rn(x, back(q, __uint_as_float(bits << 16)));
            j.error[at] = __fmaf_rn(__fdiv_rn(1.0f, loss_scale), lost, j.adds ? j.error[at] : 0);
        }
        __syncthreads();
    }

    template <typename T>
    static __device__ void encode(const sk_code_job &j, const sk_select &t, int64_t row,
                                  float loss_scale, sk_select_state *s)
    {
        uint64_t own = sk_code_own(sk_code_shared(j.seed, j.stream, *j.step), j.term, j.micro);
        sk_select_kth(s, t.k, [&](int shift, int width) {
            for (int64_t i = threadIdx.x; i < j.row; i += SK_SELECT_THREADS)
                sk_select_count(s,
                                sk_select_key(sk_select_element<T>(j, row * j.row + i, loss_scale)),
                                shift, width);
        });
        sk_quanta_indices<T>(j, t, row, loss_scale, s);
        __syncthreads();
        for (int64_t from = 0; from < t.k; from += BLOCK)
            block<T>(j, t, row, from, (int)min((int64_t)BLOCK, t.k - from), loss_scale, own, s);
    }

    static __device__ float get(const uint8_t *from, const sk_select &t, int64_t i)
    {
        int64_t at = sk_select_find(from, t.wide, t.k, i), b = at / BLOCK;
        if (at == t.k) return 0;
        from += t.k * t.wide + b * BYTES;
        float scale = __uint_as_float(sk_bytes_get(from, SK_SCALE_BYTES) << 16);
        int k = (int)(at % BLOCK), half = (int)(min((int64_t)BLOCK, t.k - b * BLOCK) + 1) / 2;
        from += SK_SCALE_BYTES;
        if (BITS == 8) return back((signed char)from[k], scale);
        int q = k < half ? from[k] & 15 : from[k - half] >> 4;
        return back(q - BIAS, scale);
    }

    static sk_select shape(const sk_code_job *j)
    {
        return sk_select{sk_codec_kept(j->row, j->value), j->row <= 65536 ? 2 : 4, 0};
    }
};

#endif
