/* sam.cu - the CUDA kernels of sam.c. */
#include "kernel/cuda/optim_pass.h"
#include "kernel/cuda/shared_passes.h"

enum { LR, RADIUS, BASE, BETA1, BETA2, EPS, MOMENTUM, DECAY };
enum { ADAMW, SGD };

struct perturb_sam {
    float far;

    static __device__ perturb_sam begin(const sk_facts &f)
    {
        return {(float)((double)f.knob[RADIUS] / (f.norm + 1e-12))};
    }

    __device__ float one(float w, float g) const { return w + far * g; }
};

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    bool sgd = (int)j->knob[BASE] == SGD;
    sk_update_job base =
        sk_update_knobs(j, sgd ? MOMENTUM - SK_SGD_MOMENTUM : BETA1 - SK_ADAMW_BETA1);
    return sgd ? sk_cuda_pass_sgd("sam", &base, l) : sk_cuda_pass_adamw("sam", &base, l);
}

static sk_status perturb(const sk_update_job *j, const sk_launch *l)
{
    return sk_perturb<perturb_sam>("sam", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_sam = {"sam", {apply}, NULL, perturb};
