/* lion.cu - the CUDA kernel of lion.c. */
#include "kernel/cuda/optim_pass.h"

enum { LR, BETA1, BETA2, DECAY };
enum { M };

struct apply_lion {
    enum { READS = 1, WRITES = 1, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float lr, b1, b2, keep;

    static __device__ apply_lion begin(const sk_facts &f)
    {
        return {f.lr, f.knob[BETA1], f.knob[BETA2], 1 - f.lr * f.decay};
    }

    __device__ void one(float &w, float g, float *s, double *) const
    {
        float c = fmaf(b1, s[M], (1 - b1) * g);
        s[M] = b2 * s[M] + (1 - b2) * g;
        w = keep * w - (c > 0 ? lr : c < 0 ? -lr : 0);
    }
};

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_lion>("lion", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_lion = {"lion", {apply}};
