/* muon.cu - the CUDA kernels of muon.c's two passes; between them run operations on matrices. */
#include "kernel/cuda/optim_pass.h"

enum { LR, MOMENTUM, NESTEROV, STEPS, MATCH, DECAY };
enum { M, U };

struct direction_muon {
    enum { READS = 1, WRITES = 3, GRAD = 1, MOVES = 0, SUMS = 0, AHEAD = 0 };
    float mu;
    bool nesterov;

    static __device__ direction_muon begin(const sk_facts &f)
    {
        return {f.knob[MOMENTUM], f.knob[NESTEROV] > 0};
    }

    __device__ void one(float &, float g, float *s, double *) const
    {
        s[M] = mu * s[M] + g;
        s[U] = nesterov ? g + mu * s[M] : s[M];
    }
};

struct apply_muon {
    enum { READS = 2, WRITES = 0, GRAD = 0, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float rate, keep;

    static __device__ apply_muon begin(const sk_facts &f) { return {f.lr, 1 - f.lr * f.decay}; }

    __device__ void one(float &w, float, float *s, double *) const { w = keep * w - rate * s[U]; }
};

static sk_status direction(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<direction_muon>("muon", j, l);
}

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_muon>("muon", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_muon = {"muon", {direction, apply}};
