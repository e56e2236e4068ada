/* int4.cu - the GPU half of int4.c. */
#include "kernel/cuda/codec_rows.h"

struct int4_code : sk_code_plain {
    enum { BLOCK = 128, HEAD = SK_SCALE_BYTES, BITS = 4, BIAS = 8, NONE = BIAS };
    static __device__ float most() { return 7; }
    static __device__ unsigned one(float x, float by)
    {
        return (unsigned)((int)__fmaf_rn(x, by, copysignf(0.5f, x)) + BIAS);
    }
    static __device__ float back(unsigned q, float scale)
    {
        return __fmul_rn(scale, (float)((int)q - BIAS));
    }
};

static sk_status encode(const sk_code_job *j, void *stream)
{
    return sk_code_encode<int4_code>("int4", j, stream);
}

static sk_status decode(const sk_code_job *j, void *stream)
{
    return sk_code_decode<int4_code>("int4", j, stream);
}

extern "C" const sk_codec_kernel sk_codec_kernel_int4 = {"int4", encode, decode};
