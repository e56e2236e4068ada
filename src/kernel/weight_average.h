/* weight_average.h - the weights of averages of weights, for the CPU and for GPUs. */
#ifndef SK_KERNEL_WEIGHT_AVERAGE_H
#define SK_KERNEL_WEIGHT_AVERAGE_H

#include <math.h>

#ifdef __CUDACC__
#define SK_BOTH static __host__ __device__ inline
#else
#define SK_BOTH static inline
#endif

/* The part of the newest weights in their exponential moving average after `updates` updates.  It
 * is debiased, as Adam's moments are: the average is that of the weights behind each update alone,
 * and after the first one it is these weights. */
SK_BOTH double sk_ema_part(double decay, double updates)
{
    return (1 - decay) / (1 - pow(decay, updates));
}

/* The average takes in the newest weights.  An average of equal numbers stays that number. */
SK_BOTH float sk_ema_step(float average, float newest, float part)
{
    return part == 1 ? newest : average + part * (newest - average);
}

/* The part of the newest iterate in an average whose weights are squares of the rate: the rate
 * rises linearly over `warmup` updates and stays.  (Sum of squares: of 1 to n it is
 * n (n + 1) (2 n + 1) / 6.) */
SK_BOTH double sk_rate_squared_part(double warmup, double updates)
{
    if (updates <= warmup) return 6 * updates / ((updates + 1) * (2 * updates + 1));
    double rise = warmup > 0 ? (warmup + 1) * (2 * warmup + 1) / (6 * warmup) : 0;
    return 1 / (rise + updates - warmup);
}

#endif
