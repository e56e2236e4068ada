/* sign.cu - the GPU half of sign.c. */
#include "kernel/cuda/codec_rows.h"

struct sign_code : sk_code_plain {
    enum { BLOCK = 256, HEAD = SK_SCALE_BYTES, BITS = 1, NONE = 0, MEAN = 1 };
    static __device__ float most() { return 0; }
    static __device__ unsigned one(float x, float) { return x < 0; }
    static __device__ float back(unsigned q, float scale) { return q ? -scale : scale; }
};

static sk_status encode(const sk_code_job *j, void *stream)
{
    return sk_code_encode<sign_code>("sign", j, stream);
}

static sk_status decode(const sk_code_job *j, void *stream)
{
    return sk_code_decode<sign_code>("sign", j, stream);
}

extern "C" const sk_codec_kernel sk_codec_kernel_sign = {"sign", encode, decode};
