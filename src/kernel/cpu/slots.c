/* slots.c - see slots.h. */
#include "kernel/slots.h"

enum {
    GRAIN = 16, /* columns: one cache line, so that threads do not share lines */
    STRIP = 256 /* columns that are summed at a time, in the first cache */
};

int64_t sk_slot(const sk_view *slot, int64_t i)
{
    if (slot->type == SK_I32) return ((const int32_t *)slot->data)[i];
    real s = ((const real *)slot->data)[i];
    return s >= 0 && s < SK_MOST_SLOTS ? (int64_t)s : -1;
}

int64_t sk_slot_expert(const sk_view *slot, int64_t i, int64_t capacity, int64_t experts)
{
    bool whole = slot->type == SK_I32;
    double s =
        whole ? (double)((const int32_t *)slot->data)[i] : (double)((const real *)slot->data)[i];
    if (!(s > -SK_MOST_SLOTS && s < SK_MOST_SLOTS) || (s > -1 && s < 0)) return -1;
    int64_t e = s < 0 ? (int64_t)(-1 - s) : (int64_t)s / capacity;
    return e < experts ? e : -1;
}

int64_t sk_slot_row(const sk_view *bank, int64_t slot, int64_t b)
{
    int64_t capacity = bank->full[2];
    if (slot < 0 || !capacity) return -1;
    int64_t e = slot / capacity - bank->at[0], place = slot % capacity - bank->at[2];
    if (e < 0 || e >= bank->size[0] || place < 0 || place >= bank->size[2]) return -1;
    return (e * bank->size[1] + b) * bank->size[2] + place;
}

static real gate_of(const sk_view *gate, int64_t i)
{
    return gate ? ((const real *)gate->data)[i] : 1;
}

/* ---- scattering */

static void clear(const sk_view *bank, int64_t b, int64_t from, int64_t to)
{
    int64_t places = bank->size[2], cols = bank->size[3];
    for (int64_t e = 0; e < bank->size[0]; e++)
        for (int64_t p = 0; p < places; p++) {
            int64_t row = (e * bank->size[1] + b) * places + p;
            memset((real *)bank->data + row * cols + from, 0, (size_t)(to - from) * sizeof(real));
        }
}

/* Columns [from, to) of one sequence. */
static void scatter(const sk_view *x, const sk_view *slot, const sk_view *gate, const sk_view *bank,
                    int64_t b, int64_t from, int64_t to)
{
    int64_t cols = bank->size[3], n = slot->size[1] * slot->size[2];
    clear(bank, b, from, to);
    for (int64_t i = b * n; i < (b + 1) * n; i++) {
        int64_t row = sk_slot_row(bank, sk_slot(slot, i), b);
        if (row < 0) continue;
        const real *restrict in = (const real *)x->data + i / slot->size[2] * cols;
        real *restrict out = (real *)bank->data + row * cols, w = gate_of(gate, i);
#pragma omp simd
        for (int64_t c = from; c < to; c++) out[c] += w * in[c];
    }
}

void sk_slots_scatter(const sk_args *a, const sk_view *x, const sk_view *slot, const sk_view *gate,
                      const sk_view *bank)
{
    int64_t cols = bank->size[3], grains = (cols + GRAIN - 1) / GRAIN, from, to;
    sk_share(a, bank->size[1] * grains, &from, &to);
    while (from < to) {
        int64_t b = from / grains, end = (b + 1) * grains < to ? (b + 1) * grains : to;
        int64_t first = (from - b * grains) * GRAIN, last = (end - b * grains) * GRAIN;
        scatter(x, slot, gate, bank, b, first, last < cols ? last : cols);
        from = end;
    }
}

/* ---- gathering */

typedef struct term {
    const real *row;
    real gate;
    int cell;
} term;

typedef struct table {
    const sk_view *bank, *slot, *gate;
    int64_t border[SK_REDUCTION_BLOCKS_MAX + 1];
    term *terms; /* room for one token's choices */
    real *part;  /* STRIP columns for each of them */
    int *cell;   /* of the parts */
} table;

size_t sk_slots_scratch(const sk_view *slot)
{
    return (size_t)slot->size[2] * (sizeof(term) + STRIP * sizeof(real) + sizeof(int));
}

/* The rows that token i has here, by cell. */
static int terms_of(const table *t, int64_t i)
{
    int64_t choices = t->slot->size[2], b = i / t->slot->size[1], cols = t->bank->size[3];
    int64_t expert_rows = t->bank->size[1] * t->bank->size[2];
    int n = 0;
    for (int64_t k = i * choices; k < (i + 1) * choices; k++) {
        int64_t row = sk_slot_row(t->bank, sk_slot(t->slot, k), b);
        if (row < 0) continue;
        term new = {(const real *)t->bank->data + row * cols, gate_of(t->gate, k), 0};
        while (row / expert_rows >= t->border[new.cell + 1]) new.cell++;
        int at = n++;
        for (; at && t->terms[at - 1].cell > new.cell; at--) t->terms[at] = t->terms[at - 1];
        t->terms[at] = new;
    }
    return n;
}

/* The columns of one term, added to the part of its reduction block. */
static int take(const table *t, int parts, const term *x, int64_t from, int64_t n)
{
    bool more = parts && t->cell[parts - 1] == x->cell;
    real *restrict to = t->part + (more ? parts - 1 : parts) * STRIP;
    const real *restrict row = x->row + from;
    real w = x->gate;
    if (more) {
#pragma omp simd
        for (int64_t c = 0; c < n; c++) to[c] += w * row[c];
        return parts;
    }
#pragma omp simd
    for (int64_t c = 0; c < n; c++) to[c] = (real)0 + w * row[c]; /* a sum from 0 is never -0 */
    t->cell[parts] = x->cell;
    return parts + 1;
}

/* One level of the tree: neighbours of one parent meet. */
static int climb(const table *t, int parts, int64_t n)
{
    int kept = 0;
    for (int i = 0; i < parts; i++) {
        const real *restrict mine = t->part + i * STRIP;
        int parent = t->cell[i] / 2;
        if (kept && t->cell[kept - 1] == parent) {
            real *restrict last = t->part + (kept - 1) * STRIP;
#pragma omp simd
            for (int64_t c = 0; c < n; c++) last[c] += mine[c];
            continue;
        }
        if (kept != i) memcpy(t->part + kept * STRIP, mine, (size_t)n * sizeof(real));
        t->cell[kept++] = parent;
    }
    return kept;
}

static void token(const table *t, int64_t i, real *y)
{
    int64_t cols = t->bank->size[3];
    int terms = terms_of(t, i);
    for (int64_t from = 0; from < cols; from += STRIP) {
        int64_t n = cols - from < STRIP ? cols - from : STRIP;
        int parts = 0;
        for (int k = 0; k < terms; k++) parts = take(t, parts, &t->terms[k], from, n);
        while (parts > 1) parts = climb(t, parts, n);
        if (parts) memcpy(y + from, t->part, (size_t)n * sizeof(real));
        else memset(y + from, 0, (size_t)n * sizeof(real));
    }
}

void sk_slots_gather(const sk_args *a, const sk_view *bank, const sk_view *slot,
                     const sk_view *gate, const sk_view *y)
{
    table t = {.bank = bank, .slot = slot, .gate = gate, .terms = a->scratch};
    int64_t from, to, choices = slot->size[2];
    t.part = (real *)(void *)(t.terms + choices);
    t.cell = (int *)(void *)(t.part + choices * STRIP);
    sk_view_reduction_blocks(bank, 0, t.border);
    sk_share(a, slot->size[0] * slot->size[1], &from, &to);
    for (int64_t i = from; i < to; i++) token(&t, i, (real *)y->data + i * y->size[2]);
}
