/* contract_axes.h - letters of a contraction (kernel/product.h) as a kernel sees them; only GPU
 * halves include it. */
#ifndef SK_KERNEL_CONTRACT_AXES_H
#define SK_KERNEL_CONTRACT_AXES_H

#include "kernel/product.h"

typedef struct sk_axis {
    int64_t size, step[3]; /* of a, b, out */
} sk_axis;

typedef struct sk_axes {
    int n;
    sk_axis v[2 * SK_MAX_DIM];
} sk_axes;

/* The offsets of the i-th combination: sk_letters_locate(). */
static __device__ inline void sk_axes_at(const sk_axes *l, int64_t i, int64_t at[3])
{
    at[SK_A] = at[SK_B] = at[SK_OUT] = 0;
    for (int k = l->n - 1; k >= 0; k--) {
        int64_t x = k ? i % l->v[k].size : i;
        if (k) i /= l->v[k].size;
        for (int w = 0; w < 3; w++) at[w] += x * l->v[k].step[w];
    }
}

static inline sk_axis sk_axis_of(const sk_letter *l)
{
    return sk_axis{l->size, {l->step[SK_A], l->step[SK_B], l->step[SK_OUT]}};
}

static inline sk_axes sk_axes_of(const sk_letters *l)
{
    sk_axes to = {};
    for (int i = 0; i < l->n; i++)
        if (l->v[i].size != 1) to.v[to.n++] = sk_axis_of(&l->v[i]);
    return to;
}

/* Neighbouring threads make neighbouring results: the letters of the result by falling step. */
static inline sk_axes sk_axes_out(const sk_letters by_kind[SK_N_ROLES])
{
    sk_axes to = {};
    for (int k = SK_BATCH; k <= SK_COLS; k++) {
        sk_axes more = sk_axes_of(&by_kind[k]);
        for (int i = 0; i < more.n; i++) to.v[to.n++] = more.v[i];
    }
    for (int i = 1; i < to.n; i++)
        for (int j = i; j && to.v[j].step[SK_OUT] > to.v[j - 1].step[SK_OUT]; j--) {
            sk_axis x = to.v[j];
            to.v[j] = to.v[j - 1];
            to.v[j - 1] = x;
        }
    return to;
}

#endif
