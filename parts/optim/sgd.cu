/* sgd.cu - the CUDA kernel of sgd.c. */
#include "kernel/cuda/optim_pass.h"

enum { LR, MOMENTUM, DECAY };
enum { M };

struct apply_sgd {
    enum { READS = 1, WRITES = 1, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float lr, mu, decay;

    static __device__ apply_sgd begin(const sk_facts &f)
    {
        return {f.lr, f.knob[MOMENTUM], f.decay};
    }

    __device__ void one(float &w, float g, float *s, double *) const
    {
        s[M] = mu * s[M] + g + decay * w;
        w -= lr * s[M];
    }
};

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_sgd>("sgd", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_sgd = {"sgd", {apply}};
