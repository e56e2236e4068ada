/* stochastic_rounding.h - optimizer state in bf16 is rounded by random bits; only GPU halves of
 * optimizers include it.
 *
 * The bits of an element depend on its logical index, the tensor's name, the seed and the step, as
 * on the CPU (run/cpu/optim_passes.c), so no layout changes them. */
#ifndef SK_KERNEL_STOCHASTIC_ROUNDING_H
#define SK_KERNEL_STOCHASTIC_ROUNDING_H

#include "base/rng.h"
#include "kernel/cuda/cuda.h"
#include "kernel/optim_kernel.h"

/* As base/zigzag.c. */
static __device__ inline int64_t sk_zigzag_there(int64_t i, int64_t time, int p)
{
    if (p <= 1) return i;
    int64_t r = ((i + 1) * p - 1) / time, from = time * r / p, to = time * (r + 1) / p;
    int64_t early = (from + 1) / 2, middle = from + (to + 1) / 2 - early;
    return i < middle ? early + i - from : time - to / 2 + i - middle;
}

/* As sk_logical(). */
static __device__ __noinline__ int64_t sk_logical_there(const sk_view *v, int64_t i)
{
    int64_t index = 0, step = 1;
    for (int k = v->n - 1; k >= 0; k--) {
        int64_t at = v->at[k] + i % v->size[k];
        index += (v->zigzag[k] ? sk_zigzag_there(at, v->full[k], v->zigzag[k]) : at) * step;
        i /= v->size[k];
        step *= v->full[k];
    }
    return index;
}

/* Is the shard one run of the logical tensor? */
static __device__ inline bool sk_is_run(const sk_view *v)
{
    bool run = true;
    for (int k = 0; k < v->n; k++)
        run = run && !v->zigzag[k] && (!k || (!v->at[k] && v->size[k] == v->full[k]));
    return run;
}

typedef struct sk_rounding {
    uint64_t key[SK_MAX_STATE];
    const sk_view *shape;
    int64_t first, row; /* logical index of the shard, if it is a run; size of the last dim */
    bool run;
} sk_rounding;

/* The random bits of the element at a logical index: the low 16 of the result. */
static __device__ inline uint64_t sk_rounding_bits(uint64_t key, uint64_t at)
{
    return sk_rng(key, 0, at / 4).a >> 16 * (at % 4);
}

/* The random bits of four places in a row, from `at` on. */
static __device__ inline uint64_t sk_rounding_from(uint64_t key, uint64_t at)
{
    uint64_t bits = sk_rounding_bits(key, at);
    int known = 16 * (4 - (int)(at % 4));
    return known == 64 ? bits : bits | sk_rng(key, 0, at / 4 + 1).a << known;
}

/* Random bits of the elements i to i + 3 of a shard whose next row begins among them. */
static __device__ __noinline__ uint64_t sk_rounding_across(const sk_rounding *l, int s, int64_t i,
                                                           int64_t n)
{
    uint64_t bits = 0;
    for (int e = 0; e < 4 && i + e < n; e++)
        bits |= (sk_rounding_bits(l->key[s], (uint64_t)sk_logical_there(l->shape, i + e)) & 0xffff)
                << 16 * e;
    return bits;
}

/* As sk_to_bf16_stochastic(). */
static __device__ inline unsigned short sk_drawn(float f, unsigned bits)
{
    unsigned u = __float_as_uint(f);
    if ((u & 0x7f800000u) == 0x7f800000u)
        return (unsigned short)(u >> 16 | (u & 0x7fffffu ? 0x40u : 0));
    return (unsigned short)((u + (bits & 0xffffu)) >> 16);
}

/* The keys of one update of a shard. */
static __device__ inline void sk_rounding_begin(const sk_update_job *j, const sk_update *p,
                                                int64_t step, sk_rounding *l)
{
    const sk_view *v = l->shape = &p->shape;
    l->run = sk_is_run(v);
    l->row = v->n ? v->size[v->n - 1] : 1;
    l->first = l->run ? sk_logical_there(v, 0) : 0;
    for (int s = 0; s < SK_MAX_STATE; s++)
        l->key[s] = sk_rng(j->seed, p->name, (uint64_t)step * SK_ROUNDED_STATES + (uint64_t)s).a;
}

#endif
