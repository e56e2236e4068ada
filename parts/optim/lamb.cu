/* lamb.cu - the CUDA kernel of lamb.c.  The first pass leaves the direction and, in double, the two
 * squared norms; the second takes the step. */
#include "kernel/cuda/optim_pass.h"

enum { LR, BETA1, BETA2, EPS, DECAY };
enum { M, V, U };
enum { WEIGHT2, STEP2 };

struct direction_lamb {
    enum { READS = 3, WRITES = 7, GRAD = 1, MOVES = 0, SUMS = 2, AHEAD = 0 };
    float b1, b2, eps, decay, fix1, fix2;

    static __device__ direction_lamb begin(const sk_facts &f)
    {
        float b1 = f.knob[BETA1], b2 = f.knob[BETA2];
        return {b1,
                b2,
                f.knob[EPS],
                f.decay,
                (float)(1 / (1 - pow((double)b1, f.step))),
                (float)(1 / (1 - pow((double)b2, f.step)))};
    }

    __device__ void one(float &w, float g, float *s, double *sum) const
    {
        s[M] = b1 * s[M] + (1 - b1) * g;
        s[V] = b2 * s[V] + (1 - b2) * g * g;
        s[U] = s[M] * fix1 / (sqrtf(s[V] * fix2) + eps) + decay * w;
        sum[WEIGHT2] += (double)w * (double)w;
        sum[STEP2] += (double)s[U] * (double)s[U];
    }
};

struct apply_lamb {
    enum { READS = 4, WRITES = 0, GRAD = 0, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float rate;

    static __device__ apply_lamb begin(const sk_facts &f)
    {
        double w = sqrt(f.before[WEIGHT2]), u = sqrt(f.before[STEP2]);
        return {f.lr * (float)(w > 0 && u > 0 ? w / u : 1)};
    }

    __device__ void one(float &w, float, float *s, double *) const { w -= rate * s[U]; }
};

static sk_status direction(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<direction_lamb>("lamb", j, l);
}

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_lamb>("lamb", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_lamb = {"lamb", {direction, apply}};
