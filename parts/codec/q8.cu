/* q8.cu - the GPU half of q8.c. */
#include "kernel/cuda/codec_rows.h"

struct q8_code : sk_code_plain {
    enum { BLOCK = 256, HEAD = SK_SCALE_BYTES, BITS = 8, NONE = 0, DRAWS = 1 };
    static __device__ float most() { return 127; }
    static __device__ unsigned one(float x, float by, uint16_t random)
    {
        return (unsigned)sk_quantum(x, by, random, 127) & 0xffu;
    }
    static __device__ float back(unsigned q, float scale)
    {
        return __fmul_rn(scale, (float)(signed char)q);
    }
};

static sk_status encode(const sk_code_job *j, void *stream)
{
    return sk_code_encode<q8_code>("q8", j, stream);
}

static sk_status decode(const sk_code_job *j, void *stream)
{
    return sk_code_decode<q8_code>("q8", j, stream);
}

extern "C" const sk_codec_kernel sk_codec_kernel_q8 = {"q8", encode, decode};
