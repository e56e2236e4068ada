/* topk.cu - the GPU half of topk.c. */
#include "kernel/cuda/cuda_select.h"

struct top : sk_selected_elements {
    template <typename T>
    static __device__ void encode(const sk_code_job &j, const sk_select &t, int64_t row,
                                  float scale, sk_select_state *s)
    {
        sk_select_kth(s, t.k, [&](int shift, int width) {
            for (int64_t i = threadIdx.x; i < j.row; i += SK_SELECT_THREADS)
                sk_select_count(s, sk_select_key(sk_select_element<T>(j, row * j.row + i, scale)),
                                shift, width);
        });
        sk_select_send<T>(j, t, row, scale, s);
    }
};

static sk_select shape(const sk_code_job *j)
{
    int wide = j->row <= 65536 ? 2 : 4;
    return sk_select{j->bytes / (wide + 4), wide, 0};
}

static sk_status encode(const sk_code_job *j, void *stream)
{
    return sk_select_encode_all<top>("topk", j, shape(j), stream);
}

static sk_status decode(const sk_code_job *j, void *stream)
{
    return sk_select_decode_all<top>("topk", j, shape(j), stream);
}

extern "C" const sk_codec_kernel sk_codec_kernel_topk = {"topk", encode, decode};
