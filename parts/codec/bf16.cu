/* bf16.cu - the GPU half of bf16.c. */
#include "kernel/cuda/codec_rows.h"

struct bf16_code : sk_code_plain {
    enum { BLOCK = 256, HEAD = 0, BITS = 16, NONE = 0 };
    static __device__ float most() { return 0; }
    static __device__ unsigned one(float x, float) { return sk_bf16_bits(x); }
    static __device__ float back(unsigned q, float) { return __uint_as_float(q << 16); }
};

static sk_status encode(const sk_code_job *j, void *stream)
{
    return sk_code_encode<bf16_code>("bf16", j, stream);
}

static sk_status decode(const sk_code_job *j, void *stream)
{
    return sk_code_decode<bf16_code>("bf16", j, stream);
}

extern "C" const sk_codec_kernel sk_codec_kernel_bf16 = {"bf16", encode, decode};
