/* q4.cu - the GPU half of q4.c. */
#include "kernel/cuda/codec_rows.h"

struct q4_code : sk_code_plain {
    enum { BLOCK = 128, HEAD = SK_SCALE_BYTES, BITS = 4, BIAS = 8, NONE = BIAS, DRAWS = 1 };
    static __device__ float most() { return 7; }
    static __device__ unsigned one(float x, float by, uint16_t random)
    {
        return (unsigned)(sk_quantum(x, by, random, 7) + BIAS);
    }
    static __device__ float back(unsigned q, float scale)
    {
        return __fmul_rn(scale, (float)((int)q - BIAS));
    }
};

static sk_status encode(const sk_code_job *j, void *stream)
{
    return sk_code_encode<q4_code>("q4", j, stream);
}

static sk_status decode(const sk_code_job *j, void *stream)
{
    return sk_code_decode<q4_code>("q4", j, stream);
}

extern "C" const sk_codec_kernel sk_codec_kernel_q4 = {"q4", encode, decode};
