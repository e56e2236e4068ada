/* contract.cu - the GPU half of contract.c.
 *
 * What is a product of matrices (kernel/product.h) goes to cuBLASLt: all of the batch at once where
 * its letters lie in line, else the longest of them at once and the others one after the other.
 * cuBLASLt wants operands of one type, aligned to its taste.  What it does not take is done here:
 *
 *     tiles   m, n and k in line, with any steps and any mix of types, such as f32 weights of a
 *             router against bf16 rows.  A block makes 64 x 64 results, or 128 x 16 where there are
 *             few columns; where that leaves the GPU idle, k is cut in parts, whose sums are put
 *             into the workspace and added in the order of the parts.
 *     dots    results of single numbers with a long k (kernel/cuda/dot_products.h).
 *     walk    everything else, and what is tiny: a thread makes one result and walks the letters.
 *
 * Sums are in f32, in an order that depends on the shape alone.  In 8 bits, kernel/fp8_product.h
 * says how; in canonical order, kernel/cuda/tree_product.h does all of it. */
#include "kernel/cuda/contract_axes.h"
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/dot_products.h"
#include "kernel/fp8_product.h"
#include "kernel/cuda/tree_product.h"

enum {
    BLOCK = 256,
    DEEP = 32,        /* k that a block holds at a time */
    FEW = 16,         /* columns of the narrow tile */
    ENOUGH = 264,     /* blocks to keep a GPU busy */
    SHORT = 256,      /* the least k of a part */
    TINY = 256,       /* results of one product that one thread each may make */
    MOST_LOOPS = 1024 /* calls of cuBLASLt for one contraction */
};

/* What one launch works on. */
typedef struct task {
    sk_any data[3]; /* a, b, out */
    bool add;
    const float *by; /* on the device: what sums are multiplied with; NULL: nothing */
    sk_letters by_kind[SK_N_ROLES];
} task;

static __device__ void put(sk_any z, int64_t i, float x, const float *by, bool add)
{
    if (by) x *= *by;
    sk_put(z, i, add ? sk_get(z, i) + x : x);
}

static unsigned blocks_for(int64_t n) { return n > INT32_MAX ? INT32_MAX : (unsigned)n; }

/* ---- walk */

typedef struct walk {
    sk_any x, y, z;
    const float *by;
    bool add;
    int64_t n, turns; /* results; combinations of the outer summed letters */
    sk_axes out, k;   /* k without its last */
    sk_axis last;
} walk;

static __global__ void __launch_bounds__(BLOCK) by_walk(walk w)
{
    for (int64_t o = (int64_t)blockIdx.x * BLOCK + threadIdx.x; o < w.n;
         o += (int64_t)gridDim.x * BLOCK) {
        int64_t at[3], in[3];
        float sum = 0;
        sk_axes_at(&w.out, o, at);
        for (int64_t i = 0; i < w.turns; i++) {
            sk_axes_at(&w.k, i, in);
            int64_t x = at[SK_A] + in[SK_A], y = at[SK_B] + in[SK_B];
            for (int64_t j = 0; j < w.last.size; j++) {
                sum = fmaf(sk_get(w.x, x), sk_get(w.y, y), sum);
                x += w.last.step[SK_A];
                y += w.last.step[SK_B];
            }
        }
        put(w.z, at[SK_OUT], sum, w.by, w.add);
    }
}

static sk_status start_walk(const task *t, const sk_launch *l)
{
    walk w = {t->data[SK_A], t->data[SK_B], t->data[SK_OUT], t->by, t->add, 1, 1};
    w.out = sk_axes_out(t->by_kind);
    w.k = sk_axes_of(&t->by_kind[SK_SUMMED]);
    w.last = w.k.n ? w.k.v[--w.k.n] : sk_axis{1, {0, 0, 0}};
    for (int i = 0; i < w.out.n; i++) w.n *= w.out.v[i].size;
    for (int i = 0; i < w.k.n; i++) w.turns *= w.k.v[i].size;
    by_walk<<<blocks_for((w.n + BLOCK - 1) / BLOCK), BLOCK, 0, (cudaStream_t)l->stream>>>(w);
    return sk_cuda_launched("contract");
}

/* ---- tiles */

typedef struct side {
    sk_any data;
    int64_t n, step, k_step; /* rows of a or columns of b; elements to the next, and along k */
    int who;
} side;

typedef struct tiles {
    side a, b;
    sk_any z;
    const float *by;
    bool add;
    int64_t m_step, n_step;            /* in the result */
    int64_t m_tiles, n_tiles, k, deep; /* deep: k of one part */
    int64_t parts, jobs, batches;
    sk_axes batch;
    float *sums; /* [parts][batches][m][n] where there are several parts */
} tiles;

/* k [from, from + DEEP) of WIDE rows from `first`; beyond `to` and beyond the last row it is 0. */
template <int WIDE, typename T>
static __device__ void fill_from(float (*held)[WIDE + 1], const T *x, const side *s, int64_t first,
                                 int64_t from, int64_t to)
{
    bool along_k = s->k_step == 1;
#pragma unroll
    for (int i = 0; i < WIDE * DEEP / BLOCK; i++) {
        int e = (int)threadIdx.x + i * BLOCK;
        int r = along_k ? e / DEEP : e % WIDE, k = along_k ? e % DEEP : e / WIDE;
        bool there = first + r < s->n && from + k < to;
        held[k][r] = there ? (float)x[(first + r) * s->step + (from + k) * s->k_step] : 0;
    }
}

template <int WIDE>
static __device__ void fill(float (*held)[WIDE + 1], const side *s, int64_t base, int64_t first,
                            int64_t from, int64_t to)
{
    if (s->data.type == SK_BF16)
        fill_from<WIDE>(held, (const __nv_bfloat16 *)s->data.data + base, s, first, from, to);
    else if (s->data.type == SK_F16)
        fill_from<WIDE>(held, (const __half *)s->data.data + base, s, first, from, to);
    else fill_from<WIDE>(held, (const float *)s->data.data + base, s, first, from, to);
}

/* PM x PN results of a thread lie TM / PM rows and TN / PN columns apart. */
template <int TM, int TN, int PM, int PN>
static __device__ void keep(const tiles *t, const int64_t at[3], int64_t m0, int64_t n0,
                            int64_t slot, float (*sum)[PN])
{
    int tx = (int)threadIdx.x % (TN / PN), ty = (int)threadIdx.x / (TN / PN);
#pragma unroll
    for (int i = 0; i < PM; i++)
#pragma unroll
        for (int j = 0; j < PN; j++) {
            int64_t m = m0 + ty + i * (TM / PM), n = n0 + tx + j * (TN / PN);
            if (m >= t->a.n || n >= t->b.n) continue;
            if (t->sums) t->sums[(slot * t->a.n + m) * t->b.n + n] = sum[i][j];
            else put(t->z, at[SK_OUT] + m * t->m_step + n * t->n_step, sum[i][j], t->by, t->add);
        }
}

template <int TM, int TN, int PM, int PN>
static __global__ void __launch_bounds__(BLOCK, TN == FEW ? 2 : 3) by_tiles(tiles t)
{
    static_assert(TM / PM * (TN / PN) == BLOCK, "every thread has its results");
    __shared__ float a[DEEP][TM + 1], b[DEEP][TN + 1];
    int tx = (int)threadIdx.x % (TN / PN), ty = (int)threadIdx.x / (TN / PN);
    for (int64_t job = blockIdx.x; job < t.jobs; job += gridDim.x) {
        int64_t rest = job / t.n_tiles, n0 = job % t.n_tiles * TN, m0 = rest % t.m_tiles * TM;
        int64_t slot = rest / t.m_tiles, from = slot / t.batches * t.deep, at[3];
        int64_t to = from + t.deep < t.k ? from + t.deep : t.k;
        float sum[PM][PN] = {};
        sk_axes_at(&t.batch, slot % t.batches, at);
        for (; from < to; from += DEEP) {
            fill<TM>(a, &t.a, at[t.a.who], m0, from, to);
            fill<TN>(b, &t.b, at[t.b.who], n0, from, to);
            __syncthreads();
#pragma unroll
            for (int k = 0; k < DEEP; k++)
#pragma unroll
                for (int i = 0; i < PM; i++)
#pragma unroll
                    for (int j = 0; j < PN; j++)
                        sum[i][j] =
                            fmaf(a[k][ty + i * (TM / PM)], b[k][tx + j * (TN / PN)], sum[i][j]);
            __syncthreads();
        }
        keep<TM, TN, PM, PN>(&t, at, m0, n0, slot, sum);
    }
}

static __global__ void __launch_bounds__(BLOCK) add_parts(tiles t)
{
    int64_t each = t.a.n * t.b.n, n = t.batches * each;
    for (int64_t o = (int64_t)blockIdx.x * BLOCK + threadIdx.x; o < n;
         o += (int64_t)gridDim.x * BLOCK) {
        int64_t at[3], m = o % each / t.b.n, c = o % t.b.n;
        float sum = 0;
        for (int64_t p = 0; p < t.parts; p++) sum += t.sums[p * n + o];
        sk_axes_at(&t.batch, o / each, at);
        put(t.z, at[SK_OUT] + m * t.m_step + c * t.n_step, sum, t.by, t.add);
    }
}

/* Cuts k where there are too few tiles, as far as the workspace goes. */
static void cut(tiles *t, const sk_launch *l)
{
    int64_t whole = t->n_tiles * t->m_tiles * t->batches, parts = (ENOUGH + whole - 1) / whole;
    int64_t fit = (int64_t)(l->workspace_bytes / sizeof(float)) / (t->batches * t->a.n * t->b.n);
    if (parts > t->k / SHORT) parts = t->k / SHORT;
    if (parts > fit) parts = fit;
    if (parts < 1) parts = 1;
    t->deep = ((t->k + parts - 1) / parts + DEEP - 1) / DEEP * DEEP;
    t->parts = (t->k + t->deep - 1) / t->deep;
    t->sums = t->parts > 1 ? (float *)l->workspace : NULL;
    t->jobs = whole * t->parts;
}

static sk_status start_tiles(const task *x, const sk_letter *m, const sk_letter *n,
                             const sk_letter *k, const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    bool narrow = m->size <= FEW || n->size <= FEW; /* the few are the columns */
    bool crossed = narrow ? m->size < n->size : n->step[SK_OUT] != 1 && m->step[SK_OUT] == 1;
    int a = crossed ? SK_B : SK_A, b = crossed ? SK_A : SK_B;
    const sk_letter *rows = crossed ? n : m, *cols = crossed ? m : n;
    tiles t = {};
    t.a = side{x->data[a], rows->size, rows->step[a], k->step[a], a};
    t.b = side{x->data[b], cols->size, cols->step[b], k->step[b], b};
    t.z = x->data[SK_OUT];
    t.by = x->by;
    t.add = x->add;
    t.m_step = rows->step[SK_OUT];
    t.n_step = cols->step[SK_OUT];
    t.k = k->size;
    t.batch = sk_axes_of(&x->by_kind[SK_BATCH]);
    t.batches = sk_letters_count(&x->by_kind[SK_BATCH]);
    t.m_tiles = (rows->size + (narrow ? 127 : 63)) / (narrow ? 128 : 64);
    t.n_tiles = (cols->size + (narrow ? FEW - 1 : 63)) / (narrow ? FEW : 64);
    cut(&t, l);
    if (narrow) by_tiles<128, FEW, 4, 2><<<blocks_for(t.jobs), BLOCK, 0, s>>>(t);
    else by_tiles<64, 64, 4, 4><<<blocks_for(t.jobs), BLOCK, 0, s>>>(t);
    SK_TRY(sk_cuda_launched("contract"));
    if (!t.sums) return SK_OK;
    add_parts<<<blocks_for((t.batches * t.a.n * t.b.n + BLOCK - 1) / BLOCK), BLOCK, 0, s>>>(t);
    return sk_cuda_launched("contract");
}

/* ---- which way */

/* Is each result of the batch the sum of many products, and alone? */
static bool is_dots(int64_t m, int64_t n, int64_t k) { return m == 1 && n == 1 && k > SHORT; }

static bool takes_dots(const sk_args *a)
{
    sk_product p;
    sk_letters outer;
    return sk_contract_products(a, &p, &outer) && is_dots(p.m, p.n, p.k);
}

static sk_status start_dots(const task *t, const sk_letter *k, const sk_launch *l)
{
    sk_dots d = {t->data[SK_A], t->data[SK_B], t->data[SK_OUT], t->by, t->add};
    d.batch = sk_axes_of(&t->by_kind[SK_BATCH]);
    d.batches = sk_letters_count(&t->by_kind[SK_BATCH]);
    d.k = k->size;
    d.step[0] = k->step[SK_A];
    d.step[1] = k->step[SK_B];
    return sk_dot_products(&d, l);
}

static bool is_in(const sk_letters *l, char name)
{
    for (int i = 0; i < l->n; i++)
        if (l->v[i].name == name) return true;
    return false;
}

/* The part of the work that begins `at`, without the letters of `outer`; both NULL: all of it.
 * line: of kernel/fp8_product.h, if the sums are to be multiplied by its BOTH; else NULL. */
static sk_status by_hand(const sk_args *a, const sk_launch *l, const float *line, const int64_t *at,
                         const sk_letters *outer)
{
    const sk_view *view[3] = {&a->in[0], &a->in[1], &a->out[0]};
    sk_letters all, rest;
    sk_letter m, n, k;
    task t = {};
    sk_letters_read(a, &all);
    rest.n = 0;
    for (int i = 0; i < all.n; i++)
        if (!outer || !is_in(outer, all.v[i].name)) rest.v[rest.n++] = all.v[i];
    sk_letters_sort(&rest, t.by_kind);
    for (int w = 0; w < 3; w++)
        t.data[w] =
            sk_any{(char *)view[w]->data + (at ? at[w] : 0) * (int64_t)sk_dtype_size(view[w]->type),
                   view[w]->type};
    t.add = a->add & 1;
    t.by = line ? line + SK_FP8_BOTH : NULL;
    if (sk_letters_merge(&t.by_kind[SK_ROWS], &m) && sk_letters_merge(&t.by_kind[SK_COLS], &n) &&
        sk_letters_merge(&t.by_kind[SK_SUMMED], &k) && k.size &&
        (m.size * n.size > TINY || k.size > SHORT))
        return is_dots(m.size, n.size, k.size) ? start_dots(&t, &k, l)
                                               : start_tiles(&t, &m, &n, &k, l);
    return start_walk(&t, l);
}

/* A batch of very small products, such as one of single numbers, is not for cuBLASLt, and one
 * dimension of a grid is as long as it can count them. */
static bool for_library(const sk_product *p, const sk_letters *outer)
{
    if (sk_letters_count(outer) > MOST_LOOPS || p->batch > 65535) return false;
    if (is_dots(p->m, p->n, p->k)) return false;
    return p->batch == 1 || (double)p->m * (double)p->n * (double)p->k >= 4096;
}

static sk_status check(const sk_args *a)
{
    if (sk_fp8_is(a) && sk_args_canonical(a))
        return sk_fail(SK_ECONF,
                       "contract: '%s' in 8 bits has a scale for each shard, so its bits "
                       "depend on the layout; leave out train.matmul=fp8 or order=canonical",
                       a->dims);
    return SK_OK;
}

/* The products for cuBLASLt, if it is to have them. */
static bool as_products(const sk_args *a, const float *line, sk_product *p, sk_letters *outer)
{
    if (!sk_contract_products(a, p, outer) || !for_library(p, outer)) return false;
    if (!line) return true;
    p->alpha_at = line + SK_FP8_BOTH;
    p->beta_at = line + (p->beta != 0 ? SK_FP8_ONE : SK_FP8_ZERO);
    return true;
}

static sk_status launch_plain(const sk_args *a, const sk_launch *l, const float *line)
{
    sk_product p;
    sk_letters outer;
    if (!as_products(a, line, &p, &outer)) return by_hand(a, l, line, NULL, NULL);
    int64_t n = sk_letters_count(&outer), at[3];
    for (int64_t i = 0; i < n; i++) {
        bool ran;
        sk_letters_locate(&outer, i, at);
        sk_product q = sk_product_at(&p, at);
        SK_TRY(sk_product_run(&q, l, &ran));
        if (!ran) SK_TRY(by_hand(a, l, line, at, &outer));
    }
    return SK_OK;
}

/* Tiles or a walk: what 16 bits would have gained from tensor cores is lost. */
static void take_own(const sk_args *a, const char *why, sk_variant *took)
{
    *took = sk_variant{};
    if ((a->in[0].type == SK_F32 && a->in[1].type == SK_F32) || takes_dots(a)) return;
    took->wanted = "cuBLASLt", took->why = why, took->slower = SK_WITHOUT_TENSOR_CORES;
}

static sk_status prepare_plain(const sk_args *a, const sk_launch *l, const float *line,
                               sk_variant *took)
{
    sk_product p;
    sk_letters outer;
    took->name = "cuBLASLt";
    if (!as_products(a, line, &p, &outer)) {
        take_own(a,
                 a->in[0].type != a->in[1].type
                     ? "operands are of two types"
                     : "it is no product of matrices, or many small ones",
                 took);
        return SK_OK;
    }
    int64_t n = sk_letters_count(&outer), at[3];
    for (int64_t i = 0; i < n; i++) {
        bool found;
        sk_letters_locate(&outer, i, at);
        sk_product q = sk_product_at(&p, at);
        SK_TRY(sk_product_prepare(&q, l, &found));
        if (!found) take_own(a, "cuBLASLt has no algorithm for operands that lie so", took);
    }
    return SK_OK;
}

/* ---- in 8 bits */

typedef sk_status doer(const sk_product *p, const sk_launch *l, bool *done);

/* The workspace behind the copies. */
static sk_status rest_of(const char *dims, const sk_fp8_plan *f, const sk_launch *l,
                         sk_launch *rest)
{
    if (f->bytes > l->workspace_bytes)
        return sk_fail(
            SK_ECONF,
            "contract: '%s' in 8 bits takes a workspace of %zu bytes and has %zu; leave out "
            "train.matmul=fp8",
            dims, f->bytes, l->workspace_bytes);
    *rest = *l;
    rest->workspace += f->bytes;
    rest->workspace_bytes -= f->bytes;
    return SK_OK;
}

/* All of the batch, or if cuBLASLt does not like that one after the other. */
static sk_status do_eight(const sk_product *p, const sk_launch *l, doer *act, bool *done)
{
    SK_TRY(act(p, l, done));
    if (*done || p->batch == 1) return SK_OK;
    for (int64_t i = 0; i < p->batch; i++) {
        sk_product q = *p;
        int64_t size = (int64_t)sk_dtype_size(p->d.type);
        q.batch = 1;
        q.a.data = (char *)p->a.data + i * p->a.step;
        q.b.data = (char *)p->b.data + i * p->b.step;
        q.d.data = (char *)p->d.data + i * p->d.step * size;
        SK_TRY(act(&q, l, i ? NULL : done));
        if (!*done) return SK_OK;
    }
    return SK_OK;
}

/* The contraction of the copies in 16 bits. */
static sk_args widened(const sk_args *a, const sk_fp8_plan *f, char *workspace)
{
    sk_args wide = *a;
    wide.attr[0] = 0;
    for (int i = 0; i < 2; i++) {
        wide.in[i].data = workspace + f->at[i];
        wide.in[i].type = f->type;
    }
    return wide;
}

static sk_status launch_eight(const sk_args *a, const sk_launch *l)
{
    sk_fp8_plan f;
    sk_launch rest;
    bool done = false;
    sk_fp8_plan_of(a, false, &f);
    if (f.eight) {
        sk_product p = sk_fp8_product(a, &f, l->workspace);
        SK_TRY(rest_of(a->dims, &f, l, &rest));
        SK_TRY(sk_fp8_fill(a, &f, l));
        SK_TRY(do_eight(&p, &rest, sk_product_run, &done));
        if (done) return SK_OK;
        sk_fp8_plan_of(a, true, &f);
    }
    SK_TRY(rest_of(a->dims, &f, l, &rest));
    SK_TRY(sk_fp8_fill(a, &f, l));
    sk_args wide = widened(a, &f, l->workspace);
    return launch_plain(&wide, &rest, (const float *)l->workspace);
}

/* Where the workspace is too small, the launch says so. */
static sk_status prepare_eight(const sk_args *a, const sk_launch *l, sk_variant *took)
{
    sk_fp8_plan f;
    sk_launch rest;
    bool done = false;
    sk_fp8_plan_of(a, false, &f);
    if (f.eight && f.bytes <= l->workspace_bytes) {
        sk_product p = sk_fp8_product(a, &f, l->workspace);
        SK_TRY(rest_of(a->dims, &f, l, &rest));
        SK_TRY(do_eight(&p, &rest, sk_product_prepare, &done));
        if (done) took->name = "cuBLASLt fp8";
        if (done) return SK_OK;
    }
    sk_fp8_plan_of(a, true, &f);
    if (f.bytes > l->workspace_bytes) return SK_OK;
    SK_TRY(rest_of(a->dims, &f, l, &rest));
    sk_args wide = widened(a, &f, l->workspace);
    SK_TRY(prepare_plain(&wide, &rest, (const float *)l->workspace, took));
    if (took->wanted) return SK_OK;
    took->wanted = "cuBLASLt fp8", took->slower = 2; /* the data sheet's rates */
    took->why = "its sizes or strides are not for 8 bits";
    return SK_OK;
}

/* ---- */

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    SK_TRY(check(a));
    if (!sk_count(&a->out[0])) return SK_OK;
    if (sk_args_canonical(a)) return sk_tree_product(a, l);
    return sk_fp8_is(a) ? launch_eight(a, l) : launch_plain(a, l, NULL);
}

static sk_status prepare(const sk_args *a, const sk_launch *l, sk_variant *took)
{
    SK_TRY(check(a));
    if (sk_args_canonical(a)) took->name = "tree";
    if (sk_args_canonical(a)) return SK_OK;
    return sk_fp8_is(a) ? prepare_eight(a, l, took) : prepare_plain(a, l, NULL, took);
}

extern "C" const sk_kernel sk_kernel_contract = {"contract", launch, prepare};
