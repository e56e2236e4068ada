/* contract.c - every product-and-sum of two tensors, described by its letters.
 *
 * "btc,cf->btf" is a linear layer, "bhqd,bhkd->bhqk" attention scores,
 * "ecd,edf->ecf" a bank of experts.  The gradient of a contraction is two more
 * contractions with the letters moved, so this file is the whole family.
 *
 * Letters fall into four kinds, batch, m, n and k (kernel/product.h).  Where those of
 * m, n and k lie in line, so that each kind acts like one dim, BLAS does the work, once per
 * batch element; otherwise an odometer does, a hundred times slower.  Threads
 * take batches, rows or columns of the result: no sum crosses threads, and each
 * calls BLAS for itself (run/ keeps BLAS single-threaded).
 *
 * In canonical order (graph/op.h) neither may choose its own order of adding:
 * kernel/cpu/tree_gemm.h takes the place of BLAS for every shape that lies in line, and the
 * odometer adds by the same recipe, so that a layout that forces one or the other changes no bit.
 *
 * attr[0] 1: in 8 bits (tensor/fp8_format.h).  Both operands are rounded first, each with one scale
 * for the shard that is here, and the product is that of the rounded numbers.  attr[1] 1 or 2: the
 * first or the second is a gradient, and rounded as such. */
#include "kernel/fp8_product.h"
#include "graph/extra.h"
#include "kernel/product.h"
#include "kernel/cpu/gemm.h"
#include "tensor/fp8_format.h"
#include "kernel/cpu/tree_gemm.h"

#include <math.h>

enum { A = SK_A, B = SK_B, OUT = SK_OUT };
enum {
    GRAIN = 16,  /* threads cut m and n at multiples of it */
    BLOCK = 8192 /* rows or columns for one call of BLAS: its packed copy of them stays small */
};

static int step_of(const sk_letter *l, int who) { return l->size > 1 ? (int)l->step[who] : 1; }

/* One row or column of results: a matrix [k, n] that is read once, at twice the speed of a
 * product of matrices.  Generating text is made of these. */
static void by_vector(const sk_args *a, const sk_matmul *p, const real *x, int step_x,
                      const real *y, sk_stored of, real *z, int step_z, int64_t n)
{
    int k = (int)p->k.size;
    for (int64_t i = 0; i < n && !(a->add & 1); i++) z[i * step_z] = 0; /* z may hold NaN */
    if (!k) return;
    GEMV(CblasRowMajor, of.turned ? CblasNoTrans : CblasTrans, of.turned ? (int)n : k,
         of.turned ? k : (int)n, (real)1, y, (int)of.ld, x, step_x, (real)1, z, step_z);
}

/* A result stored column by column turns the whole product: BLAS calls that column-major. */
static void product_of(const sk_args *a, const sk_matmul *p, const int64_t at[3], int64_t m,
                       int64_t n)
{
    const real *x = (const real *)a->in[0].data + at[A], *y = (const real *)a->in[1].data + at[B];
    real *z = (real *)a->out[0].data + at[OUT];
    sk_stored turned = {!p->a.turned, p->a.ld};
    if (!m || !n) return;
    if (p->m.size == 1) by_vector(a, p, x, step_of(&p->k, A), y, p->b, z, step_of(&p->n, OUT), n);
    else if (p->n.size == 1)
        by_vector(a, p, y, step_of(&p->k, B), x, turned, z, step_of(&p->m, OUT), m);
    else
        GEMM(p->out.turned ? CblasColMajor : CblasRowMajor,
             p->a.turned != p->out.turned ? CblasTrans : CblasNoTrans,
             p->b.turned != p->out.turned ? CblasTrans : CblasNoTrans, (int)m, (int)n,
             (int)p->k.size, (real)1, x, (int)p->a.ld, y, (int)p->b.ld, (real)(a->add & 1), z,
             (int)p->out.ld);
}

/* A vocabulary is long: in one call, OpenBLAS would pack 40 MB of it for each thread. */
static void in_blocks(const sk_args *a, const sk_matmul *p, const int64_t at[3], int64_t rows,
                      int64_t cols)
{
    for (int64_t i = 0; i < rows; i += BLOCK)
        for (int64_t k = 0; k < cols; k += BLOCK) {
            int64_t m = rows - i < BLOCK ? rows - i : BLOCK,
                    n = cols - k < BLOCK ? cols - k : BLOCK;
            int64_t to[3] = {at[A] + i * p->m.step[A], at[B] + k * p->n.step[B],
                             at[OUT] + i * p->m.step[OUT] + k * p->n.step[OUT]};
            product_of(a, p, to, m, n);
        }
}

static void share_grains(const sk_args *a, int64_t n, int64_t *from, int64_t *to)
{
    sk_share(a, (n + GRAIN - 1) / GRAIN, from, to);
    *from *= GRAIN;
    *to = *to * GRAIN < n ? *to * GRAIN : n;
}

/* Enough batches for all threads. */
static bool shares_batches(const sk_args *a, int64_t n) { return n >= 4 * a->of || n % a->of == 0; }

static void by_blas(const sk_args *a, const sk_letters *batch, const sk_matmul *p)
{
    int64_t n = sk_letters_count(batch), from = 0, to = n, at[3];
    bool whole = shares_batches(a, n);
    if (whole) sk_share(a, n, &from, &to);
    for (int64_t i = from; i < to; i++) {
        int64_t lo = 0, hi = 0, rows = p->m.size, cols = p->n.size;
        sk_letters_locate(batch, i, at);
        if (!whole && rows >= cols) {
            share_grains(a, p->m.size, &lo, &hi);
            rows = hi - lo;
            at[A] += lo * p->m.step[A];
            at[OUT] += lo * p->m.step[OUT];
        } else if (!whole) {
            share_grains(a, p->n.size, &lo, &hi);
            cols = hi - lo;
            at[B] += lo * p->n.step[B];
            at[OUT] += lo * p->n.step[OUT];
        }
        in_blocks(a, p, at, rows, cols);
    }
}

/* --- canonical order --- */

#define FMA _Generic((real)0, float : fmaf, double : fma)

static bool canonical(const sk_args *a)
{
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < a->in[i].n; d++)
            if (a->in[i].cells[d]) return true;
    return false;
}

/* Where the reduction blocks of the summed letters end, all flattened: those of the first, times
 * the rest. */
static int borders(const sk_letters *k, int64_t border[SK_REDUCTION_BLOCKS_MAX + 1])
{
    int64_t inner = 1;
    border[0] = 0;
    border[1] = 1;
    int cells = k->n ? sk_view_reduction_blocks(k->v[0].view, k->v[0].dim, border) : 1;
    for (int i = 1; i < k->n; i++) inner *= k->v[i].size;
    for (int i = 1; i <= cells; i++) border[i] *= inner;
    return cells;
}

/* The product of one batch element, still without addresses.  Summed letters that merge lie in one
 * operand, dense, so that the outermost is the one that the dims line names first: k runs in the
 * order of adding. */
static bool is_tree(const sk_letters by_kind[SK_N_ROLES], int64_t *border, sk_tree_gemm *g)
{
    sk_letter m, n, k;
    if (sizeof(real) != sizeof(float) || !sk_letters_merge(&by_kind[SK_ROWS], &m) ||
        !sk_letters_merge(&by_kind[SK_COLS], &n) || !sk_letters_merge(&by_kind[SK_SUMMED], &k))
        return false;
    *g = (sk_tree_gemm){.m = m.size, .n = n.size, .k = k.size, .of = 1, .border = border};
    g->a = (sk_tree_matrix){NULL, m.step[A], k.step[A]};
    g->b = (sk_tree_matrix){NULL, k.step[B], n.step[B]};
    g->c_row = m.step[OUT];
    g->c_col = n.step[OUT];
    g->cells = borders(&by_kind[SK_SUMMED], border);
    return true;
}

static void by_tree(const sk_args *a, const sk_letters *batch, sk_tree_gemm *g)
{
    int64_t n = sk_letters_count(batch), from = 0, to = n, at[3];
    if (shares_batches(a, n)) sk_share(a, n, &from, &to);
    else g->part = a->part, g->of = a->of;
    g->add = a->add & 1;
    g->scratch = a->scratch;
    for (int64_t i = from; i < to; i++) {
        sk_letters_locate(batch, i, at);
        g->a.at = (const float *)a->in[0].data + at[A];
        g->b.at = (const float *)a->in[1].data + at[B];
        g->c = (float *)a->out[0].data + at[OUT];
        sk_tree_gemm_run(g);
    }
}

/* Of one operand in 8 bits, as numbers. */
static size_t copy_bytes(const sk_args *a, int i)
{
    size_t bytes = sk_fp8_is(a) ? (size_t)sk_count(&a->in[i]) * sizeof(real) : 0;
    return (bytes + 63) / 64 * 64;
}

static size_t tree_scratch(const sk_args *a)
{
    sk_letters all, by_kind[SK_N_ROLES];
    int64_t border[SK_REDUCTION_BLOCKS_MAX + 1];
    sk_tree_gemm g;
    if (!canonical(a)) return 0;
    sk_letters_read(a, &all);
    sk_letters_sort(&all, by_kind);
    return is_tree(by_kind, border, &g) ? sk_tree_gemm_scratch(&g) : 0;
}

static size_t scratch(const sk_args *a)
{
    return copy_bytes(a, 0) + copy_bytes(a, 1) + tree_scratch(a);
}

/* --- the odometer --- */

typedef struct walk {
    const sk_letters *k;
    const real *x, *y; /* where the sum begins */
    bool canonical;
    int cells;
    int64_t border[SK_REDUCTION_BLOCKS_MAX + 1];
} walk;

static real sum_cell(const walk *w, int cell)
{
    real sum = 0;
    for (int64_t i = w->border[cell]; i < w->border[cell + 1]; i++) {
        int64_t in[3];
        sk_letters_locate(w->k, i, in);
        sum = FMA(w->x[in[A]], w->y[in[B]], sum);
    }
    return sum;
}

/* Reduction blocks [from, to), a subtree. */
static real sum_tree(const walk *w, int from, int to)
{
    if (to - from == 1) return sum_cell(w, from);
    real left = sum_tree(w, from, from + (to - from) / 2);
    return left + sum_tree(w, from + (to - from) / 2, to);
}

static real sum_fast(const walk *w)
{
    double sum = 0;
    for (int64_t i = 0; i < w->border[w->cells]; i++) {
        int64_t in[3];
        sk_letters_locate(w->k, i, in);
        sum += (double)w->x[in[A]] * (double)w->y[in[B]];
    }
    return (real)sum;
}

/* The reference: for each element of the result, walk the summed letters. */
static void by_odometer(const sk_args *a, const sk_letters *all, const sk_letters *k)
{
    walk w = {.k = k, .canonical = canonical(a)};
    real *z = a->out[0].data;
    sk_letters out = {0};
    int64_t from, to, at[3];
    w.cells = borders(k, w.border);
    for (int i = 0; i < all->n; i++)
        if (all->v[i].in[OUT]) out.v[out.n++] = all->v[i];
    sk_share(a, sk_letters_count(&out), &from, &to);
    for (int64_t o = from; o < to; o++) {
        sk_letters_locate(&out, o, at);
        w.x = (const real *)a->in[0].data + at[A];
        w.y = (const real *)a->in[1].data + at[B];
        real sum = w.canonical ? sum_tree(&w, 0, w.cells) : sum_fast(&w);
        z[at[OUT]] = a->add & 1 ? z[at[OUT]] + sum : sum;
    }
}

static void multiply(const sk_args *a)
{
    sk_letters all, by_kind[SK_N_ROLES];
    int64_t border[SK_REDUCTION_BLOCKS_MAX + 1];
    sk_tree_gemm g;
    sk_matmul p;
    sk_letters_read(a, &all);
    sk_letters_sort(&all, by_kind);
    if (!sk_count(&a->out[0])) return;
    if (canonical(a) && is_tree(by_kind, border, &g)) by_tree(a, &by_kind[SK_BATCH], &g);
    else if (!canonical(a) && sk_matmul_plan(by_kind, &p)) by_blas(a, &by_kind[SK_BATCH], &p);
    else by_odometer(a, &all, &by_kind[SK_SUMMED]);
}

/* --- in 8 bits --- */

static void round_to(real *to, const real *x, int64_t n, bool e5m2)
{
    real most = 0;
    for (int64_t i = 0; i < n; i++) {
        real size = x[i] < 0 ? -x[i] : x[i];
        if (size > most) most = size; /* not NaN, which stays by itself */
    }
    sk_fp8_scale s = sk_fp8_scale_of((float)most, e5m2);
    for (int64_t i = 0; i < n; i++)
        to[i] = (real)sk_fp8_round((float)x[i] * s.up, e5m2) * (real)s.down;
}

/* Every thread rounds for itself: there is no place to meet. */
static void cpu(const sk_args *a)
{
    sk_args b = *a;
    for (int i = 0; i < 2 && sk_fp8_is(a) && sk_count(&a->out[0]); i++) {
        round_to(b.scratch, a->in[i].data, sk_count(&a->in[i]), sk_fp8_gradient(a, i));
        b.in[i].data = b.scratch;
        b.scratch = (char *)b.scratch + copy_bytes(a, i);
    }
    multiply(&b);
}

static double flops(const sk_args *a)
{
    sk_letters all;
    double n = 2; /* beyond whole numbers, where a tensor of all words has a batch of millions */
    sk_letters_read(a, &all);
    for (int i = 0; i < all.n; i++) n *= (double)all.v[i].size;
    return n;
}

static void shape(const sk_args *a, sk_kernel_shape *s)
{
    sk_letters all, by_kind[SK_N_ROLES];
    sk_letters_read(a, &all);
    sk_letters_sort(&all, by_kind);
    s->kind = SK_KERNEL_PRODUCT;
    s->fp8 = sk_fp8_is(a);
    s->batch = sk_letters_count(&by_kind[SK_BATCH]);
    s->m = sk_letters_count(&by_kind[SK_ROWS]);
    s->n = sk_letters_count(&by_kind[SK_COLS]);
    s->k = sk_letters_count(&by_kind[SK_SUMMED]);
}

/* y = a.b  =>  da = dy.b with the letters "out,b->a", db = a.dy with "a,out->b".  db first: where b
 * is a weight, that is the last use of a, which can then give its memory to da. */
static void grad(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx)
{
    const char *a = y->letters_in[0], *b = y->letters_in[1], *o = y->letters_out[0];
    dx[1] = sk_contract(g, sk_print(g->arena, "%s,%s->%s", a, o, b), y->in[0], dy[0]);
    dx[0] = sk_contract(g, sk_print(g->arena, "%s,%s->%s", o, b, a), dy[0], y->in[1]);
    for (int i = 0; i < 2 && y->attr[0] != 0 && !g->status; i++) {
        dx[i]->from->attr[0] = y->attr[0];
        dx[i]->from->attr[1] = i + 1; /* where dy stands */
    }
}

/* --- extras of a weight --- */

/* Letters of `of` that are in `in`, or, with `not`, are not. */
static void letters_of(const char *of, const char *in, bool not, char out[SK_MAX_DIM + 1])
{
    int n = 0;
    for (; *of; of++)
        if ((strchr(in, *of) == NULL) == not ) out[n++] = *of;
    out[n] = 0;
}

/* x x' over all letters that the weight lacks; letters of the weight that x and the result share,
 * as that of experts, stay: a factor for each. */
static sk_tensor *factor(sk_graph *g, sk_tensor *x, const char *weight, const char *other)
{
    char mine[SK_MAX_DIM + 1], side[SK_MAX_DIM + 1], each[SK_MAX_DIM + 1];
    letters_of(weight, x->letters, false, mine);
    letters_of(mine, other, true, side);
    letters_of(mine, other, false, each);
    sk_tensor *copy = sk_with_copies(g, x, side);
    char copies[SK_MAX_DIM + 1] = "";
    for (int k = 0; side[k] && !g->status; k++) copies[k] = sk_letter_copy(g, side[k]);
    char *dims = sk_print(g->arena, "%s,%s->%s%s%s", x->letters, copy->letters, each, side, copies);
    return sk_read_copied(g, sk_contract(g, dims, x, copy));
}

static void factors(sk_graph *g, const sk_node *y, sk_tensor *const *dy, int i, sk_tensor *f[2])
{
    sk_tensor *x = y->in[1 - i];
    f[0] = factor(g, x, y->letters_in[i], y->letters_out[0]);
    f[1] = factor(g, dy[0], y->letters_in[i], x->letters);
}

/* Both operands in the order of the dims line: x of the other side, or the gradient of the result.
 */
static sk_tensor *product(sk_graph *g, sk_tensor *a, sk_tensor *b, const char *out)
{
    sk_tensor *t =
        sk_contract(g, sk_print(g->arena, "%s,%s->%s", a->letters, b->letters, out), a, b);
    t->from->wide = true;
    return t;
}

static sk_tensor *sample(SK_EXTRA_ARGS)
{
    (void)dx;
    return product(g, y->in[1 - i], dy[0], sk_print(g->arena, "%c%s", g->batch, y->letters_in[i]));
}

/* Letters of rows of a sample: of x, not of the weight, not the batch. */
static void rows_of(const sk_graph *g, const sk_tensor *x, const char *weight,
                    char out[SK_MAX_DIM + 1])
{
    const char batch[] = {g->batch, 0};
    char all[SK_MAX_DIM + 1];
    letters_of(x->letters, weight, true, all);
    letters_of(all, batch, true, out);
}

static void outer(const sk_node *y, int i, sk_outer *o) { o->side[0] = y->in[1 - i]; }

/* Of a sample of one row: (x g')^2 = x^2 (g^2)'. */
static sk_tensor *moment(SK_EXTRA_ARGS)
{
    (void)dx;
    sk_tensor *x = y->in[1 - i];
    char rows[SK_MAX_DIM + 1];
    rows_of(g, x, y->letters_in[i], rows);
    if (*rows) return NULL;
    sk_node *a = sk_apply(g, "mul", .in = {x, x}), *b = sk_apply(g, "mul", .in = {dy[0], dy[0]});
    return product(g, a->out[0], b->out[0], y->letters_in[i]);
}

static const sk_extra_rules extra = {
    .sample = sample, .outer = outer, .moment = moment, .factors = factors};

static const sk_sample samples[] = {
    {.in = {"m4k6", "k6n2"}, .dims = "mk,kn->mn"},
    {.in = {"m2k1", "k1n8200"}, .dims = "mk,kn->mn"}, /* more than one block */
    {.in = {"m8200k1", "k1n2"}, .dims = "mk,kn->mn"},
    {.in = {"b2t5c7", "c7f9"}, .dims = "btc,cf->btf"},
    {.in = {"b3t5c6", "v11c6"}, .dims = "btc,vc->btv"},
    {.in = {"b3t4f5", "b3t4c7"}, .dims = "btf,btc->fc"},
    {.in = {"b2t3c5", "c5h2s3d4"}, .dims = "btc,chsd->bthsd"},
    {.in = {"b2t3h2r1d4", "h2r1d4c5"}, .dims = "bthrd,hrdc->btc"},
    {.in = {"b2h3q4d5", "b2h3k6d5"}, .dims = "bhqd,bhkd->bhqk"},
    {.in = {"e3c4d2", "e3d2f5"}, .dims = "ecd,edf->ecf"},
    {.in = {"m37k5", "k5n19"}, .dims = "mk,kn->nm"},
    {.in = {"b2t1c5", "v53c5"}, .dims = "btc,vc->btv"},
    {.in = {"b1t1c5", "v53c5"}, .dims = "btc,vc->btv"},
    {.in = {"b1t1c5", "c5f39"}, .dims = "btc,cf->btf"},
    {.in = {"m23k5", "n1k5"}, .dims = "mk,nk->mn"},
    {.in = {"k5m23", "k5n1"}, .dims = "km,kn->nm"},
    {.in = {"t3f41", "t3c7"}, .dims = "tf,tc->fc"},
    {.in = {"k7", "k7"}, .dims = "k,k->"},
    {.in = {"b3t20s16", "b3t20s16"}, .dims = "bts,bts->b"}, /* inner products: these are long */
    {.in = {"b2k17003", "b2k17003"}, .dims = "bk,bk->b"},
    {.in = {"k301b3", "b3k301"}, .dims = "kb,bk->b"},
    {.in = {"m5", "n3"}, .dims = "m,n->mn"},
    {.in = {"m3a2k4b3", "k4b3n5"}, .dims = "makb,kbn->mna"}, /* these are the odometer's */
    {.in = {"m3k2l10", "l10k2n3"}, .dims = "mkl,lkn->mn"},
    {.in = {"k4m3b2", "n5b2k4"}, .dims = "kmb,nbk->mnb"},
    {.in = {"p3q3k4", "k4n4"}, .dims = "pqk,kn->qpn"}, /* p and q weigh the same */
    /* In 8 bits: a width that is no multiple of 16; a linear layer and its two gradients; experts,
     * a result that is stored column by column, the odometer. */
    {.in = {"b2t5c7", "c7f9"}, .dims = "btc,cf->btf", .attr = {1}, .coarse = true},
    {.in = {"b4t16c48", "c48f32"}, .dims = "btc,cf->btf", .attr = {1}, .coarse = true},
    {.in = {"b4t16c48", "b4t16f32"}, .dims = "btc,btf->cf", .attr = {1, 2}, .coarse = true},
    {.in = {"b4t16f32", "c48f32"}, .dims = "btf,cf->btc", .attr = {1, 1}, .coarse = true},
    {.in = {"e2b2x8c24", "f16e2c24"}, .dims = "ebxc,fec->ebxf", .attr = {1}, .coarse = true},
    {.in = {"m32k20", "k20n16"}, .dims = "mk,kn->nm", .attr = {1}, .coarse = true},
    {.in = {"m9k2l10", "l10k2n8"}, .dims = "mkl,lkn->mn", .attr = {1}, .coarse = true},
    {.in = {0}},
};

const sk_op sk_op_contract = {
    .name = "contract",
    .doc = "product of two tensors, summed over the letters missing in the result",
    .n_in = 2,
    .types = "ff>f",
    .flags = SK_OP_ADDS | SK_OP_HEAVY | SK_OP_FP8,
    .grad = grad,
    .extra = &extra,
    .flops = flops,
    .shape = shape,
    .scratch = scratch,
    .workspace = sk_fp8_workspace,
    .cpu = cpu,
    .samples = samples,
};
