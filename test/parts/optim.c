/* optim.c - every optimizer against its paper's formulas, in double.
 *
 * Twenty steps over tensors of odd sizes, whole and in three shards whose sums are added between
 * the passes as the engine does, of tensors that decay and that do not, with the default numbers
 * and with others: weights are within 1e-5 of a reference that is written here, from the paper or
 * from PyTorch's documentation, over whole tensors.
 *
 *     parts_optim                           every optimizer of the table
 *     parts_optim print NAME N DECAY        weights, gradients and what the optimizer makes of
 * them, for test/oracle/optim.py */
#include "kernel/optim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1001, STEPS = 20, DELAY = 3, WARMUP = 16, LR_WARMUP = 7 };

static int checks, bad;

/* One tensor, and what a reference keeps of it. */
typedef struct tensor {
    const sk_optim *o;
    int n, t; /* t: the number of the step, from 1 on */
    bool decays;
    double knob[SK_MAX_KNOB]; /* as the part has them: of f32 */
    double w[MOST], g[MOST];  /* g: as the optimizer sees it, scaled */
    double m[MOST], v[MOST], slow[MOST], product;
    double average[MOST]; /* what evaluation reads, of an optimizer that has it */
    double fresh[MOST], anchor[MOST], coeff, factor, rates;
    int updates; /* of the second moment */
} tensor;

static double num(const tensor *x, const char *name)
{
    int k = sk_optim_knob(x->o, name);
    if (k < 0) printf("%s has no %s\n", x->o->name, name), bad++;
    return k < 0 ? 0 : x->knob[k];
}

static double norm(const double *v, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += v[i] * v[i];
    return sqrt(sum);
}

/* ---- references: one step each */

/* b^t's complement: what a moment that began at 0 lacks. */
static double fix(const tensor *x, const char *beta) { return 1 - pow(num(x, beta), x->t); }

/* The moments of Adam. */
static void moments(tensor *x)
{
    double b1 = num(x, "beta1"), b2 = num(x, "beta2");
    for (int i = 0; i < x->n; i++) {
        x->m[i] = b1 * x->m[i] + (1 - b1) * x->g[i];
        x->v[i] = b2 * x->v[i] + (1 - b2) * x->g[i] * x->g[i];
    }
}

/* L2 regularisation: decay as a part of the gradient. */
static void coupled(tensor *x)
{
    for (int i = 0; i < x->n; i++) x->g[i] += num(x, "decay") * x->w[i];
}

static void adamw(tensor *x)
{
    double lr = num(x, "lr");
    moments(x);
    for (int i = 0; i < x->n; i++) {
        double up = x->m[i] / fix(x, "beta1"), root = sqrt(x->v[i] / fix(x, "beta2"));
        x->w[i] -= lr * num(x, "decay") * x->w[i] + lr * up / (root + num(x, "eps"));
    }
}

/* b3 at step t of T: half-lives rise evenly from that of b1 (equation 5 of the paper, which writes
 * it with logarithms). */
static double slow_beta(const tensor *x)
{
    double warmup = num(x, "mix_warmup"), b3 = num(x, "beta3"), at = x->t / warmup;
    double h1 = log(0.5) / log(num(x, "beta1")), h3 = log(0.5) / log(b3);
    return x->t >= warmup ? b3 : pow(0.5, 1 / ((1 - at) * h1 + at * h3));
}

static void ademamix(tensor *x)
{
    double b3 = slow_beta(x), warmup = num(x, "mix_warmup"), lr = num(x, "lr");
    double alpha = num(x, "alpha") * (x->t < warmup ? x->t / warmup : 1);
    moments(x);
    for (int i = 0; i < x->n; i++) {
        double root = sqrt(x->v[i] / fix(x, "beta2")) + num(x, "eps");
        x->slow[i] = b3 * x->slow[i] + (1 - b3) * x->g[i];
        double up = (x->m[i] / fix(x, "beta1") + alpha * x->slow[i]) / root;
        x->w[i] -= lr * (up + num(x, "decay") * x->w[i]);
    }
}

/* 1-bit Adam on one rank, which has nothing to encode: the second moment is that of the first
 * steps, and corrected for their number. */
static void onebit_adam(tensor *x)
{
    double lr = num(x, "lr"), b1 = num(x, "beta1"), first = num(x, "freeze_step");
    if (x->t <= first) {
        adamw(x);
        return;
    }
    for (int i = 0; i < x->n; i++) {
        double root = sqrt(x->v[i] / (1 - pow(num(x, "beta2"), first)));
        x->m[i] = b1 * x->m[i] + (1 - b1) * x->g[i];
        x->w[i] -= lr * num(x, "decay") * x->w[i];
        x->w[i] -= lr * x->m[i] / fix(x, "beta1") / (root + num(x, "eps"));
    }
}

static double between(double x, double least, double most) { return fmin(fmax(x, least), most); }

/* 1-bit LAMB on one rank, algorithm 1 with the numbers of the authors' code, both moments debiased:
 * the gradient that comes back from two momenta is the gradient, and scales cancel. */
static void onebit_lamb(tensor *x)
{
    double up[MOST], plain[MOST], most = 0, lr = num(x, "lr"), first = num(x, "freeze_step");
    double b1 = num(x, "beta1"), b2 = num(x, "beta2"), eps = num(x, "eps"), now = 1;
    bool frozen = x->t > first;
    for (int i = 0; i < x->n; i++) {
        double g = x->g[i];
        x->m[i] = b1 * x->m[i] + (1 - b1) * g;
        x->fresh[i] = b2 * x->fresh[i] + (1 - b2) * g * g;
        if (!frozen) x->v[i] = x->fresh[i];
        double root = sqrt(x->v[i] / (1 - pow(b2, frozen ? first : x->t))) + eps;
        most = fmax(most, root / (sqrt(x->fresh[i] / fix(x, "beta2")) + eps));
        plain[i] = x->m[i] / fix(x, "beta1") / root;
        up[i] = plain[i] + num(x, "decay") * x->w[i];
    }
    if (!frozen) {
        if (norm(x->w, x->n) > 0 && norm(up, x->n) > 0)
            now = between(norm(x->w, x->n) / norm(up, x->n), num(x, "min_coeff"),
                          num(x, "max_coeff"));
        x->coeff = num(x, "coeff_beta") * x->coeff + (1 - num(x, "coeff_beta")) * now;
        x->factor = 1;
    } else {
        double part = fmin(1, norm(plain, x->n) / norm(up, x->n)), far = num(x, "factor_threshold");
        double factor = most * part + 1 - part;
        factor = between(factor, num(x, "factor_min"), num(x, "factor_max"));
        x->factor = between(factor, x->factor * (1 - far), x->factor * (1 + far));
        now = x->coeff * x->factor;
    }
    for (int i = 0; i < x->n; i++) x->w[i] -= lr * now * up[i];
}

/* The authors' counters: is the second moment updated in step t, and do ranks send in it? */
static bool zeroone_dense(const tensor *x)
{
    int every = 1, count = 0;
    if (x->t > num(x, "var_freeze_step")) return false;
    for (int s = 1; s <= x->t; s++) {
        if (s % every) continue;
        if (s == x->t) return true;
        if (++count == (int)num(x, "var_update_scaler")) count = 0, every *= 2;
    }
    return false;
}

static bool zeroone_sends(const tensor *x)
{
    int every = 1, count = 0;
    for (int s = (int)num(x, "var_freeze_step") + 1; s < x->t; s++)
        if (++count == (int)num(x, "local_step_scaler"))
            count = 0, every = (int)fmin(2 * every, num(x, "local_step_clipper"));
    return x->t % every == 0;
}

/* 0/1 Adam on one rank, algorithm 1, both moments debiased: `slow` is u, `anchor` x of the last
 * step that sent, which decays. */
static void zeroone_adam(tensor *x)
{
    double b1 = num(x, "beta1"), b2 = num(x, "beta2"), rate = num(x, "lr") / fix(x, "beta1");
    bool dense = zeroone_dense(x), sends = zeroone_sends(x);
    if (x->t == 1) memcpy(x->anchor, x->w, sizeof x->w);
    x->updates += dense;
    x->rates += rate;
    for (int i = 0; i < x->n; i++) {
        x->m[i] = b1 * x->m[i] + (1 - b1) * x->g[i];
        if (dense) x->v[i] = b2 * x->v[i] + (1 - b2) * x->g[i] * x->g[i];
        double root = sqrt(x->v[i] / (1 - pow(b2, x->updates))) + num(x, "eps");
        x->slow[i] += rate * x->m[i];
        x->anchor[i] *= 1 - num(x, "lr") * num(x, "decay");
        x->w[i] = x->anchor[i] - x->slow[i] / root;
        if (!dense && !sends) continue;
        if (!dense) x->m[i] = x->slow[i] / x->rates;
        x->anchor[i] = x->w[i];
        x->slow[i] = 0;
    }
    if (dense || sends) x->rates = 0;
}

static void lamb(tensor *x)
{
    double up[MOST];
    moments(x);
    for (int i = 0; i < x->n; i++) {
        double root = sqrt(x->v[i] / fix(x, "beta2"));
        up[i] = x->m[i] / fix(x, "beta1") / (root + num(x, "eps")) + num(x, "decay") * x->w[i];
    }
    double ratio = norm(x->w, x->n) / norm(up, x->n);
    for (int i = 0; i < x->n; i++) x->w[i] -= num(x, "lr") * ratio * up[i];
}

static void sgd(tensor *x)
{
    coupled(x);
    for (int i = 0; i < x->n; i++) {
        x->m[i] = num(x, "momentum") * x->m[i] + x->g[i];
        x->w[i] -= num(x, "lr") * x->m[i];
    }
}

/* PyTorch's, of a tensor of one dim. */
static void adafactor_vector(tensor *x)
{
    double part = pow(x->t, -num(x, "decay_rate")), lr = num(x, "lr"), up[MOST];
    double rms = norm(x->w, x->n) / sqrt(x->n), eps = num(x, "eps1");
    for (int i = 0; i < x->n; i++) {
        x->v[i] = (1 - part) * x->v[i] + part * x->g[i] * x->g[i];
        up[i] = x->g[i] / sqrt(fmax(x->v[i], eps * eps));
    }
    double alpha = fmax(num(x, "eps2"), rms) * fmin(lr, 1 / sqrt(x->t));
    alpha /= fmax(1, norm(up, x->n) / sqrt(x->n) / num(x, "clip_rms"));
    for (int i = 0; i < x->n; i++) x->w[i] = (1 - lr * num(x, "decay")) * x->w[i] - alpha * up[i];
}

/* A gradient that is D updates late gets what D steps of momentum would have made of it. */
static void sgd_pb(tensor *x)
{
    double mu = num(x, "momentum"), a = 1, b = 0;
    if (num(x, "compensate") > 0) a = pow(mu, DELAY), b = (1 - a) / (1 - mu);
    coupled(x);
    for (int i = 0; i < x->n; i++) {
        x->m[i] = mu * x->m[i] + x->g[i];
        x->w[i] -= num(x, "lr") * (a * x->m[i] + b * x->g[i]);
    }
}

/* Algorithm 1 of the paper; tensors that do not decay have a local rate of 1. */
static void lars(tensor *x)
{
    double w = norm(x->w, x->n), g = norm(x->g, x->n), local = 1, decay = num(x, "decay");
    if (x->decays) local = num(x, "trust") * w / (g + decay * w + num(x, "eps"));
    if (x->decays) coupled(x);
    for (int i = 0; i < x->n; i++) {
        x->m[i] = num(x, "momentum") * x->m[i] + num(x, "lr") * local * x->g[i];
        x->w[i] -= x->m[i];
    }
}

/* Algorithm 2 of the paper with its approximation; AdamW where there is no decay. */
static void mars(tensor *x)
{
    double b1 = num(x, "beta1"), *last = x->slow, was[MOST];
    double decay = x->decays ? num(x, "decay") : 0, lr = num(x, "lr");
    memcpy(was, x->g, sizeof was);
    for (int i = 0; i < x->n; i++)
        x->g[i] += x->decays ? num(x, "gamma") * b1 / (1 - b1) * (x->g[i] - last[i]) : 0;
    double length = norm(x->g, x->n);
    for (int i = 0; i < x->n; i++) x->g[i] /= x->decays ? fmax(1, length) : 1;
    memcpy(last, was, sizeof was);
    moments(x);
    for (int i = 0; i < x->n; i++) {
        double root = sqrt(x->v[i] / fix(x, "beta2")) + num(x, "eps");
        x->w[i] -= lr * (x->m[i] / fix(x, "beta1") / root + decay * x->w[i]);
    }
}

/* The base step, of whatever gradient. */
static void sam(tensor *x) { (num(x, "base") > 0 ? sgd : adamw)(x); }

/* Algorithm 1 of the paper; v is that of the tensor. */
static void novograd(tensor *x)
{
    double g = norm(x->g, x->n), b2 = num(x, "beta2");
    x->v[0] = x->t == 1 ? g * g : b2 * x->v[0] + (1 - b2) * g * g;
    for (int i = 0; i < x->n; i++) {
        double up = x->g[i] / (sqrt(x->v[0]) + num(x, "eps")) + num(x, "decay") * x->w[i];
        x->m[i] = x->t == 1 ? up : num(x, "beta1") * x->m[i] + up;
        x->w[i] -= num(x, "lr") * x->m[i];
    }
}

static void lion(tensor *x)
{
    double b1 = num(x, "beta1"), b2 = num(x, "beta2");
    for (int i = 0; i < x->n; i++) {
        double c = b1 * x->m[i] + (1 - b1) * x->g[i], sign = (c > 0) - (c < 0);
        x->m[i] = b2 * x->m[i] + (1 - b2) * x->g[i];
        x->w[i] -= num(x, "lr") * (sign + num(x, "decay") * x->w[i]);
    }
}

static void adagrad(tensor *x)
{
    coupled(x);
    for (int i = 0; i < x->n; i++) {
        x->v[i] += x->g[i] * x->g[i];
        x->w[i] -= num(x, "lr") / (sqrt(x->v[i]) + num(x, "eps")) * x->g[i];
    }
}

static void rmsprop(tensor *x)
{
    double rho = num(x, "rho");
    coupled(x);
    for (int i = 0; i < x->n; i++) {
        x->v[i] = rho * x->v[i] + (1 - rho) * x->g[i] * x->g[i];
        x->m[i] = num(x, "momentum") * x->m[i] + x->g[i] / (sqrt(x->v[i]) + num(x, "eps"));
        x->w[i] -= num(x, "lr") * x->m[i];
    }
}

static void adamax(tensor *x)
{
    double b1 = num(x, "beta1"), b2 = num(x, "beta2");
    coupled(x);
    for (int i = 0; i < x->n; i++) {
        x->m[i] = b1 * x->m[i] + (1 - b1) * x->g[i];
        x->v[i] = fmax(b2 * x->v[i], fabs(x->g[i]) + num(x, "eps"));
        x->w[i] -= num(x, "lr") / fix(x, "beta1") * x->m[i] / x->v[i];
    }
}

/* Algorithm 2 of the paper, with PyTorch's limit (5, where the paper has 4). */
static void radam(tensor *x)
{
    double b2 = num(x, "beta2"), far = 2 / (1 - b2) - 1;
    double rho = far - 2 * x->t * pow(b2, x->t) / fix(x, "beta2");
    coupled(x);
    moments(x);
    for (int i = 0; i < x->n; i++) {
        double up = x->m[i] / fix(x, "beta1");
        if (rho > 5) {
            double r = (rho - 4) * (rho - 2) * far / ((far - 4) * (far - 2) * rho);
            up *= sqrt(r * fix(x, "beta2")) / (sqrt(x->v[i]) + num(x, "eps"));
        }
        x->w[i] -= num(x, "lr") * up;
    }
}

static double nesterov(const tensor *x, int t)
{
    return num(x, "beta1") * (1 - 0.5 * pow(0.96, t * num(x, "momentum_decay")));
}

static void nadam(tensor *x)
{
    double mu = nesterov(x, x->t), next = nesterov(x, x->t + 1), lr = num(x, "lr");
    x->product = (x->t == 1 ? 1 : x->product) * mu;
    coupled(x);
    moments(x);
    for (int i = 0; i < x->n; i++) {
        double below = sqrt(x->v[i] / fix(x, "beta2")) + num(x, "eps");
        x->w[i] -= lr * (1 - mu) / (1 - x->product) * x->g[i] / below;
        x->w[i] -= lr * next / (1 - x->product * next) * x->m[i] / below;
    }
}

/* AdamWScheduleFree as the authors' code has it: y and z are kept (w, m), and x is worked out of
 * them.  The rate is that of a warmup in the weights of the average alone. */
static void schedulefree(tensor *x)
{
    double b1 = num(x, "beta1"), b2 = num(x, "beta2"), lr = num(x, "lr"), top = 0, sum = 0;
    for (int t = 1; t <= x->t; t++) {
        top = fmax(top, lr * fmin(1, t / (double)LR_WARMUP));
        sum += top * top;
    }
    double part = top * top / sum;
    for (int i = 0; i < x->n; i++) {
        double *y = &x->w[i], *z = &x->m[i];
        if (x->t == 1) *z = *y;
        x->v[i] = b2 * x->v[i] + (1 - b2) * x->g[i] * x->g[i];
        double up = x->g[i] / (sqrt(x->v[i] / fix(x, "beta2")) + num(x, "eps"));
        up += num(x, "decay") * *y;
        *y += part * (*z - *y) + lr * (b1 * (1 - part) - 1) * up;
        *z -= lr * up;
        x->average[i] = (*y - (1 - b1) * *z) / b1;
    }
}

/* The rate makes twenty steps that are about as long as the weights; `other` is a number that the
 * second round sets.  A part whose test is elsewhere has no function. */
static const struct reference {
    const char *name;
    void (*step)(tensor *x);
    double lr;
    const char *knob;
    double other;
} references[] = {
    {"adagrad", adagrad, 0.1, "eps", 0.1},
    {"adamax", adamax, 0.05, "beta2", 0.9},
    {"adam8bit", adamw, 0.05, "beta2", 0.95},
    {"adamw", adamw, 0.05, "beta2", 0.999},
    {"ademamix", ademamix, 0.05, "mix_warmup", WARMUP},
    {"lamb", lamb, 0.05, "beta1", 0.5},
    {"lars", lars, 20, "trust", 0.002},
    {"lion", lion, 0.02, "beta1", 0.95},
    {"mars", mars, 0.05, "gamma", 0.1},
    {"muon", NULL, 0, NULL, 0},      /* test/optim/matrix_ops.c */
    {"adafactor", NULL, 0, NULL, 0}, /* test/optim/matrix_state.c, and those below */
    {"kfac", NULL, 0, NULL, 0},
    {"shampoo", NULL, 0, NULL, 0},
    {"soap", NULL, 0, NULL, 0},
    {"adafactor-vector", adafactor_vector, 0.05, "decay_rate", 0.5},
    {"onebit-adam", onebit_adam, 0.05, "freeze_step", 8},
    {"onebit-lamb", onebit_lamb, 0.05, "freeze_step", 8},
    {"zeroone-adam", zeroone_adam, 0.05, "var_freeze_step", 10},
    {"nadam", nadam, 0.05, "momentum_decay", 0.3},
    {"novograd", novograd, 0.5, "beta2", 0.5},
    {"radam", radam, 0.05, "beta2", 0.7},
    {"rmsprop", rmsprop, 0.02, "momentum", 0.8},
    {"schedulefree", schedulefree, 0.05, "beta1", 0.5},
    {"sam", sam, 0.05, "base", 1}, /* two gradients: test/optim/sam.c */
    {"sgd", sgd, 0.02, "momentum", 0.5},
    {"sgd-pb", sgd_pb, 0.02, "compensate", 0},
};

/* More that the second round sets. */
static const struct {
    const char *name, *knob;
    double other;
} others[] = {
    {"onebit-lamb", "factor_max", 1.2},        {"onebit-lamb", "max_coeff", 0.5},
    {"zeroone-adam", "var_update_scaler", 3},  {"zeroone-adam", "local_step_scaler", 4},
    {"zeroone-adam", "local_step_clipper", 3},
};

static const struct reference *reference_of(const sk_optim *o)
{
    for (size_t i = 0; i < sizeof references / sizeof *references; i++)
        if (!strcmp(references[i].name, o->name)) return &references[i];
    return NULL;
}

/* ---- the part */

static tensor x;
static real weights[MOST], grads[MOST], state[SK_MAX_STATE][MOST];
static float scalars[SK_MAX_SCALAR];

static void set_knobs(const struct reference *f, bool other)
{
    memset(x.knob, 0, sizeof x.knob);
    for (int i = 0; x.o->knobs[i].name; i++) {
        const sk_knob *k = &x.o->knobs[i];
        double to = k->usual;
        if (k->role == SK_KNOB_LR) to = f->lr;
        if (!strcmp(k->name, "decay")) to = 0.1;
        if (other && !strcmp(k->name, f->knob)) to = f->other;
        for (size_t a = 0; other && a < sizeof others / sizeof *others; a++)
            if (!strcmp(others[a].name, f->name) && !strcmp(others[a].knob, k->name))
                to = others[a].other;
        if (k->role == SK_KNOB_DECAY && !x.decays) to = 0;
        x.knob[i] = (double)(float)to;
    }
}

/* Every seventh gradient is 0, as of words that do not occur. */
static void begin(const struct reference *f, const sk_optim *o, int n, bool decays, bool other)
{
    x = (tensor){.o = o, .n = n, .decays = decays};
    set_knobs(f, other);
    memset(state, 0, sizeof state);
    memset(scalars, 0, sizeof scalars);
    for (int i = 0; i < n; i++) x.w[i] = (double)(weights[i] = (real)sin(i + 1));
}

static void draw_grads(int t)
{
    for (int i = 0; i < x.n; i++) {
        double size = i % 7 == 3 ? 0 : 1 + i % 5;
        grads[i] = (real)(size * cos(3 * t + 0.7 * i));
        x.g[i] = 0.5 * (double)grads[i];
    }
    x.t = t;
}

static int kind_of_step(void)
{
    if (!x.o->sends) return SK_STEP_DENSE;
    if (x.o->step_kind) return x.o->step_kind(x.knob, x.t);
    return x.t > x.knob[x.o->first_steps - 1] ? SK_STEP_SENT : SK_STEP_DENSE;
}

/* One update in `cut` shards. */
static void update(int cut)
{
    double sum[SK_MAX_SUM] = {0};
    int kind = kind_of_step();
    bool sends = kind == SK_STEP_SENT;
    for (int pass = 0; x.o->pass[pass]; pass++) {
        double all[SK_MAX_SUM] = {0};
        if (sk_optim_kind(x.o, pass) != kind) continue;
        for (int c = 0; c < cut; c++) {
            int from = x.n * c / cut, to = x.n * (c + 1) / cut;
            sk_piece p = {.n = to - from, .scale = 0.5F, .step = x.t, .delay = DELAY};
            p.warmup = LR_WARMUP;
            p.pass = pass, p.elements = x.n;
            p.param = weights + from, p.grad = grads + from;
            for (int s = 0; s < SK_MAX_STATE; s++) p.state[s] = state[s] + from;
            for (int k = 0; k < SK_MAX_KNOB; k++) p.knob[k] = (float)x.knob[k];
            p.share = 1; /* one rank: its term is the sum */
            if (sends) p.state[x.o->n_state] = p.state[x.o->sends - 1];
            memcpy(p.sum, sum, sizeof sum);
            p.scalar = scalars;
            if (!c && sk_optim_settles(x.o, pass)) x.o->settle(&p);
            x.o->pass[pass](&p);
            for (int s = 0; s < x.o->n_sums; s++)
                all[s] = x.o->maxima >> s & 1 ? fmax(all[s], p.sum[s]) : all[s] + p.sum[s];
        }
        if (sk_optim_totals(x.o, pass)) memcpy(sum, all, sizeof sum);
    }
}

/* Both, and how far apart they are as a part of the weights; these must have moved for that to say
 * something, and the steps of one element may cancel. */
static double worst(const struct reference *f, int cut)
{
    double off = 0, moved[MOST];
    for (int t = 1; t <= STEPS; t++) {
        draw_grads(t);
        update(cut);
        f->step(&x);
    }
    for (int i = 0; i < x.n; i++) {
        double d = fabs((double)weights[i] - x.w[i]);
        off = d <= off ? off : d; /* NaN too */
        if (x.o->average)
            d = fabs((double)state[x.o->average - 1][i] - x.average[i]), off = d <= off ? off : d;
        moved[i] = x.w[i] - sin(i + 1);
    }
    if (x.n > 1 && !(norm(moved, x.n) > 0.02 * norm(x.w, x.n))) return INFINITY;
    return off / norm(x.w, x.n) * sqrt(x.n);
}

static void compare(const sk_optim *o)
{
    static const int sizes[] = {1, 37, MOST};
    const struct reference *f = reference_of(o);
    double most = 0;
    if (!f)
        printf("%s has no reference in test/parts/optim.c: write it from the paper\n", o->name),
            bad++;
    if (!f || !f->step) return;
    for (int i = 0; i < 24; i++) {
        begin(f, o, sizes[i % 3], i / 3 % 2, i / 6 % 2);
        double off = worst(f, i / 12 ? 3 : 1);
        checks++;
        most = fmax(most, off);
        if (off <= 1e-5) continue;
        bad++;
        printf("%s: %d elements, decays %d, %s %g, %d shards: off by %.2g\n", o->name, x.n,
               x.decays, f->knob, num(&x, f->knob), i / 12 ? 3 : 1, off);
    }
    printf("%-9s %.1e\n", o->name, most);
}

/* The numbers by their keys, then lines of weights, gradients and what became of the weights. */
static void print_row(const char *name, const real *v, int n)
{
    printf("%s", name);
    for (int i = 0; i < n; i++) printf(" %.9g", (double)v[i]);
    printf("\n");
}

static int print(const char *name, int n, bool decays)
{
    const sk_optim *o = sk_optim_find(name);
    const struct reference *f = o ? reference_of(o) : NULL;
    if (!f || n < 1 || n > MOST) return printf("parts_optim print NAME N DECAY\n"), 64;
    begin(f, o, n, decays, false);
    for (int i = 0; o->knobs[i].name; i++) printf("%s %.17g\n", o->knobs[i].name, x.knob[i]);
    print_row("w", weights, n);
    for (int t = 1; t <= STEPS; t++) {
        draw_grads(t);
        for (int i = 0; i < n; i++) grads[i] *= 0.5F;
        print_row("g", grads, n);
        for (int i = 0; i < n; i++) grads[i] *= 2;
        update(1);
    }
    print_row("w", weights, n);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5) return print(argv[2], atoi(argv[3]), atoi(argv[4]));
    for (const sk_optim *const *o = sk_optim_parts; *o; o++) compare(*o);
    printf("optim: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
