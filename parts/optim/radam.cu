/* radam.cu - the CUDA kernel of radam.c. */
#include "kernel/cuda/optim_pass.h"

enum { LR, BETA1, BETA2, EPS, DECAY };
enum { M, V };

static __device__ double rectify(double b2, double step)
{
    double most = 2 / (1 - b2) - 1, fix2 = 1 - pow(b2, step);
    double rho = most - 2 * step * (1 - fix2) / fix2;
    if (rho <= 5) return 0;
    return sqrt(fix2 * (rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho));
}

struct apply_radam {
    enum { READS = 3, WRITES = 3, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float b1, b2, decay, rate, root, below;

    static __device__ apply_radam begin(const sk_facts &f)
    {
        const float *k = f.knob;
        double factor = rectify((double)k[BETA2], f.step);
        double fix1 = 1 - pow((double)k[BETA1], f.step);
        bool adapts = factor > 0;
        return {k[BETA1],
                k[BETA2],
                f.decay,
                (float)((double)f.lr * (adapts ? factor : 1) / fix1),
                adapts ? 1.0f : 0.0f,
                adapts ? k[EPS] : 1};
    }

    __device__ void one(float &w, float grad, float *s, double *) const
    {
        float g = grad + decay * w;
        s[M] = b1 * s[M] + (1 - b1) * g;
        s[V] = b2 * s[V] + (1 - b2) * g * g;
        w -= rate * s[M] / (root * sqrtf(s[V]) + below);
    }
};

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_radam>("radam", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_radam = {"radam", {apply}};
