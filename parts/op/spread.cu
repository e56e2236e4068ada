/* spread.cu - the GPU half of spread.c: a thread for each element of the result. */
#include "kernel/cuda/cuda.h"

enum { BLOCK = 256 };

typedef struct places {
    int n;
    int64_t size[SK_MAX_DIM], step[SK_MAX_DIM]; /* of the result; between elements of the operand */
} places;

template <typename T>
static __global__ void __launch_bounds__(BLOCK)
    repeat(const T *x, const places p, int64_t n, sk_any y, bool add)
{
    int64_t stride = (int64_t)gridDim.x * BLOCK;
    for (int64_t o = (int64_t)blockIdx.x * BLOCK + threadIdx.x; o < n; o += stride) {
        int64_t at = 0, rest = o;
        for (int k = p.n - 1; k >= 0; k--) {
            at += rest % p.size[k] * p.step[k];
            rest /= p.size[k];
        }
        float v = (float)x[at];
        sk_put(y, o, add ? sk_get(y, o) + v : v);
    }
}

static places places_of(const sk_args *a)
{
    const char *out = strstr(a->dims, "->") + 2;
    places p = {};
    for (; *out; out++) {
        int d = 0;
        if (*out == '!') continue;
        p.size[p.n] = a->out[0].size[p.n];
        for (const char *in = a->dims; *in != '-'; in++) {
            if (*in == *out) p.step[p.n] = a->in[0].step[d];
            d += *in != '!';
        }
        p.n++;
    }
    return p;
}

template <typename T> static sk_status typed(const sk_args *a, const sk_launch *l)
{
    int64_t n = sk_count(&a->out[0]);
    if (!n) return SK_OK;
    repeat<T><<<sk_cuda_blocks(n, BLOCK), BLOCK, 0, (cudaStream_t)l->stream>>>(
        (const T *)a->in[0].data, places_of(a), n, sk_any_of(&a->out[0]), a->add & 1);
    return sk_cuda_launched("spread");
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, typed<T>(a, l));
}

extern "C" const sk_kernel sk_kernel_spread = {"spread", launch};
