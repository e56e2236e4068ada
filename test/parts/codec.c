/* codec.c - every codec on the shelf: sizes, what is lost at most, numbers that are not
 * finite, rows of any length, parts of a row alone. */
#include "coll/codec.h"
#include "lib/check.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = 3 * SK_CODEC_RUN + 7 };

static float x[MOST], y[MOST];
static uint8_t code[4 * MOST + 64];

/* What may be lost of an element when `top` is the largest of its block. */
static double allowed(const sk_codec *c, double v, double top)
{
    v = fabs(v);
    if (!strcmp(c->name, "bf16")) return v * 0x1p-8 + 0x1p-133;
    if (!strcmp(c->name, "f16")) return v * 0x1p-11 + 0x1p-25;
    double step = top * (1 + 0x1p-7) / (!strcmp(c->name, "int8") ? 127 : 7);
    if (!strcmp(c->name, "fp8")) step = fmax(v / 8, top * (1 + 0x1p-7) / 448 * 0x1p-9);
    return step / 2 * (1 + 1e-6) + 1e-36; /* tiny blocks become zeros */
}

static double top_of(const sk_codec *c, int64_t i, int64_t n)
{
    double top = 0;
    int64_t from = i / c->block * c->block;
    for (int64_t k = from; k < from + c->block && k < n; k++) top = fmax(top, fabs((double)x[k]));
    return top;
}

static void there_and_back(const sk_codec *c, int64_t n)
{
    int64_t bytes = sk_codec_bytes(c, n);
    memset(code, 0xa5, sizeof code);
    for (int64_t i = 0; i < n; i++) y[i] = NAN;
    sk_encode(c, x, n, code);
    check(code[bytes] == 0xa5 && code[bytes + 1] == 0xa5); /* not a byte more */
    sk_decode(c, code, n, y);
}

static void near_enough(const sk_codec *c, int64_t n, const char *what)
{
    int wrong = 0;
    there_and_back(c, n);
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)y[i] - (double)x[i]), may = allowed(c, x[i], top_of(c, i, n));
        if (off <= may) continue;
        if (!wrong++)
            printf("%s, %s: %g became %g, %g lost, %g may be\n", c->name, what, (double)x[i],
                   (double)y[i], off, may);
    }
    check(!wrong);
}

static float normal(uint64_t i)
{
    double sum = 0;
    for (uint64_t k = 0; k < 4; k++) sum += sk_rng_uniform(7, k, i) - 0.5;
    return (float)sum;
}

static void fill(float scale)
{
    for (int i = 0; i < MOST; i++) x[i] = scale * normal((uint64_t)i);
}

static void shapes(const sk_codec *c)
{
    static const int64_t lengths[] = {0,   1,   2,   3,   31,  32,   33,   127,  128,
                                      129, 255, 256, 257, 511, 1023, 1024, 1025, MOST};
    fill(1);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        near_enough(c, lengths[i], "normal numbers");
}

static void values(const sk_codec *c)
{
    bool small = !strcmp(c->name, "f16"); /* its range is */
    fill(0);
    near_enough(c, 300, "zeros");
    for (int64_t i = 0; i < 300; i++) check(y[i] == 0);
    for (int i = 0; i < MOST; i++) x[i] = -0.37F;
    near_enough(c, 300, "one number");
    fill(small ? 1e4F : 1e38F);
    near_enough(c, 999, "huge numbers");
    fill(small ? 1e-6F : 1e-30F);
    near_enough(c, 999, "tiny numbers");
    fill(1e-40F);
    near_enough(c, 999, "numbers next to nothing");
    fill(1e-3F);
    for (int i = 0; i < MOST; i += 50) x[i] = 10; /* some stand out */
    near_enough(c, 999, "few large numbers");
}

/* A step that blew up is still seen, and only its blocks are lost. */
static void not_finite(const sk_codec *c, float what)
{
    fill(1);
    x[3 * c->block / 2] = what;
    there_and_back(c, 4 * c->block);
    check(!isfinite(y[3 * c->block / 2]));
    for (int64_t i = 0; i < c->block; i++) check(isfinite(y[i]) && isfinite(y[3 * c->block + i]));
}

/* A run of whole blocks is the same alone, and where it stands in the row. */
static void runs(const sk_codec *c)
{
    static uint8_t alone[sizeof code];
    int64_t from = SK_CODEC_RUN, at = sk_codec_bytes(c, from), n = MOST - from;
    fill(1);
    there_and_back(c, MOST);
    sk_encode(c, x + from, n, alone);
    check(!memcmp(alone, code + at, (size_t)sk_codec_bytes(c, n)));
    check(sk_codec_bytes(c, MOST) == at + sk_codec_bytes(c, n));
}

int main(void)
{
    int n = 0;
    for (; sk_codec_parts[n]; n++) {
        const sk_codec *c = sk_codec_parts[n];
        check(sk_codec_find(c->name) == c && c->doc && c->block > 0 &&
              SK_CODEC_RUN % c->block == 0);
        check(sk_codec_bytes(c, 0) == 0 && sk_codec_bytes(c, 1) <= c->head + 2);
        check(sk_codec_bytes(c, 2 * c->block) == 2 * (c->head + c->block * c->bits / 8));
        shapes(c);
        values(c);
        not_finite(c, NAN);
        not_finite(c, INFINITY);
        not_finite(c, -INFINITY);
        runs(c);
    }
    check(n >= 5 && !sk_codec_find("int5"));
    check(sk_codec_bytes(sk_codec_find("int8"), 256) == 258);
    check(sk_codec_bytes(sk_codec_find("int4"), 129) == 66 + 3);
    printf("codecs: %d, %d checks, %d bad\n", n, checks, bad);
    return bad > 0;
}
