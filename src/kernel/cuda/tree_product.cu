/* tree_product.cu - see tree_product.h.
 *
 * tiles   m, n and k in line, with any steps.  A block of 256 threads makes 128 x 128 results, 8 x
 * 8 in a thread, and brings 16 of k at a time into shared memory, whatever reduction blocks are in
 * it, while it adds up the 16 before; a sum is put aside where its reduction block ends.  Where
 * that leaves the GPU idle, blocks take subtrees of the reduction blocks, and a second kernel ends
 * the tree: no bit depends on how many. walk    everything else, and what is tiny: a thread makes
 * one result and walks the letters.
 */
#include "kernel/cuda/contract_axes.h"
#include "kernel/cuda/ordered_reduce.h"
#include "kernel/cuda/tree_product.h"

enum {
    BLOCK = 256,
    SIDE = 16,  /* threads along m and along n */
    WIDE = 128, /* results of a block along both */
    EACH = WIDE / SIDE,
    DEEP = 16,                   /* k that a block brings at a time */
    LOADS = WIDE * DEEP / BLOCK, /* of a thread, for each side */
    GAP = 4,                     /* keeps rows of a tile apart, and aligned */
    ENOUGH = 264,                /* blocks to keep a GPU busy */
    SHORT = 256,                 /* the least k of a part */
    TINY = 256                   /* results of one product that one thread each may make */
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

/* What a thread brings of one side: LOADS elements, `next` apart, of a row and a k that move by
 * `rows` and `deep` from one to the next.  Neighbours bring neighbours in memory. */
typedef struct bring {
    const float *from; /* at k = 0 */
    int64_t next, k_step;
    int row, k, rows, deep;
    int64_t left; /* rows from `row` on */
} bring;

static __device__ bring bring_of(const side &s, int64_t at, int64_t first)
{
    bool along = s.k_step == 1;
    int t = (int)threadIdx.x;
    bring b;
    b.row = along ? t / DEEP : t % WIDE, b.k = along ? t % DEEP : t / WIDE;
    b.rows = along ? BLOCK / DEEP : 0, b.deep = along ? 0 : BLOCK / WIDE;
    b.next = along ? b.rows * s.step : b.deep * s.k_step;
    b.k_step = s.k_step;
    b.from = s.data + at + (first + b.row) * s.step + b.k * s.k_step;
    b.left = s.n - first - b.row;
    return b;
}

/* k [from, from + here). */
static __device__ inline void take(const bring &b, int64_t from, int here, float *x)
{
    const float *at = b.from + from * b.k_step;
#pragma unroll
    for (int i = 0; i < LOADS; i++)
        x[i] = b.k + i * b.deep < here && i * b.rows < b.left ? at[i * b.next] : 0;
}

typedef float slab[DEEP][WIDE + GAP];

static __device__ inline void lay(const bring &b, const float *x, slab to)
{
#pragma unroll
    for (int i = 0; i < LOADS; i++) to[b.k + i * b.deep][b.row + i * b.rows] = x[i];
}

/* A thread's rows are 4 t and following and 64 + 4 t and following, and so are its columns. */
static __device__ inline int place_of(int t, int i) { return i / 4 * (WIDE / 2) + t * 4 + i % 4; }
static __device__ inline int row_of(int i) { return place_of((int)threadIdx.x / SIDE, i); }
static __device__ inline int col_of(int i) { return place_of((int)threadIdx.x % SIDE, i); }

/* One k more. */
static __device__ inline void add_one(const float *a, const float *b, float *sum)
{
    float x[EACH], y[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i += 4)
        sk_load<4>(a + row_of(i), x + i), sk_load<4>(b + col_of(i), y + i);
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) sum[i * EACH + j] = fmaf(x[i], y[j], sum[i * EACH + j]);
}

static_assert(EACH == 8 && SIDE * SIDE == BLOCK, "place_of()");

static __device__ void keep(const tiles &t, int64_t z, int64_t m0, int64_t n0, int64_t slot,
                            const float *sum)
{
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            int64_t m = m0 + row_of(i), n = n0 + col_of(j);
            if (m >= t.a.n || n >= t.b.n) continue;
            if (t.sums) t.sums[(slot * t.a.n + m) * t.b.n + n] = sum[i * EACH + j];
            else put(t.z + z + m * t.m_step + n * t.n_step, sum[i * EACH + j], t.add);
        }
}

typedef struct stretch { /* reduction blocks of a block */
    const int64_t *border;
    int cell, cells; /* the one at hand, of how many */
} stretch;

/* k [from, from + here) are in a and b.  Sums lie in registers, those that wait do not. */
static __device__ inline void add_slab(const slab a, const slab b, int64_t from, int here,
                                       stretch *s, float *sum, sk_pairs<EACH * EACH> *pairs)
{
    for (int k = 0; k < here;) {
        bool ends = s->border[s->cell + 1] <= from + here;
        int stop = ends ? (int)(s->border[s->cell + 1] - from) : here;
#pragma unroll 4
        for (; k < stop; k++) add_one(a[k], b[k], sum);
        if (!ends) return;
        pairs->end(s->cell++, sum);
        if (s->cell == s->cells) return; /* this is the sum of all */
#pragma unroll
        for (int e = 0; e < EACH * EACH; e++) sum[e] = 0;
    }
}

static __global__ void __launch_bounds__(BLOCK, 2) by_tiles(const __grid_constant__ tiles t)
{
    __shared__ __align__(16) slab held[2][2]; /* [turn][side] */
    for (int64_t job = blockIdx.x; job < t.jobs; job += gridDim.x) {
        int64_t rest = job / t.n_tiles, n0 = job % t.n_tiles * WIDE, m0 = rest % t.m_tiles * WIDE;
        int64_t slot = rest / t.m_tiles, at[3];
        float x[2][LOADS], sum[EACH * EACH] = {};
        sk_pairs<EACH * EACH> pairs;
        stretch s = {NULL, 0, t.cells.n / t.parts};
        s.border = t.cells.at + slot / t.batches * s.cells;
        sk_axes_at(&t.batch, slot % t.batches, at);
        bring a = bring_of(t.a, at[t.a.who], m0), b = bring_of(t.b, at[t.b.who], n0);
        int64_t from = s.border[0], end = s.border[s.cells];
        int here = (int)min((int64_t)DEEP, end - from), turn = 0;
        take(a, from, here, x[0]), take(b, from, here, x[1]);
        while (from < end) {
            int64_t next = from + here;
            int more = (int)min((int64_t)DEEP, end - next);
            lay(a, x[0], held[turn][0]), lay(b, x[1], held[turn][1]);
            __syncthreads(); /* who is a turn behind still reads the other two */
            take(a, next, more, x[0]), take(b, next, more, x[1]);
            add_slab(held[turn][0], held[turn][1], from, here, &s, sum, &pairs);
            from = next, here = more, turn ^= 1;
        }
        keep(t, at[SK_OUT], m0, n0, slot, sum);
        __syncthreads();
    }
}

static __global__ void __launch_bounds__(BLOCK) join_parts(const __grid_constant__ tiles t)
{
    int64_t each = t.a.n * t.b.n, n = t.batches * each;
    for (int64_t o = (int64_t)blockIdx.x * BLOCK + threadIdx.x; o < n;
         o += (int64_t)gridDim.x * BLOCK) {
        int64_t at[3], m = o % each / t.b.n, c = o % t.b.n;
        sk_axes_at(&t.batch, o / each, at);
        put(t.z + at[SK_OUT] + m * t.m_step + c * t.n_step, sk_ordered_sum(t.sums + o, n, t.parts),
            t.add);
    }
}

/* Gives subtrees to blocks of their own where there are too few tiles, as far as the workspace
 * goes. */
static void cut(tiles *t, int64_t k, const sk_launch *l)
{
    int64_t whole = t->n_tiles * t->m_tiles * t->batches;
    int64_t most = (int64_t)(l->workspace_bytes / sizeof(float)) / (t->batches * t->a.n * t->b.n);
    t->parts = 1;
    while (t->parts < t->cells.n && t->parts * whole < ENOUGH && 2 * t->parts <= most &&
           k / (2 * t->parts) >= SHORT)
        t->parts *= 2;
    t->sums = t->parts > 1 ? (float *)l->workspace : NULL;
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
    t.m_tiles = (rows->size + WIDE - 1) / WIDE;
    t.n_tiles = (cols->size + WIDE - 1) / WIDE;
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
