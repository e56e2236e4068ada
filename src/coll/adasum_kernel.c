/* adasum_kernel.c - two passes over two vectors, or over n: products, then the combination.
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

/* --- n vectors --- */

double sk_adasum_product(sk_dtype type, const void *a, const void *b, int64_t n)
{
    dots d = {0, 0, 0};
    for (int64_t at = 0; at < n; at += BLOCK)
        dots_block(type, a, b, at, n - at < BLOCK ? n - at : BLOCK, &d);
    return d.ab;
}

typedef struct joined { /* a vector on the way: the weights of the n that it is a sum of */
    double weight[SK_ADASUM_MOST];
} joined;

/* `size` is what the product would be if nothing cancelled. */
static double product(const double *products, int n, const joined *a, const joined *b, double *size)
{
    double sum = 0;
    *size = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            double term = a->weight[i] * b->weight[k] *
                          products[i < k ? sk_adasum_pair(k, i) : sk_adasum_pair(i, k)];
            sum += term;
            *size += fabs(term);
        }
    return sum;
}

/* Of a vector whose square is no more than the rounding of its terms the angle is not known: it
 * passes the other through, as a zero vector does. */
static double share(double ab, double aa, double size)
{
    return aa <= 1e-13 * size ? 1 : 1 - ab / (2 * aa);
}

static void join(const double *products, int n, joined *a, const joined *b)
{
    double size_a, size_b, size_ab;
    double aa = product(products, n, a, a, &size_a), bb = product(products, n, b, b, &size_b);
    double ab = product(products, n, a, b, &size_ab);
    double p = share(ab, aa, size_a), q = share(ab, bb, size_b);
    for (int i = 0; i < n; i++) a->weight[i] = p * a->weight[i] + q * b->weight[i];
}

void sk_adasum_weights(const double *products, int n, double *weight)
{
    sk_assert(n >= 1 && n <= SK_ADASUM_MOST);
    joined v[SK_ADASUM_MOST];
    int power = 1, left = 0;
    while (2 * power <= n) power *= 2;
    for (int i = 0; i < n; i++) {
        v[left] = (joined){{0}};
        v[left].weight[i] = 1;
        if (i < 2 * (n - power) && i % 2) join(products, n, &v[left - 1], &v[left]);
        else left++;
    }
    for (; left > 1; left /= 2)
        for (int i = 0; i < left / 2; i++) {
            joined one = v[2 * i];
            join(products, n, &one, &v[2 * i + 1]);
            v[i] = one;
        }
    for (int i = 0; i < n; i++) weight[i] = v[0].weight[i];
}

static void join_block(sk_dtype type, const char *vectors, int n, int64_t bytes,
                       const double *weight, void *out, int64_t at, int64_t m)
{
    double sum[BLOCK] = {0};
    float x[BLOCK];
    for (int k = 0; k < n; k++) {
        const char *v = vectors + k * bytes;
        const double *wide = (const double *)(const void *)v + at, w = weight[k];
        const float *narrow = type == SK_F64 ? x : floats(type, v, at, m, x);
        for (int64_t i = 0; i < m; i++)
            sum[i] += w * (type == SK_F64 ? wide[i] : (double)narrow[i]);
    }
    for (int64_t i = 0; i < m && type == SK_F64; i++) ((double *)out)[at + i] = sum[i];
    if (type == SK_F64) return;
    for (int64_t i = 0; i < m; i++) x[i] = (float)sum[i];
    sk_convert((char *)out + at * (int64_t)sk_dtype_size(type), type, x, SK_F32, m);
}

void sk_adasum_join(sk_dtype type, const void *vectors, int n, int64_t length, const double *weight,
                    void *out, int64_t from, int64_t to)
{
    sk_assert(sk_adasum_can(type));
    int64_t bytes = length * (int64_t)sk_dtype_size(type);
    for (int64_t at = from; at < to; at += BLOCK)
        join_block(type, vectors, n, bytes, weight, out, at, to - at < BLOCK ? to - at : BLOCK);
}
