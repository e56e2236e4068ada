/* Activation functions: names, and every formula and its slope in float against the textbook in
 * double, from where all of them are flat to where all are straight.  The samples of the ops stay
 * within (-1, 1), where no kink but that at 0 shows. */
#include "kernel/activation_math.h"

#include <math.h>
#include <stdio.h>

static int n_checks, n_bad;

#define CHECK(ok, ...)                          \
    do {                                        \
        n_checks++;                             \
        if (ok) break;                          \
        n_bad++, printf("line %d: ", __LINE__); \
        printf(__VA_ARGS__), printf("\n");      \
    } while (0)

static double tanh_gelu(double x, double c)
{
    return 0.5 * x * (1 + tanh(c * (x + 0.044715 * x * x * x)));
}
static double gelu(double x) { return 0.5 * x * erfc(-x / sqrt(2)); }
static double gelu_10(double x) { return fmin(fmax(gelu(x), -10), 10); }
static double gelu_new(double x) { return tanh_gelu(x, sqrt(2 / acos(-1))); }
static double gelu_fast(double x) { return tanh_gelu(x, 0.7978845608); }
static double hardswish(double x) { return x * fmin(fmax(x + 3, 0), 6) / 6; }
static double laplace(double x) { return 0.5 * (1 + erf((x - 0.707107) / (0.282095 * sqrt(2)))); }
static double leaky_relu(double x) { return x < 0 ? 0.01 * x : x; }
static double linear(double x) { return x; }
static double mish(double x) { return x * tanh(log1p(exp(x))); }
static double quick_gelu(double x) { return x / (1 + exp(-1.702 * x)); }
static double relu(double x) { return fmax(x, 0); }
static double relu2(double x) { return pow(fmax(x, 0), 2); }
static double relu6(double x) { return fmin(fmax(x, 0), 6); }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double silu(double x) { return x / (1 + exp(-x)); }

/* As transformers 4.57 and 5 have them. */
static const struct {
    const char *name;
    double (*f)(double x);
} book[] = {
    {"gelu", gelu},
    {"gelu_10", gelu_10},
    {"gelu_accurate", gelu_new},
    {"gelu_fast", gelu_fast},
    {"gelu_new", gelu_new},
    {"gelu_python", gelu},
    {"gelu_python_tanh", gelu_new},
    {"gelu_pytorch_tanh", gelu_new},
    {"hardswish", hardswish},
    {"laplace", laplace},
    {"leaky_relu", leaky_relu},
    {"linear", linear},
    {"mish", mish},
    {"quick_gelu", quick_gelu},
    {"relu", relu},
    {"relu2", relu2},
    {"relu6", relu6},
    {"sigmoid", sigmoid},
    {"silu", silu},
    {"swish", silu},
    {"tanh", tanh},
};

static void names(void)
{
    int n = (int)(sizeof book / sizeof *book);
    CHECK(n == SK_N_ACTIVATIONS - 1, "%d activations, %d in the book", SK_N_ACTIVATIONS - 1, n);
    for (int i = 0; i < n; i++) {
        int act = sk_activation_find(book[i].name);
        const char *back = act < 0 ? NULL : sk_activation_name(act);
        CHECK(back && !strcmp(back, book[i].name), "%s comes back as %s", book[i].name,
              back ? back : "unknown");
    }
    static const char *const unknown[] = {"prelu", "xielu", "", "GELU", "gelu_", "none"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        CHECK(sk_activation_find(unknown[i]) == -1, "'%s' is known", unknown[i]);
    CHECK(!sk_activation_name(0) && !sk_activation_name(-1) && !sk_activation_name(1000), "a name");
    CHECK(sk_activation_formula(0) == SK_N_FORMULAS && sk_activation_formula(NAN) == SK_N_FORMULAS,
          "a formula");
}

/* Small results as exact as large ones: what is lost is relative, but for what is below any use. */
static bool near(double got, double want, double slack)
{
    return fabs(got - want) <= slack * fabs(want) + 1e-12;
}

static void sweep(int i)
{
    sk_formula f = sk_activation_formula(sk_activation_find(book[i].name));
    double h = 1e-6, worst = 0, worst_slope = 0, at = 0, at_slope = 0;
    for (int k = -24000; k <= 24000; k++) {
        float x = (float)k * 1e-3f + 1e-5f; /* beside every kink */
        double want = book[i].f(x), d = (book[i].f(x + h) - book[i].f(x - h)) / (2 * h);
        double off = fabs(sk_activate(f, x) - want), off_slope = fabs(sk_activate_slope(f, x) - d);
        off /= fabs(want) + 1e-6, off_slope /= 1 + fabs(d);
        if (off > worst) worst = off, at = x;
        if (off_slope > worst_slope) worst_slope = off_slope, at_slope = x;
    }
    CHECK(worst < 4e-6, "%s at %g: off by %.3g of the value", book[i].name, at, worst);
    CHECK(worst_slope < 1e-6, "slope of %s at %g: off by %.3g", book[i].name, at_slope,
          worst_slope);
}

/* Far out there is neither NaN nor infinity that was not put in. */
static void far_out(int i)
{
    static const float place[] = {0, 50, 89, 200, 1e4f, 1e9f};
    sk_formula f = sk_activation_formula(sk_activation_find(book[i].name));
    for (size_t k = 0; k < sizeof place / sizeof *place; k++)
        for (int sign = -1; sign <= 1; sign += 2) {
            float x = (float)sign * place[k], y = sk_activate(f, x);
            double want = strcmp(book[i].name, "mish") || x < 50 ? book[i].f(x) : x;
            CHECK(near(y, want, 1e-6), "%s of %g is %g, not %g", book[i].name, x, y, want);
            CHECK(isfinite(sk_activate_slope(f, x)), "slope of %s at %g", book[i].name, x);
        }
    CHECK(isnan(sk_activate(f, NAN)), "%s loses NaN", book[i].name);
}

int main(void)
{
    names();
    for (int i = 0; i < (int)(sizeof book / sizeof *book); i++) sweep(i), far_out(i);
    printf("activation: %d checks, %d bad\n", n_checks, n_bad);
    return n_bad != 0;
}
