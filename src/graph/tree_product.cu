/* tree_product.cu - see tree_product.h.
 *
 * tiles   m, n and k in line, with any steps.  A block of 256 threads makes 128 x 64 results, 8 x 4
 *         in a thread, and brings 32 of k at a time into shared memory, whatever cells are in it; a
 *         sum is put aside where its cell ends.  Where that leaves the GPU idle, blocks take
 *         subtrees of the cells, and a second kernel ends the tree: no bit depends on how many.
 * walk    everything else, and what is tiny: a thread makes one result and walks the letters. */
#include "graph/axes.h"
#include "graph/cuda_cells.h"
#include "graph/tree_product.h"

enum {
    BLOCK = 256,
    SIDE = 16, /* threads along m and along n */
    TM = 128,
    TN = 64,
    PM = TM / SIDE, /* results of a thread */
    PN = TN / SIDE,
    DEEP = 32,    /* k that a block holds at a time */
    GAP = 4,      /* keeps rows of a tile apart, and aligned */
    ENOUGH = 264, /* blocks to keep a GPU busy */
    SHORT = 256,  /* the least k of a part */
    TINY = 256    /* results of one product that one thread each may make */
};

typedef struct task {
    const float *x, *y;
    float *z;
    bool add;
    sk_borders cells;
    sk_letters by_kind[SK_N_ROLES];
} task;

static __device__ void put(float *z, float sum, bool add) { *z = add ? *z + sum : sum; }

/* ---- walk */

typedef struct walk {
    const float *x, *y;
    float *z;
    bool add;
    int64_t n; /* results */
    sk_axes out, k;
    sk_borders cells;
} walk;

static __global__ void __launch_bounds__(BLOCK) by_walk(const __grid_constant__ walk w)
{
    for (int64_t o = (int64_t)blockIdx.x * BLOCK + threadIdx.x; o < w.n;
         o += (int64_t)gridDim.x * BLOCK) {
        int64_t at[3], in[3];
        sk_pairs<1> pairs;
        float sum = 0;
        sk_axes_at(&w.out, o, at);
        for (int c = 0; c < w.cells.n; c++) {
            sum = 0;
            for (int64_t i = w.cells.at[c]; i < w.cells.at[c + 1]; i++) {
                sk_axes_at(&w.k, i, in);
                sum = fmaf(w.x[at[SK_A] + in[SK_A]], w.y[at[SK_B] + in[SK_B]], sum);
            }
            pairs.end(c, &sum);
        }
        put(w.z + at[SK_OUT], sum, w.add);
    }
}

static sk_status start_walk(const task *t, cudaStream_t s)
{
    walk w = {t->x, t->y, t->z, t->add, 1};
    sk_letter k;
    w.out = sk_axes_out(t->by_kind);
    w.k = sk_axes_of(&t->by_kind[SK_SUMMED]);
    if (sk_letters_merge(&t->by_kind[SK_SUMMED], &k)) w.k.n = 1, w.k.v[0] = sk_axis_of(&k);
    w.cells = t->cells;
    for (int i = 0; i < w.out.n; i++) w.n *= w.out.v[i].size;
    by_walk<<<sk_cuda_blocks(w.n, BLOCK), BLOCK, 0, s>>>(w);
    return sk_cuda_launched("contract");
}

/* ---- tiles */

typedef struct side {
    const float *data;
    int64_t n, step, k_step; /* rows of a or columns of b; elements to the next, and along k */
    int who;
} side;

typedef struct tiles {
    side a, b;
    float *z;
    int64_t m_step, n_step; /* in the result */
    bool add;
    int64_t m_tiles, n_tiles, batches, jobs;
    int parts;   /* subtrees, each of a block of its own */
    float *sums; /* [parts][batches][m][n] where there are several */
    sk_axes batch;
    sk_borders cells;
} tiles;

/* k [from, to), at most DEEP, of WIDE rows from `first`. */
template <int WIDE>
static __device__ void fill(float (*held)[WIDE + GAP], const side &s, const float *x, int64_t first,
                            int64_t from, int64_t to)
{
    bool along_k = s.k_step == 1;
#pragma unroll
    for (int i = 0; i < WIDE * DEEP / BLOCK; i++) {
        int e = (int)threadIdx.x + i * BLOCK;
        int r = along_k ? e / DEEP : e % WIDE, k = along_k ? e % DEEP : e / WIDE;
        bool there = first + r < s.n && from + k < to;
        held[k][r] = there ? x[(first + r) * s.step + (from + k) * s.k_step] : 0;
    }
}

/* A thread's rows are 4 ty and following and 64 + 4 ty and following, its columns 4 tx and
 * following. */
static __device__ inline int row_of(int i)
{
    return i / 4 * (TM / 2) + (int)threadIdx.x / SIDE * 4 + i % 4;
}

static __device__ inline int col_of(int j) { return (int)threadIdx.x % SIDE * PN + j; }

/* One k more. */
static __device__ inline void add_one(const float *a, const float *b, float *sum)
{
    float x[PM], y[PN];
#pragma unroll
    for (int i = 0; i < PM; i += 4) sk_load<4>(a + row_of(i), x + i);
    sk_load<4>(b + col_of(0), y);
#pragma unroll
    for (int i = 0; i < PM; i++)
#pragma unroll
        for (int j = 0; j < PN; j++) sum[i * PN + j] = fmaf(x[i], y[j], sum[i * PN + j]);
}

static_assert(PM == 8 && PN == 4 && SIDE * SIDE == BLOCK, "row_of() and col_of()");

static __device__ void keep(const tiles &t, int64_t z, int64_t m0, int64_t n0, int64_t slot,
                            const float *sum)
{
#pragma unroll
    for (int i = 0; i < PM; i++)
#pragma unroll
        for (int j = 0; j < PN; j++) {
            int64_t m = m0 + row_of(i), n = n0 + col_of(j);
            if (m >= t.a.n || n >= t.b.n) continue;
            if (t.sums) t.sums[(slot * t.a.n + m) * t.b.n + n] = sum[i * PN + j];
            else put(t.z + z + m * t.m_step + n * t.n_step, sum[i * PN + j], t.add);
        }
}

static __global__ void __launch_bounds__(BLOCK) by_tiles(const __grid_constant__ tiles t)
{
    __shared__ __align__(16) float a[DEEP][TM + GAP], b[DEEP][TN + GAP];
    for (int64_t job = blockIdx.x; job < t.jobs; job += gridDim.x) {
        int64_t rest = job / t.n_tiles, n0 = job % t.n_tiles * TN, m0 = rest % t.m_tiles * TM;
        int64_t slot = rest / t.m_tiles, at[3];
        int each = t.cells.n / t.parts, cell = 0;
        const int64_t *border = t.cells.at + slot / t.batches * each;
        float sum[PM * PN] = {};
        sk_pairs<PM * PN> pairs;
        sk_axes_at(&t.batch, slot % t.batches, at);
        for (int64_t from = border[0]; from < border[each]; from += DEEP) {
            int here = (int)min((int64_t)DEEP, border[each] - from);
            fill<TM>(a, t.a, t.a.data + at[t.a.who], m0, from, from + here);
            fill<TN>(b, t.b, t.b.data + at[t.b.who], n0, from, from + here);
            __syncthreads();
            for (int k = 0; k < here;) {
                bool ends = border[cell + 1] <= from + here;
                int stop = ends ? (int)(border[cell + 1] - from) : here;
#pragma unroll 4
                for (; k < stop; k++) add_one(a[k], b[k], sum);
                if (!ends) break;
                pairs.end(cell++, sum);
                if (cell == each) break; /* this is the sum of all */
#pragma unroll
                for (int e = 0; e < PM * PN; e++) sum[e] = 0;
            }
            __syncthreads();
        }
        keep(t, at[SK_OUT], m0, n0, slot, sum);
    }
}

static __global__ void __launch_bounds__(BLOCK) join_parts(const __grid_constant__ tiles t)
{
    int64_t each = t.a.n * t.b.n, n = t.batches * each;
    for (int64_t o = (int64_t)blockIdx.x * BLOCK + threadIdx.x; o < n;
         o += (int64_t)gridDim.x * BLOCK) {
        int64_t at[3], m = o % each / t.b.n, c = o % t.b.n;
        sk_axes_at(&t.batch, o / each, at);
        put(t.z + at[SK_OUT] + m * t.m_step + c * t.n_step, sk_cells_sum(t.sums + o, n, t.parts),
            t.add);
    }
}

/* Gives subtrees to blocks of their own where there are too few tiles, as far as the room goes. */
static void cut(tiles *t, int64_t k, const sk_launch *l)
{
    int64_t whole = t->n_tiles * t->m_tiles * t->batches;
    int64_t most = (int64_t)(l->room_bytes / sizeof(float)) / (t->batches * t->a.n * t->b.n);
    t->parts = 1;
    while (t->parts < t->cells.n && t->parts * whole < ENOUGH && 2 * t->parts <= most &&
           k / (2 * t->parts) >= SHORT)
        t->parts *= 2;
    t->sums = t->parts > 1 ? (float *)l->room : NULL;
    t->jobs = whole * t->parts;
}

static sk_status start_tiles(const task *x, const sk_letter *m, const sk_letter *n,
                             const sk_letter *k, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    bool crossed = n->step[SK_OUT] != 1 && m->step[SK_OUT] == 1; /* a product knows no sides */
    int a = crossed ? SK_B : SK_A, b = crossed ? SK_A : SK_B;
    const sk_letter *rows = crossed ? n : m, *cols = crossed ? m : n;
    tiles t = {};
    t.a = side{crossed ? x->y : x->x, rows->size, rows->step[a], k->step[a], a};
    t.b = side{crossed ? x->x : x->y, cols->size, cols->step[b], k->step[b], b};
    t.z = x->z;
    t.m_step = rows->step[SK_OUT];
    t.n_step = cols->step[SK_OUT];
    t.add = x->add;
    t.batch = sk_axes_of(&x->by_kind[SK_BATCH]);
    t.batches = sk_letters_count(&x->by_kind[SK_BATCH]);
    t.m_tiles = (rows->size + TM - 1) / TM;
    t.n_tiles = (cols->size + TN - 1) / TN;
    t.cells = x->cells;
    cut(&t, k->size, l);
    by_tiles<<<sk_cuda_blocks(t.jobs, 1), BLOCK, 0, s>>>(t);
    SK_TRY(sk_cuda_launched("contract"));
    if (!t.sums) return SK_OK;
    join_parts<<<sk_cuda_blocks(t.batches * t.a.n * t.b.n, BLOCK), BLOCK, 0, s>>>(t);
    return sk_cuda_launched("contract");
}

/* Cells of the summed letters, all flattened: those of the first, times the rest. */
static sk_borders borders(const sk_letters *k)
{
    sk_borders one = {1, {0, 1}};
    int64_t inner = 1;
    for (int i = 1; i < k->n; i++) inner *= k->v[i].size;
    return k->n ? sk_borders_of(k->v[0].view, k->v[0].dim, inner) : one;
}

sk_status sk_tree_product(const sk_args *a, const sk_launch *l)
{
    sk_letters all;
    sk_letter m, n, k;
    task t = {};
    sk_letters_read(a, &all);
    sk_letters_sort(&all, t.by_kind);
    t.x = (const float *)a->in[0].data;
    t.y = (const float *)a->in[1].data;
    t.z = (float *)a->out[0].data;
    t.add = a->add & 1;
    t.cells = borders(&t.by_kind[SK_SUMMED]);
    if (sk_letters_merge(&t.by_kind[SK_ROWS], &m) && sk_letters_merge(&t.by_kind[SK_COLS], &n) &&
        sk_letters_merge(&t.by_kind[SK_SUMMED], &k) && (m.size * n.size > TINY || k.size > SHORT))
        return start_tiles(&t, &m, &n, &k, l);
    return start_walk(&t, (cudaStream_t)l->stream);
}
