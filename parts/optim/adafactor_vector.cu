/* adafactor_vector.cu - the CUDA kernels of adafactor_vector.c. */
#include "kernel/cuda/optim_pass.h"

enum { LR, DECAY, DECAY_RATE, EPS1, EPS2, CLIP };
enum { V };
enum { WEIGHT2, COUNT, STEP2 };

struct average_adafactor {
    enum { READS = 1, WRITES = 1, GRAD = 1, MOVES = 0, SUMS = 3, AHEAD = 0 };
    float part, least;

    static __device__ average_adafactor begin(const sk_facts &f)
    {
        return {(float)pow(f.step, -(double)f.knob[DECAY_RATE]), f.knob[EPS1] * f.knob[EPS1]};
    }

    __device__ void one(float &w, float g, float *s, double *sum) const
    {
        s[V] += part * (g * g - s[V]);
        double u = (double)(g / sqrtf(fmaxf(s[V], least)));
        sum[WEIGHT2] += (double)w * (double)w;
        sum[COUNT] += 1;
        sum[STEP2] += u * u;
    }
};

struct apply_adafactor_vector {
    enum { READS = 1, WRITES = 0, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float rate, keep, least;

    static __device__ apply_adafactor_vector begin(const sk_facts &f)
    {
        double n = f.before[COUNT] > 0 ? f.before[COUNT] : 1, rms = sqrt(f.before[WEIGHT2] / n);
        double rho = fmin((double)f.lr, 1 / sqrt(f.step));
        double clip = fmax(1.0, sqrt(f.before[STEP2] / n) / (double)f.knob[CLIP]);
        return {(float)(fmax((double)f.knob[EPS2], rms) * rho / clip), 1 - f.lr * f.decay,
                f.knob[EPS1] * f.knob[EPS1]};
    }

    __device__ void one(float &w, float g, float *s, double *) const
    {
        w = keep * w - rate * (g / sqrtf(fmaxf(s[V], least)));
    }
};

static sk_status average(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<average_adafactor>("adafactor-vector", j, l);
}

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_adafactor_vector>("adafactor-vector", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_adafactor_vector = {"adafactor-vector",
                                                                     {average, apply}};
