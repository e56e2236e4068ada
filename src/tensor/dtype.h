/* dtype.h - the types a tensor's elements can have.
 *
 * Kernels compute in `real`.  In skein that is float, and SK_F32 tensors hold
 * it.  The test of the ops builds graph/ and parts/op a second time with
 * SK_REAL=double: the very same kernels then run in float64, so that gradients
 * meet central differences to nine digits. */
#ifndef SK_TENSOR_DTYPE_H
#define SK_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SK_REAL
#define SK_REAL float
#endif
typedef SK_REAL real;

typedef enum sk_dtype {
    SK_F32,
    SK_BF16,
    SK_F16,
    SK_F64,
    SK_I32,
    SK_I64,
    SK_U8,
    SK_N_DTYPES
} sk_dtype;

size_t sk_dtype_size(sk_dtype t);
const char *sk_dtype_name(sk_dtype t);    /* "f32" */
const char *sk_dtype_st_name(sk_dtype t); /* "F32": as safetensors spells it */
/* Either spelling, and those of others: fp16, bfloat16, float32, half, torch.float16 ... */
bool sk_dtype_find(const char *name, sk_dtype *out);

static inline float sk_from_bf16(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint16_t sk_to_bf16(float f) /* to nearest even; NaN stays NaN */
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* To one of the two neighbours in bf16, the nearer the likelier: on the average it is x.  bits:
 * 16 of them, drawn. */
static inline uint16_t sk_to_bf16_stochastic(float f, uint32_t bits)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7f800000u) == 0x7f800000u) return sk_to_bf16(f);
    return (uint16_t)((u + (bits & 0xffffu)) >> 16);
}

/* n elements from one type to another; through float (double for f64 and integers). */
void sk_convert(void *to, sk_dtype to_type, const void *from, sk_dtype from_type, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
