/* activation.h - the activation functions that a config.json may name, as in transformers' ACT2FN.
 *
 * A number stands for a name, so that a file is written with the spelling it was read with: "swish"
 * and "silu" are two activations of one formula.  The numbers are nowhere stored.  0 is none of
 * them, for settings that were not given.  prelu and xielu have parameters that are learned and are
 * not here: they are unknown, like any other word.
 *
 *     int act = sk_activation_find("gelu_new");               -1: unknown
 *     y = sk_apply(g, "act", .in = {x}, .attr = {act})->out[0];
 *
 * What the formulas compute is in kernel/activation_math.h. */
#ifndef SK_KERNEL_ACTIVATION_H
#define SK_KERNEL_ACTIVATION_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, formula).  The tanh forms of GELU differ only in the digits of their constants. */
#define SK_ACTIVATIONS(X)           \
    X(gelu, GELU)                   \
    X(gelu_10, GELU_10)             \
    X(gelu_accurate, GELU_TANH)     \
    X(gelu_fast, GELU_TANH)         \
    X(gelu_new, GELU_TANH)          \
    X(gelu_python, GELU)            \
    X(gelu_python_tanh, GELU_TANH)  \
    X(gelu_pytorch_tanh, GELU_TANH) \
    X(hardswish, HARDSWISH)         \
    X(laplace, LAPLACE)             \
    X(leaky_relu, LEAKY_RELU)       \
    X(linear, LINEAR)               \
    X(mish, MISH)                   \
    X(quick_gelu, QUICK_GELU)       \
    X(relu, RELU)                   \
    X(relu2, RELU2)                 \
    X(relu6, RELU6)                 \
    X(sigmoid, SIGMOID)             \
    X(silu, SILU)                   \
    X(swish, SILU)                  \
    X(tanh, TANH)

#define SK_FORMULAS(X) \
    X(GELU)            \
    X(GELU_10)         \
    X(GELU_TANH)       \
    X(HARDSWISH)       \
    X(LAPLACE)         \
    X(LEAKY_RELU)      \
    X(LINEAR)          \
    X(MISH)            \
    X(QUICK_GELU)      \
    X(RELU)            \
    X(RELU2)           \
    X(RELU6)           \
    X(SIGMOID)         \
    X(SILU)            \
    X(TANH)

typedef enum sk_activation { /* SK_ACT_gelu ... */
#define SK_ONE(name, formula) SK_ACT_##name,
                             SK_ACT_NONE,
                             SK_ACTIVATIONS(SK_ONE) SK_N_ACTIVATIONS
#undef SK_ONE
} sk_activation;

typedef enum sk_formula { /* SK_FORMULA_GELU ... */
#define SK_ONE(formula) SK_FORMULA_##formula,
                          SK_FORMULAS(SK_ONE) SK_N_FORMULAS
#undef SK_ONE
} sk_formula;

int sk_activation_find(const char *name);     /* -1: unknown */
const char *sk_activation_name(int act);      /* NULL for what is none */
sk_formula sk_activation_formula(double act); /* SK_N_FORMULAS for what is none */

#ifdef __cplusplus
}
#endif

#endif
