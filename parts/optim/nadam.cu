/* nadam.cu - the CUDA kernel of nadam.c. */
#include "kernel/cuda/optim_pass.h"

enum { LR, BETA1, BETA2, EPS, DECAY, MOMENTUM_DECAY };
enum { M, V };

static __device__ double halves(double log_q, double t)
{
    double q = exp(log_q), q_t = exp(log_q * t), d = -expm1(log_q), d_t = -expm1(log_q * t);
    double sum = 0, half = 1, q_n = q, q_tn = q_t, below = d, above = d_t;
    for (int n = 1; n <= 30; n++) {
        half /= 2;
        sum += half / n * (below > 0 ? q_n * above / below : t);
        below += q_n * d, above += q_tn * d_t;
        q_n *= q, q_tn *= q_t;
    }
    return exp(-sum);
}

struct apply_nadam {
    enum { READS = 3, WRITES = 3, GRAD = 1, MOVES = 1, SUMS = 0, AHEAD = 0 };
    float b1, b2, eps, decay, now, past, root;

    static __device__ apply_nadam begin(const sk_facts &f)
    {
        const float *k = f.knob;
        double lr = (double)f.lr, beta = (double)k[BETA1],
               log_q = log(0.96) * (double)k[MOMENTUM_DECAY];
        double mu = beta * (1 - exp(log_q * f.step) / 2);
        double next = beta * (1 - exp(log_q * (f.step + 1)) / 2);
        double product = pow(beta, f.step) * halves(log_q, f.step);
        return {k[BETA1],
                k[BETA2],
                k[EPS],
                f.decay,
                (float)(lr * (1 - mu) / (1 - product)),
                (float)(lr * next / (1 - product * next)),
                (float)(1 / sqrt(1 - pow((double)k[BETA2], f.step)))};
    }

    __device__ void one(float &w, float grad, float *s, double *) const
    {
        float g = grad + decay * w;
        s[M] = b1 * s[M] + (1 - b1) * g;
        s[V] = b2 * s[V] + (1 - b2) * g * g;
        w -= (now * g + past * s[M]) / (sqrtf(s[V]) * root + eps);
    }
};

static sk_status apply(const sk_update_job *j, const sk_launch *l)
{
    return sk_pass<apply_nadam>("nadam", j, l);
}

extern "C" const sk_optim_kernel sk_optim_kernel_nadam = {"nadam", {apply}};
