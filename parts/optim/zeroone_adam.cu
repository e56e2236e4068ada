/* zeroone_adam.cu - the GPU half of zeroone_adam.c. */
#include "kernel/cuda/optim_pass.h"
#include "kernel/cuda/shared_passes.h"

enum { M, V, U, ANCHOR, SUM };
enum { UPDATES, RATES, DIVISOR };

static __device__ double zeroone_rate(const sk_facts &f)
{
    return (double)f.lr / (1 - pow((double)f.knob[SK_ADAMW_BETA1], f.step));
}

/* A bias of a router has none. */
static __device__ float zeroone_scalar(const sk_facts &f, int k)
{
    return f.scalar ? f.scalar[k] : 0;
}

static __device__ bool zeroone_begun(const sk_facts &f) { return zeroone_scalar(f, UPDATES) > 0; }

/* What all kinds of steps have in common. */
struct zeroone {
    float b1, b2, eps, by, root, keep;
    bool begun;

    static __device__ zeroone of(const sk_facts &f)
    {
        double b2 = f.knob[SK_ADAMW_BETA2];
        return {f.knob[SK_ADAMW_BETA1],
                f.knob[SK_ADAMW_BETA2],
                f.knob[SK_ADAMW_EPS],
                (float)zeroone_rate(f),
                (float)(1 / sqrt(1 - pow(b2, (double)zeroone_scalar(f, UPDATES)))),
                1 - f.lr * f.decay,
                zeroone_begun(f)};
    }
};

struct zeroone_dense {
    enum { READS = 1 << M | 1 << V, WRITES = 1 << M | 1 << V | 1 << ANCHOR };
    enum { GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    zeroone k;

    static __device__ zeroone_dense begin(const sk_facts &f) { return {zeroone::of(f)}; }

    __device__ void one(float &w, float g, float *s, double *) const
    {
        s[M] = k.b1 * s[M] + (1 - k.b1) * g;
        s[V] = k.b2 * s[V] + (1 - k.b2) * g * g;
        w = s[ANCHOR] = k.keep * w - k.by * s[M] / (sqrtf(s[V]) * k.root + k.eps);
    }
};

struct zeroone_term {
    enum { READS = 1 << M | 1 << U, WRITES = 1 << U, GRAD = 1, MOVES = 0, SUMS = 0, AHEAD = 0 };
    float b1, by, share;

    static __device__ zeroone_term begin(const sk_facts &f)
    {
        return {f.knob[SK_ADAMW_BETA1], (float)zeroone_rate(f), zeroone_begun(f) ? f.share : 0};
    }

    __device__ void one(float &, float g, float *s, double *) const
    {
        s[U] = share * (s[U] + by * (b1 * s[M] + (1 - b1) * g));
    }
};

struct zeroone_take {
    enum { READS = 1 << M | 1 << V | 1 << U | 1 << ANCHOR | 1 << SUM };
    enum { WRITES = 1 << M | 1 << U | 1 << ANCHOR, GRAD = 0, MOVES = 1, SUMS = 0, AHEAD = 0 };
    zeroone k;
    float over;

    static __device__ zeroone_take begin(const sk_facts &f)
    {
        float rates = zeroone_scalar(f, DIVISOR);
        return {zeroone::of(f), rates > 0 ? 1 / rates : 0};
    }

    __device__ void one(float &w, float, float *s, double *) const
    {
        float u = s[SUM];
        if (!k.begun) return;
        s[M] = u * over;
        w = s[ANCHOR] = k.keep * s[ANCHOR] - u / (sqrtf(s[V]) * k.root + k.eps);
        s[U] = 0;
    }
};

struct zeroone_local {
    enum { READS = 1 << M | 1 << V | 1 << U | 1 << ANCHOR };
    enum { WRITES = 1 << M | 1 << U | 1 << ANCHOR, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    zeroone k;

    static __device__ zeroone_local begin(const sk_facts &f) { return {zeroone::of(f)}; }

    __device__ void one(float &w, float g, float *s, double *) const
    {
        if (!k.begun) return;
        s[M] = k.b1 * s[M] + (1 - k.b1) * g;
        s[U] += k.by * s[M];
        s[ANCHOR] *= k.keep;
        w = s[ANCHOR] - s[U] / (sqrtf(s[V]) * k.root + k.eps);
    }
};

struct zeroone_settle_dense {
    static __device__ void settle(const sk_facts &, float *scalar) { scalar[UPDATES]++; }
};

struct zeroone_settle_own {
    static __device__ void settle(const sk_facts &f, float *scalar)
    {
        if (zeroone_begun(f)) scalar[RATES] = (float)((double)scalar[RATES] + zeroone_rate(f));
    }
};

struct zeroone_settle_take {
    static __device__ void settle(const sk_facts &, float *scalar)
    {
        scalar[DIVISOR] = scalar[RATES];
        scalar[RATES] = 0;
    }
};

static sk_status dense(const sk_update_job *j, const sk_launch *l)
{
    SK_TRY(sk_settle<zeroone_settle_dense>("zeroone-adam", j, l));
    return sk_pass<zeroone_dense>("zeroone-adam", j, l);
}

static sk_status term(const sk_update_job *j, const sk_launch *l)
{
    SK_TRY(sk_settle<zeroone_settle_own>("zeroone-adam", j, l));
    return sk_pass<zeroone_term>("zeroone-adam", j, l);
}

static sk_status take(const sk_update_job *j, const sk_launch *l)
{
    SK_TRY(sk_settle<zeroone_settle_take>("zeroone-adam", j, l));
    return sk_pass<zeroone_take>("zeroone-adam", j, l);
}

static sk_status local(const sk_update_job *j, const sk_launch *l)
{
    SK_TRY(sk_settle<zeroone_settle_own>("zeroone-adam", j, l));
    return sk_pass<zeroone_local>("zeroone-adam", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_zeroone_adam = {"zeroone-adam",
                                                                 {dense, term, take, local}};
