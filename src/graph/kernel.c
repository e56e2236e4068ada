/* kernel.c - running one op's kernel on views, whatever their storage type. */
#include "graph/op.h"
#include "base/zigzag.h"

#include <string.h>

void sk_view_dense(sk_view *v)
{
    int64_t step = 1;
    for (int i = v->n - 1; i >= 0; i--) {
        v->step[i] = step;
        step *= v->size[i];
    }
}

int64_t sk_logical(const sk_view *v, int64_t i)
{
    int64_t index = 0, step = 1;
    for (int k = v->n - 1; k >= 0; k--) {
        int64_t at = v->at[k] + i % v->size[k];
        index += (v->zigzag[k] ? sk_zigzag(at, v->full[k], v->zigzag[k]) : at) * step;
        i /= v->size[k];
        step *= v->full[k];
    }
    return index;
}

int sk_view_cells(const sk_view *v, int d, int64_t border[SK_MOST_CELLS + 1])
{
    int64_t cells = v->cells[d], end = v->at[d] + v->size[d];
    int n = 0;
    border[0] = 0;
    for (int64_t i = 0; i < cells && v->size[d]; i++) {
        int64_t from = v->full[d] * i / cells, to = v->full[d] * (i + 1) / cells;
        if (from < v->at[d] || to > end) continue;
        border[++n] = to - v->at[d];
    }
    if (!n || border[n] != v->size[d]) border[n = 1] = v->size[d];
    return n;
}

static bool foreign(const sk_view *v) { return v->type == SK_BF16 || v->type == SK_F16; }

static size_t staged(const sk_view *v)
{
    size_t bytes = foreign(v) ? (size_t)sk_count(v) * sizeof(real) : 0;
    return (bytes + 63) / 64 * 64;
}

static size_t stage_bytes(const sk_args *a)
{
    size_t n = 0;
    for (int i = 0; i < a->n_in; i++) n += staged(&a->in[i]);
    for (int o = 0; o < a->n_out; o++) n += staged(&a->out[o]);
    return n;
}

size_t sk_op_scratch(const sk_op *op, const sk_args *a)
{
    size_t own = op->scratch ? (op->scratch(a) + 63) / 64 * 64 : 0;
    return own + stage_bytes(a);
}

static void borrow(sk_view *v, char **room, bool fill)
{
    if (!foreign(v)) return;
    char *to = *room;
    *room += staged(v);
    if (fill) sk_convert(to, SK_F32, v->data, v->type, sk_count(v));
    v->data = to;
    v->type = SK_F32;
}

/* Kernels know `real` alone.  Half-width operands are widened into scratch, by one thread, and
 * narrowed again: right first; kernels of their own come with mixed precision. */
static void run_staged(const sk_op *op, const sk_args *a)
{
    sk_args b = *a;
    char *room = (char *)a->scratch + sk_op_scratch(op, a) - stage_bytes(a);
    b.part = 0;
    b.of = 1;
    for (int i = 0; i < b.n_in; i++) borrow(&b.in[i], &room, true);
    for (int o = 0; o < b.n_out; o++) borrow(&b.out[o], &room, a->add >> o & 1);
    op->cpu(&b);
    for (int o = 0; o < b.n_out; o++)
        if (foreign(&a->out[o]))
            sk_convert(a->out[o].data, a->out[o].type, b.out[o].data, SK_F32, sk_count(&a->out[o]));
}

void sk_op_run_cpu(const sk_op *op, const sk_args *a)
{
    if (!stage_bytes(a)) op->cpu(a);
    else if (a->part == 0) run_staged(op, a);
}

double sk_op_flops(const sk_op *op, const sk_args *a)
{
    return op->flops ? op->flops(a) : (double)sk_count(&a->out[0]);
}
