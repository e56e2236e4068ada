/* bulk_copy.h - rows that a GPU's copy engine brings into shared memory while threads work; only
 * GPU halves include it.
 *
 * A block is blockDim.y groups of blockDim.x threads, whole warps, and each group has R rows at a
 * time and a ring of stages for the rows to come.  Its first lanes ask for them, one for each
 * array: R rows are one copy, and no register waits for it.  So dozens of KiB are under way on
 * every processor, however few warps there are.  (A barrier may count bytes before it expects
 * them.)
 *
 *     sk_ring<R> ring(shared, x, y, z, bytes, rows, stages);           the first rows are asked for
 *     for (; ring.row < rows; ...) {
 *         ring.wait();                              rows ring.row to ring.row + R - 1 are there
 *         ... ring.at(array, i) ...                 row i of these, into registers
 *         a barrier of the group
 *         ring.next();                              its place is asked for anew
 *     }
 *
 * Rows and arrays begin at multiples of 16 bytes.  Group i of the grid has the i-th R rows, and
 * goes on by the number of all groups. */
#ifndef SK_KERNEL_BULK_COPY_H
#define SK_KERNEL_BULK_COPY_H

#include "kernel/cuda/bulk_copy_asm.h"
#include "kernel/cuda/cuda.h"

enum { SK_RING_ARRAYS = 3, SK_RING_STAGES = 8, SK_RING_BARRIERS = 2048 }; /* bytes, before rows */

template <int R> struct sk_ring {
    const void *from[SK_RING_ARRAYS];
    int row, rows, step;             /* the group's first row now */
    int arrays, bytes, size, stages; /* bytes of a row; size of a stage */
    int stage;
    unsigned phase; /* parity of the barriers */
    char *first;    /* the group's stages */
    uint64_t *full; /* and their barriers */

    /* Asks for the rows from r on, if there are any, for a stage. */
    __device__ void ask(int64_t r, int s) const
    {
        int lane = (int)threadIdx.x;
        if (lane >= arrays || r >= rows) return;
        const char *x = (const char *)(lane == 0 ? from[0] : lane == 1 ? from[1] : from[2]);
        int n = r + R <= rows ? R * bytes : (int)(rows - r) * bytes;
        if (lane == 0) sk_bulk_expect(full + s, arrays * n);
        sk_bulk_copy(first + s * size + lane * R * bytes, x + r * bytes, n, full + s);
    }

    /* `shared` is dynamic shared memory, sk_ring_bytes() of it, aligned to 16 bytes.  All threads
     * of the block come here, and meet at a barrier. */
    __device__ sk_ring(char *shared, const void *x, const void *y, const void *z, int bytes_of_row,
                       int64_t all, int of)
        : from{x, y, z}, rows((int)all), arrays(z   ? 3
                                                : y ? 2
                                                    : 1),
          bytes(bytes_of_row), size(arrays * R * bytes_of_row), stages(of), stage(0), phase(0)
    {
        int group = (int)threadIdx.y, groups = (int)blockDim.y;
        row = ((int)blockIdx.x * groups + group) * R, step = (int)gridDim.x * groups * R;
        full = (uint64_t *)shared + group * stages;
        first = shared + SK_RING_BARRIERS + group * stages * size;
        if (!threadIdx.x) {
            for (int s = 0; s < stages; s++) sk_bulk_open(full + s);
            sk_bulk_ready();
        }
        __syncthreads();
#pragma unroll 1
        for (int s = 0; s < stages; s++) ask(row + (int64_t)s * step, s);
    }

    __device__ void wait() const { sk_bulk_wait(full + stage, phase); }

    __device__ const char *at(int array, int i) const
    {
        return first + stage * size + (array * R + i) * bytes;
    }

    /* To the group's next rows; all of it have read these. */
    __device__ void next()
    {
        ask(row + (int64_t)stages * step, stage);
        row += step;
        if (++stage == stages) stage = 0, phase ^= 1;
    }
};

/* Stages of R rows for each of so many groups that fit into `limit` bytes; two in any case. */
static inline int sk_ring_stages(int groups, int arrays, int r, int64_t bytes, int64_t limit)
{
    int64_t fit = (limit - SK_RING_BARRIERS) / (groups * arrays * r * bytes);
    return fit > SK_RING_STAGES ? SK_RING_STAGES : fit < 2 ? 2 : (int)fit;
}

static inline int sk_ring_bytes(int groups, int arrays, int r, int64_t bytes, int stages)
{
    return SK_RING_BARRIERS + (int)(groups * stages * arrays * r * bytes);
}

/* Blocks of a grid on which a block has a processor for itself: those of an H200, on other chips
 * too, where that is only slower, for the order of sums, and so their bits, hangs on it. */
static inline unsigned sk_ring_grid(int64_t rows, int rows_of_block)
{
    int64_t blocks = (rows + rows_of_block - 1) / rows_of_block;
    return blocks < 132 ? (unsigned)blocks : 132;
}

/* --- sums over a group --- */

/* N numbers of each thread, N a power of 2: those of a warp added up.  Lane l has the sum of number
 * l / (32 / N) then: at every step a lane gives away half of what it has. */
template <int N> static __device__ inline float sk_warp_fold(float (&v)[N])
{
    int bit = 16;
#pragma unroll
    for (int m = N / 2; m; m /= 2, bit /= 2) {
        bool high = threadIdx.x & bit;
#pragma unroll
        for (int i = 0; i < m; i++) {
            float give = high ? v[i] : v[m + i], keep = high ? v[m + i] : v[i];
            v[i] = keep + __shfl_xor_sync(~0u, give, bit);
        }
    }
#pragma unroll
    for (; bit; bit /= 2) v[0] += __shfl_xor_sync(~0u, v[0], bit);
    return v[0];
}

/* Where warps of groups leave their sums, by fours; those of no warp are 0.  Two sets that take
 * turns, so that nobody writes where others still read. */
enum { SK_MOST_GROUPS = 15 }; /* barriers of a block, besides the one of __syncthreads */
template <int N> struct sk_sums {
    float v[2][SK_MOST_GROUPS * 4][N];

    __device__ void clear()
    {
        int me = (int)(threadIdx.y * blockDim.x + threadIdx.x);
        for (int i = me; i < 2 * SK_MOST_GROUPS * 4 * N; i += (int)(blockDim.x * blockDim.y))
            (&v[0][0][0])[i] = 0;
        __syncthreads();
    }

    /* The sums over the group, in every thread.  Its threads meet at a barrier. */
    __device__ void add_up(float (&x)[N], int set)
    {
        int quads = ((int)blockDim.x + 127) / 128, lane = (int)threadIdx.x % 32;
        float(*mine)[N] = v[set] + threadIdx.y * quads * 4;
        float sum = sk_warp_fold(x);
        if (lane % (32 / N) == 0) mine[threadIdx.x / 32][lane / (32 / N)] = sum;
        if (blockDim.x == 32) __syncwarp();
        else sk_group_sync(1 + (int)threadIdx.y, (int)blockDim.x);
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = 0;
#pragma unroll 1
        for (int q = 0; q < quads; q++, mine += 4)
#pragma unroll
            for (int i = 0; i < N; i++)
                x[i] += (mine[0][i] + mine[1][i]) + (mine[2][i] + mine[3][i]);
    }
};

#endif
