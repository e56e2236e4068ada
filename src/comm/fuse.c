/* fuse.c - sums that are cast, scaled and measured before they leave the cache. */
#include "comm/fuse.h"
#include "comm/endpoint.h"
#include "coll/sum_kernels.h"

#include <math.h>

enum {
    BLOCK = 512,
    LEVELS = 21
}; /* elements that are summed at once; of a tree of a million ranks */

bool sk_fuse_wanted(const sk_coll_call *call)
{
    return call->cast || call->partial || (call->scale < 0 || call->scale > 0);
}

sk_dtype sk_fuse_type(const sk_coll_call *call)
{
    return call->cast ? (sk_dtype)(call->cast - 1) : call->type;
}

static bool is_float(sk_dtype t)
{
    return t == SK_F32 || t == SK_F64 || t == SK_BF16 || t == SK_F16;
}

sk_status sk_fuse_check(const sk_coll_call *call)
{
    bool sums = sk_kind_sums(call->kind);
    bool known = call->cast >= 0 && call->cast <= SK_N_DTYPES;
    if (!sk_fuse_wanted(call)) return SK_OK;
    if (sums && known && is_float(call->type) && is_float(sk_fuse_type(call)) &&
        call->algorithm < 0)
        return SK_OK;
    return sk_fail(SK_EBUG,
                   "call %llx: cast %d, scale %g and partial sums are for sums of floating "
                   "types in the heaps of one host",
                   (long long)call->id, call->cast, (double)call->scale);
}

/* --- in f32, or f64 --- */

static void scale(sk_dtype wide, void *x, int64_t n, float by)
{
    if (wide == SK_F64)
        for (int64_t i = 0; i < n; i++) ((double *)x)[i] *= (double)by;
    else
        for (int64_t i = 0; i < n; i++) ((float *)x)[i] *= by;
}

static void measure(sk_dtype wide, const void *x, int64_t n, sk_partial *note)
{
    for (int64_t i = 0; i < n; i++) {
        double v = wide == SK_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
        bool good = isfinite(v);
        note->bad += !good;
        note->squares += good ? v * v : 0;
    }
}

static void pair(const sk_coll_call *call, sk_dtype wide, void *a, const void *b, int64_t n)
{
    sk_reduce op = call->reduce == SK_MEAN ? SK_SUM : call->reduce;
    sk_sum(wide, op, 2, (const void *[]){a, b}, 1, &a, n);
}

/* Sources come one after the other and meet like the carries of a counter: that is the tree. */
static void *tree(const sk_coll_call *call, sk_dtype wide, int n_src, const void *const *src,
                  int64_t at, int64_t n)
{
    static _Thread_local double held[LEVELS][BLOCK];
    size_t before = (size_t)at * sk_dtype_size(call->type);
    int depth = 0;
    sk_assert(n_src <= 1 << (LEVELS - 1));
    for (int k = 0; k < n_src; k++, depth++) {
        sk_convert(held[depth], wide, (const char *)src[k] + before, call->type, n);
        for (int m = k; m & 1; m >>= 1, depth--) pair(call, wide, held[depth - 1], held[depth], n);
    }
    for (; depth > 1; depth--) pair(call, wide, held[depth - 2], held[depth - 1], n);
    return held[0];
}

/* n elements from the at-th on. */
static void block(const sk_coll_call *call, int n_src, const void *const *src, int n_dst,
                  void *const *dst, int64_t at, int64_t n, sk_partial *note)
{
    sk_dtype wide = call->type == SK_F64 ? SK_F64 : SK_F32;
    size_t before = (size_t)at * sk_dtype_size(sk_fuse_type(call));
    void *sum = tree(call, wide, n_src, src, at, n);
    if (call->reduce == SK_MEAN) sk_sum_divide(wide, sum, n, n_src);
    if (call->scale < 0 || call->scale > 0) scale(wide, sum, n, call->scale);
    if (call->partial) measure(wide, sum, n, note);
    for (int i = 0; i < n_dst; i++)
        sk_convert((char *)dst[i] + before, sk_fuse_type(call), sum, wide, n);
}

void sk_fuse(const sk_coll_call *call, int n_src, const void *const *src, int n_dst,
             void *const *dst, int64_t n, sk_partial *note)
{
    for (int64_t at = 0; at < n; at += BLOCK)
        block(call, n_src, src, n_dst, dst, at, n - at < BLOCK ? n - at : BLOCK, note);
}
