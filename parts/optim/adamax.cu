/* adamax.cu - the CUDA kernel of adamax.c. */
#include "kernel/cuda/optim_pass.h"

enum { LR, BETA1, BETA2, EPS, DECAY };
enum { M, U };

struct apply_adamax {
    enum { READS = 3, WRITES = 3, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float b1, b2, eps, decay, rate;

    static __device__ apply_adamax begin(const sk_facts &f)
    {
        double fix1 = 1 - pow((double)f.knob[BETA1], f.step);
        return {f.knob[BETA1], f.knob[BETA2], f.knob[EPS], f.decay, (float)((double)f.lr / fix1)};
    }

    __device__ void one(float &w, float grad, float *s, double *) const
    {
        float g = grad + decay * w, size = fabsf(g) + eps, was = b2 * s[U];
        s[M] = b1 * s[M] + (1 - b1) * g;
        s[U] = was > size ? was : size;
        w -= rate * s[M] / s[U];
    }
};

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_adamax>("adamax", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_adamax = {"adamax", {apply}};
