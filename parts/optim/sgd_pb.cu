/* sgd_pb.cu - the CUDA kernel of sgd_pb.c. */
#include "kernel/cuda/optim_pass.h"

enum { LR, MOMENTUM, DECAY, COMPENSATE, PREDICT };
enum { V };

struct apply_sgd_pb {
    enum { READS = 1, WRITES = 1, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float lr, mu, decay, a, b;

    static __device__ apply_sgd_pb begin(const sk_facts &f)
    {
        float mu = f.knob[MOMENTUM], a = 1, b = 0;
        for (int i = 0; f.knob[COMPENSATE] > 0 && i < f.delay; i++) b += a, a *= mu;
        return {f.lr, mu, f.decay, a, b};
    }

    __device__ void one(float &w, float grad, float *s, double *) const
    {
        float g = grad + decay * w;
        s[V] = mu * s[V] + g;
        w -= lr * (a * s[V] + b * g);
    }
};

struct ahead_sgd_pb {
    enum { READS = 1, WRITES = 0, GRAD = 0, MOVES = 1, SUMS = 0, AHEAD = 1 };
    float far;

    static __device__ ahead_sgd_pb begin(const sk_facts &f)
    {
        return {f.knob[PREDICT] > 0 ? f.lr * (float)f.delay : 0};
    }

    __device__ void one(float &w, float, float *s, double *) const { w -= far * s[V]; }
};

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_sgd_pb>("sgd-pb", j, l);
}

static sk_status ahead(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<ahead_sgd_pb>("sgd-pb", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_sgd_pb = {"sgd-pb", {apply}, ahead};
