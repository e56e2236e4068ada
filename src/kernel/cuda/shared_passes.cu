/* shared_passes.cu - see kernel/cuda/shared_passes.h. */
#include "kernel/cuda/shared_passes.h"
#include "kernel/cuda/optim_pass.h"

enum { M, V };

/* ---- around a whole matrix */

struct gradient_pass {
    enum { READS = 0, WRITES = 1, GRAD = 1, MOVES = 0, SUMS = 0, AHEAD = 0 };
    static __device__ gradient_pass begin(const sk_facts &) { return {}; }
    __device__ void one(float &, float g, float *s, double *) const { s[0] = g; }
};

struct step_pass {
    enum { READS = 1, WRITES = 0, GRAD = 0, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float rate, keep;
    static __device__ step_pass begin(const sk_facts &f) { return {f.lr, 1 - f.lr * f.decay}; }
    __device__ void one(float &w, float, float *s, double *) const { w = keep * w - rate * s[0]; }
};

/* ---- steps */

/* 28 bytes an element cross the memory, with gradients and weights of bf16 and a master; 16 with
 * state of 8 bits. */
struct adamw_pass {
    enum { READS = 3, WRITES = 3, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float b1, b2, eps, rate, root, keep;

    static __device__ adamw_pass begin(const sk_facts &f)
    {
        float b1 = f.knob[SK_ADAMW_BETA1], b2 = f.knob[SK_ADAMW_BETA2];
        double fix1 = 1 - pow((double)b1, f.step), fix2 = 1 - pow((double)b2, f.step);
        float rate = (float)((double)f.lr / fix1), root = (float)(1 / sqrt(fix2));
        return {b1, b2, f.knob[SK_ADAMW_EPS], rate, root, 1 - f.lr * f.decay};
    }

    __device__ void one(float &w, float g, float *s, double *) const
    {
        s[M] = b1 * s[M] + (1 - b1) * g;
        s[V] = b2 * s[V] + (1 - b2) * g * g;
        w = keep * w - rate * s[M] / (sqrtf(s[V]) * root + eps);
    }
};

struct sgd_pass {
    enum { READS = 1, WRITES = 1, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float lr, mu, decay;

    static __device__ sgd_pass begin(const sk_facts &f)
    {
        return {f.lr, f.knob[SK_SGD_MOMENTUM], f.decay};
    }

    __device__ void one(float &w, float g, float *s, double *) const
    {
        s[M] = mu * s[M] + g + decay * w;
        w -= lr * s[M];
    }
};

sk_status sk_cuda_pass_gradient(const char *optim, const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<gradient_pass>(optim, j, l);
}

sk_status sk_cuda_pass_step(const char *optim, const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<step_pass>(optim, j, l);
}

sk_status sk_cuda_pass_adamw(const char *optim, const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<adamw_pass>(optim, j, l);
}

sk_status sk_cuda_pass_sgd(const char *optim, const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<sgd_pass>(optim, j, l);
}
