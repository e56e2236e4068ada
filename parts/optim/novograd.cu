/* novograd.cu - the CUDA kernels of novograd.c. */
#include "kernel/cuda/optim_pass.h"

enum { LR, BETA1, BETA2, EPS, DECAY };
enum { M };
enum { V };
enum { GRAD2 };

struct norm_novograd {
    enum { READS = 0, WRITES = 0, GRAD = 1, MOVES = 0, SUMS = 1, AHEAD = 0 };

    static __device__ norm_novograd begin(const sk_facts &) { return {}; }

    __device__ void one(float &, float g, float *, double *sum) const
    {
        sum[GRAD2] += (double)g * (double)g;
    }
};

struct settle_novograd {
    static __device__ void settle(const sk_facts &f, float *scalar)
    {
        double b2 = f.step > 1 ? (double)f.knob[BETA2] : 0;
        scalar[V] = (float)(b2 * (double)scalar[V] + (1 - b2) * f.before[GRAD2]);
    }
};

/* g comes scaled here, so it is divided instead. */
struct apply_novograd {
    enum { READS = 1, WRITES = 1, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float lr, b1, decay, factor;

    static __device__ apply_novograd begin(const sk_facts &f)
    {
        double below = f.scalar ? sqrt((double)f.scalar[V]) + (double)f.knob[EPS] : 0;
        return {f.lr, f.knob[BETA1], f.decay, below > 0 ? (float)(1 / below) : 0};
    }

    __device__ void one(float &w, float g, float *s, double *) const
    {
        s[M] = b1 * s[M] + (g * factor + decay * w);
        w -= lr * s[M];
    }
};

static sk_status norm(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<norm_novograd>("novograd", j, l);
}

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    SK_TRY(sk_settle<settle_novograd>("novograd", j, l));
    return sk_pass<apply_novograd>("novograd", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_novograd = {"novograd", {norm, apply}};
