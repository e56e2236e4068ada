/* activation_math.h - the formulas of activation functions and their slopes, for CPU and GPU.
 *
 *     y  = sk_activate(SK_FORMULA_SILU, x);
 *     dx = dy * sk_activate_slope(SK_FORMULA_SILU, x);
 *
 * Called with a constant formula, the switch goes away, and a loop around the call becomes vector
 * code.  Values are right to 4e-6 of themselves and slopes to 1e-6 (test/graph/activation.c).  A
 * NaN gives a NaN.  At a kink the slope is the one that PyTorch takes.  The three functions they
 * stand on are the compiler's on a GPU, and those of kernel/cpu/vecmath.h on a CPU. */
#ifndef SK_KERNEL_ACTIVATION_MATH_H
#define SK_KERNEL_ACTIVATION_MATH_H

#include "base/rng.h" /* SK_BOTH: what a GPU computes too */
#include "kernel/activation.h"
#include "tensor/dtype.h"

#ifdef __CUDACC__
SK_BOTH real sk_act_exp(real x) { return expf(x); }
SK_BOTH real sk_act_tanh(real x) { return tanhf(x); }
SK_BOTH real sk_act_erfc(real x) { return erfcf(x); }
#else
#include "kernel/cpu/vecmath.h"
SK_BOTH real sk_act_exp(real x) { return sk_exp(x); }
SK_BOTH real sk_act_tanh(real x) { return sk_tanh(x); }
SK_BOTH real sk_act_erfc(real x) { return sk_erfc(x); }
#endif

SK_BOTH real sk_act_sigmoid(real x) { return 1 / (1 + sk_act_exp(-x)); }

/* The normal distribution: the chance of at most x, and its density. */
SK_BOTH real sk_act_normal(real x)
{
    real tail = (real)0.5 * sk_act_erfc((x < 0 ? -x : x) * (real)0.70710678118654752);
    return x < 0 ? tail : 1 - tail;
}

SK_BOTH real sk_act_density(real x)
{
    return (real)0.39894228040143268 * sk_act_exp((real)-0.5 * x * x);
}

/* tanh(log(1 + e^x)), by e^-|x|, which cannot overflow. */
SK_BOTH real sk_act_tanh_softplus(real x)
{
    real e = sk_act_exp(x < 0 ? x : -x), more = 2 * e + 1, less = e * (e + 2);
    return x < 0 ? less / (less + 2) : more / (more + 2 * e * e);
}

/* tanh form of GELU (Hendrycks and Gimpel 2016): x sigmoid(2u), 2u = slope (x + cube x^3). */
#define SK_ACT_SLOPE ((real)1.5957691216057308) /* 2 sqrt(2/pi) */
#define SK_ACT_CUBE  ((real)0.044715)
#define SK_ACT_QUICK ((real)1.702)
#define SK_ACT_LEAK  ((real)0.01)
#define SK_ACT_MU    ((real)0.707107) /* of laplace, as its paper has them */
#define SK_ACT_SIGMA ((real)0.282095)

SK_BOTH real sk_act_gelu_gate(real x)
{
    return sk_act_sigmoid(SK_ACT_SLOPE * x * (1 + SK_ACT_CUBE * x * x));
}

SK_BOTH real sk_act_within(real x, real low, real high)
{
    return x < low ? low : x > high ? high : x;
}

SK_BOTH real sk_activate(sk_formula f, real x)
{
    real y;
    switch (f) {
    case SK_FORMULA_GELU:
        return x * sk_act_normal(x);
    case SK_FORMULA_GELU_10:
        return sk_act_within(x * sk_act_normal(x), -10, 10);
    case SK_FORMULA_GELU_TANH:
        return x * sk_act_gelu_gate(x);
    case SK_FORMULA_HARDSWISH:
        return x * sk_act_within(x + 3, 0, 6) / 6;
    case SK_FORMULA_LAPLACE:
        return sk_act_normal((x - SK_ACT_MU) / SK_ACT_SIGMA);
    case SK_FORMULA_LEAKY_RELU:
        return x < 0 ? SK_ACT_LEAK * x : x;
    case SK_FORMULA_MISH:
        return x * sk_act_tanh_softplus(x);
    case SK_FORMULA_QUICK_GELU:
        return x * sk_act_sigmoid(SK_ACT_QUICK * x);
    case SK_FORMULA_RELU:
        return x < 0 ? 0 : x;
    case SK_FORMULA_RELU2:
        y = x < 0 ? 0 : x;
        return y * y;
    case SK_FORMULA_RELU6:
        return sk_act_within(x, 0, 6);
    case SK_FORMULA_SIGMOID:
        return sk_act_sigmoid(x);
    case SK_FORMULA_SILU:
        return x * sk_act_sigmoid(x);
    case SK_FORMULA_TANH:
        return sk_act_tanh(x);
    case SK_FORMULA_LINEAR:
    case SK_N_FORMULAS:
        break;
    }
    return x;
}

SK_BOTH real sk_act_gelu_slope(real x) { return sk_act_normal(x) + x * sk_act_density(x); }

/* Of x sigmoid(u), from s = sigmoid(u) and du/dx. */
SK_BOTH real sk_act_gated_slope(real x, real s, real du) { return s * (1 + x * (1 - s) * du); }

SK_BOTH real sk_activate_slope(sk_formula f, real x)
{
    real y;
    switch (f) {
    case SK_FORMULA_GELU:
        return sk_act_gelu_slope(x);
    case SK_FORMULA_GELU_10:
        return x > 10 ? 0 : sk_act_gelu_slope(x); /* gelu(10) is 10 */
    case SK_FORMULA_GELU_TANH:
        return sk_act_gated_slope(x, sk_act_gelu_gate(x),
                                  SK_ACT_SLOPE * (1 + 3 * SK_ACT_CUBE * x * x));
    case SK_FORMULA_HARDSWISH:
        return x < -3 ? 0 : x > 3 ? 1 : x / 3 + (real)0.5;
    case SK_FORMULA_LAPLACE:
        return sk_act_density((x - SK_ACT_MU) / SK_ACT_SIGMA) / SK_ACT_SIGMA;
    case SK_FORMULA_LEAKY_RELU:
        return x > 0 ? 1 : SK_ACT_LEAK;
    case SK_FORMULA_MISH:
        y = sk_act_tanh_softplus(x);
        return y + x * sk_act_sigmoid(x) * (1 - y * y);
    case SK_FORMULA_QUICK_GELU:
        return sk_act_gated_slope(x, sk_act_sigmoid(SK_ACT_QUICK * x), SK_ACT_QUICK);
    case SK_FORMULA_RELU:
        return x > 0 ? 1 : 0;
    case SK_FORMULA_RELU2:
        return x > 0 ? 2 * x : 0;
    case SK_FORMULA_RELU6:
        return x > 0 && x < 6 ? 1 : 0;
    case SK_FORMULA_SIGMOID:
        y = sk_act_sigmoid(x);
        return y * (1 - y);
    case SK_FORMULA_SILU:
        return sk_act_gated_slope(x, sk_act_sigmoid(x), 1);
    case SK_FORMULA_TANH:
        y = sk_act_tanh(x);
        return 1 - y * y;
    case SK_FORMULA_LINEAR:
    case SK_N_FORMULAS:
        break;
    }
    return 1;
}

#endif
