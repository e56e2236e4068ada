/* embedding_grad.c - each row of dy added to the row of the table that it came from.
 *
 * Threads own columns, so that rows which occur twice are summed in the order
 * of the ids whatever the number of threads.
 *
 * In canonical order the ids are sorted first (by row, then by place), so that each row of the
 * table is one sum over reduction blocks; blocks without this id have nothing to add to it. */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"

enum { GRAIN = 16 }; /* columns: one cache line, so that threads do not share lines */

/* ---- in canonical order */

typedef struct sorted {
    const real *dy;    /* its first column of mine */
    int64_t cols, n;   /* between two rows; columns of mine */
    int64_t *end, *at; /* the ids of row r are at places at[end[r - 1]] to at[end[r]] */
    int64_t border[SK_REDUCTION_BLOCKS_MAX + 1]; /* of reduction blocks, in places */
} sorted;

static void add_one(const sorted *s, int64_t place, real *restrict y)
{
    const real *restrict g = s->dy + place * s->cols;
    int64_t n = s->n;
#pragma omp simd
    for (int64_t c = 0; c < n; c++) y[c] += g[c];
}

/* y = the places that hits [from, to) name, one after the other. */
static void add_places(const sorted *s, const int64_t *from, const int64_t *to, real *y)
{
    const real *g = s->dy + *from * s->cols;
    for (int64_t c = 0; c < s->n; c++) y[c] = g[c] + 0; /* no -0 */
    while (++from < to) add_one(s, *from, y);
}

static void add_cells(const sorted *s, const int64_t *border, int cells, const int64_t *from,
                      const int64_t *to, real *y);

/* y += the same over reduction blocks, from the right. */
static void join_cells(const sorted *s, const int64_t *border, int cells, const int64_t *from,
                       const int64_t *to, real *y)
{
    real right[SK_SUM_COLUMNS];
    add_cells(s, border, cells, from, to, right);
    for (int64_t c = 0; c < s->n; c++) y[c] += right[c];
}

/* The same over the reduction blocks of `border`, some of which have no hit: their zeros need no
 * adding. */
static void add_cells(const sorted *s, const int64_t *border, int cells, const int64_t *from,
                      const int64_t *to, real *y)
{
    const int64_t *middle = from;
    for (; cells > 1; cells /= 2) {
        for (middle = from; middle < to && *middle < border[cells / 2];) middle++;
        if (middle > from && middle < to) break;
        if (middle == from) border += cells / 2;
    }
    if (cells == 1) {
        add_places(s, from, to, y);
        return;
    }
    add_cells(s, border, cells / 2, from, middle, y);
    if (to - middle == 1) add_one(s, *middle, y);
    else join_cells(s, border + cells / 2, cells / 2, middle, to, y);
}

/* Counting sort of the ids that are here; keeps the order of places. */
static void sort_ids(sorted *s, const int32_t *id, int64_t n, int64_t first, int64_t rows)
{
    memset(s->end, 0, (size_t)(rows + 1) * sizeof *s->end);
    for (int64_t i = 0; i < n; i++)
        if (id[i] >= first && id[i] - first < rows) s->end[id[i] - first + 1]++;
    for (int64_t r = 0; r < rows; r++) s->end[r + 1] += s->end[r];
    for (int64_t i = 0; i < n; i++)
        if (id[i] >= first && id[i] - first < rows) s->at[s->end[id[i] - first]++] = i;
}

static void one_strip(const sk_args *a, const sorted *s, int cells, int64_t from)
{
    const sk_view *table = &a->out[0];
    bool add = a->add & 1;
    real sum[SK_SUM_COLUMNS];
    for (int64_t r = 0; r < table->size[0]; r++) {
        const int64_t *first = s->at + (r ? s->end[r - 1] : 0), *last = s->at + s->end[r];
        real *w = (real *)table->data + r * s->cols + from;
        if (first < last) {
            add_cells(s, s->border, cells, first, last, sum);
            sk_sum_put(w, sum, s->n, add);
        } else if (!add) memset(w, 0, (size_t)s->n * sizeof(real));
    }
}

static void by_cells(const sk_args *a, int64_t from, int64_t to)
{
    const sk_view *ids = &a->in[1], *table = &a->out[0];
    sorted s = {.cols = table->size[1], .end = a->scratch};
    int cells = sk_view_reduction_blocks(ids, 0, s.border);
    s.at = s.end + table->size[0] + 1;
    for (int k = 0; k <= cells; k++) s.border[k] *= sk_span(ids, 1, ids->n);
    sort_ids(&s, ids->data, sk_count(ids), table->at[0], table->size[0]);
    for (; from < to; from += s.n) {
        s.n = to - from < SK_SUM_COLUMNS ? to - from : SK_SUM_COLUMNS;
        s.dy = (const real *)a->in[0].data + from;
        one_strip(a, &s, cells, from);
    }
}

static bool canonical(const sk_args *a) { return a->in[1].n && a->in[1].cells[0]; }

static size_t scratch(const sk_args *a)
{
    int64_t n = a->out[0].size[0] + 1 + sk_count(&a->in[1]);
    return canonical(a) ? (size_t)n * sizeof(int64_t) : 0;
}

/* ---- in fast order */

static void in_order(const sk_args *a, int64_t from, int64_t to)
{
    const sk_view *table = &a->out[0];
    const real *dy = a->in[0].data;
    const int32_t *id = a->in[1].data;
    real *dw = table->data;
    int64_t rows = table->size[0], cols = table->size[1], n = sk_count(&a->in[1]);
    for (int64_t r = 0; r < rows && !(a->add & 1); r++)
        memset(dw + r * cols + from, 0, (size_t)(to - from) * sizeof(real));
    for (int64_t i = 0; i < n; i++) {
        int64_t row = id[i] - table->at[0];
        if (row < 0 || row >= rows) continue;
        const real *restrict g = dy + i * cols;
        real *restrict w = dw + row * cols;
#pragma omp simd
        for (int64_t c = from; c < to; c++) w[c] += g[c];
    }
}

static void cpu(const sk_args *a)
{
    int64_t cols = a->out[0].size[1], from, to;
    sk_share(a, (cols + GRAIN - 1) / GRAIN, &from, &to);
    from *= GRAIN;
    to = to * GRAIN < cols ? to * GRAIN : cols;
    if (from >= to) return;
    if (canonical(a)) by_cells(a, from, to);
    else in_order(a, from, to);
}

static double flops(const sk_args *a) { return (double)sk_count(&a->in[0]); }

static const sk_sample samples[] = {
    {.in = {"b2t3c8", "b2t3%10"}, .dims = "btc,bt->vc", .fresh = "v10"},
    {.in = {"b3t4c37", "b3t4%5"}, .dims = "btc,bt->vc", .fresh = "v5"},
    {.in = {"b37t3c21", "b37t3%9"}, .dims = "btc,bt->vc", .fresh = "v9"},
    {.in = {"n1c3", "n1%4"}, .dims = "nc,n->vc", .fresh = "v4"},
    {.in = {0}},
};

const sk_op sk_op_embedding_grad = {
    .name = "embedding_grad",
    .doc = "gradient of embedding with respect to its table",
    .n_in = 2,
    .types = "xi>f",
    .flags = SK_OP_ADDS | SK_OP_ROWS,
    .flops = flops,
    .scratch = scratch,
    .cpu = cpu,
    .samples = samples,
};
