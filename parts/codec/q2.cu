/* q2.cu - the GPU half of q2.c. */
#include "kernel/cuda/codec_rows.h"

struct q2_code : sk_code_plain {
    enum { BLOCK = 128, HEAD = SK_SCALE_BYTES, BITS = 2, BIAS = 1, NONE = BIAS, DRAWS = 1 };
    static __device__ float most() { return 1; }
    static __device__ unsigned one(float x, float by, uint16_t random)
    {
        return (unsigned)(sk_quantum(x, by, random, 1) + BIAS);
    }
    static __device__ float back(unsigned q, float scale)
    {
        return __fmul_rn(scale, (float)((int)q - BIAS));
    }
};

static sk_status encode(const sk_code_job *j, void *stream)
{
    return sk_code_encode<q2_code>("q2", j, stream);
}

static sk_status decode(const sk_code_job *j, void *stream)
{
    return sk_code_decode<q2_code>("q2", j, stream);
}

extern "C" const sk_codec_kernel sk_codec_kernel_q2 = {"q2", encode, decode};
