/* onebit_lamb.cu - the GPU half of onebit_lamb.c. */
#include "kernel/cuda/optim_pass.h"

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
enum { M, V, FRESH, U, MEAN };
enum { WEIGHT2, STEP2, PLAIN2, MOST };
enum { COEFF, FACTOR, SCALE, NOW };

static __device__ double lamb_fixed(const sk_facts &f, int beta, double steps)
{
    return 1 - pow((double)f.knob[beta], steps);
}

/* A bias of a router has none. */
static __device__ float lamb_scalar(const sk_facts &f, int k) { return f.scalar ? f.scalar[k] : 0; }

static __device__ double lamb_between(double x, double least, double most)
{
    return x > most ? most : x < least ? least : x;
}

struct onebit_direction {
    enum { READS = 1 << M | 1 << V, WRITES = 1 << M | 1 << V | 1 << FRESH | 1 << U };
    enum { GRAD = 1, MOVES = 0, SUMS = 3, MAXIMA = 1, AHEAD = 0 };
    float b1, b2, eps, decay, fix1, fix2;

    static __device__ onebit_direction begin(const sk_facts &f)
    {
        return {f.knob[BETA1],
                f.knob[BETA2],
                f.knob[EPS],
                f.decay,
                (float)(1 / lamb_fixed(f, BETA1, f.step)),
                (float)(1 / lamb_fixed(f, BETA2, f.step))};
    }

    __device__ void one(float &w, float g, float *s, double *sum) const
    {
        s[M] = b1 * s[M] + (1 - b1) * g;
        s[V] = b2 * s[V] + (1 - b2) * g * g;
        s[U] = s[M] * fix1 / (sqrtf(s[V] * fix2) + eps) + decay * w;
        s[FRESH] = s[V];
        sum[WEIGHT2] += (double)w * (double)w;
        sum[STEP2] += (double)s[U] * (double)s[U];
        sum[PLAIN2] += (double)s[M] * (double)s[M];
    }
};

struct onebit_settle_first {
    static __device__ void settle(const sk_facts &f, float *scalar)
    {
        double w = sqrt(f.before[WEIGHT2]), u = sqrt(f.before[STEP2]);
        double m = sqrt(f.before[PLAIN2] / f.elements), beta = f.knob[COEFF_BETA];
        double now = w > 0 && u > 0 ? lamb_between(w / u, f.knob[COEFF_MIN], f.knob[COEFF_MAX]) : 1;
        scalar[NOW] = (float)now;
        scalar[COEFF] = (float)(beta * scalar[COEFF] + (1 - beta) * now);
        scalar[FACTOR] = 1;
        scalar[SCALE] = (float)(m > 0 ? 1 / m : 1);
    }
};

struct onebit_settle_sent {
    static __device__ void settle(const sk_facts &f, float *scalar)
    {
        double part = f.before[STEP2] > 0 ? sqrt(f.before[PLAIN2] / f.before[STEP2]) : 1;
        double last = scalar[FACTOR], far = f.knob[THRESHOLD];
        if (!(part <= 1)) part = 1; /* both sums may be huge */
        double factor = f.before[MOST] * part + (1 - part);
        factor = lamb_between(factor, f.knob[FACTOR_MIN], f.knob[FACTOR_MAX]);
        factor = lamb_between(factor, last * (1 - far), last * (1 + far));
        scalar[FACTOR] = (float)factor;
        scalar[NOW] = (float)((double)scalar[COEFF] * factor);
    }
};

struct onebit_apply {
    enum { READS = 1 << U, WRITES = 0, GRAD = 0, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float rate;

    static __device__ onebit_apply begin(const sk_facts &f) { return {f.lr * lamb_scalar(f, NOW)}; }
    __device__ void one(float &w, float, float *s, double *) const { w -= rate * s[U]; }
};

struct onebit_lamb_term {
    enum { READS = 1 << M, WRITES = 1 << U, GRAD = 1, MOVES = 0, SUMS = 0, AHEAD = 0 };
    float b1, share;

    static __device__ onebit_lamb_term begin(const sk_facts &f)
    {
        return {f.knob[BETA1], f.share * lamb_scalar(f, SCALE)};
    }

    __device__ void one(float &, float g, float *s, double *) const
    {
        s[U] = share * (b1 * s[M] + (1 - b1) * g);
    }
};

struct onebit_judge {
    enum { READS = 1 << M | 1 << V | 1 << FRESH | 1 << MEAN };
    enum { WRITES = 1 << M | 1 << FRESH | 1 << U };
    enum { GRAD = 0, MOVES = 0, SUMS = 3, MAXIMA = 1, AHEAD = 0 };
    float b1, b2, eps, decay, back, fix1, frozen, fix2;

    static __device__ onebit_judge begin(const sk_facts &f)
    {
        return {f.knob[BETA1],
                f.knob[BETA2],
                f.knob[EPS],
                f.decay,
                1 / lamb_scalar(f, SCALE),
                (float)(1 / lamb_fixed(f, BETA1, f.step)),
                (float)(1 / lamb_fixed(f, BETA2, (double)f.knob[FREEZE])),
                (float)(1 / lamb_fixed(f, BETA2, f.step))};
    }

    __device__ void one(float &w, float, float *s, double *sum) const
    {
        float m = s[MEAN] * back, g = (m - b1 * s[M]) / (1 - b1);
        s[FRESH] = b2 * s[FRESH] + (1 - b2) * g * g;
        float root = sqrtf(s[V] * frozen) + eps, plain = m * fix1 / root;
        double ratio = (double)(root / (sqrtf(s[FRESH] * fix2) + eps));
        s[M] = m;
        s[U] = plain + decay * w;
        sum[STEP2] += (double)s[U] * (double)s[U];
        sum[PLAIN2] += (double)plain * (double)plain;
        sum[MOST] = fmax(sum[MOST], ratio);
    }
};

static sk_status direction(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<onebit_direction>("onebit-lamb", j, l);
}

static sk_status first(const sk_update_job *j, const sk_launch *l)
{
    SK_TRY(sk_settle<onebit_settle_first>("onebit-lamb", j, l));
    return sk_pass<onebit_apply>("onebit-lamb", j, l);
}

static sk_status term(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<onebit_lamb_term>("onebit-lamb", j, l);
}

static sk_status judge(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<onebit_judge>("onebit-lamb", j, l);
}

static sk_status step(const sk_update_job *j, const sk_launch *l)
{
    SK_TRY(sk_settle<onebit_settle_sent>("onebit-lamb", j, l));
    return sk_pass<onebit_apply>("onebit-lamb", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_onebit_lamb = {
    "onebit-lamb", {direction, first, term, judge, step}};
