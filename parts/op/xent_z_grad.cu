/* xent_z_grad.cu - the GPU half of xent_z_grad.c: a thread a row; ds may lie where s did. */
#include "kernel/cuda/cuda.h"

enum { BLOCK = 256 };

static __global__ void __launch_bounds__(BLOCK)
    z_grad(sk_any s, sk_any w, sk_any dl, sk_any m, sk_any ds, sk_any dt, double z, int64_t rows)
{
    float scale = sk_get(dl, 0);
    for (int64_t r = (int64_t)blockIdx.x * BLOCK + threadIdx.x; r < rows;
         r += (int64_t)gridDim.x * BLOCK) {
        float d = sk_get(w, r) * scale;
        double sum = (double)sk_get(s, r), lse = (double)sk_get(m, r) + log(sum);
        sk_put(ds, r, (float)((double)d * (1 + 2 * z * lse) / sum));
        sk_put(dt, r, -d);
    }
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    int64_t rows = sk_count(&a->in[0]);
    if (!rows) return SK_OK;
    z_grad<<<sk_cuda_blocks(rows, BLOCK), BLOCK, 0, (cudaStream_t)l->stream>>>(
        sk_any_of(&a->in[0]), sk_any_of(&a->in[1]), sk_any_of(&a->in[2]), sk_any_of(&a->in[3]),
        sk_any_of(&a->out[0]), sk_any_of(&a->out[1]), a->attr[0], rows);
    return sk_cuda_launched("xent_z_grad");
}

extern "C" const sk_kernel sk_kernel_xent_z_grad = {"xent_z_grad", launch};
