/* whole_passes.h - the GPU halves of sk_pass_gradient and sk_pass_step: passes around a whole
 * matrix, of optimizers that keep no state of elements.  Only parts/optim/NAME.cu include it. */
#ifndef SK_KERNEL_WHOLE_PASSES_H
#define SK_KERNEL_WHOLE_PASSES_H

#include "kernel/cuda/optim_pass.h"

struct sk_gradient_pass {
    enum { READS = 0, WRITES = 1, GRAD = 1, MOVES = 0, SUMS = 0, AHEAD = 0 };
    static __device__ sk_gradient_pass begin(const sk_facts &) { return {}; }
    __device__ void one(float &, float g, float *s, double *) const { s[0] = g; }
};

struct sk_step_pass {
    enum { READS = 1, WRITES = 0, GRAD = 0, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float rate, keep;
    static __device__ sk_step_pass begin(const sk_facts &f) { return {f.lr, 1 - f.lr * f.decay}; }
    __device__ void one(float &w, float, float *s, double *) const { w = keep * w - rate * s[0]; }
};

#endif
