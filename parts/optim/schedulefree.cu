/* schedulefree.cu - the CUDA kernel of schedulefree.c. */
#include "kernel/cuda/optim_pass.h"
#include "kernel/weight_average.h"

enum { LR, BETA1, BETA2, EPS, DECAY };
enum { Z, V, X };

struct apply_schedulefree {
    enum { READS = 7, WRITES = 7, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float lr, b1, b2, eps, decay, root, part;
    bool first;

    static __device__ apply_schedulefree begin(const sk_facts &f)
    {
        const float *k = f.knob;
        return {f.lr,
                k[BETA1],
                k[BETA2],
                k[EPS],
                f.decay,
                (float)(1 / sqrt(1 - pow((double)k[BETA2], f.step))),
                (float)sk_rate_squared_part(f.warmup, f.step),
                f.step == 1};
    }

    __device__ void one(float &w, float g, float *s, double *) const
    {
        float from = first ? w : s[Z];
        s[V] = b2 * s[V] + (1 - b2) * g * g;
        s[Z] = from - lr * (g / (sqrtf(s[V]) * root + eps) + decay * w);
        s[X] = (1 - part) * (first ? w : s[X]) + part * s[Z];
        w = (1 - b1) * s[Z] + b1 * s[X];
    }
};

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_schedulefree>("schedulefree", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_schedulefree = {"schedulefree", {apply}};
