/* sum.c - the kernels under the reductions.
 *
 * Written with the vector types of gcc and clang: a loop over a variable number
 * of sources, with the sums of four vectors kept in registers, is not something
 * their vectorisers find by themselves.  Per source that is one load of its
 * pointer for 128 bytes of data, so the speed is that of memory.  Halves are
 * converted with integer arithmetic, which gives the bits of sk_convert() on any
 * processor. */
#include "comm/sum.h"
#include "base/status.h"

#define VEC(type, name, bytes) typedef type name __attribute__((vector_size(bytes)))
VEC(float, f32x8, 32);
VEC(int32_t, i32x8, 32);
VEC(uint32_t, u32x8, 32);
VEC(uint16_t, u16x8, 16);
VEC(double, f64x4, 32);
VEC(int64_t, i64x4, 32);
VEC(uint64_t, u64x4, 32);

/* x where the mask is set, else y; both seen as bits */
#define PICK(bits, mask, x, y) (((bits)(mask) & (bits)(x)) | (~(bits)(mask) & (bits)(y)))

#define ADD(a, x)     ((a) + (x))
#define MAX_F32(a, x) (f32x8) PICK(u32x8, ((x) > (a)) | ((x) != (x)), x, a)
#define MAX_F64(a, x) (f64x4) PICK(u64x4, ((x) > (a)) | ((x) != (x)), x, a)
#define MAX_I32(a, x) PICK(i32x8, (x) > (a), x, a)
#define MAX_I64(a, x) PICK(i64x4, (x) > (a), x, a)

/* Between the stored and the summed form of a vector.  Pointers, because passing vectors by
 * value has another ABI on every -march. */
#define PLAIN(type)                                                         \
    static inline void open_##type(type *a, const type *raw) { *a = *raw; } \
    static inline void shut_##type(type *raw, const type *a) { *raw = *a; }
PLAIN(f32x8)
PLAIN(i32x8)
PLAIN(u32x8)
PLAIN(f64x4)
PLAIN(i64x4)
PLAIN(u64x4)

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

#define LOAD(form, a, p)             \
    do {                             \
        memcpy(&raw, p, sizeof raw); \
        open_##form(&a, &raw);       \
    } while (0)
#define STORE(form, p, a)            \
    do {                             \
        shut_##form(&raw, &a);       \
        memcpy(p, &raw, sizeof raw); \
    } while (0)

/* form: stored form; store, vec: its vector type and the one summed in */
#define KERNEL(name, form, store, vec, OP)                                                         \
    static void name(int n_src, const void *const *src, int n_dst, void *const *dst, size_t bytes) \
    {                                                                                              \
        enum { S = sizeof(store) };                                                                \
        store raw;                                                                                 \
        vec a, b, c, d, x;                                                                         \
        size_t at = 0;                                                                             \
        for (; at + 4 * S <= bytes; at += 4 * S) {                                                 \
            const char *p = (const char *)src[0] + at;                                             \
            LOAD(form, a, p);                                                                      \
            LOAD(form, b, p + S);                                                                  \
            LOAD(form, c, p + 2 * S);                                                              \
            LOAD(form, d, p + 3 * S);                                                              \
            for (int k = 1; k < n_src; k++) {                                                      \
                p = (const char *)src[k] + at;                                                     \
                LOAD(form, x, p);                                                                  \
                a = OP(a, x);                                                                      \
                LOAD(form, x, p + S);                                                              \
                b = OP(b, x);                                                                      \
                LOAD(form, x, p + 2 * S);                                                          \
                c = OP(c, x);                                                                      \
                LOAD(form, x, p + 3 * S);                                                          \
                d = OP(d, x);                                                                      \
            }                                                                                      \
            for (int k = 0; k < n_dst; k++) {                                                      \
                char *q = (char *)dst[k] + at;                                                     \
                STORE(form, q, a);                                                                 \
                STORE(form, q + S, b);                                                             \
                STORE(form, q + 2 * S, c);                                                         \
                STORE(form, q + 3 * S, d);                                                         \
            }                                                                                      \
        }                                                                                          \
        for (; at < bytes; at += S) { /* the rest, a vector or part of one at a time */            \
            size_t part = bytes - at < S ? bytes - at : S;                                         \
            memset(&raw, 0, S);                                                                    \
            memcpy(&raw, (const char *)src[0] + at, part);                                         \
            open_##form(&a, &raw);                                                                 \
            for (int k = 1; k < n_src; k++) {                                                      \
                memcpy(&raw, (const char *)src[k] + at, part);                                     \
                open_##form(&x, &raw);                                                             \
                a = OP(a, x);                                                                      \
            }                                                                                      \
            shut_##form(&raw, &a);                                                                 \
            for (int k = 0; k < n_dst; k++) memcpy((char *)dst[k] + at, &raw, part);               \
        }                                                                                          \
    }

KERNEL(add_f32, f32x8, f32x8, f32x8, ADD)
KERNEL(add_f64, f64x4, f64x4, f64x4, ADD)
KERNEL(add_bf16, bf16, u16x8, f32x8, ADD)
KERNEL(add_f16, f16, u16x8, f32x8, ADD)
KERNEL(add_i32, u32x8, u32x8, u32x8, ADD) /* unsigned: wraps */
KERNEL(add_i64, u64x4, u64x4, u64x4, ADD)
KERNEL(max_f32, f32x8, f32x8, f32x8, MAX_F32)
KERNEL(max_f64, f64x4, f64x4, f64x4, MAX_F64)
KERNEL(max_bf16, bf16, u16x8, f32x8, MAX_F32)
KERNEL(max_f16, f16, u16x8, f32x8, MAX_F32)
KERNEL(max_i32, i32x8, i32x8, i32x8, MAX_I32)
KERNEL(max_i64, i64x4, i64x4, i64x4, MAX_I64)

typedef void kernel(int n_src, const void *const *src, int n_dst, void *const *dst, size_t bytes);

static kernel *const kernels[SK_N_DTYPES][2] = {
    [SK_F32] = {[SK_SUM] = add_f32, [SK_MAXIMUM] = max_f32},
    [SK_BF16] = {[SK_SUM] = add_bf16, [SK_MAXIMUM] = max_bf16},
    [SK_F16] = {[SK_SUM] = add_f16, [SK_MAXIMUM] = max_f16},
    [SK_F64] = {[SK_SUM] = add_f64, [SK_MAXIMUM] = max_f64},
    [SK_I32] = {[SK_SUM] = add_i32, [SK_MAXIMUM] = max_i32},
    [SK_I64] = {[SK_SUM] = add_i64, [SK_MAXIMUM] = max_i64},
};

_Static_assert(sizeof(real) == sizeof(float), "comm/ moves f32 as float");

bool sk_sum_can(sk_dtype type) { return kernels[type][SK_SUM] != NULL; }

void sk_sum(sk_dtype type, sk_reduce op, int n_src, const void *const *src, int n_dst,
            void *const *dst, int64_t n)
{
    sk_assert(n_src > 0 && kernels[type][op]);
    if (n > 0) kernels[type][op](n_src, src, n_dst, dst, (size_t)n * sk_dtype_size(type));
}
