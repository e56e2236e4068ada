/* ademamix.cu - the CUDA kernel of ademamix.c. */
#include "kernel/cuda/optim_pass.h"

enum { LR, BETA1, BETA2, EPS, DECAY, BETA3, ALPHA, MIX_WARMUP };
enum { M, SLOW, V };

static __device__ double slow_beta(double b1, double b3, double t)
{
    if (t >= 1 || b1 <= 0 || b1 >= b3) return b3;
    double from = log(b1), to = log(b3);
    return exp(from * to / ((1 - t) * to + t * from));
}

struct apply_ademamix {
    enum { READS = 7, WRITES = 7, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float b1, b2, b3, eps, lr, mix, fix1, root, keep;

    static __device__ apply_ademamix begin(const sk_facts &f)
    {
        const float *k = f.knob;
        double t = f.step < (double)k[MIX_WARMUP] ? f.step / (double)k[MIX_WARMUP] : 1;
        double fix2 = 1 - pow((double)k[BETA2], f.step);
        return {k[BETA1],
                k[BETA2],
                (float)slow_beta((double)k[BETA1], (double)k[BETA3], t),
                k[EPS],
                f.lr,
                (float)(t * (double)k[ALPHA]),
                (float)(1 / (1 - pow((double)k[BETA1], f.step))),
                (float)(1 / sqrt(fix2)),
                1 - f.lr * f.decay};
    }

    __device__ void one(float &w, float g, float *s, double *) const
    {
        s[M] = b1 * s[M] + (1 - b1) * g;
        s[SLOW] = b3 * s[SLOW] + (1 - b3) * g;
        s[V] = b2 * s[V] + (1 - b2) * g * g;
        w = keep * w - lr * (s[M] * fix1 + mix * s[SLOW]) / (sqrtf(s[V]) * root + eps);
    }
};

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_ademamix>("ademamix", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_ademamix = {"ademamix", {apply}};
