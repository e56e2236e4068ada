/* train_scale.c - the scale of gradients: halved, doubled, at its ends; and when a run gives up. */
#include "lib/check.h"
#include "train/scale.h"

#include <math.h>
#include <stdio.h>

static int forgiven(sk_scale *s, int most)
{
    int n = 0;
    while (n < most && sk_scale_step(s, false)) n++;
    return n;
}

static void begins(void)
{
    check(sk_scale_begin(SK_F16, false, 512).value == 128);
    check(sk_scale_begin(SK_F16, false, 1000).value == 64); /* a power of two: nothing is rounded */
    check(sk_scale_begin(SK_F16, false, 0).value == 65536);
    check(sk_scale_begin(SK_F16, false, 1 << 22).value == 1.0 / 64);
    check(sk_scale_begin(SK_BF16, true, 512).value == 1);
    check(sk_scale_begin(SK_F32, false, 512).value == 1);
}

static void halves_and_doubles(void)
{
    sk_scale s = sk_scale_begin(SK_F16, false, 512);
    check(sk_scale_step(&s, false) && s.value == 64 && s.skips == 1);
    for (int i = 0; i < SK_SCALE_GOOD - 1; i++) check(sk_scale_step(&s, true));
    check(s.value == 64 && s.skips == 0);
    check(sk_scale_step(&s, false) && s.value == 32); /* the count of good ones begins anew */
    for (int i = 0; i < SK_SCALE_GOOD - 1; i++) check(sk_scale_step(&s, true));
    check(s.value == 32);
    check(sk_scale_step(&s, true) && s.value == 64 && s.good == 0);
}

static void ends(void)
{
    sk_scale s = sk_scale_begin(SK_F16, false, 1);
    for (int i = 0; i < 40 * SK_SCALE_GOOD; i++) sk_scale_step(&s, true);
    check(s.value == ldexp(1, 30));
    for (int i = 0; i < 70; i++) { /* never many in a row */
        check(sk_scale_step(&s, false) == (i < 60));
        sk_scale_step(&s, true);
    }
    check(s.value == ldexp(1, -30));
}

static void gives_up(void)
{
    sk_scale f16 = sk_scale_begin(SK_F16, false, 1), stop = sk_scale_begin(SK_BF16, false, 1),
             skip = sk_scale_begin(SK_BF16, true, 1);
    check(forgiven(&f16, 100) == SK_SCALE_SKIPS);
    check(forgiven(&stop, 100) == 0 && stop.value == 1);
    check(forgiven(&skip, 100) == SK_SCALE_SKIPS && skip.value == 1);
    for (int i = 0; i < 2 * SK_SCALE_GOOD; i++) check(sk_scale_step(&skip, true));
    check(skip.value == 1);
}

int main(void)
{
    begins();
    halves_and_doubles();
    ends();
    gives_up();
    printf("scale: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
