/* rmsprop.cu - the CUDA kernel of rmsprop.c. */
#include "kernel/cuda/optim_pass.h"

enum { LR, RHO, EPS, MOMENTUM, DECAY };
enum { V, M };

struct apply_rmsprop {
    enum { READS = 3, WRITES = 3, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float lr, rho, eps, mu, decay;

    static __device__ apply_rmsprop begin(const sk_facts &f)
    {
        return {f.lr, f.knob[RHO], f.knob[EPS], f.knob[MOMENTUM], f.decay};
    }

    __device__ void one(float &w, float grad, float *s, double *) const
    {
        float g = grad + decay * w;
        s[V] = rho * s[V] + (1 - rho) * g * g;
        s[M] = mu * s[M] + g / (sqrtf(s[V]) + eps);
        w -= lr * s[M];
    }
};

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_rmsprop>("rmsprop", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_rmsprop = {"rmsprop", {apply}};
