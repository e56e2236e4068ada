/* sum_tree.h - the kernels of one type in coll/sum_kernels.c: included there once for every type.
 *
 *     NAME(x)     the kernels' names                RAW             a vector as it is stored
 *     VEC         a vector as it is added           ADD, MAX, MIN   of two of VEC
 *     OPEN, SHUT  from one to the other, by pointers   LANE   one of VEC
 *
 * Two vectors of every source at a time, added as the tree of coll/call.h says: pairs,
 * pairs of pairs, up to eight sources in registers; more sources go by blocks of
 * eight, which is the same tree. */

#define INLINE static inline __attribute__((always_inline))

INLINE void NAME(leaf)(VEC o[2], const void *src, size_t at, size_t bytes)
{
    const char *p = (const char *)src + at;
    RAW raw[2] = {{0}, {0}};
    if (bytes == sizeof raw) { /* a constant, then: two loads */
        memcpy(&raw[0], p, sizeof(RAW));
        memcpy(&raw[1], p + sizeof(RAW), sizeof(RAW));
    } else memcpy(raw, p, bytes);
    OPEN(&o[0], &raw[0]);
    OPEN(&o[1], &raw[1]);
}

/* op is a constant wherever this is inlined */
INLINE void NAME(add)(sk_reduce op, VEC o[2], const VEC t[2])
{
    for (int i = 0; i < 2; i++)
        o[i] = op == SK_MAXIMUM   ? MAX(o[i], t[i])
               : op == SK_MINIMUM ? MIN(o[i], t[i])
                                  : ADD(o[i], t[i]);
}

INLINE void NAME(two)(sk_reduce op, VEC o[2], const void *const *src, size_t at, size_t bytes)
{
    VEC t[2];
    NAME(leaf)(o, src[0], at, bytes);
    NAME(leaf)(t, src[1], at, bytes);
    NAME(add)(op, o, t);
}

INLINE void NAME(four)(sk_reduce op, VEC o[2], const void *const *src, size_t at, size_t bytes)
{
    VEC t[2];
    NAME(two)(op, o, src, at, bytes);
    NAME(two)(op, t, src + 2, at, bytes);
    NAME(add)(op, o, t);
}

/* one to four of them */
INLINE void NAME(few)(sk_reduce op, VEC o[2], const void *const *src, int n, size_t at,
                      size_t bytes)
{
    VEC t[2];
    if (n == 1) NAME(leaf)(o, src[0], at, bytes);
    else if (n == 4) NAME(four)(op, o, src, at, bytes);
    else NAME(two)(op, o, src, at, bytes);
    if (n != 3) return;
    NAME(leaf)(t, src[2], at, bytes);
    NAME(add)(op, o, t);
}

/* one to eight */
INLINE void NAME(some)(sk_reduce op, VEC o[2], const void *const *src, int n, size_t at,
                       size_t bytes)
{
    VEC t[2];
    NAME(few)(op, o, src, n < 4 ? n : 4, at, bytes);
    if (n <= 4) return;
    NAME(few)(op, t, src + 4, n - 4, at, bytes);
    NAME(add)(op, o, t);
}

/* Blocks of eight meet like the carries of a counter; what is left over joins from the right. */
INLINE void NAME(many)(sk_reduce op, VEC o[2], const void *const *src, int n, size_t at,
                       size_t bytes)
{
    VEC held[SUM_LEVELS][2];
    int depth = 0;
    for (int k = 0; k < n; k += 8) {
        NAME(some)(op, held[depth], src + k, n - k < 8 ? n - k : 8, at, bytes);
        for (int m = n - k < 8 ? 0 : k / 8; m & 1; m >>= 1, depth--)
            NAME(add)(op, held[depth - 1], held[depth]);
        depth++;
    }
    for (; depth > 1; depth--) NAME(add)(op, held[depth - 2], held[depth - 1]);
    o[0] = held[0][0];
    o[1] = held[0][1];
}

INLINE void NAME(shut)(sk_reduce op, const sk_sum_job *j, VEC o[2], int n_dst, size_t at,
                       size_t bytes)
{
    RAW raw[2];
    for (int i = 0; i < 2; i++) {
        if (op == SK_MEAN) o[i] = o[i] / (LANE)j->n_src;
        SHUT(&raw[i], &o[i]);
    }
    for (int k = 0; k < n_dst; k++) {
        char *q = (char *)j->dst[k] + at;
        if (bytes == sizeof raw) {
            memcpy(q, &raw[0], sizeof(RAW));
            memcpy(q + sizeof(RAW), &raw[1], sizeof(RAW));
        } else memcpy(q, raw, bytes);
    }
}

static __attribute__((noinline)) void NAME(few_bytes)(sk_reduce op, const sk_sum_job *j, size_t at,
                                                      size_t bytes)
{
    VEC o[2];
    NAME(some)(op, o, j->src, j->n_src, at, bytes);
    NAME(shut)(op, j, o, j->n_dst, at, bytes);
}

static __attribute__((noinline)) void NAME(any)(sk_reduce op, const sk_sum_job *j, size_t at,
                                                size_t bytes)
{
    VEC o[2];
    NAME(many)(op, o, j->src, j->n_src, at, bytes);
    NAME(shut)(op, j, o, j->n_dst, at, bytes);
}

/* Sums of a few are what training lives on; the rest need not be as fast. */
static void NAME(sum)(sk_reduce op, const sk_sum_job *j)
{
    enum { STEP = 2 * sizeof(RAW) };
    VEC o[2];
    size_t at = 0, fast = op == SK_SUM && j->n_src <= 8 ? j->bytes / STEP * STEP : 0;
    for (; at < fast && j->n_src == 2 && j->n_dst == 2; at += STEP) {
        NAME(two)(SK_SUM, o, j->src, at, STEP); /* two ranks, in place */
        NAME(shut)(SK_SUM, j, o, 2, at, STEP);
    }
    for (; at < fast; at += STEP) {
        NAME(some)(SK_SUM, o, j->src, j->n_src, at, STEP);
        NAME(shut)(SK_SUM, j, o, j->n_dst, at, STEP);
    }
    for (; at < j->bytes; at += STEP) {
        size_t left = j->bytes - at < STEP ? j->bytes - at : STEP;
        if (j->n_src <= 8) NAME(few_bytes)(op, j, at, left);
        else NAME(any)(op, j, at, left);
    }
}

#undef INLINE
#undef NAME
#undef RAW
#undef VEC
#undef LANE
#undef OPEN
#undef SHUT
#undef ADD
#undef MAX
#undef MIN
