/* picture_shards.c - one parameter as a rectangle, cut as its ranks keep and update it.
 *
 * The first dim runs down, all the others together across.  On the left the shards that are
 * kept from step to step, on the right those that the optimizer updates.  A shard that is cut
 * along an inner dim appears many times across: then the first few are drawn.  Ranks that have
 * the same shard share a box; where there are too many cuts to draw, the first and the last are
 * drawn, all equally high or wide. */
#include "cli/picture.h"

#include <stdlib.h>
#include <string.h>

enum { WIDE = 540, HIGH = 230, LIST = 12, REPEATS = 8 }; /* LIST: ranks named of a shard */
enum { MOST_CUTS = 24, FIRST = 16, LAST = 4, BREAK = 14 };

typedef struct shard {
    sk_extent box;
    int n, ranks[LIST];     /* who has it: how many, and the first of them */
    int coord[SK_MAX_AXES]; /* of the first */
    unsigned same;          /* bit a: all have this coordinate along axis a */
} shard;

typedef struct shards {
    shard *v;
    int n, cap;
    int empty, absent; /* ranks with nothing of it: an empty shard; another stage */
} shards;

typedef struct ruler { /* from places in the tensor to places on the paper */
    int64_t *cut;
    double *at;
    int n, shown;
    double least; /* pixels: boxes that are smaller lie in the part left out */
} ruler;

typedef struct drawing {
    sk_sheet *sheet;
    const sk_picture *in;
    const sk_tensor *tensor;
    shards list;
    int x, y;
    int inner;       /* the last dim, behind the first, along which something is cut; 0: none */
    int64_t outer;   /* how often the dims before it repeat the pattern across */
    int64_t repeats; /* of these drawn */
    ruler down, across;
} drawing;

/* --- who has what --- */

static const sk_param_plan *plan_of(const sk_program *p, const sk_tensor *t)
{
    for (int i = 0; p && i < p->params.n; i++)
        if (p->params.v[i].tensor == t) return &p->params.v[i];
    return NULL;
}

/* All programs of a stage have the same parameters in the same states. */
static const sk_param_plan **plans_by_stage(sk_arena *a, const sk_setup *s, const sk_tensor *t)
{
    const sk_layout *l = &s->layout;
    int stages = l->stage_axis < 0 ? 1 : l->mesh.size[l->stage_axis];
    const sk_param_plan **plans = sk_many(a, const sk_param_plan *, stages);
    for (int r = 0; r < s->n_ranks; r++)
        if (s->programs[r]) plans[s->programs[r]->stage] = plan_of(s->programs[r], t);
    return plans;
}

static const sk_state *state_of(const sk_layout *l, const sk_param_plan *q, bool update)
{
    return update || l->shard == SK_SHARD_PARAMS ? &q->update : &q->used;
}

static bool same_box(const sk_extent *a, const sk_extent *b)
{
    for (int d = 0; d < a->n; d++)
        if (a->at[d] != b->at[d] || a->size[d] != b->size[d]) return false;
    return true;
}

static bool is_empty(const sk_extent *b)
{
    for (int d = 0; d < b->n; d++)
        if (b->size[d] <= 0) return true;
    return false;
}

/* Neighbours mostly have the shard after the last one: look there first. */
static shard *find_shard(sk_arena *a, shards *l, const sk_extent *box, int *hint)
{
    for (int i = 0; i < l->n; i++) {
        int at = (*hint + 1 + i) % l->n;
        if (same_box(&l->v[at].box, box)) return *hint = at, &l->v[at];
    }
    shard *new = sk_push(a, l);
    new->box = *box;
    *hint = l->n - 1;
    return new;
}

static void add_holder(shard *p, const sk_mesh *m, int rank, const int *coord)
{
    if (!p->n) {
        memcpy(p->coord, coord, sizeof p->coord);
        p->same = ~0u;
    }
    for (int a = 0; a < m->n; a++)
        if (coord[a] != p->coord[a]) p->same &= ~(1u << a);
    if (p->n < LIST) p->ranks[p->n] = rank;
    p->n++;
}

static shards collect(sk_arena *a, const sk_setup *s, const sk_tensor *t, bool update)
{
    const sk_layout *l = &s->layout;
    const sk_param_plan **plans = plans_by_stage(a, s, t);
    shards list = {0};
    int hint = -1, coord[SK_MAX_AXES] = {0};
    for (int r = 0; r < s->n_ranks; r++) {
        sk_mesh_coords(&l->mesh, r, coord);
        const sk_param_plan *q = plans[l->stage_axis < 0 ? 0 : coord[l->stage_axis]];
        if (!q) {
            list.absent++;
            continue;
        }
        sk_extent box =
            sk_shard_of(&s->graph, l, t->letters, state_of(l, q, update), coord, -1, s->n_micro);
        if (is_empty(&box)) list.empty++;
        else add_holder(find_shard(a, &list, &box, &hint), &l->mesh, r, coord);
    }
    return list;
}

/* What is drawn must be what the programs keep. */
static sk_status agrees(const sk_setup *s, const sk_tensor *t)
{
    for (int r = 0; r < s->n_ranks; r++) {
        const sk_program *p = s->programs[r];
        const sk_param_plan *q = plan_of(p, t);
        if (!q) continue;
        for (int update = 0; update < 2; update++) {
            sk_extent box = sk_shard_of(&s->graph, &s->layout, t->letters,
                                        state_of(&s->layout, q, update), p->coord, -1, s->n_micro);
            if (!same_box(&box, &p->bufs.v[update ? q->shard : q->stored].box))
                return sk_fail(SK_EBUG, "picture: rank %d keeps another shard of '%s' than drawn",
                               r, t->name);
        }
    }
    return SK_OK;
}

/* --- cuts and places --- */

static int by_size(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

/* Cuts in order, each once; then where they are drawn on `length` pixels. */
static void settle(sk_arena *a, ruler *r, double length)
{
    int n = 0;
    qsort(r->cut, (size_t)r->n, sizeof *r->cut, by_size);
    for (int i = 0; i < r->n; i++)
        if (!n || r->cut[i] != r->cut[n - 1]) r->cut[n++] = r->cut[i];
    r->n = n;
    r->at = sk_many(a, double, n + 1);
    int last = n - 1;
    r->shown = last <= MOST_CUTS ? last : FIRST + LAST;
    r->least = last <= MOST_CUTS ? 0.05 : BREAK / 2.0 + 0.05;
    double unit = (length - BREAK) / (FIRST + LAST), span = (double)(r->cut[last] - r->cut[0]);
    for (int i = 0; i < n; i++) {
        if (last <= MOST_CUTS) r->at[i] = length * (double)(r->cut[i] - r->cut[0]) / span;
        else if (i <= FIRST) r->at[i] = unit * i;
        else if (i >= last - LAST) r->at[i] = length - unit * (last - i);
        else r->at[i] = unit * FIRST + BREAK / 2.0;
    }
}

static double paper_at(const ruler *r, int64_t where)
{
    const int64_t *cut = bsearch(&where, r->cut, (size_t)r->n, sizeof *r->cut, by_size);
    sk_assert(cut);
    return r->at[cut - r->cut];
}

static void find_inner(drawing *d)
{
    d->inner = 0;
    d->outer = 1;
    for (int i = 0; i < d->list.n; i++) {
        const sk_extent *b = &d->list.v[i].box;
        for (int k = 1; k < b->n; k++)
            if (b->size[k] < b->full[k] && k > d->inner) d->inner = k;
    }
    for (int k = 1; k < d->inner; k++) d->outer *= d->list.v[0].box.full[k];
    d->repeats = d->outer < REPEATS ? d->outer : REPEATS;
}

/* Where the shard lies across in repetition o; false: nowhere. */
static bool span_of(const drawing *d, const sk_extent *b, int64_t o, int64_t *from, int64_t *to)
{
    int64_t index = o;
    *from = 0, *to = 1;
    if (!d->inner) return o == 0;
    for (int k = d->inner - 1; k >= 1; k--) {
        int64_t at = index % b->full[k];
        index /= b->full[k];
        if (at < b->at[k] || at >= b->at[k] + b->size[k]) return false;
    }
    *from = o * b->full[d->inner] + b->at[d->inner];
    *to = *from + b->size[d->inner];
    return true;
}

static void measure(drawing *d)
{
    sk_arena *a = d->sheet->arena;
    int n = d->list.n;
    find_inner(d);
    d->down.cut = sk_many(a, int64_t, 2 * n);
    d->across.cut = sk_many(a, int64_t, 2 * n * (int)d->repeats);
    for (int i = 0; i < n; i++) {
        const sk_extent *b = &d->list.v[i].box;
        d->down.cut[d->down.n++] = b->n ? b->at[0] : 0;
        d->down.cut[d->down.n++] = b->n ? b->at[0] + b->size[0] : 1;
        for (int64_t o = 0; o < d->repeats; o++) {
            int64_t *cut = &d->across.cut[d->across.n];
            if (span_of(d, b, o, &cut[0], &cut[1])) d->across.n += 2;
        }
    }
    settle(a, &d->down, HIGH);
    settle(a, &d->across, WIDE);
}

/* --- words --- */

static const char *holders(const drawing *d, const shard *p)
{
    sk_out o = {.arena = d->sheet->arena};
    if (p->n == d->in->setup->n_ranks) return p->n == 1 ? "rank 0" : "all ranks";
    sk_out_add(&o, p->n == 1 ? "rank" : "ranks");
    for (int i = 0; i < p->n && i < LIST; i++) sk_out_add(&o, " %d", p->ranks[i]);
    if (p->n > LIST) sk_out_add(&o, " … %d in all", p->n);
    return o.s;
}

static const char *where_they_are(const drawing *d, const shard *p)
{
    const sk_mesh *m = &d->in->setup->layout.mesh;
    sk_out o = {.arena = d->sheet->arena};
    for (int a = 0; a < m->n; a++)
        if ((p->same >> a & 1) && m->size[a] > 1)
            sk_out_add(&o, "%s%s %d", o.n ? " · " : "", m->name[a], p->coord[a]);
    return sk_print(o.arena, "%s%s%d %s", o.s ? o.s : "", o.s ? ": " : "", p->n,
                    p->n == 1 ? "rank" : "ranks");
}

static const char *places(const drawing *d, const shard *p)
{
    sk_out o = {.arena = d->sheet->arena};
    sk_out_add(&o, "%s[", d->tensor->name);
    for (int k = 0; k < p->box.n; k++)
        sk_out_add(&o, "%s%lld:%lld", k ? ", " : "", (long long)p->box.at[k],
                   (long long)(p->box.at[k] + p->box.size[k]));
    sk_out_add(&o, "]");
    return o.s;
}

/* The fullest sentence that the box has room for. */
static const char *label(const drawing *d, const shard *p, double wide, double high)
{
    const char *choice[] = {holders(d, p), where_they_are(d, p),
                            sk_print(d->sheet->arena, "%d", p->n == 1 ? p->ranks[0] : p->n)};
    if (high < 10) return "";
    for (int i = 0; i < (p->n > 1 ? 2 : 3); i++)
        if ((double)strlen(choice[i]) * 5.4 < wide) return choice[i];
    return "";
}

/* --- drawing --- */

static void put_box(const drawing *d, int i, double x, double y, double wide, double high)
{
    const shard *p = &d->list.v[i];
    sk_arena *a = d->sheet->arena;
    const char *title =
        sk_print(a, "%s: %s (%s)", places(d, p), holders(d, p), where_they_are(d, p));
    sk_out_add(&d->sheet->out,
               "<rect class=\"piece edge\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
               "fill=\"%s\"><title>%s</title></rect>\n",
               x, y, wide, high, sk_sheet_colours[i % SK_SHEET_COLOURS],
               sk_sheet_text(a, title, 160));
    const char *words = label(d, p, wide, high);
    if (*words)
        sk_out_add(&d->sheet->out,
                   "<text class=\"in\" x=\"%.1f\" y=\"%.1f\" font-size=\"9\" "
                   "text-anchor=\"middle\">%s</text>\n",
                   x + wide / 2, y + high / 2 + 3, sk_sheet_text(a, words, 120));
}

/* A shard is one box, or one in each repetition; boxes that meet are one. */
static void put_shard(const drawing *d, int i)
{
    const sk_extent *b = &d->list.v[i].box;
    double top = paper_at(&d->down, b->n ? b->at[0] : 0);
    double end = paper_at(&d->down, b->n ? b->at[0] + b->size[0] : 1);
    double from = -1, upto = -1;
    for (int64_t o = 0; o <= d->repeats; o++) {
        int64_t first, last;
        bool here = o < d->repeats && span_of(d, b, o, &first, &last);
        double x = here ? paper_at(&d->across, first) : -2;
        if (from >= 0 && x > upto - 0.01 && x < upto + 0.01) upto = paper_at(&d->across, last);
        else {
            if (from >= 0 && upto - from > d->across.least && end - top > d->down.least)
                put_box(d, i, d->x + from, d->y + top, upto - from, end - top);
            from = here ? x : -1;
            upto = here ? paper_at(&d->across, last) : -1;
        }
    }
}

static const char *small_print(const drawing *d)
{
    sk_out o = {.arena = d->sheet->arena};
    int down = d->down.n - 1, across = d->across.n - 1;
    sk_out_add(&o, "%d different shard%s", d->list.n, sk_plural(d->list.n));
    if (d->list.empty)
        sk_out_add(&o, " · %d rank%s an empty one", d->list.empty,
                   d->list.empty == 1 ? " has" : "s have");
    if (d->list.absent)
        sk_out_add(&o, " · %d rank%s on other stages", d->list.absent, sk_plural(d->list.absent));
    if (d->down.shown < down) sk_out_add(&o, " · a sample: %d of %d down", d->down.shown, down);
    if (d->across.shown < across)
        sk_out_add(&o, " · a sample: %d of %d across", d->across.shown, across);
    if (d->repeats < d->outer)
        sk_out_add(&o, " · the first %d of %lld repetitions across", (int)d->repeats,
                   (long long)d->outer);
    return o.s;
}

static const sk_param_plan *any_plan(const sk_setup *s, const sk_tensor *t)
{
    const sk_param_plan *q = NULL;
    for (int r = 0; !q && r < s->n_ranks; r++) q = plan_of(s->programs[r], t);
    return q;
}

static void draw(drawing *d, bool update)
{
    const sk_setup *s = d->in->setup;
    sk_arena *a = d->sheet->arena;
    const sk_state *state = state_of(&s->layout, any_plan(s, d->tensor), update);
    d->list = collect(a, s, d->tensor, update);
    sk_out_add(&d->sheet->out,
               "<text x=\"%d\" y=\"%d\">%s: %s</text><text class=\"dim\" x=\"%d\" y=\"%d\" "
               "font-size=\"9\">",
               d->x, d->y - 20, update ? "updated by the optimizer" : "stored from step to step",
               sk_sheet_text(a, sk_state_print(a, &s->layout.mesh, d->tensor->letters, state), 60),
               d->x, d->y - 7);
    if (d->list.n) measure(d);
    sk_out_add(&d->sheet->out, "%s</text>\n", sk_sheet_text(a, small_print(d), 110));
    for (int i = 0; i < d->list.n; i++) put_shard(d, i);
}

static const char *shape_words(sk_arena *a, const sk_graph *g, const sk_tensor *t)
{
    sk_shape s = sk_tensor_shape(g, t);
    sk_out o = {.arena = a};
    for (int d = 0; d < s.n; d++)
        sk_out_add(&o, "%s%c %lld", d ? " × " : "", t->letters[d], (long long)s.d[d]);
    return o.s ? o.s : "a number";
}

sk_status sk_picture_shards(sk_sheet *s, const sk_picture *in, const sk_tensor *t)
{
    const sk_graph *g = &in->setup->graph;
    SK_TRY(agrees(in->setup, t));
    sk_sheet_title(s,
                   sk_print(s->arena, "2  shards of %s: %s", t->name, shape_words(s->arena, g, t)));
    sk_sheet_note(s,
                  sk_print(s->arena, "%s; down: the first dim, across: the others together",
                           in->tensor ? "as asked for" : "the largest parameter (--tensor NAME)"));
    s->y += 46;
    for (int update = 0; update < 2; update++) {
        drawing d = {.sheet = s, .in = in, .tensor = t, .y = s->y};
        d.x = SK_SHEET_LEFT + update * (WIDE + 40);
        draw(&d, update);
    }
    s->y += HIGH;
    return SK_OK;
}
