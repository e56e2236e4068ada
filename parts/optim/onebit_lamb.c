/* onebit_lamb.c - Li et al. 2021, 1-bit LAMB.  The first steps are LAMB's, with limits on the
 * coefficient of each parameter, of which a moving average is kept.  Then second moment and average
 * are frozen, and ranks send each other their momenta as signs (program/sent_state.c), each scaled
 * to an RMS of 1 as it is when that begins.  From two means in a row each rank has the gradient of
 * all as far as it came through, and of that a fresh second moment.  The coefficient is the average
 * times a factor: the largest ratio of the frozen root to the fresh one, within limits, and not far
 * from the factor before.
 *
 * Both moments are corrected for their beginning at 0, as in lamb.c.  The paper scales momenta to
 * the mean of all RMS, a common factor, which signs with scales of their own do not see. */
#include "kernel/optim.h"

#include <math.h>

enum {
    LR,
    BETA1,
    BETA2,
    EPS,
    DECAY,
    FREEZE,
    COEFF_BETA,
    COEFF_MAX,
    COEFF_MIN,
    FACTOR_MAX,
    FACTOR_MIN,
    THRESHOLD
};
enum { M, V, FRESH, U, MEAN };         /* U: a direction, or what is sent */
enum { WEIGHT2, STEP2, PLAIN2, MOST }; /* totals; in the first steps PLAIN2 is of the momentum */
enum { COEFF, FACTOR, SCALE, NOW };    /* scalars; NOW: the coefficient of this step */
enum { DIRECTION, FIRST, TERM, JUDGE, STEP };

static double fixed(const sk_piece *p, int beta, double steps)
{
    return 1 - pow((double)p->knob[beta], steps);
}

static double between(double x, double least, double most)
{
    return x > most ? most : x < least ? least : x;
}

static void direction(sk_piece *p)
{
    const float *k = p->knob;
    real b1 = k[BETA1], b2 = k[BETA2], eps = k[EPS], decay = k[DECAY], scale = p->scale;
    real fix1 = (real)(1 / fixed(p, BETA1, (double)p->step));
    real fix2 = (real)(1 / fixed(p, BETA2, (double)p->step));
    double w2 = 0, u2 = 0, m2 = 0;
    for (int64_t i = 0; i < p->n; i++) {
        real g = p->grad[i] * scale, w = p->param[i];
        real m = p->state[M][i] = b1 * p->state[M][i] + (1 - b1) * g;
        real v = p->state[V][i] = b2 * p->state[V][i] + (1 - b2) * g * g;
        real u = m * fix1 / ((real)sqrt((double)(v * fix2)) + eps) + decay * w;
        p->state[U][i] = u;
        p->state[FRESH][i] = v;
        w2 += (double)w * (double)w;
        u2 += (double)u * (double)u;
        m2 += (double)m * (double)m;
    }
    p->sum[WEIGHT2] = w2;
    p->sum[STEP2] = u2;
    p->sum[PLAIN2] = m2;
    p->sum[MOST] = 0;
}

static void settle_first(sk_piece *p)
{
    const float *k = p->knob;
    double w = sqrt(p->sum[WEIGHT2]), u = sqrt(p->sum[STEP2]);
    double m = sqrt(p->sum[PLAIN2] / (double)p->elements);
    double now = w > 0 && u > 0 ? between(w / u, (double)k[COEFF_MIN], (double)k[COEFF_MAX]) : 1;
    double beta = (double)k[COEFF_BETA];
    p->scalar[NOW] = (float)now;
    p->scalar[COEFF] = (float)(beta * (double)p->scalar[COEFF] + (1 - beta) * now);
    p->scalar[FACTOR] = 1;
    p->scalar[SCALE] = (float)(m > 0 ? 1 / m : 1);
}

static void settle_sent(sk_piece *p)
{
    const float *k = p->knob;
    double part = p->sum[STEP2] > 0 ? sqrt(p->sum[PLAIN2] / p->sum[STEP2]) : 1;
    double last = (double)p->scalar[FACTOR], far = (double)k[THRESHOLD];
    if (!(part <= 1)) part = 1; /* both sums may be huge, where no gradient came before FREEZE */
    double factor = p->sum[MOST] * part + (1 - part);
    factor = between(factor, (double)k[FACTOR_MIN], (double)k[FACTOR_MAX]);
    factor = between(factor, last * (1 - far), last * (1 + far));
    p->scalar[FACTOR] = (float)factor;
    p->scalar[NOW] = (float)((double)p->scalar[COEFF] * factor);
}

static void settle(sk_piece *p)
{
    if (p->pass == FIRST) settle_first(p);
    else settle_sent(p);
}

static void apply(sk_piece *p)
{
    real rate = p->knob[LR] * (real)p->scalar[NOW];
    real *restrict to = p->param;
    const real *restrict step = p->state[U];
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) to[i] -= rate * step[i];
}

/* This rank's term of the mean momentum, scaled. */
static void term(sk_piece *p)
{
    real b1 = p->knob[BETA1], scale = p->scale, share = p->share * p->scalar[SCALE];
    for (int64_t i = 0; i < p->n; i++)
        p->state[U][i] = share * (b1 * p->state[M][i] + (1 - b1) * (p->grad[i] * scale));
}

static void judge(sk_piece *p)
{
    const float *k = p->knob;
    real b1 = k[BETA1], b2 = k[BETA2], eps = k[EPS], decay = k[DECAY], back = 1 / p->scalar[SCALE];
    real fix1 = (real)(1 / fixed(p, BETA1, (double)p->step));
    real frozen = (real)(1 / fixed(p, BETA2, (double)k[FREEZE]));
    real fix2 = (real)(1 / fixed(p, BETA2, (double)p->step));
    double u2 = 0, plain2 = 0, most = 0;
    for (int64_t i = 0; i < p->n; i++) {
        real m = p->state[MEAN][i] * back, g = (m - b1 * p->state[M][i]) / (1 - b1);
        real fresh = p->state[FRESH][i] = b2 * p->state[FRESH][i] + (1 - b2) * g * g;
        real root = (real)sqrt((double)(p->state[V][i] * frozen)) + eps;
        double ratio = (double)(root / ((real)sqrt((double)(fresh * fix2)) + eps));
        real plain = m * fix1 / root, u = plain + decay * p->param[i];
        p->state[M][i] = m;
        p->state[U][i] = u; /* MEAN is this array where one rank sends nothing */
        u2 += (double)u * (double)u;
        plain2 += (double)plain * (double)plain;
        if (ratio > most) most = ratio;
    }
    p->sum[STEP2] = u2;
    p->sum[PLAIN2] = plain2;
    p->sum[MOST] = most;
}

const sk_optim sk_optim_onebit_lamb = {
    .name = "onebit-lamb",
    .doc = "LAMB that sends 1 bit of the momentum an element, its second moment frozen after "
           "warm-up",
    .n_state = 4,
    .n_sums = 4,
    .state = {"m", "v", "fresh", "u"},
    .positive = 1u << V | 1u << FRESH,
    .scalars = {"coeff", "factor", "scale", "now"},
    .settle = settle,
    .settles = 1u << FIRST | 1u << STEP,
    .maxima = 1u << MOST,
    .silent = 1u << TERM,
    .knobs = {SK_LR(1e-3),
              SK_BETAS(0.9, 0.999),
              SK_EPS(1e-8),
              SK_DECAY(0),
              SK_FREEZE(100000),
              {.name = "coeff_beta",
               .usual = 0.9,
               .most = SK_BELOW_ONE,
               .doc = "decay rate of the average of a parameter's coefficient"},
              {.name = "max_coeff",
               .usual = 10,
               .most = 1e6,
               .over = "min_coeff",
               .doc = "largest coefficient of a parameter in the first steps"},
              {.name = "min_coeff", .usual = 0.01, .most = 1e6, .doc = "least of these"},
              {.name = "factor_max",
               .usual = 4,
               .most = 1e6,
               .over = "factor_min",
               .doc = "most that the frozen coefficient is multiplied by"},
              {.name = "factor_min", .usual = 0.5, .most = 1e6, .doc = "least of that"},
              {.name = "factor_threshold",
               .usual = 0.1,
               .most = 1,
               .doc = "most that this factor changes in a step, as a part of it"}},
    .pass = {direction, apply, term, judge, apply},
    .sends = 1 + U,
    .sent_as = "sign",
    .n_first = 2,
    .first_steps = 1 + FREEZE,
};
