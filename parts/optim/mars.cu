/* mars.cu - the CUDA kernels of mars.c.  The decay of a shard (sk_facts) is `gamma`: 0 for tensors
 * that take AdamW. */
#include "kernel/cuda/optim_pass.h"

enum { LR, BETA1, BETA2, EPS, GAMMA, DECAY };
enum { M, V, LAST };
enum { LENGTH2 };

static __device__ float change(const sk_facts &f)
{
    double b1 = (double)f.knob[BETA1];
    return (float)((double)f.decay * b1 / (1 - b1));
}

struct length_mars {
    enum { READS = 4, WRITES = 0, GRAD = 1, MOVES = 0, SUMS = 1, AHEAD = 0 };
    float more;

    static __device__ length_mars begin(const sk_facts &f) { return {change(f)}; }

    __device__ void one(float &, float g, float *s, double *sum) const
    {
        float c = g + more * (g - s[LAST]);
        sum[LENGTH2] += (double)c * (double)c;
    }
};

struct apply_mars {
    enum { READS = 7, WRITES = 7, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float b1, b2, eps, more, shrink, keep, rate, root;

    static __device__ apply_mars begin(const sk_facts &f)
    {
        const float *k = f.knob;
        bool adapts = f.decay > 0;
        double long2 = f.before[LENGTH2];
        return {k[BETA1],
                k[BETA2],
                k[EPS],
                change(f),
                adapts && long2 > 1 ? (float)(1 / sqrt(long2)) : 1,
                adapts ? 1 - f.lr * k[DECAY] : 1,
                (float)((double)f.lr / (1 - pow((double)k[BETA1], f.step))),
                (float)(1 / sqrt(1 - pow((double)k[BETA2], f.step)))};
    }

    __device__ void one(float &w, float g, float *s, double *) const
    {
        float c = shrink * (g + more * (g - s[LAST]));
        s[M] = b1 * s[M] + (1 - b1) * c;
        s[V] = b2 * s[V] + (1 - b2) * c * c;
        s[LAST] = g;
        w = keep * w - rate * s[M] / (sqrtf(s[V]) * root + eps);
    }
};

static sk_status length(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<length_mars>("mars", j, l);
}

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_mars>("mars", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_mars = {"mars", {length, apply}};
