/* buffer_layout.c - where chunks, staging and packed copies lie, for the shapes of one call. */
#include "coll/buffer_layout.h"
#include "coll/execute.h"
#include "coll/sparse_stream.h"

enum { LINE = 64, GRAIN = 32, GRAINED = 1024 };

static int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

bool sk_buffer_layout_is_part(sk_coll_kind kind, sk_space space)
{
    if (space == SK_SRC) return sk_kind_rows[kind].src == SK_OPERAND_PART;
    return space == SK_DST && sk_kind_rows[kind].dst == SK_OPERAND_PART;
}

/* --- chunks --- */

static int64_t part_bytes(const sk_buffer_layout *s, const sk_seg *segs, int n_segs, int i)
{
    int64_t n = 0;
    for (int k = 0; k < n_segs; k++)
        if (!segs[k].swap) n += segs[k].outer * sk_seg_rows(&segs[k], i, s->p).n * segs[k].inner;
    return n * s->size;
}

/* What two members exchange depends on both: room for the most. */
static int64_t swap_bytes(const sk_buffer_layout *s, const sk_seg *segs, int n_segs)
{
    int64_t n = 0;
    for (int k = 0; k < n_segs; k++)
        if (segs[k].swap) n += sk_seg_largest(&segs[k], s->p);
    return n * s->size;
}

/* Where a chunk of a vector of n elements that the list cuts as it likes begins: on cache lines
 * when chunks are long, at rows when they will be packed row by row. */
static int64_t cut_at(const sk_compiled_schedule *f, const sk_buffer_layout *s, int64_t n, int i)
{
    int64_t at = sk_even_at(n, i, s->cells);
    if (i == s->cells) return n;
    if (f->coll->packs) return at / s->row * s->row;
    return n / s->cells >= GRAINED ? at / GRAIN * GRAIN : at;
}

static void lay_chunks(const sk_compiled_schedule *f, const sk_seg *segs, int n_segs,
                       sk_buffer_layout *s, int64_t *at)
{
    int64_t n = 0, swapped = swap_bytes(s, segs, n_segs);
    for (int k = 0; k < n_segs; k++) n += sk_seg_count(&segs[k]);
    for (int i = 0; i < s->cells; i++) {
        int64_t bytes = sk_kind_cut(s->kind)
                            ? swapped + part_bytes(s, segs, n_segs, i)
                            : (cut_at(f, s, n, i + 1) - cut_at(f, s, n, i)) * s->size;
        if (sk_kind_rows[s->kind].counts) bytes = n * s->size;
        if (bytes > s->largest) s->largest = bytes;
        at[i] = s->total;
        s->total += bytes;
    }
    at[s->cells] = s->total;
    s->at = at;
    if (!sk_kind_blocks(s->kind)) return;
    s->at = NULL;
    s->total = s->cells * s->largest;
}

static int64_t row_length(const sk_seg *segs, int n_segs)
{
    int64_t row = n_segs ? segs[0].inner : 1;
    for (int k = 1; k < n_segs; k++)
        if (segs[k].inner != row) return 1;
    return row > 0 ? row : 1;
}

int64_t sk_buffer_layout_span(const sk_buffer_layout *s, int chunk, int n)
{
    return s->at ? s->at[chunk + n] - s->at[chunk] : n * s->largest;
}

int64_t sk_buffer_layout_bytes(const sk_buffer_layout *s, sk_space space)
{
    return sk_buffer_layout_is_part(s->kind, space) ? sk_buffer_layout_span(s, s->me, 1) : s->total;
}

/* --- buffers --- */

/* The part of a segment that belongs to one chunk: n runs of `bytes`, `stride` apart. */
typedef struct runs {
    int64_t at, n, bytes, stride;
} runs;

/* What I have for the member of a chunk, or get from it. */
static runs find_block(const sk_buffer_layout *s, const sk_seg *g, sk_space space, int chunk)
{
    bool src = space == SK_SRC;
    sk_block b = sk_seg_block(g, src ? s->me : chunk, src ? chunk : s->me, s->p);
    sk_side side = src ? b.src : b.dst;
    int64_t at = (src ? g->src : g->dst) + side.at * s->size, run = b.run * s->size;
    if (side.near == b.run) return (runs){at, b.outer, b.runs * run, side.far * s->size};
    return (runs){at, b.outer * b.runs, run, side.near * s->size};
}

static runs find_runs(const sk_buffer_layout *s, const sk_seg *g, sk_space space, int chunk)
{
    int64_t at = space == SK_SRC ? g->src : g->dst, row = g->inner * s->size;
    if (!sk_kind_cut(s->kind)) return (runs){at, 1, g->outer * g->n * row, 0};
    if (s->kind == SK_ALLTOALL) return find_block(s, g, space, chunk);
    bool mine = sk_buffer_layout_is_part(s->kind, space);
    sk_rows part = sk_seg_rows(g, mine ? s->me : chunk, s->p);
    if (mine) return (runs){at, 1, g->outer * part.n * row, 0};
    return (runs){at + part.at * row, g->outer, part.n * row, g->n * row};
}

static void move(char *packed, char *user, int64_t bytes, sk_pack_direction way)
{
    if (!bytes) return;
    if (way == SK_PACK) memcpy(packed, user, (size_t)bytes);
    else memcpy(user, packed, (size_t)bytes);
}

void sk_buffer_layout_pack(const sk_buffer_layout *s, const sk_seg *segs, int n_segs,
                           sk_space space, sk_pack_direction way, char *base, char *cells)
{
    bool whole = sk_kind_cut(s->kind) && !sk_buffer_layout_is_part(s->kind, space);
    for (int i = 0; i < (whole ? s->cells : 1); i++) {
        char *to = whole ? cells + (s->at ? s->at[i] : i * s->largest) : cells;
        for (int k = 0; k < n_segs; k++) {
            runs r = find_runs(s, &segs[k], space, i);
            for (int64_t j = 0; j < r.n; j++, to += r.bytes)
                move(to, base + r.at + j * r.stride, r.bytes, way);
        }
    }
}

/* What chunk i of a vector that the list cuts as it likes has of the segments. */
static void move_range(const sk_buffer_layout *s, const sk_seg *segs, int n_segs, sk_space space,
                       sk_pack_direction way, char *base, int i, char *chunk)
{
    int64_t from = s->at[i], to = s->at[i + 1], at = 0;
    for (int k = 0; k < n_segs; k++) {
        int64_t bytes = sk_seg_count(&segs[k]) * s->size;
        int64_t lo = from > at ? from : at, hi = to < at + bytes ? to : at + bytes;
        char *user = base + (space == SK_SRC ? segs[k].src : segs[k].dst);
        if (hi > lo) move(chunk + (lo - from), user + (lo - at), hi - lo, way);
        at += bytes;
    }
}

void sk_buffer_layout_pack_chunk(const sk_buffer_layout *s, const sk_seg *segs, int n_segs,
                                 sk_space space, sk_pack_direction way, char *base, int i,
                                 char *chunk)
{
    if (!sk_kind_cut(s->kind)) {
        move_range(s, segs, n_segs, space, way, base, i, chunk);
        return;
    }
    for (int k = 0; k < n_segs; k++) {
        runs r = find_runs(s, &segs[k], space, i);
        for (int64_t j = 0; j < r.n; j++, chunk += r.bytes)
            move(chunk, base + r.at + j * r.stride, r.bytes, way);
    }
}

/* Do segments follow each other in memory? */
static bool adjacent(const sk_buffer_layout *s, const sk_seg *segs, int n_segs, sk_space space)
{
    for (int k = 0; k + 1 < n_segs; k++) {
        runs a = find_runs(s, &segs[k], space, 0), b = find_runs(s, &segs[k + 1], space, 0);
        if (a.at + a.bytes != b.at) return false;
    }
    return true;
}

/* Are the chunks in a row where the caller has them? */
static bool in_a_row(const sk_buffer_layout *s, const sk_seg *segs, int n_segs, sk_space space,
                     bool placed)
{
    if (sk_kind_rows[s->kind].counts || !n_segs) return true;
    if (!sk_kind_cut(s->kind) || sk_buffer_layout_is_part(s->kind, space))
        return n_segs == 1 || (placed && adjacent(s, segs, n_segs, space));
    if (n_segs > 1) return false;
    if (s->kind != SK_ALLTOALL) return segs->outer == 1;
    runs first = find_runs(s, segs, space, 0);
    return sk_seg_uniform(segs, s->p) && (first.n == 1 || first.stride == first.bytes);
}

/* Are SRC and DST one memory? */
static bool in_place(const sk_buffer_layout *s, const sk_seg *segs, int n_segs, bool placed)
{
    if (sk_kind_blocks(s->kind)) return false;
    if (!placed || !n_segs) return true;
    if (!sk_kind_cut(s->kind)) return segs->src == segs->dst;
    return sk_buffer_layout_is_part(s->kind, SK_DST) ? segs->dst == segs->src + s->at[s->me]
                                                     : segs->src == segs->dst + s->at[s->me];
}

static void find_packed(const sk_compiled_schedule *f, const sk_seg *segs, int n_segs, bool placed,
                        sk_buffer_layout *s)
{
    bool root = s->me == f->steps.ask.root;
    bool src = sk_kind_gives(s->kind, root), dst = sk_kind_gets(s->kind, root);
    bool copied = src && sk_kind_rows[s->kind].copied;
    if (f->coll->packs) {
        s->src_packed = src;
        s->dst_packed = dst;
        s->src_row = src && in_a_row(s, segs, n_segs, SK_SRC, placed);
        s->dst_row = dst && in_a_row(s, segs, n_segs, SK_DST, placed);
        return;
    }
    s->src_packed = src && f->reads_src && !in_a_row(s, segs, n_segs, SK_SRC, placed);
    s->dst_packed = dst && !in_a_row(s, segs, n_segs, SK_DST, placed);
    if (src && dst && f->apart && in_place(s, segs, n_segs, placed)) s->dst_packed = true;
    s->src_is_dst = s->src_packed && copied && !f->apart;
    if (s->src_is_dst) s->src_packed = false;
}

/* --- the workspace --- */

/* A stream has the rows of all members at most, and never more than a dense chunk. */
static int64_t stream_room(const sk_buffer_layout *s, sk_dtype type, int64_t rows)
{
    int64_t n = s->largest / s->size, most = rows && rows < n / s->p ? rows * s->p : n;
    return round_up(sk_stream_room(type, n, s->row, most), LINE);
}

static int64_t packed_bytes(const sk_compiled_schedule *f, const sk_buffer_layout *s,
                            sk_space space)
{
    if (space == SK_SRC ? !s->src_packed : !s->dst_packed) return 0;
    if (!f->coll->packs) return sk_buffer_layout_bytes(s, space);
    return (sk_buffer_layout_is_part(s->kind, space) ? 1 : s->cells) * s->stride;
}

static void lay_workspace(const sk_compiled_schedule *f, sk_dtype type, int64_t rows,
                          sk_buffer_layout *s)
{
    const sk_steps *l = &f->steps;
    int64_t head = round_up((l->ask.n + 1) * (int64_t)sizeof(int), LINE);
    bool packs = f->coll->packs;
    s->stride = packs ? stream_room(s, type, rows) : s->largest;
    s->tmp = head + f->box[l->ask.n] * (int64_t)SK_NOTE_BYTES;
    s->staging = round_up(s->tmp + l->tmp_cells * s->stride, LINE);
    s->chunk = round_up(s->staging + f->staging_cells * s->stride, LINE);
    s->src = round_up(s->chunk + (packs ? s->largest : 0), LINE);
    s->dst = round_up(s->src + packed_bytes(f, s, SK_SRC), LINE);
    s->bytes = s->dst + packed_bytes(f, s, SK_DST) + LINE; /* to begin on one */
}

void sk_buffer_layout_make(const sk_compiled_schedule *s, sk_dtype type, const sk_seg *segs,
                           int n_segs, int64_t rows, bool placed, int64_t *at,
                           sk_buffer_layout *out)
{
    const sk_coll_ask *a = &s->steps.ask;
    *out = (sk_buffer_layout){.kind = a->kind, .p = a->n, .me = a->me, .cells = s->steps.cells};
    out->size = (int64_t)sk_dtype_size(type);
    out->row = row_length(segs, n_segs);
    lay_chunks(s, segs, n_segs, out, at);
    find_packed(s, segs, n_segs, placed, out);
    lay_workspace(s, type, rows, out);
    sk_assert(out->tmp <= out->staging && out->staging <= out->src && out->src <= out->dst);
}

int64_t sk_coll_workspace(const sk_coll *c, const sk_coll_ask *a, sk_dtype type, const sk_seg *segs,
                          int n_segs)
{
    sk_arena scratch = {0};
    sk_compiled_schedule s;
    sk_buffer_layout layout;
    sk_schedule_compile(&scratch, c, a, &s);
    int64_t *at = sk_many(&scratch, int64_t, s.steps.cells + 1);
    sk_buffer_layout_make(&s, type, segs, n_segs, a->rows, false, at, &layout);
    sk_arena_end(&scratch);
    return layout.bytes;
}

/* A member's part of an exchange, as it leaves alone; what was put together in TMP has the room of
 * the largest. */
static int64_t block_bytes(const sk_buffer_layout *s, sk_cell of, const sk_seg *segs, int n_segs)
{
    int64_t n = 0;
    for (int k = 0; k < n_segs; k++) {
        bool src = of.space == SK_SRC;
        sk_block b = sk_seg_block(&segs[k], src ? s->me : of.at, src ? of.at : s->me, s->p);
        n += sk_block_count(&b);
    }
    return n * s->size;
}

int64_t sk_coll_sent(const sk_coll *c, const sk_coll_ask *a, sk_dtype type, const sk_seg *segs,
                     int n_segs)
{
    sk_arena scratch = {0};
    sk_compiled_schedule f = {.coll = c};
    sk_buffer_layout l = {.kind = a->kind, .p = a->n, .me = a->me};
    int64_t sum = 0;
    sk_steps_build(c, a, &scratch, &f.steps);
    l.cells = f.steps.cells;
    l.size = (int64_t)sk_dtype_size(type);
    l.row = row_length(segs, n_segs);
    lay_chunks(&f, segs, n_segs, &l, sk_many(&scratch, int64_t, l.cells + 1));
    for (int i = 0; i < f.steps.list.n; i++) {
        const sk_step *t = &f.steps.list.v[i];
        bool block = l.kind == SK_ALLTOALL && t->n == 1 && t->from.space != SK_TMP;
        if (t->act != SK_STEP_SEND) continue;
        sum += block ? block_bytes(&l, t->from, segs, n_segs)
                     : sk_buffer_layout_span(&l, t->chunk, t->n);
    }
    sk_arena_end(&scratch);
    return sum;
}
