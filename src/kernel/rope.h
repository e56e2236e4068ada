/* rope.h - how fast rotary positions turn, for CPU and GPU (parts/op/rope.c).
 *
 * Pair i of a head of d elements turns by pos * sk_rope_frequency(attr, i, d).  Types are those of
 * transformers' modeling_rope_utils, told apart by what is given:
 *
 *     default   theta^(-2i/d)
 *     linear    the same over `factor`: positions lie closer (Chen et al. 2023)
 *     llama3    waves longer than original / low_freq_factor are slowed by `factor`, those shorter
 *               than original / high_freq_factor are not, and between them it changes steadily
 *
 * yarn, dynamic and longrope also change the scale of attention, or go by the length of a sequence,
 * and are not here. */
#ifndef SK_KERNEL_ROPE_H
#define SK_KERNEL_ROPE_H

#include "base/rng.h" /* SK_BOTH: what a GPU computes too */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Attributes. */
enum {
    SK_ROPE_THETA,     /* the base */
    SK_ROPE_WAY,       /* +1, or -1: back, for the gradient */
    SK_ROPE_FACTOR,    /* 0: default */
    SK_ROPE_LOW_FREQ,  /* low_freq_factor */
    SK_ROPE_HIGH_FREQ, /* high_freq_factor */
    SK_ROPE_ORIGINAL,  /* original_max_position_embeddings; 0: linear */
    SK_ROPE_N_ATTR
};

SK_BOTH double sk_rope_frequency(const double *attr, int64_t pair, int64_t d)
{
    double f = attr[SK_ROPE_WAY] * pow(attr[SK_ROPE_THETA], -2.0 * (double)pair / (double)d);
    double factor = attr[SK_ROPE_FACTOR], low = attr[SK_ROPE_LOW_FREQ];
    if (factor == 0) return f;
    if (attr[SK_ROPE_ORIGINAL] == 0) return f / factor;
    double waves = attr[SK_ROPE_ORIGINAL] * fabs(f) / 6.283185307179586476925; /* in the original */
    double kept = (waves - low) / (attr[SK_ROPE_HIGH_FREQ] - low);
    if (!(waves >= low)) return f / factor;
    return kept < 1 ? kept * f + (1 - kept) * (f / factor) : f;
}

/* Can it be computed? */
SK_BOTH bool sk_rope_is(const double *attr)
{
    double low = attr[SK_ROPE_LOW_FREQ], high = attr[SK_ROPE_HIGH_FREQ];
    if (attr[SK_ROPE_FACTOR] == 0 || attr[SK_ROPE_ORIGINAL] == 0)
        return attr[SK_ROPE_FACTOR] >= 0 && attr[SK_ROPE_ORIGINAL] == 0 && low == 0 && high == 0;
    return attr[SK_ROPE_FACTOR] > 0 && attr[SK_ROPE_ORIGINAL] > 0 && low > 0 && high > low;
}

#endif
