/* int8.cu - the GPU half of int8.c. */
#include "kernel/cuda/codec_rows.h"

struct int8_code : sk_code_plain {
    enum { BLOCK = 256, HEAD = SK_SCALE_BYTES, BITS = 8, NONE = 0 };
    static __device__ float most() { return 127; }
    static __device__ unsigned one(float x, float by)
    {
        return (unsigned)(int)__fmaf_rn(x, by, copysignf(0.5f, x)) & 0xffu;
    }
    static __device__ float back(unsigned q, float scale)
    {
        return __fmul_rn(scale, (float)(int8_t)q);
    }
};

static sk_status encode(const sk_code_job *j, void *stream)
{
    return sk_code_encode<int8_code>("int8", j, stream);
}

static sk_status decode(const sk_code_job *j, void *stream)
{
    return sk_code_decode<int8_code>("int8", j, stream);
}

extern "C" const sk_codec_kernel sk_codec_kernel_int8 = {"int8", encode, decode};
