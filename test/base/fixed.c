/* fixed.c - sums of base/fixed.h: any order, any grouping, many numbers, huge ones. */
#include "base/fixed.h"
#include "lib/check.h"

#include <stdio.h>
#include <string.h>

enum { N = 5000 };

static double drawn(int i) { return ldexp(sk_rng_uniform(1, 2, (uint64_t)i), i % 50 - 20); }

/* In `groups`, forth or back, which meet with carries or as an all-reduce adds them. */
static double sum_of(int groups, bool back, bool plain)
{
    sk_fixed all = {0, 0};
    for (int g = 0; g < groups; g++) {
        sk_fixed one = {0, 0};
        for (int i = g; i < N; i += groups) sk_fixed_add(&one, drawn(back ? N - 1 - i : i));
        if (plain) all.high += one.high, all.low += one.low;
        else sk_fixed_join(&all, one);
    }
    return sk_fixed_value(&all);
}

static void orders(void)
{
    double want = sum_of(1, false, false), near = 0;
    for (int i = 0; i < N; i++) near += drawn(i);
    check(fabs(want / near - 1) < 1e-12);
    for (int groups = 1; groups < 200; groups += 9)
        for (int how = 0; how < 4; how++) check(sum_of(groups, how & 1, how & 2) == want);
}

/* As many as a large tensor has: units of 2^-60 alone would be too many for 64 bits. */
static void many(void)
{
    sk_fixed sum = {0, 0};
    const double x = 0.75 * 0x1p-20;
    const int n = 1 << 25;
    for (int i = 0; i < n; i++) sk_fixed_add(&sum, x);
    check(sk_fixed_value(&sum) == x * n);
}

static void huge(void)
{
    const double odd[] = {NAN, INFINITY, 1e300, 0x1p42};
    for (int k = 0; k < 4; k++) {
        sk_fixed sum = {0, 0}, other = {0, 0};
        for (int i = 0; i < 20; i++) {
            sk_fixed_add(&sum, i % 2 ? 3.5 : odd[k]);
            sk_fixed_add(&other, 1);
        }
        check(isinf(sk_fixed_value(&sum)));
        sk_fixed_join(&other, sum);
        check(isinf(sk_fixed_value(&other)));
    }
}

int main(void)
{
    orders();
    many();
    huge();
    printf("fixed: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
