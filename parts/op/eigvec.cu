/* eigvec.cu - the GPU half of eigvec.c, by cuSOLVER. */
#include "kernel/cuda/cusolver.h"

enum { BLOCK = 256 };

static __global__ void __launch_bounds__(BLOCK)
    store(const sk_cuda_eigen v, int64_t n, sk_any y, int64_t at)
{
    bool bad = v.bad[0] || v.bad[1];
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n * n;
         i += (int64_t)gridDim.x * BLOCK)
        sk_put(y, at + i, bad ? nanf("") : (float)v.vector[i % n * n + i / n]);
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    sk_squares s = sk_squares_of(a);
    sk_any x = sk_any_of(&a->in[0]), y = sk_any_of(&a->out[0]);
    for (int64_t k = 0; k < s.batch && s.n; k++) {
        sk_cuda_eigen v;
        int64_t at = k * s.n * s.n;
        SK_TRY(sk_cuda_eigen_of("eigvec", x, at, s.n, l, &v));
        store<<<sk_cuda_blocks(s.n * s.n, BLOCK), BLOCK, 0, (cudaStream_t)l->stream>>>(v, s.n, y,
                                                                                       at);
        SK_TRY(sk_cuda_launched("eigvec"));
    }
    return SK_OK;
}

static sk_status prepare(const sk_args *a, const sk_launch *l, sk_variant *took)
{
    took->name = "cuSOLVER";
    return sk_cuda_eigen_prepare(sk_squares_of(a).n, l);
}

extern "C" const sk_kernel sk_kernel_eigvec = {"eigvec", launch, prepare, NULL, true};
