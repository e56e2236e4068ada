/* dtype.c - names, sizes and conversions of element types. */
#include "tensor/dtype.h"
#include "base/status.h"

#include <strings.h>

static const struct {
    const char *name, *st;
    size_t size;
} types[SK_N_DTYPES] = {
    [SK_F32] = {"f32", "F32", sizeof(real)},
    [SK_BF16] = {"bf16", "BF16", 2},
    [SK_F16] = {"f16", "F16", 2},
    [SK_F64] = {"f64", "F64", 8},
    [SK_I32] = {"i32", "I32", 4},
    [SK_I64] = {"i64", "I64", 8},
    [SK_U8] = {"u8", "U8", 1},
};

size_t sk_dtype_size(sk_dtype t) { return types[t].size; }
const char *sk_dtype_name(sk_dtype t) { return types[t].name; }
const char *sk_dtype_st_name(sk_dtype t) { return types[t].st; }

/* As other programs of the field call them. */
static const struct {
    const char *name;
    sk_dtype type;
} synonyms[] = {{"fp32", SK_F32},      {"float32", SK_F32}, {"float", SK_F32},   {"single", SK_F32},
                {"bfloat16", SK_BF16}, {"fp16", SK_F16},    {"float16", SK_F16}, {"half", SK_F16},
                {"fp64", SK_F64},      {"float64", SK_F64}, {"double", SK_F64}};

bool sk_dtype_find(const char *name, sk_dtype *out)
{
    if (!strncmp(name, "torch.", strlen("torch."))) name += strlen("torch.");
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++) {
        if (strcasecmp(name, synonyms[i].name)) continue;
        *out = synonyms[i].type;
        return true;
    }
    for (int t = 0; t < SK_N_DTYPES; t++) {
        if (strcasecmp(name, types[t].name)) continue;
        *out = (sk_dtype)t;
        return true;
    }
    return false;
}

/* Both conversions of f16 have no branches, so that loops over them are vectors.  A subnormal f16
 * is a small multiple of 2^-24, exact in f32. */
static inline float from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = h >> 10 & 31u, frac = h & 1023u, small, u;
    float f = (float)(int32_t)frac * 0x1p-24f;
    memcpy(&small, &f, sizeof small);
    u = exp == 31 ? 0x7f800000u | frac << 13 : (exp + 112) << 23 | frac << 13;
    u = sign | (exp ? u : small);
    memcpy(&f, &u, sizeof f);
    return f;
}

/* To nearest even; NaN stays NaN.  A sum with 0.5 has steps of 2^-24: it rounds what becomes a
 * subnormal f16. */
static inline uint16_t to_f16(float f)
{
    uint32_t u, half, small;
    memcpy(&u, &f, sizeof u);
    uint32_t sign = u >> 16 & 0x8000u, mag = u & 0x7fffffffu;
    memcpy(&f, &mag, sizeof f);
    f += 0.5f;
    memcpy(&small, &f, sizeof small);
    small -= 0x3f000000u;
    half = (mag + 0xfffu + (mag >> 13 & 1u) - 0x38000000u) >> 13;
    half = mag < 0x38800000u ? small : half;
    half = mag >= 0x477ff000u ? 0x7c00u : half; /* rounds to 65536 or more */
    half = mag > 0x7f800000u ? 0x7e00u : half;
    return (uint16_t)(sign | half);
}

static double load(const void *p, sk_dtype t, int64_t i)
{
    switch (t) {
    case SK_F32:
        return (double)((const real *)p)[i];
    case SK_BF16:
        return (double)sk_from_bf16(((const uint16_t *)p)[i]);
    case SK_F16:
        return (double)from_f16(((const uint16_t *)p)[i]);
    case SK_F64:
        return ((const double *)p)[i];
    case SK_I32:
        return ((const int32_t *)p)[i];
    case SK_I64:
        return (double)((const int64_t *)p)[i];
    case SK_U8:
        return ((const uint8_t *)p)[i];
    case SK_N_DTYPES:
        break;
    }
    sk_bug(SK_HERE, "a known dtype");
}

static void store(void *p, sk_dtype t, int64_t i, double x)
{
    switch (t) {
    case SK_F32:
        ((real *)p)[i] = (real)x;
        return;
    case SK_BF16:
        ((uint16_t *)p)[i] = sk_to_bf16((float)x);
        return;
    case SK_F16:
        ((uint16_t *)p)[i] = to_f16((float)x);
        return;
    case SK_F64:
        ((double *)p)[i] = x;
        return;
    case SK_I32:
        ((int32_t *)p)[i] = (int32_t)x;
        return;
    case SK_I64:
        ((int64_t *)p)[i] = (int64_t)x;
        return;
    case SK_U8:
        ((uint8_t *)p)[i] = (uint8_t)x;
        return;
    case SK_N_DTYPES:
        break;
    }
    sk_bug(SK_HERE, "a known dtype");
}

/* Those that weights, states and gradients go through, by vectors. */
static void widen_bf16(real *to, const uint16_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = (real)sk_from_bf16(from[i]);
}

static void narrow_bf16(uint16_t *to, const real *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = sk_to_bf16((float)from[i]);
}

static void widen_f16(real *restrict to, const uint16_t *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = (real)from_f16(from[i]);
}

static void narrow_f16(uint16_t *restrict to, const real *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = to_f16((float)from[i]);
}

void sk_convert(void *to, sk_dtype to_type, const void *from, sk_dtype from_type, int64_t n)
{
    if (to_type == from_type) {
        memmove(to, from, (size_t)n * sk_dtype_size(to_type));
        return;
    }
    if (to_type == SK_F32 && from_type == SK_BF16) widen_bf16(to, from, n);
    else if (to_type == SK_BF16 && from_type == SK_F32) narrow_bf16(to, from, n);
    else if (to_type == SK_F32 && from_type == SK_F16) widen_f16(to, from, n);
    else if (to_type == SK_F16 && from_type == SK_F32) narrow_f16(to, from, n);
    else
        for (int64_t i = 0; i < n; i++) store(to, to_type, i, load(from, from_type, i));
}
