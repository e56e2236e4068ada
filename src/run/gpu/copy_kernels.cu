/* copy_kernels.cu - copies of boxes of bytes: SLICE, PASTE, and strided blocks for collectives. */
#include "run/gpu/inst_kernels_cuda.h"

/* Nested loops, the first the outermost; strides are in bytes. */
typedef struct loops {
    int n;
    int64_t size[SK_MAX_DIM + 2], from[SK_MAX_DIM + 2], to[SK_MAX_DIM + 2];
} loops;

/* `total` words; each thread finds its words by division, in 32 bits if they suffice. */
template <typename W, typename I>
static __global__ void __launch_bounds__(BLOCK)
    copy_words(const __grid_constant__ loops b, const char *from, char *to, int64_t total)
{
    W word[FLIGHT];
    int64_t there[FLIGHT];
    int64_t first = (int64_t)blockIdx.x * BLOCK * FLIGHT + threadIdx.x;
#pragma unroll
    for (int k = 0; k < FLIGHT; k++) {
        I rest = (I)(first + k * BLOCK);
        int64_t here = 0;
        there[k] = 0;
        if (first + k * BLOCK >= total) break;
        for (int d = b.n - 1; d > 0; d--) {
            I next = rest / (I)b.size[d], i = rest - next * (I)b.size[d];
            here += (int64_t)i * b.from[d];
            there[k] += (int64_t)i * b.to[d];
            rest = next;
        }
        there[k] += (int64_t)rest * b.to[0];
        word[k] = *(const W *)(from + here + (int64_t)rest * b.from[0]);
    }
#pragma unroll
    for (int k = 0; k < FLIGHT; k++)
        if (first + k * BLOCK < total) *(W *)(to + there[k]) = word[k];
}

template <typename W> static void copy_as(loops *b, const char *from, char *to, cudaStream_t s)
{
    int last = b->n - 1;
    int64_t total = 1;
    b->size[last] /= (int64_t)sizeof(W); /* the innermost loop was one of bytes */
    b->from[last] = b->to[last] = (int64_t)sizeof(W);
    for (int d = 0; d < b->n; d++) total *= b->size[d];
    unsigned blocks = blocks_for(total, BLOCK * FLIGHT);
    if (total < INT32_MAX) copy_words<W, unsigned><<<blocks, BLOCK, 0, s>>>(*b, from, to, total);
    else copy_words<W, uint64_t><<<blocks, BLOCK, 0, s>>>(*b, from, to, total);
}

/* The innermost loop must be of contiguous bytes. */
static sk_status copy(loops *b, const char *from, char *to, cudaStream_t s)
{
    uintptr_t bits = (uintptr_t)from | (uintptr_t)to | (uintptr_t)b->size[b->n - 1];
    for (int d = 0; d < b->n - 1; d++) bits |= (uintptr_t)b->from[d] | (uintptr_t)b->to[d];
    for (int d = 0; d < b->n; d++)
        if (!b->size[d]) return SK_OK;
    if (!(bits % 16)) copy_as<uint4>(b, from, to, s);
    else if (!(bits % 8)) copy_as<uint2>(b, from, to, s);
    else if (!(bits % 4)) copy_as<unsigned>(b, from, to, s);
    else if (!(bits % 2)) copy_as<unsigned short>(b, from, to, s);
    else copy_as<unsigned char>(b, from, to, s);
    return sk_cuda_launched("copy");
}

/* Adds a loop around those of b, which are in reverse order.  It is merged with the last one if the
 * bytes of both are contiguous. */
static void around(loops *b, int64_t size, int64_t from, int64_t to)
{
    int k = b->n - 1;
    if (size == 1) return;
    if (from == b->from[k] * b->size[k] && to == b->to[k] * b->size[k]) {
        b->size[k] *= size;
        return;
    }
    b->size[++k] = size, b->from[k] = from, b->to[k] = to;
    b->n = k + 1;
}

static void reverse(loops *b)
{
    loops x = *b;
    for (int d = 0; d < b->n; d++) {
        b->size[d] = x.size[b->n - 1 - d];
        b->from[d] = x.from[b->n - 1 - d];
        b->to[d] = x.to[b->n - 1 - d];
    }
}

/* Copies between a part and its box in the whole. */
static sk_status copy_box(const sk_view *part, const sk_view *whole, bool out, cudaStream_t s)
{
    int64_t bytes = (int64_t)sk_dtype_size(part->type), step = bytes, at = 0;
    loops b = {1, {bytes}, {1}, {1}};
    for (int d = part->n - 1; d >= 0; d--) {
        int64_t far = whole->step[d] * bytes;
        at += (part->at[d] - whole->at[d]) * far;
        around(&b, part->size[d], out ? far : step, out ? step : far);
        step *= part->size[d];
    }
    reverse(&b);
    if (!sk_count(part)) return SK_OK;
    char *there = (char *)whole->data + at, *here = (char *)part->data;
    return out ? copy(&b, there, here, s) : copy(&b, here, there, s);
}

sk_status sk_gpu_slice(const sk_view *from, const sk_view *to, void *stream)
{
    return copy_box(to, from, true, (cudaStream_t)stream);
}

sk_status sk_gpu_paste(const sk_view *from, const sk_view *to, void *stream)
{
    return copy_box(from, to, false, (cudaStream_t)stream);
}

sk_status sk_gpu_gather(void *to, int64_t to_step, const void *from, int64_t from_step,
                        int64_t unit, int64_t units, void *stream)
{
    loops b = {1, {unit}, {1}, {1}};
    around(&b, units, from_step, to_step);
    reverse(&b);
    return copy(&b, (const char *)from, (char *)to, (cudaStream_t)stream);
}
