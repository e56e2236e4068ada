/* adam8bit.cu - the CUDA kernel of adam8bit.c: 16 bytes an element cross the memory, with gradients
 * and weights of bf16 and a master. */
#include "kernel/cuda/optim_pass.h"

enum { LR, BETA1, BETA2, EPS, DECAY };
enum { M, V };

struct apply_adam8bit {
    enum { READS = 3, WRITES = 3, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float b1, b2, eps, rate, root, keep;

    static __device__ apply_adam8bit begin(const sk_facts &f)
    {
        float b1 = f.knob[BETA1], b2 = f.knob[BETA2];
        double fix1 = 1 - pow((double)b1, f.step), fix2 = 1 - pow((double)b2, f.step);
        float rate = (float)((double)f.lr / fix1), root = (float)(1 / sqrt(fix2));
        return {b1, b2, f.knob[EPS], rate, root, 1 - f.lr * f.decay};
    }

    __device__ void one(float &w, float g, float *s, double *) const
    {
        s[M] = b1 * s[M] + (1 - b1) * g;
        s[V] = b2 * s[V] + (1 - b2) * g * g;
        w = keep * w - rate * s[M] / (sqrtf(s[V]) * root + eps);
    }
};

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_adam8bit>("adam8bit", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_adam8bit = {"adam8bit", {apply}};
