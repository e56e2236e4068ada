/* saved_pieces.c - results saved for the backward pass as one shard per rank (ZeRO-R, Rajbhandari
 * et al. 2020).
 *
 * Tensor parallelism leaves results replicated between its products: the ranks of the axis would
 * save the same bytes.  Where the layout says "keep results in pieces", a result that the backward
 * pass will read is sliced after its last reader of the forward pass, along the first dim behind
 * the batch that no other axis splits, and only the slice is saved (saved.h).  A reader of the
 * backward pass finds the shard and gathers it, like any tensor that is split (reshard.c).  Of a
 * result that is split anyway (sequence parallelism) the gathered copy is freed.
 *
 *     forward    x whole -> readers -> slice x/tp, kept
 *     backward   gather x/tp -> readers
 *
 * So saved bytes fall to 1/n, and each gather costs (n-1)/n of the tensor on the wire; results keep
 * their bits.  Partial sums that are not reduced yet are saved as they are, and so are tensors
 * without a dim as long as the axis. */
#include "program/lowering.h"

static bool is_cut(const sk_lowering *e, const sk_state *s, int d)
{
    for (int a = 0; a < e->l->mesh.n; a++)
        if (s->how[a] == SK_SPLIT && s->dim[a] == d) return true;
    return false;
}

/* The dim to split over an axis, or -1.  In deterministic order there are no more shards than
 * reduction blocks. */
static int dim_for(const sk_lowering *e, const sk_tensor *t, const sk_state *s, int axis)
{
    for (int d = 0; t->letters[d]; d++) {
        char letter = t->letters[d];
        int64_t n = e->l->canonical ? sk_letter_reduction_blocks(e->g, letter)
                                    : e->g->size[(int)letter & 127];
        if (letter != e->g->batch && !is_cut(e, s, d) && n >= e->l->mesh.size[axis]) return d;
    }
    return -1;
}

bool sk_lower_piece_state(const sk_lowering *e, const sk_tensor *t, sk_state *s)
{
    bool any = false;
    *s = sk_state_settled(&e->sp->made[t->id]);
    for (int a = 0; e->plan.cut_after && e->plan.cut_after[t->id] && a < e->l->mesh.n; a++) {
        int d = s->how[a] == SK_REPLICATE && sk_layout_repeats(e->l, a) ? dim_for(e, t, s, a) : -1;
        if (d < 0) continue;
        s->how[a] = SK_SPLIT;
        s->dim[a] = (uint8_t)d;
        any = true;
    }
    return any;
}

bool sk_lower_kept_piece(const sk_lowering *e, const sk_tensor *t)
{
    return e->plan.cut_after && e->plan.cut_after[t->id] && e->at.phase == SK_BACKWARD;
}

/* What the backward pass of this stage reads. */
static char *find_kept(const sk_lowering *e)
{
    char *kept = sk_many(e->tmp, char, e->g->tensors.n + 1);
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        bool runs = n->phase == SK_BACKWARD && e->sp->stage[i] == e->p->stage;
        for (int k = 0; runs && k < n->n_in; k++) kept[n->in[k]->id] = n->in[k]->role == SK_VALUE;
    }
    return kept;
}

sk_status sk_plan_pieces(sk_lowering *e)
{
    if (!e->l->partition || !e->opts->optim) return SK_OK;
    const char *kept = find_kept(e);
    e->plan.cut_after = sk_many(e->tmp, int, e->g->tensors.n + 1);
    for (int i = 0; i < e->g->nodes.n; i++) {
        const sk_node *n = e->g->nodes.v[i];
        if (n->phase != SK_FORWARD || e->sp->stage[i] != e->p->stage) continue;
        for (int k = 0; k < n->n_in; k++)
            if (kept[n->in[k]->id]) e->plan.cut_after[n->in[k]->id] = i + 1;
        for (int o = 0; o < n->n_out; o++)
            if (kept[n->out[o]->id] && !n->into[o]) e->plan.cut_after[n->out[o]->id] = i + 1;
    }
    return SK_OK;
}

static bool partial(const sk_state *s)
{
    sk_state settled = sk_state_settled(s);
    return !sk_state_equal(s, &settled);
}

static void cut(sk_lowering *e, const sk_tensor *t)
{
    sk_state now, piece;
    bool cuts = sk_lower_piece_state(e, t, &piece);
    int buf = sk_lower_source(e, t, &now);
    if (buf < 0 || partial(&now)) return;
    if (cuts && sk_lower_find(e, t, &piece) < 0)
        sk_lower_have(e, t, &piece, sk_lower_slice(e, t, &piece, buf));
}

void sk_lower_pieces(sk_lowering *e, const sk_node *n)
{
    for (int k = 0; e->plan.cut_after && k < n->n_in; k++)
        if (e->plan.cut_after[n->in[k]->id] == n->id + 1) cut(e, n->in[k]);
    for (int o = 0; e->plan.cut_after && o < n->n_out; o++)
        if (e->plan.cut_after[n->out[o]->id] == n->id + 1) cut(e, n->out[o]);
}
