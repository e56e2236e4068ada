/* sum_kernels.c - the kernels under the reductions.
 *
 * Written with the vector types of gcc and clang: a loop over a variable number
 * of sources, with the sums kept in registers, is not something their vectorisers
 * find by themselves.  The kernel itself stands in sum_tree.h.  Halves are
 * converted with integer arithmetic, which gives the bits of sk_convert() on any
 * processor. */
#include "coll/sum_kernels.h"
#include "base/status.h"

enum { SUM_LEVELS = 16 }; /* blocks of eight: more sources than there are ranks */

#define VECTOR(type, name, bytes) typedef type name __attribute__((vector_size(bytes)))
VECTOR(float, f32x8, 32);
VECTOR(int32_t, i32x8, 32);
VECTOR(uint32_t, u32x8, 32);
VECTOR(uint16_t, u16x8, 16);
VECTOR(double, f64x4, 32);
VECTOR(int64_t, i64x4, 32);
VECTOR(uint64_t, u64x4, 32);
VECTOR(uint8_t, u8x32, 32);

/* x where the mask is set, else y; both seen as bits */
#define PICK(bits, mask, x, y) (((bits)(mask) & (bits)(x)) | (~(bits)(mask) & (bits)(y)))

#define PLUS(a, x)        ((a) + (x))
#define PLUS_I32(a, x)    ((i32x8)((u32x8)(a) + (u32x8)(x))) /* wraps */
#define PLUS_I64(a, x)    ((i64x4)((u64x4)(a) + (u64x4)(x)))
#define MOST(bits, a, x)  PICK(bits, (x) > (a), x, a)
#define LEAST(bits, a, x) PICK(bits, (x) < (a), x, a)
/* a NaN wins, whichever side it is on */
#define MOST_F(vec, bits, a, x)  (vec) PICK(bits, ((x) > (a)) | ((x) != (x)), x, a)
#define LEAST_F(vec, bits, a, x) (vec) PICK(bits, ((x) < (a)) | ((x) != (x)), x, a)

/* Between the stored and the summed form of a vector.  Pointers, because passing vectors by
 * value has another ABI on every -march. */
#define PLAIN(type)                                                         \
    static inline void open_##type(type *a, const type *raw) { *a = *raw; } \
    static inline void shut_##type(type *raw, const type *a) { *raw = *a; }
PLAIN(f32x8)
PLAIN(i32x8)
PLAIN(f64x4)
PLAIN(i64x4)
PLAIN(u8x32)

static inline void open_bf16(f32x8 *a, const u16x8 *raw)
{
    *a = (f32x8)(__builtin_convertvector(*raw, u32x8) << 16);
}

static inline void shut_bf16(u16x8 *raw, const f32x8 *a)
{
    u32x8 u = (u32x8)*a;
    u32x8 even = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    u32x8 nan = u >> 16 | 0x40u;
    *raw = __builtin_convertvector(PICK(u32x8, (u & 0x7fffffffu) > 0x7f800000u, nan, even), u16x8);
}

static inline void open_f16(f32x8 *a, const u16x8 *raw)
{
    u32x8 h = __builtin_convertvector(*raw, u32x8);
    u32x8 mag = h & 0x7fffu, sign = (h & 0x8000u) << 16;
    u32x8 normal = (mag << 13) + (112u << 23);
    u32x8 endless = mag << 13 | 0x7f800000u; /* infinity and NaN */
    f32x8 tiny = __builtin_convertvector((i32x8)mag, f32x8) * 0x1p-24f;
    u32x8 u = PICK(u32x8, mag < 0x400u, tiny, normal);
    *a = (f32x8)(sign | PICK(u32x8, mag >= 0x7c00u, endless, u));
}

static inline void shut_f16(u16x8 *raw, const f32x8 *a)
{
    u32x8 u = (u32x8)*a, mag = u & 0x7fffffffu, sign = u >> 16 & 0x8000u;
    u32x8 normal = (mag + 0xfffu + (mag >> 13 & 1u) - 0x38000000u) >> 13;
    u32x8 tiny = (u32x8)((f32x8)mag + 0.5f) - 0x3f000000u; /* the adder rounds at 2^-24 */
    u32x8 zero = {0}, h = PICK(u32x8, mag < 0x38800000u, tiny, normal);
    h = PICK(u32x8, mag >= 0x477ff000u, zero + 0x7c00u, h);
    h = PICK(u32x8, mag > 0x7f800000u, zero + 0x7e00u, h);
    *raw = __builtin_convertvector(sign | h, u16x8);
}

typedef struct sk_sum_job {
    int n_src, n_dst;
    const void *const *src;
    void *const *dst;
    size_t bytes;
} sk_sum_job;

#define NAME(x)   f32_##x
#define RAW       f32x8
#define VEC       f32x8
#define LANE      float
#define OPEN      open_f32x8
#define SHUT      shut_f32x8
#define ADD       PLUS
#define MAX(a, x) MOST_F(f32x8, u32x8, a, x)
#define MIN(a, x) LEAST_F(f32x8, u32x8, a, x)
#include "coll/sum_tree.h"

#define NAME(x)   f64_##x
#define RAW       f64x4
#define VEC       f64x4
#define LANE      double
#define OPEN      open_f64x4
#define SHUT      shut_f64x4
#define ADD       PLUS
#define MAX(a, x) MOST_F(f64x4, u64x4, a, x)
#define MIN(a, x) LEAST_F(f64x4, u64x4, a, x)
#include "coll/sum_tree.h"

#define NAME(x)   bf16_##x
#define RAW       u16x8
#define VEC       f32x8
#define LANE      float
#define OPEN      open_bf16
#define SHUT      shut_bf16
#define ADD       PLUS
#define MAX(a, x) MOST_F(f32x8, u32x8, a, x)
#define MIN(a, x) LEAST_F(f32x8, u32x8, a, x)
#include "coll/sum_tree.h"

#define NAME(x)   f16_##x
#define RAW       u16x8
#define VEC       f32x8
#define LANE      float
#define OPEN      open_f16
#define SHUT      shut_f16
#define ADD       PLUS
#define MAX(a, x) MOST_F(f32x8, u32x8, a, x)
#define MIN(a, x) LEAST_F(f32x8, u32x8, a, x)
#include "coll/sum_tree.h"

#define NAME(x)   i32_##x
#define RAW       i32x8
#define VEC       i32x8
#define LANE      int32_t
#define OPEN      open_i32x8
#define SHUT      shut_i32x8
#define ADD       PLUS_I32
#define MAX(a, x) MOST(i32x8, a, x)
#define MIN(a, x) LEAST(i32x8, a, x)
#include "coll/sum_tree.h"

#define NAME(x)   i64_##x
#define RAW       i64x4
#define VEC       i64x4
#define LANE      int64_t
#define OPEN      open_i64x4
#define SHUT      shut_i64x4
#define ADD       PLUS_I64
#define MAX(a, x) MOST(i64x4, a, x)
#define MIN(a, x) LEAST(i64x4, a, x)
#include "coll/sum_tree.h"

#define NAME(x)   u8_##x
#define RAW       u8x32
#define VEC       u8x32
#define LANE      uint8_t
#define OPEN      open_u8x32
#define SHUT      shut_u8x32
#define ADD       PLUS
#define MAX(a, x) MOST(u8x32, a, x)
#define MIN(a, x) LEAST(u8x32, a, x)
#include "coll/sum_tree.h"

typedef void kernel(sk_reduce op, const sk_sum_job *j);

static kernel *const kernels[SK_N_DTYPES] = {
    [SK_F32] = f32_sum, [SK_BF16] = bf16_sum, [SK_F16] = f16_sum, [SK_F64] = f64_sum,
    [SK_I32] = i32_sum, [SK_I64] = i64_sum,   [SK_U8] = u8_sum,
};

_Static_assert(sizeof(real) == sizeof(float), "comm/ moves f32 as float");

bool sk_sum_can(sk_dtype type, sk_reduce op) { return kernels[type] && op < SK_ADASUM; }

void sk_sum(sk_dtype type, sk_reduce op, int n_src, const void *const *src, int n_dst,
            void *const *dst, int64_t n)
{
    sk_sum_job j = {n_src, n_dst, src, dst, (size_t)n * sk_dtype_size(type)};
    sk_assert(n_src > 0 && sk_sum_can(type, op));
    if (n > 0) kernels[type](op, &j);
}

#define QUOTIENT(type, x, n, by) \
    for (int64_t i = 0; i < n; i++) ((type *)(x))[i] = (type)(((type *)(x))[i] / (type)(by))

void sk_sum_divide(sk_dtype type, void *x, int64_t n, int by)
{
    if (type == SK_F32) QUOTIENT(float, x, n, by);
    else if (type == SK_F64) QUOTIENT(double, x, n, by);
    else if (type == SK_I32) QUOTIENT(int32_t, x, n, by);
    else if (type == SK_I64) QUOTIENT(int64_t, x, n, by);
    else if (type == SK_U8) QUOTIENT(uint8_t, x, n, by);
    else
        for (int64_t i = 0; i < n; i++) {
            float f;
            sk_convert(&f, SK_F32, (uint16_t *)x + i, type, 1);
            f /= (float)by;
            sk_convert((uint16_t *)x + i, type, &f, SK_F32, 1);
        }
}
