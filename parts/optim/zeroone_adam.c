/* zeroone_adam.c - Lu et al. 2022, 0/1 Adam.  Steps are of three kinds, by their number alone:
 *
 *     dense   the second moment is updated: AdamW with the gradient of all ranks.  The first
 *             var_update_scaler steps, then as many at intervals of 2, of 4 and so on, up to step
 *             var_freeze_step
 *     local   each rank adds its own gradient to its momentum, and its momentum times the rate to
 *             what it will send; the step is that over the root of the second moment
 *     sent    the same, then ranks send what they have added up as signs (program/sent_state.c),
 *             and go on from the mean: it is the step from the weights of the last such step, and
 *             over the sum of the rates the momentum.  All others up to var_freeze_step; then at
 *             intervals that double every local_step_scaler steps, up to local_step_clipper
 *
 * Weights are `anchor`, those of the last step that was not local, less what has been added up
 * since over the root: made anew in each step, so ranks have the same bits after each that sends.
 * Both moments are corrected for their beginning at 0, the second for the number of its updates;
 * decay is decoupled, and is not sent.  Before the first dense step that is not skipped nothing
 * happens. */
#include "kernel/optim.h"

#include <math.h>

enum { FREEZE = SK_ADAMW_DECAY + 1, VAR_SCALER, LOCAL_SCALER, LOCAL_CLIPPER };
enum { M, V, U, ANCHOR, SUM };    /* U: what is sent; SUM: of all ranks */
enum { UPDATES, RATES, DIVISOR }; /* scalars: of v; added up since ranks sent; when they did */
enum { DENSE, TERM, TAKE, LOCAL };

/* The interval between updates of the second moment doubles behind so many of them. */
static bool is_dense(const double *knob, int64_t step)
{
    int64_t many = (int64_t)knob[VAR_SCALER], end = 0;
    for (int64_t every = 1;; every *= 2) {
        int64_t first = (end / every + 1) * every, last = first + (many - 1) * every;
        if (step < first) return false;
        if (step <= last) return (step - first) % every == 0;
        end = last;
    }
}

static int kind(const double *knob, int64_t step)
{
    int64_t behind = step - 1 - (int64_t)knob[FREEZE], most = (int64_t)knob[LOCAL_CLIPPER];
    if (behind < 0) return is_dense(knob, step) ? SK_STEP_DENSE : SK_STEP_SENT;
    int64_t every = 1;
    for (int64_t n = behind / (int64_t)knob[LOCAL_SCALER]; n > 0 && every < most; n--) every *= 2;
    return step % (every < most ? every : most) ? SK_STEP_LOCAL : SK_STEP_SENT;
}

static void shares(const double *knob, double share[SK_STEP_KINDS])
{
    share[SK_STEP_DENSE] = 0;
    share[SK_STEP_SENT] = 1 / knob[LOCAL_CLIPPER];
    share[SK_STEP_LOCAL] = 1 - share[SK_STEP_SENT];
}

/* The rate of the momentum as it is, which began at 0. */
static double rate(const sk_piece *p)
{
    double fix = 1 - pow((double)p->knob[SK_ADAMW_BETA1], (double)p->step);
    return (double)p->knob[SK_ADAMW_LR] / fix;
}

/* Times the root of the second moment as it is. */
static real root_by(const sk_piece *p)
{
    double b2 = (double)p->knob[SK_ADAMW_BETA2];
    return (real)(1 / sqrt(1 - pow(b2, (double)p->scalar[UPDATES])));
}

static bool begun(const sk_piece *p) { return p->scalar[UPDATES] > 0; }

static real kept(const sk_piece *p) { return 1 - p->knob[SK_ADAMW_LR] * p->knob[SK_ADAMW_DECAY]; }

static void settle(sk_piece *p)
{
    if (p->pass == DENSE) p->scalar[UPDATES]++;
    if (begun(p) && (p->pass == TERM || p->pass == LOCAL))
        p->scalar[RATES] = (float)((double)p->scalar[RATES] + rate(p));
    if (p->pass != TAKE) return;
    p->scalar[DIVISOR] = p->scalar[RATES];
    p->scalar[RATES] = 0;
}

static void dense(sk_piece *p)
{
    const float *k = p->knob;
    real b1 = k[SK_ADAMW_BETA1], b2 = k[SK_ADAMW_BETA2], eps = k[SK_ADAMW_EPS], keep = kept(p);
    real by = (real)rate(p), root = root_by(p), scale = p->scale;
    real *restrict w = p->param, *restrict m = p->state[M], *restrict v = p->state[V];
    real *restrict anchor = p->state[ANCHOR];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) { /* as sk_pass_adamw, to the bit */
        real g = grad[i] * scale;
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        w[i] = keep * w[i] - by * m[i] / (sqrtf((float)v[i]) * root + eps);
        anchor[i] = w[i];
    }
}

/* This rank's term of the sum. */
static void term(sk_piece *p)
{
    real b1 = p->knob[SK_ADAMW_BETA1], by = (real)rate(p), scale = p->scale;
    real share = begun(p) ? p->share : 0;
    real *restrict u = p->state[U];
    const real *restrict m = p->state[M], *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++)
        u[i] = share * (u[i] + by * (b1 * m[i] + (1 - b1) * (grad[i] * scale)));
}

/* SUM is the array of U, if there is one rank.  Where all rates were 0, no momentum has come. */
static void take(sk_piece *p)
{
    real eps = p->knob[SK_ADAMW_EPS], root = root_by(p), keep = kept(p);
    real rates = (real)p->scalar[DIVISOR], over = rates > 0 ? 1 / rates : 0;
    if (!begun(p)) return;
    for (int64_t i = 0; i < p->n; i++) {
        real u = p->state[SUM][i];
        real way = u / (sqrtf((float)p->state[V][i]) * root + eps);
        p->state[M][i] = u * over;
        p->param[i] = p->state[ANCHOR][i] = keep * p->state[ANCHOR][i] - way;
        p->state[U][i] = 0;
    }
}

static void local(sk_piece *p)
{
    real b1 = p->knob[SK_ADAMW_BETA1], by = (real)rate(p), scale = p->scale;
    real eps = p->knob[SK_ADAMW_EPS], root = root_by(p), keep = kept(p);
    real *restrict w = p->param, *restrict m = p->state[M], *restrict u = p->state[U];
    real *restrict anchor = p->state[ANCHOR];
    const real *restrict v = p->state[V], *restrict grad = p->grad;
    if (!begun(p)) return;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        m[i] = b1 * m[i] + (1 - b1) * (grad[i] * scale);
        u[i] += by * m[i];
        anchor[i] *= keep;
        w[i] = anchor[i] - u[i] / (sqrtf((float)v[i]) * root + eps);
    }
}

const sk_optim sk_optim_zeroone_adam = {
    .name = "zeroone-adam",
    .doc = "0/1 Adam: updates its second moment and sends 1 bit of the momentum an element ever "
           "more seldom",
    .n_state = 4,
    .state = {"m", "v", "u", "anchor"},
    .positive = 1u << V,
    .scalars = {"updates", "rates", "divisor"},
    .settle = settle,
    .settles = 1u << DENSE | 1u << TERM | 1u << TAKE | 1u << LOCAL,
    .knobs = {SK_LR(1e-3),
              SK_BETAS(0.9, 0.999),
              SK_EPS(1e-8),
              SK_DECAY(0),
              {.name = "var_freeze_step",
               .usual = 100000,
               .least = 1,
               .most = 0x1p24,
               .whole = true,
               .doc = "last step in which the second moment may be updated"},
              {.name = "var_update_scaler",
               .usual = 16,
               .least = 1,
               .most = 0x1p24,
               .whole = true,
               .doc = "updates of it before their interval doubles"},
              {.name = "local_step_scaler",
               .usual = 32678,
               .least = 1,
               .most = 0x1p24,
               .whole = true,
               .doc = "steps before the interval of sending doubles"},
              {.name = "local_step_clipper",
               .usual = 16,
               .least = 1,
               .most = 0x1p16,
               .whole = true,
               .doc = "longest interval between sendings"}},
    .pass = {dense, term, take, local},
    .sends = 1 + U,
    .sent_as = "sign",
    .n_first = 1,
    .n_sent = 2,
    .step_kind = kind,
    .kind_shares = shares,
};
