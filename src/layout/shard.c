/* shard.c - which shard of a tensor a rank holds, by the state of the tensor and the layout. */
#include "layout/layout.h"
#include "base/reduction_blocks.h"
#include "base/strings.h"

#include <string.h>

bool sk_layout_splits(const sk_layout *l, int axis, char letter)
{
    return strchr(l->split[axis], letter) != NULL;
}

bool sk_layout_repeats(const sk_layout *l, int axis)
{
    const char *letters = l->split[axis], batch[] = {SK_LETTER_BATCH, 0};
    return axis != l->stage_axis && l->mesh.size[axis] > 1 && letters[strspn(letters, batch)];
}

void sk_cut(int64_t n, int i, int p, int64_t *from, int64_t *to)
{
    sk_assert(p > 0);
    *from = n * i / p;
    *to = n * (i + 1) / p;
}

bool sk_layout_shards(const sk_layout *l, int axis)
{
    return axis == l->shard_axis || axis + 1 == l->shard_second;
}

static bool cuts_last(const sk_layout *l, char letter, int axis)
{
    const char *letters = l->split[axis];
    if (letter == SK_LETTER_BATCH) return letters[0] == letter && letters[1];
    if (letter == SK_LETTER_TIME) return letters[0] && letters[1] && strchr(letters, letter);
    return sk_layout_shards(l, axis);
}

/* 0: before the others, 2: behind them. */
static int cuts_when(const sk_layout *l, char letter, int axis)
{
    if (letter == SK_LETTER_BATCH && sk_layout_local(l, axis)) return 0;
    return cuts_last(l, letter, axis) ? 2 : 1;
}

int sk_layout_cutter(const sk_layout *l, char letter, int k)
{
    for (int when = 0; when < 3; when++)
        for (int a = l->mesh.n - 1; a >= 0; a--)
            if (cuts_when(l, letter, a) == when && !k--) return a;
    return 0;
}

int sk_layout_code_axis(const sk_layout *l, char batch)
{
    if (l->shard_axis >= 0) return l->shard_axis;
    int found = -1;
    for (int a = 0; a < l->mesh.n; a++)
        if (sk_layout_splits(l, a, batch) && !sk_layout_local(l, a) &&
            (found < 0 || l->mesh.size[found] < 2))
            found = a;
    return found;
}

bool sk_layout_local(const sk_layout *l, int axis)
{
    return (*l->sync[axis].name || l->own_grads == 1 + axis) && l->mesh.size[axis] > 1;
}

int64_t sk_layout_local_from(const sk_layout *l, int axis)
{
    return l->own_grads == 1 + axis ? l->own_grads_from : l->sync[axis].from;
}

bool sk_layout_alike(const sk_layout *l) { return l->own_grads > 0 && !l->own_weights; }

int sk_layout_replicas(const sk_layout *l)
{
    int n = 1;
    for (int a = 0; a < l->mesh.n; a++) n *= sk_layout_local(l, a) ? l->mesh.size[a] : 1;
    return n;
}

int sk_layout_adasum(const sk_layout *l)
{
    for (int a = 0; a < l->mesh.n; a++)
        if (l->adasum[a] && l->mesh.size[a] > 1) return a;
    return -1;
}

int sk_layout_backup(const sk_layout *l)
{
    for (int a = 0; a < l->mesh.n; a++)
        if (l->sync[a].backup && l->mesh.size[a] > 1) return a;
    return -1;
}

int sk_layout_stale(const sk_layout *l)
{
    for (int a = 0; a < l->mesh.n; a++)
        if (l->sync[a].stale && l->mesh.size[a] > 1) return a;
    return -1;
}

bool sk_layout_any_local(const sk_layout *l) { return sk_layout_replicas(l) > 1; }

int sk_layout_replica_of(const sk_layout *l, const int *coord)
{
    int at = 0;
    for (int a = 0; a < l->mesh.n; a++)
        if (sk_layout_local(l, a)) at = at * l->mesh.size[a] + coord[a];
    return at;
}

bool sk_state_equal(const sk_state *a, const sk_state *b)
{
    for (int i = 0; i < SK_MAX_AXES; i++) {
        if (a->how[i] != b->how[i]) return false;
        if (a->how[i] == SK_SPLIT && a->dim[i] != b->dim[i]) return false;
    }
    return true;
}

char *sk_state_print(sk_arena *a, const sk_mesh *m, const char *letters, const sk_state *s)
{
    sk_out o = {.arena = a};
    for (int i = 0; i < m->n; i++) {
        const char *gap = o.n ? " " : "";
        if (s->how[i] == SK_SPLIT) sk_out_add(&o, "%s%c/%s", gap, letters[s->dim[i]], m->name[i]);
        if (s->how[i] == SK_PARTIAL) sk_out_add(&o, "%ssum/%s", gap, m->name[i]);
        if (s->how[i] == SK_PARTIAL_MAX) sk_out_add(&o, "%smax/%s", gap, m->name[i]);
    }
    return o.s ? o.s : sk_strdup(a, "whole");
}

/* Only the first letter of an axis makes ops write themselves otherwise (sk_op.split): with
 * "h f v t" attention is split along h.  Time is dealt in zigzag where each rank keeps its own part
 * of the queries. */
void sk_layout_expect(const sk_layout *l, sk_graph *g)
{
    int dealt = 1;
    g->keep_cheap = l->keep_cheap;
    memcpy(g->keep_ops, l->keep_ops, sizeof g->keep_ops);
    for (int a = 0; a < l->mesh.n; a++) {
        char letter = l->split[a][0];
        if (!letter || a == l->stage_axis || l->mesh.size[a] == 1) continue;
        sk_assert(strlen(g->cut) + 1 < sizeof g->cut);
        if (!strchr(g->cut, letter)) g->cut[strlen(g->cut)] = letter;
        if (letter == SK_LETTER_TIME && l->by[a] != SK_BY_EXCHANGE) dealt *= l->mesh.size[a];
    }
    if (dealt == 1 || dealt > UINT8_MAX || l->canonical) return;
    g->dealt = SK_LETTER_TIME;
    g->zigzag = dealt;
}

int sk_letter_reduction_blocks(const sk_graph *g, char letter)
{
    return sk_reduction_blocks(g->size[(int)letter & 127],
                               letter == g->batch ? SK_REDUCTION_BLOCKS_MAX : 16);
}

typedef struct range { /* of one dim, and of its reduction blocks */
    int64_t from, to;
    int *cells;
} range;

static void cut(range *r, int i, int p)
{
    int64_t lo, hi;
    sk_cut(r->to - r->from, i, p, &lo, &hi);
    r->to = r->from + hi;
    r->from += lo;
    sk_tree_part(&r->cells[0], &r->cells[1], i, p);
}

/* The axes that split dim d of the state, replicas or the others. */
static void cut_by_axes(range *r, const sk_layout *l, char letter, bool local, const sk_state *s,
                        int d, const int *coord)
{
    for (int k = 0; k < l->mesh.n; k++) {
        int a = sk_layout_cutter(l, letter, k);
        if (s->how[a] == SK_SPLIT && s->dim[a] == d && sk_layout_local(l, a) == local)
            cut(r, coord[a], l->mesh.size[a]);
    }
}

/* In canonical order shards are whole reduction blocks, assigned as the tree of sums goes. */
sk_extent sk_shard_of(const sk_graph *g, const sk_layout *l, const char *letters, const sk_state *s,
                      const int *coord, int micro, int n_micro)
{
    sk_extent e = {.n = (int)strlen(letters)};
    for (int d = 0; d < e.n; d++) {
        bool batch = letters[d] == g->batch;
        int *cells = e.cells[d];
        range r = {.to = e.full[d] = g->size[(int)letters[d] & 127], .cells = cells};
        cells[1] = cells[2] = l->canonical ? sk_letter_reduction_blocks(g, letters[d]) : 0;
        cut_by_axes(&r, l, letters[d], true, s, d, coord);
        if (batch && micro >= 0) cut(&r, micro, n_micro);
        cut_by_axes(&r, l, letters[d], false, s, d, coord);
        int64_t from = r.from, to = r.to;
        sk_assert(from >= 0 && from <= to && to <= e.full[d]);
        if (l->canonical) {
            sk_assert(0 <= cells[0] && cells[0] <= cells[1] && cells[1] <= cells[2]);
            from = e.full[d] * cells[0] / cells[2];
            to = e.full[d] * cells[1] / cells[2];
        }
        e.at[d] = from;
        e.size[d] = to - from;
    }
    return e;
}
