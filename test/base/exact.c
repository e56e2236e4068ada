/* Sums of squares without rounding: against integers of 768 bits, in any order, cut anywhere, with
 * limbs added as ranks add them; rounding against __float128; infinities and NaNs. */
#include "base/exact.h"
#include "base/rng.h"
#include "lib/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;
__extension__ typedef __float128 quad;

enum { WORDS = 12 }; /* of 64 bits, in units of 2^-298 */

static float from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static bool same(double a, double b) { return !memcmp(&a, &b, sizeof a); }

/* ---- the plain way: one long addition a float */

static void long_add(uint64_t sum[WORDS], float x)
{
    int e;
    uint64_t m = (uint64_t)(fabs(frexp((double)x, &e)) * 0x1p24); /* x = m 2^(e - 24) */
    if (!m) return;
    int place = 2 * (e - 24) + 298, from = place < 0 ? -place : 0; /* m is even enough then */
    wide part = (wide)(m * m >> from) << (place < 0 ? 0 : place % 64), carry = 0;
    for (int k = place < 0 ? 0 : place / 64; k < WORDS && (part || carry); k++) {
        carry += (wide)sum[k] + (uint64_t)part;
        sum[k] = (uint64_t)carry;
        carry >>= 64;
        part >>= 64;
    }
}

static void long_of(const sk_exact *acc, uint64_t sum[WORDS])
{
    wide carry = 0;
    memset(sum, 0, WORDS * sizeof *sum);
    for (int k = 0; k < SK_EXACT_DIGITS; k++) {
        carry += (uint64_t)acc->limb[k];
        sum[k / 2] |= (uint64_t)(uint32_t)carry << 32 * (k % 2);
        carry >>= 32;
    }
    sum[SK_EXACT_DIGITS / 2] |= (uint64_t)carry << 32;
}

/* Half to even, bit by bit. */
static double long_value(const uint64_t sum[WORDS])
{
    int top = WORDS * 64 - 1;
    while (top >= 0 && !(sum[top / 64] >> top % 64 & 1)) top--;
    if (top < 0) return 0;
    uint64_t m = 0;
    bool half = false, rest = false;
    for (int k = top; k >= 0; k--) {
        uint64_t bit = sum[k / 64] >> k % 64 & 1;
        if (top - k < 53) m = 2 * m + bit;
        else if (top - k == 53) half = bit;
        else rest |= bit;
    }
    int n = top < 52 ? top + 1 : 53;
    if (half && (rest || m & 1)) m++;
    return ldexp((double)m, top + 1 - n - 298);
}

/* ---- numbers */

typedef enum kind { ANY, NEAR, TINY, HUGE_ONES, ZEROS, EQUAL, N_KINDS } kind;

static float number(kind k, uint64_t i)
{
    sk_draw d = sk_rng(3, (uint64_t)k, i);
    uint32_t u = (uint32_t)d.a;
    if (k == ANY) return from_bits((u >> 23 & 255) == 255 ? u & 0x7fffffffu & ~(1u << 23) : u);
    if (k == NEAR) return (float)sk_rng_normal(3, 9, i);
    if (k == TINY) return from_bits(u & 0x80ffffffu); /* denormals and the smallest others */
    if (k == HUGE_ONES) return from_bits((u & 0x807fffffu) | 0x7f000000u);
    return k == ZEROS ? u & 1 ? -0.0f : 0.0f : from_bits(0x3fffffffu);
}

static void one_kind(kind k, int64_t n)
{
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    uint64_t want[WORDS] = {0}, got[WORDS];
    sk_exact acc = {0};
    for (int64_t i = 0; i < n; i++) long_add(want, x[i] = number(k, (uint64_t)i));
    sk_exact_add_squares(&acc, x, n);
    long_of(&acc, got);
    check(!memcmp(got, want, sizeof want));
    check(same(sk_exact_value(&acc), long_value(want)));
    for (int turn = 1; turn <= 3; turn++) { /* other orders, other cuts */
        sk_exact all = {0}, raw = {0};
        float *y = malloc((size_t)(n + 1) * sizeof *y);
        for (int64_t i = 0; i < n; i++)
            y[i] = x[sk_rng_permute(5, (uint64_t)turn, (uint64_t)i, (uint64_t)n)];
        for (int64_t at = 0, step = turn; at < n; at += step, step += step / 3 + turn) {
            sk_exact part = {0};
            sk_exact_add_squares(&part, y + at, n - at < step ? n - at : step);
            sk_exact_merge(&all, &part);
            for (int j = 0; j < SK_EXACT_LIMBS; j++) raw.limb[j] += part.limb[j];
        }
        check(!memcmp(&all, &acc, sizeof acc)); /* digits are unique */
        check(same(sk_exact_value(&raw), sk_exact_value(&acc)));
        free(y);
    }
    free(x);
}

/* 2^20 accumulators with the fullest digits there are, added without a carry. */
static void head_room(void)
{
    sk_exact one = {0}, sum = {0}, doubled;
    for (int k = 0; k + 1 < SK_EXACT_DIGITS; k++) one.limb[k] = UINT32_MAX;
    doubled = one;
    for (int i = 0; i < 20; i++) {
        sk_exact same_again = doubled;
        sk_exact_merge(&doubled, &same_again);
    }
    for (int k = 0; k < SK_EXACT_LIMBS; k++) sum.limb[k] = one.limb[k] * (1 << 20);
    check(same(sk_exact_value(&sum), sk_exact_value(&doubled)));
    check(same(sk_exact_value(&sum), sk_exact_value(&one) * 0x1p20));
}

/* Sums of a few squares of like size are exact in 113 bits, and their rounding is the compiler's.
 */
static void against_quad(void)
{
    for (uint64_t i = 0; i < 20000; i++) {
        float x[4];
        quad sum = 0;
        sk_exact acc = {0};
        for (int k = 0; k < 4; k++) {
            x[k] =
                ldexpf(number(NEAR, 4 * i + (uint64_t)k), (int)(sk_rng(1, 2, i).a % 24) * (k & 1));
            sum += (quad)x[k] * (quad)x[k];
        }
        sk_exact_add_squares(&acc, x, 4);
        check(same(sk_exact_value(&acc), (double)sum));
    }
}

/* Ties: 1 + 2^-53 goes down to 1, with any bit below up. */
static void ties(void)
{
    float x[] = {1, 0x1p-27f, 0x1p-27f, 0x1p-149f};
    sk_exact acc = {0};
    sk_exact_add_squares(&acc, x, 3);
    check(sk_exact_value(&acc) == 1);
    sk_exact_add_squares(&acc, x + 3, 1);
    check(sk_exact_value(&acc) == 1 + 0x1p-52);
}

static void odd_ones(int64_t n)
{
    float *x = calloc((size_t)n, sizeof *x);
    sk_exact acc = {0}, none = {0};
    x[n / 2] = -INFINITY;
    sk_exact_add_squares(&acc, x, n);
    check(acc.limb[SK_EXACT_INF] == 1 && acc.limb[SK_EXACT_NAN] == 0);
    check(isinf(sk_exact_value(&acc)) && sk_exact_value(&acc) > 0);
    x[n - 1] = -NAN;
    sk_exact_add_squares(&acc, x, n);
    check(acc.limb[SK_EXACT_INF] == 2 && acc.limb[SK_EXACT_NAN] == 1);
    sk_exact_merge(&none, &acc);
    check(isnan(sk_exact_value(&none)));
    free(x);
}

int main(void)
{
    static const int64_t sizes[] = {0, 1, 5, 32, 33, 67, 1000, 300001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int k = 0; k < N_KINDS; k++) one_kind((kind)k, sizes[i]);
    head_room();
    against_quad();
    ties();
    odd_ones(3);
    odd_ones(70000);
    printf("base_exact: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
