/* act.cu - the GPU half of act.c. */
#include "kernel/activation_math.h"
#include "kernel/cuda/map.h"

template <sk_formula F> struct act {
    enum { IN = 1, OUT = 1 };
    static __device__ void one(const float *x, float *y) { *y = sk_activate(F, *x); }
};

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    switch (sk_activation_formula(a->attr[0])) {
#define ONE(f)           \
    case SK_FORMULA_##f: \
        return sk_map<act<SK_FORMULA_##f>>("act", a, l);
        SK_FORMULAS(ONE)
#undef ONE
    case SK_N_FORMULAS:
        break;
    }
    return sk_fail(SK_EBUG, "act: %g stands for no activation function", a->attr[0]);
}

extern "C" const sk_kernel sk_kernel_act = {"act", launch};
