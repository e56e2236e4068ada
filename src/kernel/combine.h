/* combine.h - elements that are sums of others, each times a number: the steps of synchronisations
 * of replicas (program/sync.h), for the CPU and for GPUs. */
#ifndef SK_KERNEL_COMBINE_H
#define SK_KERNEL_COMBINE_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define SK_COMBINE_BOTH static __host__ __device__ inline
#else
#define SK_COMBINE_BOTH static inline
#endif

enum { SK_COMBINE_IN = 4, SK_COMBINE_OUT = 3 };

/* out[o][i] = sum over k of by[o][k] in[k][i].  An output may be one of the inputs. */
typedef struct sk_combine {
    int n_in, n_out;
    float by[SK_COMBINE_OUT][SK_COMBINE_IN];
} sk_combine;

/* A product and its sum are rounded once, on CPUs as on GPUs. */
SK_COMBINE_BOTH float sk_combine_add(float sum, float by, float x) { return fmaf(by, x, sum); }

/* Terms are added in their order; one times 0 is none, also if it is not finite. */
SK_COMBINE_BOTH float sk_combine_one(const float *by, const float *x, int n)
{
    float sum = 0;
    for (int k = 0; k < n; k++)
        if (by[k] != 0) sum = sk_combine_add(sum, by[k], x[k]);
    return sum;
}

#endif
