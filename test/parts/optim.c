/* optim.c - passes of optimizers against their papers' formulas, in double. */
#include "kernel/optim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 37, STEPS = 40, WARMUP = 16 };

static int checks, bad;
static void check_at(int line, bool ok, const char *what)
{
    checks++;
    if (ok) return;
    bad++;
    printf("test/parts/optim.c:%d: %s\n", line, what);
}
#define check(x) check_at(__LINE__, (x), #x)

static void set(const sk_optim *o, sk_piece *p, const char *name, double x)
{
    int k = sk_optim_knob(o, name);
    check(k >= 0);
    if (k >= 0) p->knob[k] = (float)x;
}

static sk_piece begin(const sk_optim *o, real *w, real state[SK_MAX_STATE][N])
{
    sk_piece p = {.n = N, .param = w, .scale = 0.5F};
    for (int i = 0; i < N; i++) w[i] = (real)sin(i);
    memset(state, 0, sizeof(real[SK_MAX_STATE][N]));
    for (int s = 0; s < SK_MAX_STATE; s++) p.state[s] = state[s];
    for (int k = 0; o->knobs[k].name; k++) p.knob[k] = (float)o->knobs[k].usual;
    return p;
}

static void run(const sk_optim *o, sk_piece *p)
{
    static real grad[N];
    p->grad = grad;
    for (p->step = 1; p->step <= STEPS; p->step++) {
        for (int i = 0; i < N; i++) grad[i] = (real)cos((double)(3 * p->step + i));
        o->pass[0](p);
    }
}

/* b3 at step t of T: half-lives rise evenly from that of b1 (equation 5 of the paper, which writes
 * it with logarithms). */
static double slow(double b1, double b3, int t)
{
    double h1 = log(0.5) / log(b1), h3 = log(0.5) / log(b3), at = (double)t / WARMUP;
    return t >= WARMUP ? b3 : pow(0.5, 1 / ((1 - at) * h1 + at * h3));
}

static double ademamix(int i, double alpha)
{
    double w = (double)(real)sin(i), m = 0, s = 0, v = 0;
    for (int t = 1; t <= STEPS; t++) {
        double g = 0.5 * cos((double)(3 * t + i)), b3 = slow(0.9, 0.9999, t);
        double a = alpha * (t < WARMUP ? (double)t / WARMUP : 1);
        m = 0.9 * m + 0.1 * g;
        s = b3 * s + (1 - b3) * g;
        v = 0.999 * v + 0.001 * g * g;
        double root = sqrt(v / (1 - pow(0.999, t))) + 1e-8;
        w -= 0.01 * ((m / (1 - pow(0.9, t)) + a * s) / root + 0.1 * w);
    }
    return w;
}

static void slow_average(void)
{
    const sk_optim *o = sk_optim_find("ademamix");
    real w[N], state[SK_MAX_STATE][N];
    for (double alpha = 0; alpha < 9; alpha += 4) {
        double worst = 0;
        sk_piece p = begin(o, w, state);
        set(o, &p, "lr", 0.01);
        set(o, &p, "alpha", alpha);
        set(o, &p, "mix_warmup", WARMUP);
        run(o, &p);
        for (int i = 0; i < N; i++) worst = fmax(worst, fabs((double)w[i] - ademamix(i, alpha)));
        if (worst > 2e-5) printf("alpha %g: off by %g\n", alpha, worst);
        check(worst < 2e-5);
    }
}

/* Without the slow average it is AdamW. */
static void like_adamw(void)
{
    const sk_optim *o[] = {sk_optim_find("ademamix"), sk_optim_find("adamw")};
    real w[2][N], state[SK_MAX_STATE][N];
    for (int k = 0; k < 2; k++) {
        sk_piece p = begin(o[k], w[k], state);
        set(o[k], &p, "beta2", 0.99);
        if (!k) set(o[k], &p, "alpha", 0);
        run(o[k], &p);
    }
    for (int i = 0; i < N; i++) check(fabs((double)w[0][i] - (double)w[1][i]) < 1e-6);
}

int main(void)
{
    slow_average();
    like_adamw();
    printf("optim: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
