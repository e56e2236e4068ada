/* adasum_kernel.c - two passes over two vectors: products, then the combination.
 *
 * The compiler may contract p * a + q * b into fma(p, a, q * b) or fma(q, b, p * a), which differ:
 * two ranks with a and b swapped would drift apart.  For f32 and halves p and q are rounded to
 * float, so both products are exact in double and contraction changes nothing.  For f64 the two
 * contractions are written out and averaged. */
#include "coll/adasum_kernel.h"
#include "base/status.h"

#include <math.h>

enum { BLOCK = 512 };

typedef struct dots {
    double aa, ab, bb;
} dots;

static void dots_f32(const float *a, const float *b, int64_t n, dots *d)
{
    double aa = 0, ab = 0, bb = 0;
#pragma omp simd reduction(+ : aa, ab, bb)
    for (int64_t i = 0; i < n; i++) {
        double x = (double)a[i], y = (double)b[i];
        aa += x * x;
        ab += x * y;
        bb += y * y;
    }
    *d = (dots){d->aa + aa, d->ab + ab, d->bb + bb};
}

static void dots_f64(const double *a, const double *b, int64_t n, dots *d)
{
    double aa = 0, ab = 0, bb = 0;
#pragma omp simd reduction(+ : aa, ab, bb)
    for (int64_t i = 0; i < n; i++) {
        aa += a[i] * a[i];
        ab += a[i] * b[i];
        bb += b[i] * b[i];
    }
    *d = (dots){d->aa + aa, d->ab + ab, d->bb + bb};
}

static void mix_f32(float p, float q, const float *a, const float *b, float *out, int64_t n)
{
    double x = (double)p, y = (double)q;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) out[i] = (float)(x * (double)a[i] + y * (double)b[i]);
}

static void mix_f64(double p, double q, const double *a, const double *b, double *out, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        double one = fma(p, a[i], q * b[i]), two = fma(q, b[i], p * a[i]);
        out[i] = 0.5 * one + 0.5 * two;
    }
}

/* A stretch of floats: where it is, or a converted copy of halves. */
static const float *floats(sk_dtype type, const void *x, int64_t at, int64_t n, float *converted)
{
    if (type == SK_F32) return (const float *)x + at;
    sk_convert(converted, SK_F32, (const uint16_t *)x + at, type, n);
    return converted;
}

static void dots_block(sk_dtype type, const void *a, const void *b, int64_t at, int64_t n, dots *d)
{
    float x[BLOCK], y[BLOCK];
    if (type == SK_F64) dots_f64((const double *)a + at, (const double *)b + at, n, d);
    else dots_f32(floats(type, a, at, n, x), floats(type, b, at, n, y), n, d);
}

static void mix_half(sk_dtype type, double p, double q, const void *a, const void *b, uint16_t *out,
                     int64_t at, int64_t n)
{
    float x[BLOCK], y[BLOCK];
    mix_f32((float)p, (float)q, floats(type, a, at, n, x), floats(type, b, at, n, y), x, n);
    sk_convert(out + at, type, x, SK_F32, n);
}

static void mix_block(sk_dtype type, double p, double q, const void *a, const void *b, void *out,
                      int64_t at, int64_t n)
{
    if (type == SK_F64)
        mix_f64(p, q, (const double *)a + at, (const double *)b + at, (double *)out + at, n);
    else if (type == SK_F32)
        mix_f32((float)p, (float)q, (const float *)a + at, (const float *)b + at, (float *)out + at,
                n);
    else mix_half(type, p, q, a, b, out, at, n);
}

bool sk_adasum_can(sk_dtype type)
{
    return type == SK_F32 || type == SK_F64 || type == SK_BF16 || type == SK_F16;
}

void sk_adasum(sk_dtype type, const void *a, const void *b, void *out, int64_t n)
{
    sk_assert(sk_adasum_can(type));
    dots d = {0, 0, 0};
    for (int64_t at = 0; at < n; at += BLOCK)
        dots_block(type, a, b, at, n - at < BLOCK ? n - at : BLOCK, &d);
    double p = d.aa != 0 ? 1 - d.ab / (2 * d.aa) : 1, q = d.bb != 0 ? 1 - d.ab / (2 * d.bb) : 1;
    for (int64_t at = 0; at < n; at += BLOCK)
        mix_block(type, p, q, a, b, out, at, n - at < BLOCK ? n - at : BLOCK);
}
