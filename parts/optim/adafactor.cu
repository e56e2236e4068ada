/* adafactor.cu - the CUDA kernels of adafactor.c's three passes; before the last run operations on
 * matrices. */
#include "kernel/cuda/optim_pass.h"
#include "kernel/cuda/shared_passes.h"

enum { LR, DECAY, DECAY_RATE, EPS1, EPS2, CLIP };
enum { WEIGHT2, COUNT };

struct weights_adafactor {
    enum { READS = 0, WRITES = 0, GRAD = 0, MOVES = 0, SUMS = 2, AHEAD = 0 };
    static __device__ weights_adafactor begin(const sk_facts &) { return {}; }

    __device__ void one(float &w, float, float *, double *sum) const
    {
        sum[WEIGHT2] += (double)w * (double)w;
        sum[COUNT] += 1;
    }
};

struct apply_adafactor {
    enum { READS = 1, WRITES = 0, GRAD = 0, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float rate, keep;

    static __device__ apply_adafactor begin(const sk_facts &f)
    {
        double rms = f.before[COUNT] > 0 ? sqrt(f.before[WEIGHT2] / f.before[COUNT]) : 0;
        double rho = fmin((double)f.lr, 1 / sqrt(f.step));
        return {(float)(fmax((double)f.knob[EPS2], rms) * rho), 1 - f.lr * f.decay};
    }

    __device__ void one(float &w, float, float *s, double *) const { w = keep * w - rate * s[0]; }
};

static sk_status weights(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<weights_adafactor>("adafactor", j, l);
}

static sk_status direction(const sk_update_job *j, const sk_launch *l)
{
    return sk_cuda_pass_gradient("adafactor", j, l);
}

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_adafactor>("adafactor", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_adafactor = {"adafactor",
                                                              {weights, direction, apply}};
