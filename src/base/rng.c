/* rng.c - a keyed permutation with O(1) seek. */
#include "base/rng.h"
#include "base/status.h"

uint64_t sk_rng_permute(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n)
{
    int half = 1;
    sk_assert(index < n);
    while (half < 32 && (1ull << (2 * half)) < n) half++;
    uint64_t mask = (1ull << half) - 1, x = index;
    do { /* at most 4 walks on average: the domain is under four times n */
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t mix = left ^ (sk_rng(seed, stream + round, right).a & mask);
            left = right, right = mix;
        }
        x = left << half | right;
    } while (x >= n);
    return x;
}
