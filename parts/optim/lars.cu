/* lars.cu - the CUDA kernel of lars.c.  The decay of a shard (sk_facts) is `trust`: 0 for tensors
 * that take plain SGD. */
#include "kernel/cuda/optim_pass.h"

enum { LR, MOMENTUM, EPS, TRUST, DECAY };
enum { M };
enum { WEIGHT2, GRAD2 };

struct norms_lars {
    enum { READS = 0, WRITES = 0, GRAD = 1, MOVES = 0, SUMS = 2, AHEAD = 0 };

    static __device__ norms_lars begin(const sk_facts &) { return {}; }

    __device__ void one(float &w, float g, float *, double *sum) const
    {
        sum[WEIGHT2] += (double)w * (double)w;
        sum[GRAD2] += (double)g * (double)g;
    }
};

struct apply_lars {
    enum { READS = 1, WRITES = 1, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float rate, mu, decay;

    static __device__ apply_lars begin(const sk_facts &f)
    {
        double w2 = sqrt(f.before[WEIGHT2]), g2 = sqrt(f.before[GRAD2]), trust = (double)f.decay;
        double below = g2 + (double)f.knob[DECAY] * w2 + (double)f.knob[EPS];
        float rate = f.lr;
        if (trust > 0 && w2 > 0 && g2 > 0) rate = (float)((double)f.lr * trust * w2 / below);
        return {rate, f.knob[MOMENTUM], trust > 0 ? f.knob[DECAY] : 0};
    }

    __device__ void one(float &w, float g, float *s, double *) const
    {
        s[M] = mu * s[M] + rate * (g + decay * w);
        w -= s[M];
    }
};

static sk_status norms(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<norms_lars>("lars", j, l);
}

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_lars>("lars", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_lars = {"lars", {norms, apply}};
