/* tiles.c - products of weights that are larger than the device has room for (ZeRO-Infinity).
 *
 * A weight that lives outside of the device comes as one buffer for each of its products.  In tiles
 * it comes in rows, some at a time, and the product is done by tiles along the letter of its first
 * dim, as ranks that split this letter would do it, one after the other:
 *
 *     the letter is summed away    y += x[tile] w[tile]      x[tile] is a slice of x
 *     the letter is in the result  y[tile] = x w[tile]       pasted into y
 *     the weight's gradient        dw[tile] = x[tile] dy     rows of the gradient
 *
 * Each row goes to its product and comes back once, as without tiles; another order of sums makes
 * other last bits. */
#include "program/emit.h"

#include <string.h>

typedef struct tiled {
    const sk_node *n;
    char letter;
    int tiles, turn;
    int in[SK_MAX_IN], out[SK_MAX_OUT];
    unsigned add;
} tiled;

static int place_of(const char *letters, char letter)
{
    const char *p = strchr(letters, letter);
    return p ? (int)(p - letters) : -1;
}

static bool has_rows(const sk_tensor *t)
{
    return t && t->role == SK_PARAM && t->letters[0] && t->letters[1];
}

/* The weight of a node, read or with its gradient written, or NULL. */
static const sk_tensor *weight_of(const sk_emit *e, const sk_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (has_rows(n->in[i])) return n->in[i];
    for (int o = 0; o < n->n_out && !sk_emit_per_task(e); o++) /* then it comes and goes whole */
        if (has_rows(n->into[o])) return n->into[o];
    return NULL;
}

/* May it be cut along the letter, results without it being added up? */
static bool may_cut(const sk_node *n, char letter)
{
    if (strchr(n->whole, letter) || sk_node_far(n, letter) || n->op->flags & SK_OP_MAX)
        return false;
    for (int o = 0; o < n->n_out; o++)
        if (place_of(n->letters_out[o], letter) < 0 && !(n->op->flags & SK_OP_ADDS)) return false;
    return true;
}

/* --- parts of operands and results --- */

static sk_extent cut(const sk_emit *e, const tiled *x, int whole, int d)
{
    sk_extent box = e->p->bufs.v[whole].box;
    int64_t from, to;
    sk_cut(box.size[d], x->turn, x->tiles, &from, &to);
    box.at[d] += from;
    box.size[d] = to - from;
    return box;
}

static int apart(sk_emit *e, const tiled *x, int whole, int d)
{
    const sk_buffer w = e->p->bufs.v[whole];
    return sk_emit_buffer(e, w.name, w.tensor, SK_ACTS, w.type, cut(e, x, whole, d));
}

static void move(sk_emit *e, const tiled *x, sk_act act, int from, int to)
{
    sk_inst *in = sk_emit_inst(e, act);
    in->in[0] = from;
    in->out[0] = to;
    in->turn = x->turn;
    in->turns = x->tiles;
}

/* Files are read and written by pages: if all tiles of a buffer are on pages, each can come alone.
 */
static bool come_alone(const sk_emit *e, int whole, int first, int n)
{
    const sk_buffer *w = &e->p->bufs.v[whole];
    sk_tier home = e->l->home[w->kind == SK_WEIGHTS ? SK_PARAMS : SK_GRAD];
    for (int i = 1; home == SK_FILE && i < n; i++)
        if (e->p->bufs.v[first + i].part_at % SK_FILE_PAGE) return false;
    return w->keep && home != SK_DEVICE;
}

/* Kept buffers have the same parts in all their products. */
static int rows(sk_emit *e, const tiled *x, int whole)
{
    for (int i = 0; i < e->cuts.n; i++)
        if (e->cuts.v[i].whole == whole && e->cuts.v[i].n == x->tiles)
            return e->cuts.v[i].first + x->turn;
    int first = e->p->bufs.n;
    for (int j = 0; j < x->tiles; j++) sk_emit_part(e, whole, j, x->tiles);
    bool alone = come_alone(e, whole, first, x->tiles);
    for (int j = 0; j < x->tiles; j++) e->p->bufs.v[first + j].tile = alone;
    *sk_push(e->tmp, &e->cuts) = (sk_cuts){whole, first, x->tiles};
    return first + x->turn;
}

static int operand(sk_emit *e, const tiled *x, int i)
{
    int d = place_of(x->n->letters_in[i], x->letter);
    if (d < 0) return x->in[i];
    if (!d) return rows(e, x, x->in[i]);
    int part = apart(e, x, x->in[i], d);
    move(e, x, SK_DO_SLICE, x->in[i], part);
    return part;
}

static void one_tile(sk_emit *e, const tiled *x)
{
    int in[SK_MAX_IN], out[SK_MAX_OUT];
    for (int i = 0; i < x->n->n_in; i++) in[i] = operand(e, x, i);
    sk_inst made = {.add = 0};
    for (int o = 0; o < x->n->n_out; o++) {
        int d = place_of(x->n->letters_out[o], x->letter);
        out[o] = d < 0 ? x->out[o] : d ? apart(e, x, x->out[o], d) : rows(e, x, x->out[o]);
        bool add = x->add >> o & 1 || (d < 0 && x->turn);
        made.add |= (unsigned)add << o;
    }
    sk_inst *inst = sk_emit_inst(e, SK_DO_OP);
    inst->node = x->n;
    inst->add = made.add;
    inst->turn = x->turn;
    inst->turns = x->tiles;
    memcpy(inst->in, in, sizeof(int) * (size_t)x->n->n_in);
    memcpy(inst->out, out, sizeof(int) * (size_t)x->n->n_out);
    for (int o = 0; o < x->n->n_out; o++)
        if (place_of(x->n->letters_out[o], x->letter) > 0)
            move(e, x, SK_DO_PASTE, out[o], x->out[o]);
}

/* --- all of a node --- */

static int count_tiles(const sk_emit *e, const sk_tensor *w)
{
    const sk_param_plan *q = &e->p->params.v[e->plan.param_of[w->id]];
    int64_t most = e->p->bufs.v[q->stored].box.size[0];
    return (int)(most < e->l->tiles ? most : e->l->tiles);
}

static sk_status open_node(sk_emit *e, tiled *x)
{
    for (int i = 0; i < x->n->n_in; i++) {
        if (x->n->in[i]->role == SK_MEMORY)
            x->in[i] = e->p->memories.v[e->plan.param_of[x->n->in[i]->id]];
        else SK_TRY(sk_emit_need(e, x->n->in[i], &e->sp->node[x->n->id].in[i], &x->in[i]));
    }
    for (int o = 0; o < x->n->n_out; o++) {
        bool add;
        SK_TRY(sk_emit_output(e, x->n, o, &x->out[o], &add));
        x->add |= (unsigned)add << o;
        /* what is pasted cannot be added to, but no sum has such a letter */
        sk_assert(!add || place_of(x->n->letters_out[o], x->letter) < 1);
    }
    return SK_OK;
}

sk_status sk_emit_tiles(sk_emit *e, const sk_node *n, bool *done)
{
    const sk_tensor *w = e->l->tiles > 1 ? weight_of(e, n) : NULL;
    *done = false;
    if (!w || !may_cut(n, w->letters[0])) return SK_OK;
    tiled x = {.n = n, .letter = w->letters[0], .tiles = count_tiles(e, w)};
    if (x.tiles < 2) return SK_OK;
    SK_TRY(open_node(e, &x));
    for (x.turn = 0; x.turn < x.tiles; x.turn++) one_tile(e, &x);
    *done = true;
    return sk_emit_made(e, n);
}
