/* adagrad.cu - the CUDA kernel of adagrad.c. */
#include "kernel/cuda/optim_pass.h"

enum { LR, EPS, DECAY };
enum { V };

struct apply_adagrad {
    enum { READS = 1, WRITES = 1, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float lr, eps, decay;

    static __device__ apply_adagrad begin(const sk_facts &f)
    {
        return {f.lr, f.knob[EPS], f.decay};
    }

    __device__ void one(float &w, float grad, float *s, double *) const
    {
        float g = grad + decay * w;
        s[V] += g * g;
        w -= lr * g / (sqrtf(s[V]) + eps);
    }
};

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_adagrad>("adagrad", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_adagrad = {"adagrad", {apply}};
