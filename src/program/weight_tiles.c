/* weight_tiles.c - the pass for products of weights that do not fit on the device (ZeRO-Infinity).
 *
 * An offloaded weight is copied to the device for each of its products.  In tiles only some of its
 * rows are copied at a time, and the product runs in tiles along the letter of the first dim, like
 * ranks that split this letter, one after the other:
 *
 *     the letter is summed away    y += x[tile] w[tile]      x[tile] is a slice of x
 *     the letter is in the result  y[tile] = x w[tile]       pasted into y
 *     the weight's gradient        dw[tile] = x[tile] dy     rows of the gradient
 *
 * Each row is copied as often as without tiles; another order of sums changes the last bits.  Ops
 * that another pass has split (inst.parts, node.region) stay as they are. */
#include "program/lowering.h"

#include <string.h>

typedef struct tiles {
    sk_lowering *e;
    const sk_inst *op; /* the current one */
    char letter;
    int n, i; /* tiles of it, and the current one */
    struct {
        sk_cuts *v;
        int n, cap;
    } cuts; /* parts of kept buffers, the same in all their products */
} tiles;

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
static const sk_tensor *weight_of(const sk_lowering *e, const sk_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (has_rows(n->in[i])) return n->in[i];
    for (int o = 0; o < n->n_out && !sk_lower_per_task(e); o++) /* else it is not tiled */
        if (has_rows(n->into[o])) return n->into[o];
    return NULL;
}

/* Can it be split along the letter, with results without the letter accumulated? */
static bool may_cut(const sk_node *n, char letter)
{
    if (strchr(n->not_split, letter) || sk_node_gathers(n, letter) || n->op->flags & SK_OP_MAX)
        return false;
    for (int o = 0; o < n->n_out; o++)
        if (place_of(n->letters_out[o], letter) < 0 && !(n->op->flags & SK_OP_ADDS)) return false;
    return true;
}

/* --- parts of operands and results --- */

static sk_extent cut(const tiles *x, int whole, int d)
{
    sk_extent box = x->e->p->bufs.v[whole].box;
    int64_t from, to;
    sk_cut(box.size[d], x->i, x->n, &from, &to);
    box.at[d] += from;
    box.size[d] = to - from;
    return box;
}

static int apart(const tiles *x, int whole, int d)
{
    const sk_buffer w = x->e->p->bufs.v[whole];
    return sk_lower_buffer(x->e, w.name, w.tensor, SK_ACTS, w.type, cut(x, whole, d));
}

static void push(const tiles *x, sk_inst in)
{
    in.part = x->i;
    in.parts = x->n;
    *sk_push(x->e->tmp, &x->e->p->insts) = in;
}

static void move(const tiles *x, sk_act act, int from, int to)
{
    sk_inst in = sk_inst_like(x->op, act);
    in.in[0] = from;
    in.out[0] = to;
    push(x, in);
}

/* Files are read and written in pages: if all tiles of a buffer begin on pages, each can be copied
 * alone. */
static bool come_alone(const sk_lowering *e, int whole, int first, int n)
{
    const sk_buffer *w = &e->p->bufs.v[whole];
    sk_placement home = e->l->home[w->kind == SK_WEIGHTS ? SK_PARAMS : SK_GRAD];
    for (int i = 1; home == SK_FILE && i < n; i++)
        if (e->p->bufs.v[first + i].part_at % SK_FILE_PAGE) return false;
    return w->keep && w->kind != SK_OPTIM && home != SK_DEVICE;
}

static int rows(tiles *x, int whole)
{
    sk_lowering *e = x->e;
    for (int k = 0; k < x->cuts.n; k++)
        if (x->cuts.v[k].whole == whole && x->cuts.v[k].n == x->n) return x->cuts.v[k].first + x->i;
    int first = e->p->bufs.n;
    for (int k = 0; k < x->n; k++) sk_lower_part(e, whole, k, x->n);
    bool alone = come_alone(e, whole, first, x->n);
    for (int k = 0; k < x->n; k++) e->p->bufs.v[first + k].tile = alone;
    *sk_push(e->tmp, &x->cuts) = (sk_cuts){whole, first, x->n};
    return first + x->i;
}

/* --- one tile, one op --- */

static void write_tile(tiles *x)
{
    const sk_node *n = x->op->node;
    sk_inst op = *x->op;
    for (int i = 0; i < n->n_in; i++) {
        int d = place_of(n->letters_in[i], x->letter);
        if (d >= 0) op.in[i] = d ? apart(x, x->op->in[i], d) : rows(x, x->op->in[i]);
        if (d > 0) move(x, SK_DO_SLICE, x->op->in[i], op.in[i]);
    }
    for (int o = 0; o < n->n_out; o++) {
        int d = place_of(n->letters_out[o], x->letter);
        /* what is pasted cannot be added to, but no sum has such a letter */
        sk_assert(d < 1 || !(op.add >> o & 1));
        if (d >= 0) op.out[o] = d ? apart(x, x->op->out[o], d) : rows(x, x->op->out[o]);
        else if (x->i) op.add |= 1u << o;
    }
    push(x, op);
    for (int o = 0; o < n->n_out; o++)
        if (place_of(n->letters_out[o], x->letter) > 0)
            move(x, SK_DO_PASTE, op.out[o], x->op->out[o]);
}

static int count_tiles(const sk_lowering *e, const sk_inst *in)
{
    const int *region = e->plan.region_of;
    bool whole = in->act == SK_DO_OP && in->parts == 1 && in->node->id != SK_NO_NODE &&
                 !(region && region[in->node->id]);
    const sk_tensor *w = whole ? weight_of(e, in->node) : NULL;
    if (!w || !may_cut(in->node, w->letters[0])) return 1;
    const sk_param_plan *q = &e->p->params.v[e->plan.param_of[w->id]];
    int64_t most = e->p->bufs.v[q->stored].box.size[0];
    return (int)(most < e->l->tiles ? most : e->l->tiles);
}

static int write(void *ctx, const sk_inst *old, int pc)
{
    tiles *x = ctx;
    x->op = &old[pc];
    x->n = count_tiles(x->e, x->op);
    if (x->n > 1) x->letter = weight_of(x->e, x->op->node)->letters[0];
    for (x->i = 0; x->n > 1 && x->i < x->n; x->i++) write_tile(x);
    if (x->n < 2) *sk_push(x->e->tmp, &x->e->p->insts) = old[pc];
    return pc + 1;
}

sk_status sk_weight_tiles(sk_lowering *e)
{
    tiles x = {.e = e};
    return e->l->tiles > 1 ? sk_rewrite(e, write, &x) : SK_OK;
}
