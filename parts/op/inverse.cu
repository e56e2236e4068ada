/* inverse.cu - the GPU half of inverse.c, by cuSOLVER. */
#include "kernel/cuda/cusolver.h"

#include <float.h>

enum { BLOCK = 256 };

static __global__ void __launch_bounds__(BLOCK)
    store(const sk_cuda_inverse v, int64_t n, sk_any y, int64_t at)
{
    bool bad = v.bad[0] || v.bad[1];
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n * n;
         i += (int64_t)gridDim.x * BLOCK) {
        int64_t r = i / n, c = i % n;
        double x = v.inverse[c <= r ? i : c * n + r];
        x = fmax(fmin(x, (double)FLT_MAX), -(double)FLT_MAX);
        sk_put(y, at + i, bad ? nanf("") : (float)x);
    }
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    sk_squares s = sk_squares_of(a);
    sk_any x = sk_any_of(&a->in[0]), y = sk_any_of(&a->out[0]);
    unsigned blocks = sk_cuda_blocks(s.n * s.n, BLOCK);
    for (int64_t k = 0; k < s.batch && s.n; k++) {
        sk_cuda_inverse v;
        int64_t at = k * s.n * s.n;
        SK_TRY(sk_cuda_inverse_of("inverse", x, at, s.n, a->attr, l, &v));
        store<<<blocks, BLOCK, 0, (cudaStream_t)l->stream>>>(v, s.n, y, at);
        SK_TRY(sk_cuda_launched("inverse"));
    }
    return SK_OK;
}

static sk_status prepare(const sk_args *a, const sk_launch *l, sk_variant *took)
{
    took->name = "cuSOLVER";
    return sk_cuda_inverse_prepare(sk_squares_of(a).n, l);
}

extern "C" const sk_kernel sk_kernel_inverse = {"inverse", launch, prepare, NULL, true};
