/* f16.c - conversions of f16 and f32, by vectors and one by one: every f16 there and back, and f32
 * between two neighbours to the nearer one, in the middle to the even one. */
#include "tensor/dtype.h"
#include "lib/check.h"

#include <math.h>

enum { FINITE = 0x7c00, ALL = 1 << 16 };

static float wide(uint16_t h)
{
    float f;
    sk_convert(&f, SK_F32, &h, SK_F16, 1);
    return f;
}

static uint16_t narrow(float f)
{
    uint16_t h;
    sk_convert(&h, SK_F16, &f, SK_F32, 1);
    return h;
}

/* What the bits say. */
static double value(int h)
{
    int exp = h >> 10 & 31, frac = h & 1023;
    double v = exp ? ldexp(1024 + frac, exp - 25) : ldexp(frac, -24);
    return h & 0x8000 ? -v : v;
}

static void test_there_and_back(void)
{
    static uint16_t from[ALL], back[ALL];
    static float at[ALL];
    int wrong = 0;
    for (int h = 0; h < ALL; h++) from[h] = (uint16_t)h;
    sk_convert(at, SK_F32, from, SK_F16, ALL);
    sk_convert(back, SK_F16, at, SK_F32, ALL);
    for (int h = 0; h < ALL; h++) {
        int size = h & 0x7fff;
        if (size < FINITE) wrong += (double)at[h] != value(h) || !signbit(at[h]) != !(h & 0x8000);
        else wrong += size == FINITE ? !isinf(at[h]) : !isnan(at[h]);
        wrong += size <= FINITE ? back[h] != h : back[h] != (0x7e00 | (h & 0x8000));
    }
    check(!wrong);
}

static void test_rounding(void)
{
    int wrong = 0;
    for (int h = 0; h + 1 < FINITE; h++) {
        uint16_t low = (uint16_t)h, high = (uint16_t)(h + 1), even = h & 1 ? high : low;
        float middle = (wide(low) + wide(high)) / 2; /* exact */
        wrong += narrow(middle) != even;
        wrong += narrow(nextafterf(middle, 0)) != low || narrow(nextafterf(middle, 1e9F)) != high;
        wrong += narrow(-middle) != (even | 0x8000);
    }
    check(!wrong);
}

static void test_ends(void)
{
    check(narrow(65519.996F) == 0x7bff && narrow(65520) == FINITE && narrow(1e30F) == FINITE);
    check(narrow(INFINITY) == FINITE && narrow(-INFINITY) == (FINITE | 0x8000));
    check(narrow(0x1p-149F) == 0 && narrow(-0.0F) == 0x8000);
}

int main(void)
{
    test_there_and_back();
    test_rounding();
    test_ends();
    printf("f16: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
