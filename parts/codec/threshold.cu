/* threshold.cu - the GPU half of threshold.c: each thread is one of its lanes. */
#include "kernel/cuda/cuda_select.h"

enum { COUNT = 4 };
static const unsigned INFINITE = 0x7f800000u;

struct large : sk_selected_elements {
    template <typename T>
    static __device__ void encode(const sk_code_job &j, const sk_select &t, int64_t row,
                                  float scale, sk_select_state *s)
    {
        __shared__ double lane[SK_SELECT_THREADS];
        double sum = 0;
        unsigned most = 0, me = threadIdx.x;
        if (me == 0) s->above = 0, s->left = 0;
        __syncthreads();
        for (int64_t i = me; i < j.row; i += SK_SELECT_THREADS) {
            float x = sk_select_element<T>(j, row * j.row + i, scale);
            unsigned key = sk_select_key(x);
            most = max(most, key);
            if (key < INFINITE) sum = __dadd_rn(sum, __dmul_rn((double)x, (double)x));
        }
        atomicMax(&s->above, most);
        lane[me] = sum;
        __syncthreads();
        for (unsigned half = SK_SELECT_THREADS / 2; half; half /= 2) {
            if (me < half) lane[me] = __dadd_rn(lane[me], lane[me + half]);
            __syncthreads();
        }
        if (me == 0) s->above = least(j, s->above, lane[0]) - 1;
        __syncthreads();
        sk_select_send<T>(j, t, row, scale, s);
    }

    /* The least key that is sent. */
    static __device__ unsigned least(const sk_code_job &j, unsigned most, double sum)
    {
        if (most >= INFINITE) return INFINITE;
        double over = __dmul_rn(j.value, __dsqrt_rn(__ddiv_rn(sum, (double)j.row)));
        if (over < (double)__uint_as_float(most)) most = sk_select_key(__double2float_rn(over));
        return most ? most : 1;
    }
};

static sk_select shape(const sk_code_job *j)
{
    int wide = j->row <= 65536 ? 2 : 4;
    return sk_select{(j->bytes - COUNT) / (wide + 4), wide, COUNT};
}

static sk_status encode(const sk_code_job *j, void *stream)
{
    return sk_select_encode_all<large>("threshold", j, shape(j), stream);
}

static sk_status decode(const sk_code_job *j, void *stream)
{
    return sk_select_decode_all<large>("threshold", j, shape(j), stream);
}

extern "C" const sk_codec_kernel sk_codec_kernel_threshold = {"threshold", encode, decode};
