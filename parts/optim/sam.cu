/* sam.cu - the CUDA kernels of sam.c. */
#include "kernel/cuda/optim_pass.h"

enum { LR, RADIUS, BASE, BETA1, BETA2, EPS, MOMENTUM, DECAY };
enum { M, V };
enum { ADAMW, SGD };

struct perturb_sam {
    float far;

    static __device__ perturb_sam begin(const sk_facts &f)
    {
        return {(float)((double)f.knob[RADIUS] / (f.norm + 1e-12))};
    }

    __device__ float one(float w, float g) const { return w + far * g; }
};

struct apply_sam {
    enum { READS = 3, WRITES = 3, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float b1, b2, eps, rate, root, keep, lr, mu, decay;
    bool sgd;

    static __device__ apply_sam begin(const sk_facts &f)
    {
        float b1 = f.knob[BETA1], b2 = f.knob[BETA2];
        double fix1 = 1 - pow((double)b1, f.step), fix2 = 1 - pow((double)b2, f.step);
        return {b1,
                b2,
                f.knob[EPS],
                (float)((double)f.lr / fix1),
                (float)(1 / sqrt(fix2)),
                1 - f.lr * f.decay,
                f.lr,
                f.knob[MOMENTUM],
                f.decay,
                (int)f.knob[BASE] == SGD};
    }

    __device__ void one(float &w, float g, float *s, double *) const
    {
        if (sgd) {
            s[M] = mu * s[M] + g + decay * w;
            w -= lr * s[M];
            return;
        }
        s[M] = b1 * s[M] + (1 - b1) * g;
        s[V] = b2 * s[V] + (1 - b2) * g * g;
        w = keep * w - rate * s[M] / (sqrtf(s[V]) * root + eps);
    }
};

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_sam>("sam", j, l);
}

static sk_status perturb(const sk_update_job *j, const sk_launch *l)
{
    return sk_perturb<perturb_sam>("sam", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_sam = {"sam", {apply}, NULL, perturb};
