/* act_grad.cu - the GPU half of act_grad.c. */
#include "kernel/activation_math.h"
#include "kernel/cuda/map.h"

template <sk_formula F> struct act_grad {
    enum { IN = 2, OUT = 1 };
    static __device__ void one(const float *x, float *dx)
    {
        *dx = x[1] * sk_activate_slope(F, x[0]);
    }
};

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    switch (sk_activation_formula(a->attr[0])) {
#define ONE(f)           \
    case SK_FORMULA_##f: \
        return sk_map<act_grad<SK_FORMULA_##f>>("act_grad", a, l);
        SK_FORMULAS(ONE)
#undef ONE
    case SK_N_FORMULAS:
        break;
    }
    return sk_fail(SK_EBUG, "act_grad: %g stands for no activation function", a->attr[0]);
}

extern "C" const sk_kernel sk_kernel_act_grad = {"act_grad", launch};
