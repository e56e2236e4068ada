/* topk4.cu - the GPU half of topk4.c. */
#include "kernel/cuda/cuda_quanta.h"

struct quanta : sk_quanta<128, 4> {
};

static sk_status encode(const sk_code_job *j, void *stream)
{
    return sk_select_encode_all<quanta>("topk4", j, quanta::shape(j), stream);
}

static sk_status decode(const sk_code_job *j, void *stream)
{
    return sk_select_decode_all<quanta>("topk4", j, quanta::shape(j), stream);
}

extern "C" const sk_codec_kernel sk_codec_kernel_topk4 = {"topk4", encode, decode};
