/* onebit_adam.cu - the GPU half of onebit_adam.c. */
#include "kernel/cuda/optim_pass.h"
#include "kernel/cuda/shared_passes.h"

enum { WARMUP = SK_ADAMW_DECAY + 1 };
enum { M, V, MEAN };

struct onebit_term {
    enum { READS = 1 << M, WRITES = 1 << M, GRAD = 1, MOVES = 0, SUMS = 0, AHEAD = 0 };
    float b1, share;

    static __device__ onebit_term begin(const sk_facts &f)
    {
        return {f.knob[SK_ADAMW_BETA1], f.share};
    }

    __device__ void one(float &, float g, float *s, double *) const
    {
        s[M] = share * (b1 * s[M] + (1 - b1) * g);
    }
};

struct onebit_step {
    enum { READS = 1 << V | 1 << MEAN, WRITES = 1 << M, GRAD = 0, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float eps, rate, root, keep;

    static __device__ onebit_step begin(const sk_facts &f)
    {
        double fix1 = 1 - pow((double)f.knob[SK_ADAMW_BETA1], f.step);
        double fix2 = 1 - pow((double)f.knob[SK_ADAMW_BETA2], (double)f.knob[WARMUP]);
        return {f.knob[SK_ADAMW_EPS], (float)((double)f.lr / fix1), (float)(1 / sqrt(fix2)),
                1 - f.lr * f.decay};
    }

    __device__ void one(float &w, float, float *s, double *) const
    {
        s[M] = s[MEAN];
        w = keep * w - rate * s[M] / (sqrtf(s[V]) * root + eps);
    }
};

static sk_status first(const sk_update_job *j, const sk_launch *l)
{
    return sk_cuda_pass_adamw("onebit-adam", j, l);
}

static sk_status term(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<onebit_term>("onebit-adam", j, l);
}

static sk_status step(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<onebit_step>("onebit-adam", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_onebit_adam = {"onebit-adam", {first, term, step}};
