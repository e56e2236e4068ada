/* tree_gemm.c - see tree_gemm.h.
 *
 * The usual shape of a fast product, with k cut where the tree allows it:
 *
 *     for each block of c         at most HIGH x WIDE
 *       for each block of k       at most DEEP, a subtree of reduction blocks or a part of one
 *         pack b of the block     [panel][k][cols]
 *         for each strip of rows  at most STRIP
 *           pack a of the strip   [panel][k][rows], stays in L2
 *           for each tile         a kernel per reduction block, its sums in registers
 *
 * Finished reduction blocks are added like the carries of a binary counter: slot l of a tile holds
 * the sum of 2^l reduction blocks until the next 2^l are done.  A block of k is 2^hot reduction
 * blocks, counted from the first, so slots below `hot` are empty whenever a block ends: all tiles
 * use the same ones, in L1.  Slots from there on wait for the next block, and each tile has its
 * own.  Where one reduction block is longer than DEEP its chain stops and goes on: storing an f32
 * and loading it again changes no bit.  Where all reduction blocks fit into one block, which is
 * most forward passes, nothing waits.
 *
 * Threads cut m or n, whichever has more tiles. */
#include "kernel/cpu/tree_gemm.h"

#include "base/reduction_blocks.h"
#include "base/status.h"
#include "kernel/cpu/tree_gemm_kernels.h"

#include <string.h>

enum {
    HIGH = 1024,
    WIDE = 768,
    STRIP = 256,
    DEEP = 1024,
    PACK = 16,
    LEVELS = 7, /* of slots: log2(SK_REDUCTION_BLOCKS_MAX) + 1 */
    LINE = 64   /* bytes */
};

typedef struct plan {
    sk_tree_gemm g; /* turned so that rows of c are in line, if they can be */
    const kernel *q;
    int64_t high, wide, strip, deep; /* the largest blocks; multiples of the tile but for deep */
    int levels, hot;
    bool cut;                              /* reduction blocks are longer than a block */
    int own;                               /* slots of each tile's own */
    float *pack_a, *pack_b, *slots, *kept; /* kept: [row of tiles][column of tiles][own] */
} plan;

/* A stretch of k: the reduction blocks [first, last), or a part of the reduction block `first`. */
typedef struct stretch {
    int64_t from, to;
    int first, last;
} stretch;

/* A block of c, or what is left of it. */
typedef struct area {
    int64_t i, j, rows, cols;
} area;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* The size of each part where n is cut into equal parts of at most `most`, in whole tiles. */
static int64_t even(int64_t n, int64_t most, int64_t tile)
{
    int64_t parts = n > most ? (n + most - 1) / most : 1;
    return up((n + parts - 1) / parts, tile);
}

/* --- which kernels --- */

bool sk_tree_gemm_has(sk_tree_set set)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    if (set == SK_TREE_AVX512) return __builtin_cpu_supports("avx512f");
    if (set == SK_TREE_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return set == SK_TREE_BEST || set == SK_TREE_PLAIN;
}

static const kernel *choose(sk_tree_set set)
{
    sk_assert(sk_tree_gemm_has(set));
    bool best = set == SK_TREE_BEST;
#ifdef __x86_64__
    if (set == SK_TREE_AVX512 || (best && sk_tree_gemm_has(SK_TREE_AVX512))) return &avx512;
    if (set == SK_TREE_AVX2 || (best && sk_tree_gemm_has(SK_TREE_AVX2))) return &avx2;
#endif
    return &plain;
}

/* --- plan --- */

/* The longest stretch of k that `cells` reduction blocks take, where such groups begin at the
 * first.
 */
static int64_t longest(const sk_tree_gemm *g, int cells)
{
    int64_t most = 0;
    for (int i = 0; i < g->cells; i += cells) {
        int64_t n = g->border[i + cells] - g->border[i];
        if (n > most) most = n;
    }
    return most;
}

static void plan_cells(plan *p)
{
    const sk_tree_gemm *g = &p->g;
    while (1 << p->levels < g->cells) p->levels++;
    while (p->hot < p->levels && longest(g, 2 << p->hot) <= DEEP) p->hot++;
    p->deep = least(longest(g, 1 << p->hot), DEEP);
    p->cut = longest(g, 1) > DEEP;
    p->own = p->levels - p->hot + p->cut;
}

/* c stored column by column is the product of the turned matrices. */
static void turn_over(sk_tree_gemm *g)
{
    sk_tree_gemm old = *g;
    g->m = old.n;
    g->n = old.m;
    g->a = (sk_tree_matrix){old.b.at, old.b.col, old.b.row};
    g->b = (sk_tree_matrix){old.a.at, old.a.col, old.a.row};
    g->c_row = old.c_col;
    g->c_col = old.c_row;
}

static plan make_plan(const sk_tree_gemm *g)
{
    plan p = {.g = *g, .q = choose(g->set)};
    sk_assert(g->cells >= 1 && g->cells <= SK_REDUCTION_BLOCKS_MAX && !(g->cells & (g->cells - 1)));
    sk_assert(g->border[0] == 0 && g->border[g->cells] == g->k);
    if (g->c_col != 1 && g->c_row == 1) turn_over(&p.g);
    plan_cells(&p);
    p.high = even(p.g.m, HIGH, p.q->rows);
    p.wide = even(p.g.n, WIDE, p.q->cols);
    p.strip = even(p.high, STRIP, p.q->rows);
    return p;
}

/* --- scratch: packed a | packed b | slots of all tiles | slots of each tile --- */

static int64_t tile_size(const plan *p) { return (int64_t)p->q->rows * p->q->cols; }
static int64_t floats(int64_t n) { return up(n, LINE / (int64_t)sizeof(float)); }
static int64_t floats_a(const plan *p) { return floats(p->strip * p->deep); }
static int64_t floats_b(const plan *p) { return floats(p->wide * p->deep); }
static int64_t floats_slots(const plan *p) { return (p->hot + 1) * tile_size(p); }

size_t sk_tree_gemm_scratch(const sk_tree_gemm *g)
{
    plan p = make_plan(g);
    int64_t n = floats_a(&p) + floats_b(&p) + floats_slots(&p) + p.high * p.wide * p.own;
    return (size_t)n * sizeof(float) + LINE;
}

static void place(plan *p)
{
    uintptr_t at = ((uintptr_t)p->g.scratch + LINE - 1) / LINE * LINE;
    p->pack_a = (float *)at;
    p->pack_b = p->pack_a + floats_a(p);
    p->slots = p->pack_b + floats_b(p);
    p->kept = p->slots + floats_slots(p);
}

/* --- packing --- */

/* A panel of fewer lines than the tile has, or of odd steps; what is missing is 0. */
static void pack_slow(int64_t k, int64_t n, int width, const float *from, int64_t across,
                      int64_t along, float *to)
{
    memset(to, 0, (size_t)(k * width) * sizeof *to);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++) to[j * width + i] = from[i * across + j * along];
}

/* Elements of a panel are moved in groups of 8 (or 4); where these do not divide its width, the
 * last overlaps the one before. */
static int group(int width) { return width >= 8 ? 8 : 4; }
static int group_at(int width, int i) { return (int)least(i, width - group(width)); }

static void pack_turned(const kernel *q, int64_t k, int width, const float *from, int64_t across,
                        float *to)
{
    for (int i = 0; i < width; i += group(width)) {
        int at = group_at(width, i);
        q->turn(k, group(width), from + at * across, across, to + at, width);
    }
}

static void pack_straight(int64_t k, int width, const float *from, int64_t along, float *to)
{
    for (int64_t j = 0; j < k; j++)
        for (int i = 0; i < width; i += group(width)) {
            const float *x = from + j * along + group_at(width, i);
            float *y = to + j * width + group_at(width, i);
            if (width >= 8) memcpy(y, x, 8 * sizeof *y);
            else memcpy(y, x, 4 * sizeof *y);
        }
}

/* n lines, `across` apart, as panels [k][width].  Memory is read in the order in which it lies:
 * panel after panel, or, where k runs across it, a few steps of k for all panels at a time. */
static void pack(const kernel *q, int width, int64_t n, int64_t k, const float *from,
                 int64_t across, int64_t along, float *to)
{
    int64_t step = across == 1 ? PACK : k;
    for (int64_t j = 0; j < k; j += step)
        for (int64_t i = 0; i < n; i += width) {
            const float *x = from + i * across + j * along;
            float *y = to + i * k + j * width;
            int64_t deep = least(k - j, step);
            if (n - i < width) pack_slow(deep, n - i, width, x, across, along, y);
            else if (across == 1) pack_straight(deep, width, x, along, y);
            else if (along == 1) pack_turned(q, deep, width, x, across, y);
            else pack_slow(deep, width, width, x, across, along, y);
        }
}

/* --- tiles --- */

static float *slot(const plan *p, float *own, int level)
{
    if (level < p->hot) return p->slots + level * tile_size(p);
    return level == p->levels ? p->slots + p->hot * tile_size(p)
                              : own + (level - p->hot) * tile_size(p);
}

static int carries(int cell)
{
    int n = 0;
    while (cell >> n & 1) n++;
    return n;
}

/* One reduction block, or a part of one. */
static void run_cell(const plan *p, const stretch *s, int cell, const float *a, const float *b,
                     float *const *slots)
{
    const int64_t *border = p->g.border;
    int64_t from = p->cut ? s->from : border[cell], to = p->cut ? s->to : border[cell + 1];
    int64_t at = from - s->from;
    int n = carries(cell);
    float *partial = slots[LEVELS];
    const float *start = from > border[cell] ? partial : NULL;
    a += at * p->q->rows;
    b += at * p->q->cols;
    if (to < border[cell + 1]) p->q->chain(to - from, a, b, start, slots, 0, partial);
    else p->q->chain(to - from, a, b, start, slots, n, slots[n]);
}

static void run_tile(const plan *p, const stretch *s, const float *a, const float *b, float *own)
{
    float *slots[LEVELS + 1];
    for (int l = 0; l < LEVELS; l++) slots[l] = l <= p->levels ? slot(p, own, l) : NULL;
    slots[LEVELS] = own + (p->levels - p->hot) * tile_size(p);
    for (int cell = s->first; cell < s->last; cell++) run_cell(p, s, cell, a, b, slots);
}

static void put_row(float *to, int64_t step, const float *from, int64_t n, bool add)
{
    if (step == 1 && add)
        for (int64_t j = 0; j < n; j++) to[j] += from[j];
    else if (step == 1) memcpy(to, from, (size_t)n * sizeof *to);
    else
        for (int64_t j = 0; j < n; j++) to[j * step] = add ? to[j * step] + from[j] : from[j];
}

/* The tile that begins at (i, j) of c, as far as the block goes. */
static area tile_at(const plan *p, const area *block, int64_t i, int64_t j)
{
    return (area){i, j, least(block->i + block->rows - i, p->q->rows),
                  least(block->j + block->cols - j, p->q->cols)};
}

/* Rows of c are pages apart.  Asked for before the sums are made, they are here when these are
 * done: a tenth of the time where c is wide and k is short. */
static void call_tile(const plan *p, const area *t)
{
    const float *to = p->g.c + t->i * p->g.c_row + t->j * p->g.c_col;
    for (int64_t r = 0; r < t->rows && p->g.c_col == 1; r++, to += p->g.c_row) {
        for (int64_t j = 0; j < t->cols; j += LINE / (int64_t)sizeof *to)
            __builtin_prefetch(to + j, 1);
        __builtin_prefetch(to + t->cols - 1, 1);
    }
}

static void put_tile(const plan *p, const area *t)
{
    const float *from = slot(p, NULL, p->levels);
    float *to = p->g.c + t->i * p->g.c_row + t->j * p->g.c_col;
    for (int64_t r = 0; r < t->rows; r++, to += p->g.c_row, from += p->q->cols)
        put_row(to, p->g.c_col, from, t->cols, p->g.add);
}

/* --- blocks --- */

/* A strip of the block, from row i on. */
static void run_strip(const plan *p, const area *block, const stretch *s, int64_t i)
{
    const sk_tree_gemm *g = &p->g;
    int64_t k = s->to - s->from, rows = least(block->i + block->rows - i, p->strip);
    bool last = s->last == g->cells && s->to == g->k;
    if (k) /* a shard without elements may have no address */
        pack(p->q, p->q->rows, rows, k, g->a.at + i * g->a.row + s->from * g->a.col, g->a.row,
             g->a.col, p->pack_a);
    for (int64_t y = 0; y < block->cols; y += p->q->cols)
        for (int64_t x = 0; x < rows; x += p->q->rows) {
            area tile = tile_at(p, block, i + x, block->j + y);
            int64_t row = i - block->i + x;
            float *own = p->kept + (row * p->wide + y * p->q->rows) * p->own;
            if (last) call_tile(p, &tile);
            run_tile(p, s, p->pack_a + x * k, p->pack_b + y * k, own);
            if (last) put_tile(p, &tile);
        }
}

static void run_stretch(const plan *p, const area *block, const stretch *s)
{
    const sk_tree_gemm *g = &p->g;
    int64_t k = s->to - s->from;
    if (k)
        pack(p->q, p->q->cols, block->cols, k, g->b.at + s->from * g->b.row + block->j * g->b.col,
             g->b.col, g->b.row, p->pack_b);
    for (int64_t i = 0; i < block->rows; i += p->strip) run_strip(p, block, s, block->i + i);
}

static void run_block(const plan *p, const area *block)
{
    const int64_t *border = p->g.border;
    int cells = 1 << p->hot;
    for (int i = 0; i < p->g.cells; i += cells) {
        stretch s = {border[i], border[i], i, i + cells};
        do {
            s.from = s.to;
            s.to = least(border[i + cells], s.from + p->deep);
            run_stretch(p, block, &s);
        } while (s.to < border[i + cells]);
    }
}

/* This thread's share of n lines, in whole tiles. */
static void share(const sk_tree_gemm *g, int64_t n, int tile, int64_t *from, int64_t *count)
{
    int64_t tiles = (n + tile - 1) / tile;
    *from = tiles * g->part / g->of * tile;
    *count = least(tiles * (g->part + 1) / g->of * tile, n) - *from;
}

static area my_area(const plan *p)
{
    const sk_tree_gemm *g = &p->g;
    area mine = {0, 0, g->m, g->n};
    if (g->m / p->q->rows >= g->n / p->q->cols) share(g, g->m, p->q->rows, &mine.i, &mine.rows);
    else share(g, g->n, p->q->cols, &mine.j, &mine.cols);
    return mine;
}

void sk_tree_gemm_run(const sk_tree_gemm *g)
{
    plan p = make_plan(g);
    area all = my_area(&p);
    place(&p);
    for (int64_t j = 0; j < all.cols; j += p.wide)
        for (int64_t i = 0; i < all.rows; i += p.high) {
            area block = {all.i + i, all.j + j, least(all.rows - i, p.high),
                          least(all.cols - j, p.wide)};
            run_block(&p, &block);
        }
}
