/* score.c - step lists made ready for playing: what can be known before any call. */
#include "coll/compiled_schedule.h"
#include "coll/sparse_stream.h"

enum { LINE = 64, GRAIN = 32, GRAINED = 1024 };

static int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

static bool is_cut(sk_coll_kind kind) /* into the parts of members, not where it suits the list */
{
    return kind != SK_ALLREDUCE && kind != SK_BROADCAST && kind != SK_REDUCE;
}

static bool one_size(sk_coll_kind kind) { return kind == SK_ALLTOALL || kind == SK_ALLTOALLV; }

static bool receives(const sk_step *t)
{
    return t->act == SK_STEP_RECV || t->act == SK_STEP_RECV_SUM;
}

static bool is_message(const sk_step *t) { return t->act == SK_STEP_SEND || receives(t); }

bool sk_buffer_layout_is_part(sk_coll_kind kind, sk_space space)
{
    if (space == SK_SRC) return kind == SK_ALLGATHER || kind == SK_GATHER;
    return space == SK_DST && (kind == SK_REDUCE_SCATTER || kind == SK_SCATTER);
}

/* --- what a list reads --- */

/* Cells as numbers; cells of SRC and DST that are one memory when a call is in place have one. */
static int place(const sk_compiled_schedule *s, sk_cell c)
{
    const sk_coll_ask *a = &s->steps.ask;
    int cells = s->steps.cells;
    if (c.space == SK_TMP) return 2 * cells + c.at;
    if (one_size(a->kind)) return c.space == SK_DST ? cells + c.at : c.at;
    return sk_buffer_layout_is_part(a->kind, c.space) ? a->me : c.at;
}

static bool reads_src(const sk_steps *l)
{
    for (int i = 0; i < l->list.n; i++) {
        const sk_step *t = &l->list.v[i];
        bool from = t->act != SK_STEP_RECV && t->act != SK_STEP_RECV_SUM;
        bool with = t->act != SK_STEP_SEND && t->act != SK_STEP_RECV && t->act != SK_STEP_COPY;
        if ((from && t->from.space == SK_SRC) || (with && t->with.space == SK_SRC)) return true;
    }
    return false;
}

/* --- messages --- */

/* From the last round to the first: `next` holds the nearest later round that writes a place. */
static void find_due(sk_arena *a, sk_compiled_schedule *s)
{
    const sk_step *v = s->steps.list.v;
    int places = 2 * s->steps.cells + s->steps.tmp_cells;
    int *next = sk_many(a, int, places);
    for (int i = 0; i < places; i++) next[i] = SK_NEVER;
    for (int hi = s->steps.list.n, lo; hi > 0; hi = lo) {
        for (lo = hi; lo > 0 && v[lo - 1].round == v[hi - 1].round;) lo--;
        for (int i = lo; i < hi; i++) {
            s->due[i] = SK_NEVER;
            for (int j = 0; v[i].act == SK_STEP_SEND && j < v[i].n; j++) {
                int when = next[place(s, v[i].from) + j];
                if (when < s->due[i]) s->due[i] = when;
            }
        }
        for (int i = lo; i < hi; i++)
            for (int j = 0; v[i].act != SK_STEP_SEND && j < v[i].n; j++)
                next[place(s, v[i].into) + j] = v[i].round;
    }
}

static void number_messages(sk_arena *a, sk_compiled_schedule *s)
{
    int n = s->steps.ask.n, *sent = sk_many(a, int, n), *got = sk_many(a, int, n);
    for (int i = 0; i < s->steps.list.n; i++) {
        const sk_step *t = &s->steps.list.v[i];
        if (t->act == SK_STEP_SEND) s->ordinal[i] = sent[t->peer]++;
        else if (receives(t)) s->ordinal[i] = got[t->peer]++;
    }
    for (int j = 0; j < n; j++) s->box[j + 1] = s->box[j] + sent[j];
}

/* Cells of the stage: a stream takes n, and n more where it is not packed. */
static int staged(const sk_compiled_schedule *s, const sk_step *t)
{
    if (!is_message(t)) return 0;
    if (s->coll->packs) return 2 * t->n;
    if (t->act == SK_STEP_RECV_SUM) return t->n;
    sk_cell c = t->act == SK_STEP_SEND ? t->from : t->into;
    return c.space == SK_TMP && t->n > 1 ? t->n : 0;
}

static void find_stage(sk_compiled_schedule *s)
{
    int used = 0, round = -1;
    for (int i = 0; i < s->steps.list.n; i++) {
        const sk_step *t = &s->steps.list.v[i];
        if (t->round != round) used = 0;
        round = t->round;
        int need = staged(s, t);
        s->stage[i] = need ? used : -1;
        used += need;
        if (used > s->stage_cells) s->stage_cells = used;
    }
}

/* A library's own collective has no steps.  It knows calls in place, but not where the result is a
 * part of what is read; and MPICH 4.0.2 reads MPI_IN_PLACE as an address in MPI_Reduce. */
static void write_native(sk_compiled_schedule *s, const sk_coll_ask *ask)
{
    s->steps = (sk_steps){.ask = *ask, .cells = is_cut(ask->kind) ? ask->n : 1};
    s->reads_src = true;
    s->apart = sk_buffer_layout_is_part(ask->kind, SK_DST) || ask->kind == SK_REDUCE;
}

void sk_schedule_compile(sk_arena *a, const sk_coll *c, const sk_coll_ask *ask,
                         sk_compiled_schedule *out)
{
    *out = (sk_compiled_schedule){.coll = c};
    if (c->build) sk_steps_build(c, ask, a, &out->steps);
    int n = out->steps.list.n;
    out->ordinal = sk_many(a, int, n);
    out->due = sk_many(a, int, n);
    out->stage = sk_many(a, int, n);
    out->box = sk_many(a, int, ask->n + 1);
    if (!c->build) {
        write_native(out, ask);
        return;
    }
    out->reads_src = reads_src(&out->steps);
    find_due(a, out);
    number_messages(a, out);
    find_stage(out);
}

/* --- chunks --- */

static int64_t part_bytes(const sk_sheet *s, const sk_seg *segs, int n_segs, int i)
{
    int64_t n = 0;
    for (int k = 0; k < n_segs; k++)
        if (!segs[k].swap) n += segs[k].outer * sk_seg_rows(&segs[k], i, s->p).n * segs[k].inner;
    return n * s->size;
}

/* What two members exchange depends on both: room for the most. */
static int64_t swap_bytes(const sk_sheet *s, const sk_seg *segs, int n_segs)
{
    int64_t n = 0;
    for (int k = 0; k < n_segs; k++)
        if (segs[k].swap) n += sk_seg_largest(&segs[k], s->p);
    return n * s->size;
}

/* Where a chunk of a vector of n elements that the list cuts as it likes begins: on cache lines
 * when chunks are long, at rows when they will be packed row by row. */
static int64_t cut_at(const sk_compiled_schedule *f, const sk_sheet *s, int64_t n, int i)
{
    int64_t at = sk_even_at(n, i, s->cells);
    if (i == s->cells) return n;
    if (f->coll->packs) return at / s->row * s->row;
    return n / s->cells >= GRAINED ? at / GRAIN * GRAIN : at;
}

static void lay_chunks(const sk_compiled_schedule *f, const sk_seg *segs, int n_segs, sk_sheet *s,
                       int64_t *at)
{
    int64_t n = 0, swapped = swap_bytes(s, segs, n_segs);
    for (int k = 0; k < n_segs; k++) n += sk_seg_count(&segs[k]);
    for (int i = 0; i < s->cells; i++) {
        int64_t bytes = is_cut(s->kind) ? swapped + part_bytes(s, segs, n_segs, i)
                                        : (cut_at(f, s, n, i + 1) - cut_at(f, s, n, i)) * s->size;
        if (s->kind == SK_ALLTOALLV) bytes = n * s->size;
        if (bytes > s->largest) s->largest = bytes;
        at[i] = s->total;
        s->total += bytes;
    }
    at[s->cells] = s->total;
    s->at = at;
    if (!one_size(s->kind)) return;
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

int64_t sk_buffer_layout_span(const sk_sheet *s, int chunk, int n)
{
    return s->at ? s->at[chunk + n] - s->at[chunk] : n * s->largest;
}

int64_t sk_buffer_layout_bytes(const sk_sheet *s, sk_space space)
{
    return sk_buffer_layout_is_part(s->kind, space) ? sk_buffer_layout_span(s, s->me, 1) : s->total;
}

/* --- buffers --- */

/* The part of a segment that belongs to one chunk: n runs of `bytes`, `stride` apart. */
typedef struct runs {
    int64_t at, n, bytes, stride;
} runs;

/* What I have for the member of a chunk, or get from it. */
static runs find_block(const sk_sheet *s, const sk_seg *g, sk_space space, int chunk)
{
    bool src = space == SK_SRC;
    sk_block b = sk_seg_block(g, src ? s->me : chunk, src ? chunk : s->me, s->p);
    sk_side side = src ? b.src : b.dst;
    int64_t at = (src ? g->src : g->dst) + side.at * s->size, run = b.run * s->size;
    if (side.near == b.run) return (runs){at, b.outer, b.runs * run, side.far * s->size};
    return (runs){at, b.outer * b.runs, run, side.near * s->size};
}

static runs find_runs(const sk_sheet *s, const sk_seg *g, sk_space space, int chunk)
{
    int64_t at = space == SK_SRC ? g->src : g->dst, row = g->inner * s->size;
    if (!is_cut(s->kind)) return (runs){at, 1, g->outer * g->n * row, 0};
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

void sk_buffer_layout_pack(const sk_sheet *s, const sk_seg *segs, int n_segs, sk_space space,
                           sk_pack_direction way, char *base, char *cells)
{
    bool whole = is_cut(s->kind) && !sk_buffer_layout_is_part(s->kind, space);
    for (int i = 0; i < (whole ? s->cells : 1); i++) {
        char *to = whole ? cells + (s->at ? s->at[i] : i * s->largest) : cells;
        for (int k = 0; k < n_segs; k++) {
            runs r = find_runs(s, &segs[k], space, i);
            for (int64_t j = 0; j < r.n; j++, to += r.bytes)
                move(to, base + r.at + j * r.stride, r.bytes, way);
        }
    }
}

/* Do segments follow each other in memory? */
static bool adjacent(const sk_sheet *s, const sk_seg *segs, int n_segs, sk_space space)
{
    for (int k = 0; k + 1 < n_segs; k++) {
        runs a = find_runs(s, &segs[k], space, 0), b = find_runs(s, &segs[k + 1], space, 0);
        if (a.at + a.bytes != b.at) return false;
    }
    return true;
}

/* Are the chunks in a row where the caller has them? */
static bool in_a_row(const sk_sheet *s, const sk_seg *segs, int n_segs, sk_space space, bool placed)
{
    if (s->kind == SK_ALLTOALLV || !n_segs) return true;
    if (!is_cut(s->kind) || sk_buffer_layout_is_part(s->kind, space))
        return n_segs == 1 || (placed && adjacent(s, segs, n_segs, space));
    if (n_segs > 1) return false;
    if (s->kind != SK_ALLTOALL) return segs->outer == 1;
    runs first = find_runs(s, segs, space, 0);
    return sk_seg_uniform(segs, s->p) && (first.n == 1 || first.stride == first.bytes);
}

/* Are SRC and DST one memory? */
static bool in_place(const sk_sheet *s, const sk_seg *segs, int n_segs, bool placed)
{
    if (one_size(s->kind)) return false;
    if (!placed || !n_segs) return true;
    if (!is_cut(s->kind)) return segs->src == segs->dst;
    return sk_buffer_layout_is_part(s->kind, SK_DST) ? segs->dst == segs->src + s->at[s->me]
                                                     : segs->src == segs->dst + s->at[s->me];
}

static bool has(sk_coll_kind kind, sk_space space, bool root)
{
    if (root) return true;
    return space == SK_SRC ? kind != SK_BROADCAST && kind != SK_SCATTER
                           : kind != SK_REDUCE && kind != SK_GATHER;
}

static void find_packed(const sk_compiled_schedule *f, const sk_seg *segs, int n_segs, bool placed,
                        sk_sheet *s)
{
    bool root = s->me == f->steps.ask.root;
    bool src = has(s->kind, SK_SRC, root), dst = has(s->kind, SK_DST, root);
    bool copied = src && (s->kind == SK_ALLREDUCE || s->kind == SK_BROADCAST);
    s->src_packed = src && f->reads_src && !in_a_row(s, segs, n_segs, SK_SRC, placed);
    s->dst_packed = dst && !in_a_row(s, segs, n_segs, SK_DST, placed);
    if (src && dst && f->apart && in_place(s, segs, n_segs, placed)) s->dst_packed = true;
    s->src_is_dst = s->src_packed && copied && !f->apart;
    if (s->src_is_dst) s->src_packed = false;
}

/* --- the room --- */

static void lay_room(const sk_compiled_schedule *f, sk_dtype type, sk_sheet *s)
{
    const sk_steps *l = &f->steps;
    int64_t head = round_up((l->ask.n + 1) * (int64_t)sizeof(int), LINE);
    s->stage_stride = s->largest;
    if (f->coll->packs) s->stage_stride = sk_stream_most(type, s->largest / s->size, s->row);
    s->tmp = head + f->box[l->ask.n] * (int64_t)SK_NOTE_BYTES;
    s->stage = round_up(s->tmp + l->tmp_cells * s->largest, LINE);
    s->src = round_up(s->stage + f->stage_cells * s->stage_stride, LINE);
    s->dst = round_up(s->src + (s->src_packed ? sk_buffer_layout_bytes(s, SK_SRC) : 0), LINE);
    s->bytes = s->dst + (s->dst_packed ? sk_buffer_layout_bytes(s, SK_DST) : 0) +
               LINE; /* to begin on one */
}

void sk_buffer_layout_make(const sk_compiled_schedule *s, sk_dtype type, const sk_seg *segs,
                           int n_segs, bool placed, int64_t *at, sk_sheet *out)
{
    const sk_coll_ask *a = &s->steps.ask;
    *out = (sk_sheet){.kind = a->kind, .p = a->n, .me = a->me, .cells = s->steps.cells};
    out->size = (int64_t)sk_dtype_size(type);
    out->row = row_length(segs, n_segs);
    lay_chunks(s, segs, n_segs, out, at);
    find_packed(s, segs, n_segs, placed, out);
    lay_room(s, type, out);
}
