/* chunks.cu - the GPU half of chunks.c: a warp has a chunk at a time. */
#include "kernel/cuda/cuda_select.h"

enum { CHUNK = 32, CHUNK_BYTES = CHUNK * 4 };
static const unsigned NO_NUMBER = 0x7ff80000u;

static __host__ __device__ inline int64_t chunks_of(int64_t n) { return (n + CHUNK - 1) / CHUNK; }

/* The key of the chunk of which this lane has x; alike in all lanes. */
static __device__ inline unsigned norm(float x)
{
    double sum = __dmul_rn((double)x, (double)x);
    for (int half = CHUNK / 2; half; half /= 2)
        sum = __dadd_rn(sum, __shfl_xor_sync(~0u, sum, half));
    unsigned bits = (unsigned)__double2hiint(sum) & 0x7fffffffu;
    return bits > NO_NUMBER ? NO_NUMBER : bits;
}

struct chunk {
    template <typename T>
    static __device__ float element(const sk_code_job &j, int64_t row, int64_t i, float scale)
    {
        return i < j.row ? sk_select_element<T>(j, row * j.row + i, scale) : 0;
    }

    template <typename T>
    static __device__ void encode(const sk_code_job &j, const sk_select &t, int64_t row,
                                  float scale, sk_select_state *s)
    {
        int64_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        sk_select_kth(s, t.k, [&](int shift, int width) {
            for (int64_t c = warp; c < chunks_of(j.row); c += SK_SELECT_WARPS) {
                unsigned key = norm(element<T>(j, row, c * CHUNK + lane, scale));
                if (lane == 0) sk_select_count(s, key, shift, width);
            }
        });
        send<T>(j, t, row, scale, s);
    }

    /* Votes are those of first lanes: one for each chunk. */
    template <typename T>
    static __device__ void send(const sk_code_job &j, const sk_select &t, int64_t row, float scale,
                                sk_select_state *s)
    {
        uint8_t *to = j.code + row * j.bytes;
        int64_t kept = 0, ties = 0, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        float unscale = __fdiv_rn(1.0f, scale);
        for (int64_t from = 0; from < chunks_of(j.row); from += SK_SELECT_WARPS) {
            int64_t c = from + warp, i = c * CHUNK + lane;
            bool here = c < chunks_of(j.row);
            float x = element<T>(j, row, i, scale);
            unsigned key = norm(x), all;
            bool tied = here && key == s->above;
            int64_t before = sk_select_before(tied && lane == 0, &all, s);
            before = __shfl_sync(~0u, before, 0);
            bool goes = (tied && ties + before < s->left) || (here && key > s->above);
            ties += all;
            int64_t place = kept + sk_select_before(goes && lane == 0, &all, s);
            place = __shfl_sync(~0u, place, 0);
            kept += all;
            if (goes && lane == 0) sk_bytes_put(to + place * t.wide, (unsigned)c, t.wide);
            if (goes)
                sk_bytes_put(to + t.k * t.wide + place * CHUNK_BYTES + 4 * lane, __float_as_uint(x),
                             4);
            if (i < j.row) sk_select_lose(j, row * j.row + i, x, goes, unscale);
        }
    }

    static __device__ float get(const uint8_t *from, const sk_select &t, int64_t i)
    {
        int64_t at = sk_select_find(from, t.wide, t.k, i / CHUNK);
        if (at == t.k) return 0;
        from += t.k * t.wide + at * CHUNK_BYTES + i % CHUNK * 4;
        return __uint_as_float(sk_bytes_get(from, 4));
    }
};

static sk_select shape(const sk_code_job *j)
{
    int wide = chunks_of(j->row) <= 65536 ? 2 : 4;
    return sk_select{j->bytes / (wide + CHUNK_BYTES), wide, 0};
}

static sk_status encode(const sk_code_job *j, void *stream)
{
    return sk_select_encode_all<chunk>("chunks", j, shape(j), stream);
}

static sk_status decode(const sk_code_job *j, void *stream)
{
    return sk_select_decode_all<chunk>("chunks", j, shape(j), stream);
}

extern "C" const sk_codec_kernel sk_codec_kernel_chunks = {"chunks", encode, decode};
