/* execute_local.c - cells of SRC, DST and TMP, and the steps that need no other member. */
#include "coll/execution.h"
#include "coll/adasum_kernel.h"
#include "coll/sum_kernels.h"

/* --- cells --- */

char *sk_exec_cell(const sk_execution *e, sk_cell c)
{
    const sk_buffer_layout *s = &e->layout;
    bool part = sk_buffer_layout_is_part(s->kind, c.space);
    sk_assert(c.at >= 0 && c.at < e->cap_cells);
    if (e->schedule->coll->packs) return e->space[c.space] + (part ? 0 : c.at * s->stride);
    if (c.space == SK_TMP) return e->space[SK_TMP] + c.at * s->largest;
    if (part) return e->space[c.space];
    return e->space[c.space] + (s->at ? s->at[c.at] : c.at * s->largest);
}

/* Cells of TMP are as far apart as the largest chunk is long. */
bool sk_exec_in_a_row(const sk_execution *e, sk_cell c, const sk_step *t)
{
    if (c.space != SK_TMP || t->n == 1) return true;
    return sk_buffer_layout_span(&e->layout, t->chunk, t->n - 1) == (t->n - 1) * e->layout.largest;
}

/* Cells of an all-to-all have one size, and what is in those of SRC and DST may be shorter. */
int64_t *sk_exec_length(const sk_execution *e, sk_cell c)
{
    return &e->length[(int)c.space * e->cap_cells + c.at];
}

bool sk_exec_may_be_short(const sk_execution *e, const sk_step *t)
{
    return sk_kind_rows[e->layout.kind].counts || (e->layout.kind == SK_ALLTOALL && t->n == 1);
}

/* What came, or was copied, of an all-to-all-v. */
void sk_exec_set_length(sk_comm *c, sk_execution *e, sk_cell into, int64_t bytes)
{
    int64_t *counts = (int64_t *)(void *)(c->base + e->call->counts);
    *sk_exec_length(e, into) = bytes;
    int64_t row = e->call->segs[0].inner * e->layout.size;
    if (into.space == SK_DST) counts[e->layout.p + into.at] = row ? bytes / row : 0;
}

/* --- sums --- */

/* Vectors of an Adasum are the segments; its lists never cut. */
static void add_angles(const sk_execution *e, const char *a, const char *b, char *to)
{
    for (int i = 0; i < e->call->n_segs; i++) {
        int64_t n = sk_seg_count(&e->call->segs[i]), bytes = n * e->layout.size;
        sk_adasum(e->call->type, a, b, to, n);
        a += bytes;
        b += bytes;
        to += bytes;
    }
}

sk_reduce sk_exec_reduce(const sk_execution *e)
{
    return e->call->reduce == SK_MEAN ? SK_SUM : e->call->reduce;
}

static void add(const sk_execution *e, const char *a, const char *b, char *to, int64_t bytes)
{
    if (e->call->reduce == SK_ADASUM) {
        sk_assert(bytes == e->layout.total);
        add_angles(e, a, b, to);
        return;
    }
    const void *src[] = {a, b};
    void *dst[] = {to};
    sk_sum(e->call->type, sk_exec_reduce(e), 2, src, 1, dst, bytes / e->layout.size);
}

void sk_exec_copy(char *to, const char *from, int64_t bytes)
{
    if (bytes && to != from) memcpy(to, from, (size_t)bytes);
}

/* into = from, or from + with; `from` is cells in a row, or as far apart as those of TMP. */
void sk_exec_apply(const sk_execution *e, const sk_step *t, const char *from, bool apart, bool sums)
{
    bool whole =
        !apart && sk_exec_in_a_row(e, t->into, t) && (!sums || sk_exec_in_a_row(e, t->with, t));
    int m = whole ? t->n : 1;
    for (int j = 0; j < t->n; j += m) {
        int64_t skip =
            apart ? j * e->layout.largest : sk_buffer_layout_span(&e->layout, t->chunk, j);
        int64_t bytes = sk_buffer_layout_span(&e->layout, t->chunk + j, m);
        char *to = sk_exec_cell(e, sk_cell_at(t->into, j));
        if (sums) add(e, sk_exec_cell(e, sk_cell_at(t->with, j)), from + skip, to, bytes);
        else sk_exec_copy(to, from + skip, bytes);
    }
}

static void run_tree(const sk_execution *e, const sk_step *t)
{
    sk_assert(t->k <= e->layout.p && e->call->reduce != SK_ADASUM);
    for (int j = 0; j < t->k; j++)
        e->terms[j] = sk_exec_cell(e, j == t->own ? t->with : sk_cell_at(t->from, j));
    void *dst[] = {sk_exec_cell(e, t->into)};
    sk_sum(e->call->type, sk_exec_reduce(e), t->k, e->terms, 1, dst,
           sk_buffer_layout_span(&e->layout, t->chunk, 1) / e->layout.size);
}

void sk_exec_local(sk_comm *c, sk_execution *e, const sk_step *t)
{
    const char *from = sk_exec_cell(e, t->from);
    if (t->act == SK_STEP_TREE) run_tree(e, t);
    else if (sk_kind_rows[e->layout.kind].counts) {
        sk_exec_copy(sk_exec_cell(e, t->into), from, *sk_exec_length(e, t->from));
        sk_exec_set_length(c, e, t->into, *sk_exec_length(e, t->from));
    } else sk_exec_apply(e, t, from, !sk_exec_in_a_row(e, t->from, t), t->act == SK_STEP_SUM);
}
