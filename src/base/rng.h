/* rng.h - numbers that depend on where they are used, not on who asks first.
 *
 * Randomness in skein has no state.  A value is a function of (seed, stream,
 * index): the stream names the use (a tensor, a node and a step), the index is
 * the logical position of the element.  So a tensor cut over ranks draws the
 * same numbers as a whole one, and resuming needs no saved generator.
 * Philox-2x64 with six rounds (Salmon et al. 2011). */
#ifndef SK_BASE_RNG_H
#define SK_BASE_RNG_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define SK_BOTH static __host__ __device__ inline
#else
#define SK_BOTH static inline
#endif

typedef struct sk_draw {
    uint64_t a, b;
} sk_draw;

SK_BOTH sk_draw sk_rng(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint64_t x = index, y = stream, k = seed * 0x9E3779B97F4A7C15u + 0x243F6A8885A308D3u;
    for (int i = 0; i < 6; i++) {
        __extension__ unsigned __int128 p = (unsigned __int128)x * 0xD2B74407B1CE6E93u;
        uint64_t hi = (uint64_t)(p >> 64);
        x = hi ^ k ^ y;
        y = (uint64_t)p;
        k += 0x9E3779B97F4A7C15u;
    }
    return (sk_draw){x, y};
}

/* [0, 1) */
SK_BOTH double sk_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(sk_rng(seed, stream, index).a >> 11) * 0x1p-53;
}

static inline double sk_rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    sk_draw d = sk_rng(seed, stream, index);
    double u = ((double)(d.a >> 11) + 0.5) * 0x1p-53, v = (double)(d.b >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* A permutation of [0, n) evaluated at one index, keyed: O(1) seek into a shuffle.
 * A Feistel network over the next even power of two, walked until it lands inside. */
uint64_t sk_rng_permute(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);

#endif
