/* fp8.cu - the GPU half of fp8.c.
 *
 * Not the hardware's conversion: that rounds numbers below 2^-6 to even, and fp8.c half of a step
 * up. */
#include "kernel/cuda/codec_rows.h"

struct fp8_code : sk_code_plain {
    enum { BLOCK = 128, HEAD = SK_SCALE_BYTES, BITS = 8, NONE = 0 };
    enum { BIAS = 7, TOP = 0x7e, FRACTION = 3 };
    static __device__ float most() { return 448; }
    static __device__ unsigned one(float x, float by)
    {
        unsigned u = __float_as_uint(__fmul_rn(x, by)), sign = u >> 24 & 0x80u;
        u &= 0x7fffffffu;
        if (__uint_as_float(u) < 0x1p-6f)
            return sign | (unsigned)__fmaf_rn(__uint_as_float(u), 512.0f, 0.5f);
        u += (1u << (22 - FRACTION)) - 1 + (u >> (23 - FRACTION) & 1u);
        u = (u >> (23 - FRACTION)) - ((127 - BIAS) << FRACTION);
        return sign | (u > TOP ? (unsigned)TOP : u);
    }
    static __device__ float back(unsigned q, float scale)
    {
        unsigned u = q & 0x7fu, sign = (q & 0x80u) << 24;
        float x = __uint_as_float(u < 1u << FRACTION
                                      ? __float_as_uint((float)u * 0x1p-9f)
                                      : (u + ((127 - BIAS) << FRACTION)) << (23 - FRACTION));
        return __fmul_rn(scale, __uint_as_float(sign | __float_as_uint(x)));
    }
};

static sk_status encode(const sk_code_job *j, void *stream)
{
    return sk_code_encode<fp8_code>("fp8", j, stream);
}

static sk_status decode(const sk_code_job *j, void *stream)
{
    return sk_code_decode<fp8_code>("fp8", j, stream);
}

extern "C" const sk_codec_kernel sk_codec_kernel_fp8 = {"fp8", encode, decode};
