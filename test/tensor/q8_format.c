/* q8_format.c - the map of blocks of 8 bits is that of the paper, and encoding keeps its promises.
 *
 * The map is built a second time here, as Dettmers et al. describe it: decades whose cells are cut
 * evenly, each number in the middle of its cell.  Codes rise with numbers; every number is encoded
 * as itself; an element is off by half a gap at most; encoding what was decoded changes no bit. */
#include "tensor/q8_format.h"
#include "lib/check.h"

#include <float.h>
#include <math.h>

enum { MOST = 5 * SK_Q8_BLOCK + 7 };

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* All numbers of a map, sorted; returns how many. */
static int paper(sk_q8 map, double *v)
{
    int n = 0;
    v[n++] = 0, v[n++] = 1;
    for (int decade = 0; decade < 7; decade++) {
        int cells = 1 << (decade + (map == SK_Q8_UNSIGNED));
        for (int i = 0; i < cells; i++) {
            double left = 0.1 + 0.9 * i / cells, right = 0.1 + 0.9 * (i + 1) / cells;
            double x = (left + right) / 2 * pow(10, decade - 6);
            v[n++] = x;
            if (map == SK_Q8_SIGNED) v[n++] = -x;
        }
    }
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n;
}

static double number(sk_q8 map, int code)
{
    float magnitude[256];
    int most = map == SK_Q8_SIGNED ? SK_Q8_ONE_SIGNED : SK_Q8_ONE_UNSIGNED;
    for (int k = 0; k <= most; k++) magnitude[k] = sk_q8_magnitude(map, k);
    return (double)sk_q8_number(map, magnitude, (uint8_t)code);
}

static void same_map(sk_q8 map)
{
    double v[300], mine[256];
    int n = paper(map, v);
    check(n == 256);
    for (int c = 0; c < 256; c++) mine[c] = number(map, c);
    if (map == SK_Q8_UNSIGNED)
        for (int c = 1; c < 256; c++) check(mine[c] > mine[c - 1]);
    for (int c = 1; c <= SK_Q8_ONE_SIGNED && map == SK_Q8_SIGNED; c++) check(mine[c] > mine[c - 1]);
    for (int c = 130; c < 256 && map == SK_Q8_SIGNED; c++) check(mine[c] > mine[c - 1]);
    qsort(mine, 256, sizeof *mine, by_value);
    for (int i = 0; i < n; i++) check(fabs(mine[i] - v[i]) <= 6e-8 * fabs(v[i]));
    check(mine[255] == 1 && (map == SK_Q8_UNSIGNED ? mine[0] == 0 : mine[0] > -1));
}

/* Every number of the map, in a block that has 1 too. */
static void each_number(sk_q8 map, float scale)
{
    float x[256], y[256];
    char shard[4 + 256];
    for (int c = 0; c < 256; c++) x[c] = scale * (float)number(map, c);
    sk_q8_encode(map, shard, 256, 0, x, 256);
    for (int c = 0; c < 256; c++) check((uint8_t)shard[4 + c] == c);
    sk_q8_decode(map, shard, 256, 0, y, 256);
    check(!memcmp(x, y, sizeof x));
}

static double drawn(uint64_t i, double spread, bool negative)
{
    double u = sk_rng_uniform(5, 1, i), sign = negative && sk_rng_uniform(5, 2, i) < 0.5 ? -1 : 1;
    return sign * exp(spread * (u - 0.5));
}

/* The gap of the map around a number between -1 and 1. */
static double gap(sk_q8 map, double x)
{
    double v[300], low = -1, high = 1;
    int n = paper(map, v);
    for (int i = 0; i < n; i++) {
        if (v[i] <= x && v[i] > low) low = v[i];
        if (v[i] >= x && v[i] < high) high = v[i];
    }
    return high - low;
}

static float largest(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++) most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    return most;
}

static void round_trip(sk_q8 map, int64_t n, double spread, double scale)
{
    static float x[MOST], y[MOST], z[MOST];
    char shard[MOST + 4 * 6], again[MOST + 4 * 6];
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(scale * drawn((uint64_t)i, spread, map == SK_Q8_SIGNED));
    memset(shard, 1, sizeof shard), memset(again, 1, sizeof again);
    sk_q8_encode(map, shard, n, 0, x, n);
    sk_q8_decode(map, shard, n, 0, y, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / SK_Q8_BLOCK * SK_Q8_BLOCK;
        double s = (double)largest(x + at, n - at < SK_Q8_BLOCK ? n - at : SK_Q8_BLOCK);
        double one = (double)x[i] / s, off = fabs((double)y[i] / s - one);
        bool end = map == SK_Q8_UNSIGNED ? one < number(map, 1)    /* never 0 */
                                         : one < number(map, 129); /* there is no -1 */
        check(off <= (end ? 1 : 0.5) * gap(map, one) * 1.0001);
        check(map == SK_Q8_SIGNED || y[i] > 0);
    }
    sk_q8_encode(map, again, n, 0, y, n);
    check(!memcmp(shard, again, sizeof shard)); /* the same bytes, and none behind them */
    int64_t from = n > 300 ? 300 : 0;
    sk_q8_decode(map, shard, n, from, z, n - from);
    check(!memcmp(z, y + from, (size_t)(n - from) * sizeof *z));
}

/* Block by block, as the optimizer does it, is as all at once. */
static void by_blocks(void)
{
    static float x[MOST];
    char shard[MOST + 4 * 6], parts[MOST + 4 * 6];
    for (int64_t i = 0; i < MOST; i++) x[i] = (float)drawn((uint64_t)i, 9, true);
    sk_q8_encode(SK_Q8_SIGNED, shard, MOST, 0, x, MOST);
    for (int64_t i = MOST / SK_Q8_BLOCK; i >= 0; i--) {
        int64_t at = i * SK_Q8_BLOCK, n = MOST - at < SK_Q8_BLOCK ? MOST - at : SK_Q8_BLOCK;
        sk_q8_encode(SK_Q8_SIGNED, parts, MOST, at, x + at, n);
    }
    check(!memcmp(shard, parts, (size_t)sk_q8_bytes(MOST)));
}

/* The table of sk_q8_encode() against the search that GPUs make: at each middle of two numbers, and
 * at the f32 numbers on both sides of it. */
static void as_searched(sk_q8 map)
{
    float magnitude[257] = {0}, x[SK_Q8_BLOCK] = {1};
    uint8_t shard[4 + SK_Q8_BLOCK];
    int most = map == SK_Q8_SIGNED ? SK_Q8_ONE_SIGNED : SK_Q8_ONE_UNSIGNED;
    for (int k = 0; k <= most; k++) magnitude[k] = sk_q8_magnitude(map, k);
    for (int k = 0; k < most; k++) {
        float middle = sk_q8_middle(magnitude, k);
        for (int i = 1; i < SK_Q8_BLOCK; i++) {
            float a = middle * (1 + (float)(i / 4 - 32) * FLT_EPSILON / 8);
            x[i] = i % 4 > 1 && map == SK_Q8_SIGNED ? -a : i % 4 ? a : middle / (float)i;
        }
        sk_q8_encode(map, shard, SK_Q8_BLOCK, 0, x, SK_Q8_BLOCK);
        for (int i = 0; i < SK_Q8_BLOCK; i++)
            check(shard[4 + i] == sk_q8_code(map, magnitude, x[i]));
    }
}

static void odd_blocks(void)
{
    float x[SK_Q8_BLOCK] = {0}, y[SK_Q8_BLOCK];
    char shard[4 + SK_Q8_BLOCK], zeros[sizeof shard] = {0};
    sk_q8_encode(SK_Q8_SIGNED, shard, SK_Q8_BLOCK, 0, x, SK_Q8_BLOCK);
    check(!memcmp(shard, zeros, sizeof shard)); /* new state is zero bytes */
    x[3] = FLT_MIN / 2;
    sk_q8_encode(SK_Q8_UNSIGNED, shard, SK_Q8_BLOCK, 0, x, SK_Q8_BLOCK);
    check(!memcmp(shard, zeros, sizeof shard));
    const float wrong[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        x[7] = wrong[i];
        sk_q8_encode(SK_Q8_SIGNED, shard, SK_Q8_BLOCK, 0, x, SK_Q8_BLOCK);
        sk_q8_decode(SK_Q8_SIGNED, shard, SK_Q8_BLOCK, 0, y, SK_Q8_BLOCK);
        for (int k = 0; k < SK_Q8_BLOCK; k++) check(isnan(y[k]));
    }
    x[3] = 2, x[7] = -2; /* the positive one is the scale, the other the last of its side */
    sk_q8_encode(SK_Q8_SIGNED, shard, SK_Q8_BLOCK, 0, x, SK_Q8_BLOCK);
    sk_q8_decode(SK_Q8_SIGNED, shard, SK_Q8_BLOCK, 0, y, SK_Q8_BLOCK);
    check(y[3] == 2 && y[7] < -1.98F && y[7] > -2 && y[0] == 0);
}

int main(void)
{
    static const double spreads[] = {0.1, 3, 12, 40}, scales[] = {1, -3e-28, 1e-28, 1e29};
    static const int64_t counts[] = {1, 255, 256, 257, 1000, MOST};
    for (int m = SK_Q8_SIGNED; m <= SK_Q8_UNSIGNED; m++) {
        same_map((sk_q8)m);
        as_searched((sk_q8)m);
        each_number((sk_q8)m, 1);
        each_number((sk_q8)m, FLT_MIN);
        each_number((sk_q8)m, 0.3F);
        for (size_t n = 0; n < sizeof counts / sizeof *counts; n++)
            for (size_t s = 0; s < sizeof spreads / sizeof *spreads; s++)
                for (size_t k = 0; k < sizeof scales / sizeof *scales; k++)
                    if (scales[k] > 0 || m == SK_Q8_SIGNED)
                        round_trip((sk_q8)m, counts[n], spreads[s], scales[k]);
    }
    check(sk_q8_bytes(0) == 0 && sk_q8_bytes(256) == 260 && sk_q8_bytes(257) == 265);
    by_blocks();
    odd_blocks();
    printf("q8_format: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
