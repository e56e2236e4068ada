/* The product of order=canonical, bit for bit against its definition: a triple loop with fmaf and
 * a tree that is spelled out.  Shapes, steps, cells, threads and adding are drawn at random, on
 * every instruction set of this processor, and small enough tiles that all edges are met. Matrices
 * end where their memory ends, and memory between the elements of c must stay as it was. Then the
 * op `contract`, which uses it: every way that its letters can lie, whole, by threads, and as two
 * pieces along the first summed letter whose sum must have the bits of the whole.
 *
 *     tensor_tree_gemm --speed      the time of cblas_sgemm over ours, one thread */
#include "base/reduction_blocks.h"
#include "base/rng.h"
#include "device/blas_setup.h"
#include "graph/op.h"
#include "lib/check.h"
#include "kernel/cpu/tree_gemm.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

typedef struct trial {
    sk_tree_gemm g;
    int64_t border[SK_REDUCTION_BLOCKS_MAX + 1];
    size_t n_a, n_b, n_c; /* elements from the first to the last */
    float *a, *b, *c, *want, *got;
} trial;

static uint64_t drawn;

static int64_t draw(int64_t n) /* in [0, n) */
{
    return (int64_t)(sk_rng_uniform(7, 1, drawn++) * (double)n);
}

static float *room(size_t n)
{
    float *p = malloc((n ? n : 1) * sizeof *p);
    sk_assert(p);
    return p;
}

static float *numbers(size_t n)
{
    float *p = room(n);
    for (size_t i = 0; i < n; i++) p[i] = (float)(2 * sk_rng_uniform(7, 2, drawn++) - 1);
    return p;
}

/* --- the definition --- */

static float chain(const sk_tree_gemm *g, int64_t i, int64_t j, int cell)
{
    float s = 0;
    for (int64_t k = g->border[cell]; k < g->border[cell + 1]; k++)
        s = fmaf(g->a.at[i * g->a.row + k * g->a.col], g->b.at[k * g->b.row + j * g->b.col], s);
    return s;
}

static float tree(const sk_tree_gemm *g, int64_t i, int64_t j, int first, int cells)
{
    if (cells == 1) return chain(g, i, j, first);
    float left = tree(g, i, j, first, cells / 2);
    return left + tree(g, i, j, first + cells / 2, cells / 2);
}

static void define(const sk_tree_gemm *g, float *c)
{
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            float *to = c + i * g->c_row + j * g->c_col, sum = tree(g, i, j, 0, g->cells);
            *to = g->add ? *to + sum : sum;
        }
}

/* --- trials --- */

/* Steps of a matrix: 0 row by row, 1 column by column, 2 neither; at times with gaps. */
static size_t steps(int how, int64_t rows, int64_t cols, int64_t *row, int64_t *col)
{
    int64_t inner = how == 2 ? 2 + draw(2) : 1, gap = draw(2) * draw(5);
    if (draw(4) == 0) how = 1 + (how == 1);
    if (how == 1) *row = inner, *col = rows * inner + gap;
    else *col = inner, *row = cols * inner + gap;
    return rows && cols ? (size_t)((rows - 1) * *row + (cols - 1) * *col + 1) : 0;
}

static void even_borders(trial *t)
{
    for (int i = 0; i <= t->g.cells; i++) t->border[i] = t->g.k * i / t->g.cells;
    t->g.border = t->border;
}

/* Borders anywhere: empty cells, and long ones. */
static void odd_borders(trial *t)
{
    even_borders(t);
    for (int i = 1; i < t->g.cells; i++) {
        int64_t low = t->border[i - 1];
        t->border[i] = draw(3) ? low + draw(t->g.k - low + 1) / (1 + draw(4)) : low;
    }
}

static void fill(trial *t)
{
    sk_tree_gemm *g = &t->g;
    t->n_a = steps((int)draw(3), g->m, g->k, &g->a.row, &g->a.col);
    t->n_b = steps((int)draw(3), g->k, g->n, &g->b.row, &g->b.col);
    t->n_c = steps((int)draw(3), g->m, g->n, &g->c_row, &g->c_col);
    g->a.at = t->a = numbers(t->n_a);
    g->b.at = t->b = numbers(t->n_b);
    t->c = numbers(t->n_c);
    t->want = room(t->n_c);
    t->got = room(t->n_c);
    memcpy(t->want, t->c, t->n_c * sizeof(float));
}

static void empty(trial *t)
{
    free(t->a);
    free(t->b);
    free(t->c);
    free(t->want);
    free(t->got);
}

static void complain(const trial *t, size_t i)
{
    const sk_tree_gemm *g = &t->g;
    bad++;
    printf("set %d, m %d n %d k %d, a %d %d, b %d %d, c %d %d, %d cells, %d threads, add %d: "
           "number %zu of %zu is %.9g, %.9g is right\n",
           (int)g->set, (int)g->m, (int)g->n, (int)g->k, (int)g->a.row, (int)g->a.col,
           (int)g->b.row, (int)g->b.col, (int)g->c_row, (int)g->c_col, g->cells, g->of, g->add, i,
           t->n_c, (double)t->got[i], (double)t->want[i]);
}

static void run(trial *t, sk_tree_set set, int threads)
{
    sk_tree_gemm *g = &t->g;
    g->set = set;
    g->of = threads;
    g->c = t->got;
    memcpy(t->got, t->c, t->n_c * sizeof(float));
    size_t bytes = sk_tree_gemm_scratch(g);
    for (g->part = 0; g->part < threads; g->part++) {
        g->scratch = malloc(bytes);
        sk_assert(g->scratch);
        memset(g->scratch, 0xff, bytes); /* NaN */
        sk_tree_gemm_run(g);
        free(g->scratch);
    }
    checks++;
    for (size_t i = 0; i < t->n_c; i++)
        if (memcmp(&t->got[i], &t->want[i], sizeof(float))) {
            complain(t, i);
            return;
        }
}

static void try_all(trial *t)
{
    fill(t);
    define(&t->g, t->want);
    for (sk_tree_set set = SK_TREE_BEST; set <= SK_TREE_AVX512; set++)
        for (int threads = 1; threads <= 3 && sk_tree_gemm_has(set); threads++)
            run(t, set, threads);
    empty(t);
}

static void by_lot(void)
{
    trial t = {.g = {.m = draw(2) ? draw(20) : draw(70), .n = draw(2) ? draw(40) : draw(110)}};
    t.g.k = draw(4) ? draw(90) : draw(400);
    t.g.add = draw(2);
    t.g.cells = 1 << draw(7);
    if (draw(3)) even_borders(&t);
    else odd_borders(&t);
    try_all(&t);
}

/* Blocks of k that meet over slots of each tile's own, cells longer than a block, and more rows and
 * columns than one block has. */
static void by_hand(void)
{
    static const struct {
        int m, n, k, cells;
        bool odd;
    } shape[] = {
        {17, 37, 4500, 64, false}, {15, 33, 2600, 16, false}, {16, 34, 5000, 1, false},
        {15, 65, 4800, 4, true},   {29, 33, 3000, 2, false},  {3, 35, 7000, 8, true},
        {1060, 3, 40, 4, false},   {2, 1600, 30, 2, false},   {1030, 790, 5, 4, false},
        {300, 40, 1100, 32, true}, {1, 1, 1, 1, false},       {5, 7, 0, 1, false},
        {5, 7, 0, 4, false},       {0, 7, 5, 1, false},       {7, 0, 5, 1, false},
        {30, 70, 2049, 2, true},
    };
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        trial t = {.g = {.m = shape[i].m, .n = shape[i].n, .k = shape[i].k}};
        t.g.cells = shape[i].cells;
        t.g.add = i % 2;
        if (shape[i].odd) odd_borders(&t);
        else even_borders(&t);
        try_all(&t);
    }
}

/* --- contract --- */

typedef struct product {
    const char *dims;
    char letters[3][SK_MAX_DIM + 1], summed[2 * SK_MAX_DIM + 1];
    int64_t size[128], at[128]; /* by letter */
    sk_args args;
} product;

static void read_letters(product *p)
{
    int who = 0;
    for (const char *c = p->dims; *c; c++) {
        if (*c == ',' || *c == '>') who++;
        else if (*c != '-') p->letters[who][strlen(p->letters[who])] = *c;
    }
    for (who = 0; who < 2; who++)
        for (const char *c = p->letters[who]; *c; c++)
            if (!strchr(p->letters[2], *c) && !strchr(p->summed, *c))
                p->summed[strlen(p->summed)] = *c;
}

static void make_view(product *p, int who, sk_view *v, int cells)
{
    *v = (sk_view){.type = SK_F32, .n = (int)strlen(p->letters[who])};
    for (int d = 0; d < v->n; d++) {
        v->size[d] = v->full[d] = p->size[(int)p->letters[who][d]];
        v->cells[d] = (uint8_t)sk_reduction_blocks(v->full[d], cells);
    }
    sk_view_dense(v);
    v->data = numbers((size_t)sk_count(v));
}

static const float *element(const product *p, int who)
{
    const sk_view *v = who == 2 ? &p->args.out[0] : &p->args.in[who];
    const float *x = v->data;
    for (int d = 0; d < v->n; d++) x += v->step[d] * p->at[(int)p->letters[who][d]];
    return x;
}

/* Set the letters to the i-th combination, the first outermost. */
static void turn_to(product *p, const char *letters, int64_t i)
{
    for (int l = (int)strlen(letters) - 1; l >= 0; l--) {
        int64_t size = p->size[(int)letters[l]];
        p->at[(int)letters[l]] = i % size;
        i /= size;
    }
}

static float sum_cells(product *p, const int64_t *border, int cells)
{
    float s = 0;
    if (cells > 1) {
        s = sum_cells(p, border, cells / 2);
        return s + sum_cells(p, border + cells / 2, cells / 2);
    }
    for (int64_t i = border[0]; i < border[1]; i++) {
        turn_to(p, p->summed, i);
        s = fmaf(*element(p, 0), *element(p, 1), s);
    }
    return s;
}

static void define_product(product *p, int most, float *want)
{
    int64_t border[SK_REDUCTION_BLOCKS_MAX + 1], all = 1,
                                                 first = *p->summed ? p->size[(int)*p->summed] : 1;
    int cells = *p->summed ? sk_reduction_blocks(first, most) : 1;
    for (const char *c = p->summed; *c; c++) all *= p->size[(int)*c];
    for (int i = 0; i <= cells; i++) border[i] = first ? first * i / cells * (all / first) : 0;
    for (int64_t i = 0; i < sk_count(&p->args.out[0]); i++) {
        turn_to(p, p->letters[2], i);
        want[i] = sum_cells(p, border, cells);
    }
}

static void run_contract(sk_args a, int threads, float *out)
{
    const sk_op *op = sk_op_find("contract");
    a.out[0].data = out;
    a.of = threads;
    size_t bytes = sk_op_scratch(op, &a);
    for (a.part = 0; a.part < threads; a.part++) {
        a.scratch = malloc(bytes ? bytes : 1);
        sk_op_run_cpu(op, &a);
        free(a.scratch);
    }
}

static void same(const product *p, const char *what, const float *got, const float *want)
{
    int64_t n = sk_count(&p->args.out[0]);
    checks++;
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got)) {
            bad++;
            printf("contract %s, %s: number %d of %d is %.9g, %.9g is right\n", p->dims, what,
                   (int)i, (int)n, (double)got[i], (double)want[i]);
            return;
        }
}

/* Part i of 2 of an operand along the first summed letter, in memory of its own. */
static sk_view piece(const product *p, int who, int i)
{
    const sk_view *v = &p->args.in[who];
    const char *place = strchr(p->letters[who], *p->summed);
    sk_view part = *v;
    int d = place ? (int)(place - p->letters[who]) : 0, from = 0, to = v->cells[d];
    if (place) {
        sk_tree_part(&from, &to, i, 2);
        part.at[d] = v->full[d] * from / v->cells[d];
        part.size[d] = v->full[d] * to / v->cells[d] - part.at[d];
    }
    sk_view_dense(&part);
    float *x = part.data = room((size_t)sk_count(&part));
    for (int64_t e = 0; e < sk_count(&part); e++) x[e] = ((float *)v->data)[sk_logical(&part, e)];
    return part;
}

/* Two ranks that have half of the tree each. */
static void run_pieces(const product *p, float *sum)
{
    size_t n = (size_t)sk_count(&p->args.out[0]);
    float *part[2];
    for (int i = 0; i < 2; i++) {
        sk_args a = p->args;
        for (int who = 0; who < 2; who++) a.in[who] = piece(p, who, i);
        run_contract(a, 1, part[i] = room(n));
        for (int who = 0; who < 2; who++) free(a.in[who].data);
    }
    for (size_t i = 0; i < n; i++) sum[i] = part[0][i] + part[1][i];
    free(part[0]);
    free(part[1]);
}

static void check_product(product *p, int most)
{
    size_t n = (size_t)sk_count(&p->args.out[0]);
    float *want = room(n), *got = room(n), *before = p->args.out[0].data;
    define_product(p, most, want);
    for (int threads = 1; threads <= 3; threads++) {
        run_contract(p->args, threads, got);
        same(p, threads > 1 ? "threads" : "one thread", got, want);
    }
    if (*p->summed && sk_reduction_blocks(p->size[(int)*p->summed], most) > 1) {
        run_pieces(p, got);
        same(p, "two pieces", got, want);
    }
    memcpy(got, before, n * sizeof *got);
    for (size_t i = 0; i < n; i++) want[i] = before[i] + want[i];
    p->args.add = 1;
    run_contract(p->args, 1, got);
    same(p, "adding", got, want);
    free(want);
    free(got);
}

static void try_product(const char *dims, int most)
{
    product p = {.dims = dims};
    read_letters(&p);
    for (int c = 'a'; c <= 'z'; c++) p.size[c] = 1 + draw(draw(3) ? 9 : 40);
    if (*p.summed && !draw(6)) p.size[(int)*p.summed] = draw(2);
    if (!draw(4)) p.size['m'] = 1;
    if (!draw(4)) p.size['n'] = 1;
    p.args = (sk_args){.n_in = 2, .n_out = 1, .dims = dims};
    make_view(&p, 0, &p.args.in[0], most);
    make_view(&p, 1, &p.args.in[1], most);
    make_view(&p, 2, &p.args.out[0], most);
    check_product(&p, most);
    free(p.args.in[0].data);
    free(p.args.in[1].data);
    free(p.args.out[0].data);
}

static void contracts(void)
{
    static const char *const dims[] = {
        "mk,kn->mn",      "km,kn->mn",   "mk,nk->nm",   "km,nk->nm",   "bmk,bkn->bmn",
        "klm,kln->mn",    "mkl,nkl->mn", "mkl,lkn->mn", "lkm,kln->nm", "makb,kbn->mna",
        "kmb,nbk->mnb",   "k,k->",       "m,n->mn",     "kl,kl->",     "mk,n->mn",
        "pqk,kn->qpn",    "btf,btc->fc", "btc,cf->btf", "m,nkl->mn",   "k,l->",
        "bhqd,bhkd->bhqk"};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int most = 1; most <= SK_REDUCTION_BLOCKS_MAX; most *= 4)
            for (int again = 0; again < 3; again++) try_product(dims[i], most);
}

/* --- speed --- */

static int by_size(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Of this thread: what else runs on the machine does not count. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double time_one(trial *t, bool ours, bool turn_a, bool turn_b)
{
    sk_tree_gemm *g = &t->g;
    double start = now();
    if (ours) sk_tree_gemm_run(g);
    else
        cblas_sgemm(CblasRowMajor, turn_a ? CblasTrans : CblasNoTrans,
                    turn_b ? CblasTrans : CblasNoTrans, (int)g->m, (int)g->n, (int)g->k, 1, g->a.at,
                    (int)(turn_a ? g->m : g->k), g->b.at, (int)(turn_b ? g->k : g->n), 0, g->c,
                    (int)g->n);
    return now() - start;
}

static void speed_of(trial *t, bool turn_a, bool turn_b)
{
    enum { TIMES = 7 };
    sk_tree_gemm *g = &t->g;
    double times[2][TIMES], flops = 2 * (double)g->m * (double)g->n * (double)g->k;
    g->a.at = t->a = numbers((size_t)(g->m * g->k));
    g->b.at = t->b = numbers((size_t)(g->k * g->n));
    g->c = t->c = numbers((size_t)(g->m * g->n));
    g->a.row = turn_a ? 1 : g->k, g->a.col = turn_a ? g->m : 1;
    g->b.row = turn_b ? 1 : g->n, g->b.col = turn_b ? g->k : 1;
    g->c_row = g->n, g->c_col = 1, g->of = 1;
    even_borders(t);
    g->scratch = malloc(sk_tree_gemm_scratch(g));
    time_one(t, true, turn_a, turn_b);
    time_one(t, false, turn_a, turn_b);
    for (int i = 0; i < 2 * TIMES; i++) times[i % 2][i / 2] = time_one(t, i % 2, turn_a, turn_b);
    for (int i = 0; i < 2; i++) qsort(times[i], TIMES, sizeof(double), by_size);
    printf("m %4d n %4d k %4d %s%s %2d cells: blas %6.1f GF/s, ours %6.1f, ratio %.2f; "
           "scratch %.1f MB\n",
           (int)g->m, (int)g->n, (int)g->k, turn_a ? "a' " : "a  ", turn_b ? "b'" : "b ", g->cells,
           flops / times[0][TIMES / 2] * 1e-9, flops / times[1][TIMES / 2] * 1e-9,
           times[0][TIMES / 2] / times[1][TIMES / 2], (double)sk_tree_gemm_scratch(g) * 1e-6);
    free(g->scratch);
    empty(t);
}

static int speed(void)
{
    static const int shape[][4] = {
        {1024, 768, 768, 16},   {1024, 3072, 768, 16}, {1024, 768, 3072, 16},
        {1024, 3072, 3072, 16}, {768, 768, 8192, 64},  {768, 3072, 8192, 64},
    };
    openblas_set_num_threads(1);
    printf("%s\n", sk_blas_name());
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int how = 0; how < 3; how++) { /* forward, gradient of x, gradient of w */
            trial t = {.g = {.m = shape[i][0], .n = shape[i][1], .k = shape[i][2]}};
            t.g.cells = shape[i][3];
            speed_of(&t, how == 2, how == 1);
        }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--speed")) {
        sk_blas_wake(argv);
        return speed();
    }
    for (int i = 0; i < 150; i++) by_lot();
    by_hand();
    contracts();
    printf("tree_gemm: avx2 %d, avx512 %d; %d checks, %d bad\n", sk_tree_gemm_has(SK_TREE_AVX2),
           sk_tree_gemm_has(SK_TREE_AVX512), checks, bad);
    return bad != 0;
}
