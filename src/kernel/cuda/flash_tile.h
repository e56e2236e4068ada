/* flash_tile.h - who sees whom, for the kernels of flash.h: base/zigzag.h on the device. */
#ifndef SK_KERNEL_FLASH_TILE_H
#define SK_KERNEL_FLASH_TILE_H

#include "kernel/cuda/flash.h"

/* The position of stored index i, and how many indices from there on go on; see sk_zigzag_run. */
static __device__ inline int64_t sk_run_at(int64_t i, int64_t full, int deal, int64_t *n)
{
    if (deal <= 1) {
        *n = full - i;
        return i;
    }
    int64_t r = ((i + 1) * deal - 1) / full, from = full * r / deal, to = full * (r + 1) / deal;
    int64_t early = (from + 1) / 2, middle = from + (to + 1) / 2 - early, late = full - to / 2;
    *n = (i < middle ? middle : to) - i;
    return i < middle ? early + i - from : late + i - middle;
}

/* Position of element i of a shard that starts at stored index `at`; `none` outside of it. */
static __device__ inline int sk_place(const sk_times &t, int64_t at, int64_t n, int64_t i, int none)
{
    int64_t run;
    return i < n ? (int)sk_run_at(at + i, t.full, t.deal, &run) : none;
}

/* Lowest and highest position of elements [from, to) of a shard; not empty. */
static __device__ inline int2 sk_reach(const sk_times &t, int64_t at, int64_t from, int64_t to)
{
    int2 reach = make_int2(INT32_MAX, -1);
    for (int64_t i = from, n; i < to; i += n) {
        int low = (int)sk_run_at(at + i, t.full, t.deal, &n);
        n = n < to - i ? n : to - i;
        reach.x = min(reach.x, low);
        reach.y = max(reach.y, low + (int)n - 1);
    }
    return reach;
}

/* Reach of tile `i` of the queries or of the keys, `rows` a tile. */
static __device__ inline int2 sk_reach_q(const sk_times &t, int64_t i, int rows)
{
    int64_t to = (i + 1) * rows;
    return sk_reach(t, t.q_at, i * rows, to < t.q_n ? to : t.q_n);
}

static __device__ inline int2 sk_reach_k(const sk_times &t, int64_t i, int rows)
{
    int64_t to = (i + 1) * rows;
    return sk_reach(t, t.k_at, i * rows, to < t.k_n ? to : t.k_n);
}

/* The first tile of keys from i on of which a query at `last` sees something; `end` if none. */
static __device__ inline int64_t sk_next_k(const sk_times &t, int64_t i, int64_t end, int rows,
                                           int last)
{
    while (i < end && sk_reach_k(t, i, rows).x > last) i++;
    return i;
}

/* The first tile of queries from i on that sees a key at `first`; i counts through `tiles` of one
 * head after the other. */
static __device__ inline int64_t sk_next_q(const sk_times &t, int64_t i, int64_t end, int64_t tiles,
                                           int rows, int first)
{
    while (i < end && sk_reach_q(t, i % tiles, rows).y < first) i++;
    return i;
}

/* y and lse of one row: what one thread needs to know to write its part of it. */
typedef struct sk_ending {
    bool leave, nothing; /* the row stays as it is; it becomes 0 */
    float keep, take;    /* y = keep * what is there + take * sum of weighed values */
    float lse;
} sk_ending;

/* The row's exponentials against `top` (natural) add up to sum; see blend() in causal_attention.c.
 */
static __device__ inline sk_ending sk_end_row(float top, float sum, bool merge, float was_lse)
{
    sk_ending e = {};
    if (top == -INFINITY && sum == 0) { /* saw no key */
        e.leave = merge, e.nothing = !merge, e.lse = -INFINITY;
        return e;
    }
    double is = (double)top + log((double)sum);
    if (!merge || was_lse == -INFINITY) {
        e.take = 1 / sum, e.lse = (float)is;
        return e;
    }
    double was = was_lse, high = was > is ? was : is, a = exp(was - high), b = exp(is - high);
    e.lse = (float)(high + log(a + b));
    e.keep = (float)(a / (a + b));
    e.take = (float)(b / (a + b) / sum);
    return e;
}

/* Backward: a row's lse and sum of dy * y.  Where it saw nothing or is not there, lse is +infinity
 * and nothing has a weight. */
static __device__ inline float2 sk_row_at(const float2 *rows, int64_t i, bool there)
{
    return there ? rows[i] : make_float2(INFINITY, 0);
}

/* Where head (b, g, j) starts. */
static __device__ inline int64_t sk_head(sk_steps s, int64_t b, int64_t g, int64_t j)
{
    return b * s.batch + g * s.group + j * s.head;
}

/* Allows a kernel so many bytes of shared memory. */
static inline sk_status sk_flash_shared_memory(const sk_flash *f, const void *kernel, size_t bytes)
{
    cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (e == cudaSuccess) return SK_OK;
    (void)cudaGetLastError();
    return sk_fail(SK_EIO, "%s: a block needs %zu bytes of shared memory: %s", f->op, bytes,
                   cudaGetErrorString(e));
}

/* The grid of a launch. */
static inline sk_status sk_flash_blocks(const sk_flash *f, int64_t n, unsigned *out)
{
    *out = (unsigned)n;
    if (n <= INT32_MAX) return SK_OK;
    return sk_fail(SK_ECONF, "%s: %lld blocks are more than one launch can have", f->op,
                   (long long)n);
}

#endif
