/* embedding_grad.cu - the GPU half of embedding_grad.c.
 *
 * Places of ids are sorted by word, stably: a radix sort of its own in the workspace, nine bits a
 * pass, whose counts are the only numbers that atomics make.  Then the sorted places are cut into
 * tiles of as many rows, so that a word which every second place has costs no more than one that is
 * rare: a warp adds up the rows of a tile, in order, for a strip of columns.  A word that lies
 * within a tile is written at once; of one that goes on across tiles each leaves a partial sum, and
 * a second kernel adds those up in order.
 *
 * Words that no place has are zeroed before, all at once.  Ids of other shards of the vocabulary
 * get the number behind the last word, and nobody adds them.  More places than ROUND go in rounds,
 * which add to one another.
 *
 * In canonical order (kernel/cuda/ordered_reduce.h) a thread has a word and a column: it adds up
 * the word's rows inside a reduction block in order, and reduction blocks in pairs; those without
 * the word have nothing to add. So it has the CPU's bits. */
#include "kernel/cuda/ordered_reduce.h"

enum { ROUND = 1 << 20, TILE = 1024, DIGIT = 9, N_DIGITS = 1 << DIGIT };
enum { WARP = 32, WARPS = 8, DEPTH = 8, PARTS = 32 << 20 }; /* bytes of partial sums */

/* ---- sorting */

typedef struct keys {
    int32_t *word, *place;
} keys;

typedef struct sort {
    keys a, b;      /* [n] each */
    int32_t *count; /* [N_DIGITS][tiles] */
    int n, tiles;
} sort;

/* Places [0, n) and their words; others than [first, first + words) become `words`. */
static __global__ void number(const int32_t *id, int n, int64_t first, int32_t words, keys to)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    int64_t w = id[i] - first;
    to.word[i] = w < 0 || w > words ? words : (int32_t)w;
    to.place[i] = i;
}

static __device__ int digit(int32_t word, int shift) { return word >> shift & (N_DIGITS - 1); }

/* How often each digit occurs in each tile. */
static __global__ void __launch_bounds__(TILE) count(sort s, int shift)
{
    __shared__ int here[N_DIGITS];
    int i = (int)(blockIdx.x * TILE + threadIdx.x);
    if (threadIdx.x < N_DIGITS) here[threadIdx.x] = 0;
    __syncthreads();
    if (i < s.n) atomicAdd(&here[digit(s.a.word[i], shift)], 1);
    __syncthreads();
    if (threadIdx.x < N_DIGITS) s.count[threadIdx.x * s.tiles + blockIdx.x] = here[threadIdx.x];
}

/* The sum of x over threads before this one; all: over the whole block of TILE. */
static __device__ int sum_before(int x, int *all)
{
    __shared__ int warp[TILE / WARP];
    int lane = (int)threadIdx.x % WARP, w = (int)threadIdx.x / WARP, sum = x, before = 0;
    for (int k = 1; k < WARP; k *= 2) {
        int y = __shfl_up_sync(~0u, sum, k);
        if (lane >= k) sum += y;
    }
    if (lane == WARP - 1) warp[w] = sum;
    __syncthreads();
    *all = 0;
    for (int k = 0; k < TILE / WARP; k++) {
        if (k < w) before += warp[k];
        *all += warp[k];
    }
    __syncthreads();
    return before + sum - x;
}

/* Counts become the places where each digit of each tile begins; one block. */
static __global__ void __launch_bounds__(TILE) begin(sort s)
{
    enum { EACH = 8 }; /* N_DIGITS is a multiple of it */
    int64_t n = (int64_t)N_DIGITS * s.tiles;
    int done = 0;
    for (int64_t from = 0; from < n; from += TILE * EACH) {
        int *c = s.count + from + threadIdx.x * EACH, x[EACH] = {}, sum = 0, all;
        bool mine = from + threadIdx.x * EACH < n;
        for (int k = 0; k < EACH && mine; k++) sum += x[k] = c[k];
        int at = done + sum_before(sum, &all);
        for (int k = 0; k < EACH && mine; k++) c[k] = at, at += x[k];
        done += all;
    }
}

/* Each to its new place.  Within a tile the order stays: by warps, and in a warp by lanes. */
static __global__ void __launch_bounds__(TILE) scatter(sort s, int shift)
{
    __shared__ uint16_t
        at[TILE / WARP][N_DIGITS]; /* how often in this warp, then in those before */
    int i = (int)(blockIdx.x * TILE + threadIdx.x);
    int lane = (int)threadIdx.x % WARP, w = (int)threadIdx.x / WARP;
    int d = i < s.n ? digit(s.a.word[i], shift) : -1;
    for (int k = (int)threadIdx.x; k < TILE / WARP * N_DIGITS; k += TILE) (&at[0][0])[k] = 0;
    __syncthreads();
    unsigned same = __match_any_sync(~0u, d), before = same & ((1u << lane) - 1);
    if (d >= 0 && !before) at[w][d] = (uint16_t)__popc(same);
    __syncthreads();
    if (threadIdx.x < N_DIGITS)
        for (int k = 0, sum = 0; k < TILE / WARP; k++) {
            int x = at[k][threadIdx.x];
            at[k][threadIdx.x] = (uint16_t)sum;
            sum += x;
        }
    __syncthreads();
    if (d < 0) return;
    int to = s.count[d * s.tiles + blockIdx.x] + at[w][d] + __popc(before);
    s.b.word[to] = s.a.word[i];
    s.b.place[to] = s.a.place[i];
}

/* Sorts s->n ids; then s->a is sorted. */
static sk_status sort_ids(sort *s, const int32_t *id, int64_t first, int32_t words, cudaStream_t st)
{
    unsigned tiles = (unsigned)s->tiles;
    number<<<tiles, TILE, 0, st>>>(id, s->n, first, words, s->a);
    SK_TRY(sk_cuda_launched("embedding_grad"));
    for (int shift = 0; shift < 31 && words >> shift; shift += DIGIT) {
        count<<<tiles, TILE, 0, st>>>(*s, shift);
        begin<<<1, TILE, 0, st>>>(*s);
        scatter<<<tiles, TILE, 0, st>>>(*s, shift);
        SK_TRY(sk_cuda_launched("embedding_grad"));
        keys k = s->a;
        s->a = s->b, s->b = k;
    }
    return SK_OK;
}

/* ---- adding */

typedef struct job {
    const void *dy;
    const int32_t *word, *place; /* sorted */
    int n, tile;                 /* places; of a tile, a multiple of WARP */
    int32_t words;
    int64_t cols;
    float
        *part; /* [tiles][2][cols]: of a word that came from the tile before; of one that goes on */
    sk_any out;
    bool add, whole; /* whole: rows of `out` are aligned */
} job;

/* The sum of a word's rows [from, to) within tile [begin, end): where does it go? */
template <int V>
static __device__ void leave(const job &j, int t, int from, int to, int64_t c, float *sum)
{
    int begin = t * j.tile, end = min(begin + j.tile, j.n);
    int32_t word = j.word[from];
    if (word == j.words) return;
    bool came = from == begin && begin && j.word[begin - 1] == word;
    bool goes = to == end && end < j.n && j.word[end] == word;
    if (!came && !goes) sk_put_all<V>(j.out, word * j.cols + c, sum, j.add, j.whole);
    else sk_store_at<V>(j.part + ((int64_t)t * 2 + !came) * j.cols + c, sum, V > 1);
}

/* A warp a tile and a strip of 32 packs; threadIdx.y: the next strips. */
template <typename T, int V> static __global__ void __launch_bounds__(WARP *WARPS) add_tiles(job j)
{
    int64_t strip = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
    int64_t c = (strip * WARP + threadIdx.x) * V;
    int t = (int)blockIdx.x, at = t * j.tile, end = min(at + j.tile, j.n), from = at;
    int32_t now = j.word[at];
    float sum[V] = {};
    if (strip * WARP * V >= j.cols || now == j.words) return; /* whole warps */
    while (at < end) {
        int mine = min(at + (int)threadIdx.x, end - 1);
        int32_t word = j.word[mine], place = j.place[mine];
        int n = __popc(__ballot_sync(~0u, at + (int)threadIdx.x < end && word != j.words));
        for (int i = 0; i < n; i += DEPTH) {
            float x[DEPTH][V];
#pragma unroll
            for (int k = 0; k < DEPTH; k++) { /* behind the end of them the last one again */
                int64_t row = __shfl_sync(~0u, place, i + k);
                if (c < j.cols) sk_load<V>((const T *)j.dy + row * j.cols + c, x[k]);
            }
#pragma unroll
            for (int k = 0; k < DEPTH; k++) {
                int32_t w = __shfl_sync(~0u, word, i + k);
                if (i + k >= n) break;
                if (w != now) {
                    if (c < j.cols) leave<V>(j, t, from, at + i + k, c, sum);
                    for (int e = 0; e < V; e++) sum[e] = 0;
                    from = at + i + k, now = w;
                }
                for (int e = 0; e < V; e++) sum[e] += x[k][e];
            }
        }
        at += n;
        if (n < WARP) break;
    }
    if (c < j.cols) leave<V>(j, t, from, at, c, sum);
}

/* The first place from `from` on that has another word than `word`. */
static __device__ int run_end(const job &j, int from, int32_t word)
{
    int to = j.n;
    while (from < to) {
        int middle = from + (to - from) / 2;
        if (j.word[middle] == word) from = middle + 1;
        else to = middle;
    }
    return from;
}

/* Partial sums of the word that begins in this tile and goes on: each warp adds some that follow
 * each other, then their sums are added. */
template <int V> static __global__ void __launch_bounds__(WARP *WARPS) join_tiles(job j)
{
    __shared__ float all[WARPS][V][WARP];
    int64_t c = ((int64_t)blockIdx.y * WARP + threadIdx.x) * V;
    int t = (int)blockIdx.x, begin = t * j.tile, end = min(begin + j.tile, j.n);
    int32_t word = j.word[end - 1];
    if (end == j.n || j.word[end] != word || word == j.words) return;
    if (begin && j.word[begin] == word && j.word[begin - 1] == word) return;
    int n = (run_end(j, end, word) - 1) / j.tile - t + 1, each = (n + WARPS - 1) / WARPS;
    int first = (int)threadIdx.y * each, last = min(first + each, n);
    float sum[V] = {}, x[V];
#pragma unroll 4
    for (int k = first; k < last && c < j.cols; k++) {
        sk_load_at<V>(j.part + ((int64_t)(t + k) * 2 + !k) * j.cols + c, x, V > 1);
        for (int e = 0; e < V; e++) sum[e] += x[e];
    }
    for (int e = 0; e < V; e++) all[threadIdx.y][e][threadIdx.x] = sum[e];
    __syncthreads();
    if (threadIdx.y || c >= j.cols) return;
    for (int w = 1; w < WARPS; w++)
        for (int e = 0; e < V; e++) sum[e] += all[w][e][threadIdx.x];
    sk_put_all<V>(j.out, word * j.cols + c, sum, j.add, j.whole);
}

template <typename T, int V> static sk_status add_up(const job &j, cudaStream_t s)
{
    int64_t strips = (j.cols + WARP * V - 1) / (WARP * V);
    unsigned tiles = (unsigned)((j.n + j.tile - 1) / j.tile);
    unsigned tall = (unsigned)(strips < WARPS ? strips : (int64_t)WARPS);
    dim3 grid(tiles, (unsigned)((strips + tall - 1) / tall));
    add_tiles<T, V><<<grid, dim3(WARP, tall), 0, s>>>(j);
    if (tiles > 1) join_tiles<V><<<dim3(tiles, (unsigned)strips), dim3(WARP, WARPS), 0, s>>>(j);
    return sk_cuda_launched("embedding_grad");
}

/* ---- in canonical order */

static bool canonical(const sk_args *a) { return a->in[1].n && a->in[1].cells[0]; }

typedef struct canon {
    const float *dy;
    const int32_t *word, *place; /* sorted */
    float *out;
    int n;
    int32_t words;
    int64_t cols;
    bool add;
    sk_borders cells; /* in places */
} canon;

/* The first of the sorted places whose word is `word` or more. */
static __device__ int run_begin(const canon &j, int32_t word)
{
    int from = 0, to = j.n;
    while (from < to) {
        int middle = from + (to - from) / 2;
        if (j.word[middle] < word) from = middle + 1;
        else to = middle;
    }
    return from;
}

/* The sum of column c over the sorted places [i, end): DEPTH rows under way at a time. */
static __device__ float sum_word(const canon &j, int i, int end, int64_t c)
{
    sk_branches<1> tree;
    int cell = 0;
    float sum = 0; /* from 0: no -0 */
    bool any = false;
    for (; i < end; i += DEPTH) {
        int64_t place[DEPTH];
        float x[DEPTH];
#pragma unroll
        for (int k = 0; k < DEPTH; k++) { /* behind the end of them the last one again */
            place[k] = j.place[min(i + k, end - 1)];
            x[k] = j.dy[place[k] * j.cols + c];
        }
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            if (i + k >= end) break;
            if (any && place[k] >= j.cells.at[cell + 1]) tree.add(cell, &sum), sum = 0;
            while (place[k] >= j.cells.at[cell + 1]) cell++;
            sum += x[k];
            any = true;
        }
    }
    tree.add(cell, &sum);
    tree.end(&sum);
    return sum;
}

/* blockIdx.x: words; blockIdx.y: columns. */
static __global__ void __launch_bounds__(WARP *WARPS) by_words(const __grid_constant__ canon j)
{
    int64_t c = (int64_t)blockIdx.y * WARP + threadIdx.x;
    int64_t word = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (word >= j.words || c >= j.cols) return;
    int i = run_begin(j, (int32_t)word), end = run_begin(j, (int32_t)word + 1);
    if (i == end) return;
    float *to = j.out + word * j.cols + c, sum = sum_word(j, i, end, c);
    *to = j.add ? *to + sum : sum;
}

static sk_status by_cells(const sk_args *a, const sort &k, const sk_launch *l)
{
    const sk_view *table = &a->out[0], *ids = &a->in[1];
    canon j = {};
    j.dy = (const float *)a->in[0].data;
    j.word = k.a.word, j.place = k.a.place, j.n = k.n;
    j.out = (float *)table->data;
    j.words = (int32_t)table->size[0];
    j.cols = table->size[1];
    j.add = a->add & 1;
    j.cells = sk_borders_of(ids, 0, sk_span(ids, 1, ids->n));
    dim3 grid(sk_cuda_blocks(j.words, WARPS), sk_cuda_blocks(j.cols, WARP));
    by_words<<<grid, dim3(WARP, WARPS), 0, (cudaStream_t)l->stream>>>(j);
    return sk_cuda_launched("embedding_grad");
}

/* ---- rounds */

/* n places, in the workspace: partial sums, then what is sorted. */
template <typename T>
static sk_status one_round(const sk_args *a, int64_t from, int n, bool add, const sk_launch *l)
{
    const sk_view *table = &a->out[0];
    cudaStream_t s = (cudaStream_t)l->stream;
    int32_t *sorting = (int32_t *)(l->workspace + PARTS), words = (int32_t)table->size[0];
    int tiles = (n + TILE - 1) / TILE;
    int64_t cols = table->size[1], pad = (int64_t)tiles * TILE;
    const T *dy = (const T *)a->in[0].data + from * cols;
    sort k = {{sorting, sorting + pad},
              {sorting + 2 * pad, sorting + 3 * pad},
              sorting + 4 * pad,
              n,
              tiles};
    SK_TRY(sort_ids(&k, (const int32_t *)a->in[1].data + from, table->at[0], words, s));
    if (canonical(a)) return by_cells(a, k, l);
    job j = {dy, k.a.word, k.a.place, n, WARP, words, cols, (float *)l->workspace, sk_any_of(table),
             add};
    while (j.tile < n && (n / j.tile + 1) * 2 * cols * (int64_t)sizeof(float) > PARTS) j.tile *= 2;
    j.whole = sk_cuda_rows(table, cols);
    if (sk_cuda_rows(&a->in[0], cols)) return add_up<T, sk_pack<T>()>(j, s);
    return add_up<T, 1>(j, s);
}

template <typename T> static sk_status run(const sk_args *a, const sk_launch *l)
{
    int64_t n = sk_count(&a->in[1]);
    bool add = (a->add & 1) != 0;
    for (int64_t from = 0; from < n; from += ROUND) {
        int here = (int)(n - from < ROUND ? n - from : (int64_t)ROUND);
        SK_TRY(one_round<T>(a, from, here, add || from, l));
    }
    return SK_OK;
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *table = &a->out[0];
    size_t bytes = (size_t)sk_count(table) * sk_dtype_size(table->type);
    if (!bytes) return SK_OK;
    if (table->size[0] >= INT32_MAX)
        return sk_fail(SK_ECONF,
                       "embedding_grad: ids are i32, a table of %lld rows is not for them",
                       (long long)table->size[0]);
    if (canonical(a) && sk_count(&a->in[1]) > ROUND)
        return sk_fail(SK_ECONF,
                       "embedding_grad: %lld ids at once, in canonical order the CUDA kernel takes "
                       "%d; use more micro-batches",
                       (long long)sk_count(&a->in[1]), ROUND);
    if (!(a->add & 1)) (void)cudaMemsetAsync(table->data, 0, bytes, (cudaStream_t)l->stream);
    SK_TRY(sk_cuda_launched("embedding_grad"));
    return SK_FLOAT(a->in[0].type, run<T>(a, l));
}

extern "C" const sk_kernel sk_kernel_embedding_grad = {"embedding_grad", launch};
