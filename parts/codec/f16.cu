/* f16.cu - the GPU half of f16.c. */
#include "kernel/cuda/codec_rows.h"

struct f16_code : sk_code_plain {
    enum { BLOCK = 256, HEAD = 0, BITS = 16, NONE = 0 };
    static __device__ float most() { return 0; }
    static __device__ unsigned one(float x, float) { return sk_f16_bits(x); }
    static __device__ float back(unsigned q, float)
    {
        return sk_wide(__ushort_as_half((unsigned short)q));
    }
};

static sk_status encode(const sk_code_job *j, void *stream)
{
    return sk_code_encode<f16_code>("f16", j, stream);
}

static sk_status decode(const sk_code_job *j, void *stream)
{
    return sk_code_decode<f16_code>("f16", j, stream);
}

extern "C" const sk_codec_kernel sk_codec_kernel_f16 = {"f16", encode, decode};
