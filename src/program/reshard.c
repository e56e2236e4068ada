/* reshard.c - a tensor is needed in another state than it has: nearly all of communication.
 *
 * Axis by axis: partial -> replicated is an all-reduce, partial -> split a reduce-scatter, split ->
 * replicated an all-gather, replicated -> split a local slice, split along one dim -> split along
 * another an all-to-all.  The result is available to later readers of the same micro-batch. */
#include "program/lowering.h"

#include <string.h>

sk_state sk_state_settled(const sk_state *s)
{
    sk_state out = *s;
    for (int a = 0; a < SK_MAX_AXES; a++)
        if (s->how[a] == SK_PARTIAL || s->how[a] == SK_PARTIAL_MAX) out.how[a] = SK_REPLICATE;
    return out;
}

/* Is `s` equal to `made`, except for partial sums that are complete over some of their axes? */
bool sk_state_partly_settled(const sk_state *s, const sk_state *made, int n_axes)
{
    for (int a = 0; a < n_axes; a++) {
        bool sum = made->how[a] == SK_PARTIAL || made->how[a] == SK_PARTIAL_MAX;
        bool same =
            s->how[a] == made->how[a] && (s->how[a] != SK_SPLIT || s->dim[a] == made->dim[a]);
        if (!same && !(sum && s->how[a] == SK_REPLICATE)) return false;
    }
    return true;
}

bool sk_state_has_sums(const sk_state *s, const sk_state *want, int n_axes)
{
    for (int a = 0; a < n_axes; a++)
        if (want->how[a] == SK_PARTIAL && s->how[a] != SK_PARTIAL) return false;
    return true;
}

static sk_at_hand **hand_of(sk_lowering *e, const sk_tensor *t)
{
    return &e->hand[t->id * e->plan.n_listed + e->at.micro];
}

void sk_lower_have(sk_lowering *e, const sk_tensor *t, const sk_state *s, int buf)
{
    sk_at_hand *h = sk_new(e->tmp, sk_at_hand), **list = hand_of(e, t);
    *h = (sk_at_hand){.state = *s, .buf = buf, .next = *list};
    *list = h;
}

int sk_lower_find(sk_lowering *e, const sk_tensor *t, const sk_state *s)
{
    for (sk_at_hand *h = *hand_of(e, t); h; h = h->next)
        if (sk_state_equal(&h->state, s)) return h->buf;
    return -1;
}

void sk_lower_forget(sk_lowering *e, const sk_tensor *t) { *hand_of(e, t) = NULL; }

static bool cut_by(const sk_state *s, int axis, int dim)
{
    return s->how[axis] == SK_SPLIT && s->dim[axis] == dim;
}

/* A dim can be gathered or split over an axis only while no axis that comes later, and so splits
 * finer, splits it. */
bool sk_lower_finest(const sk_lowering *e, const sk_tensor *t, const sk_state *s, int axis, int dim)
{
    for (int k = e->l->mesh.n - 1; k >= 0; k--) {
        int a = sk_layout_cutter(e->l, t->letters[dim], k);
        if (a == axis) break;
        if (cut_by(s, a, dim)) return false;
    }
    return true;
}

/* Must this axis's split of a dim be undone?  Yes if it is not wanted, or if an axis that splits
 * the dim before it changes: then it is split again afterwards. */
static bool undone(const sk_lowering *e, const sk_tensor *t, const sk_state *now,
                   const sk_state *want, int axis)
{
    int d = now->dim[axis];
    if (now->how[axis] != SK_SPLIT) return false;
    for (int k = 0; k < e->l->mesh.n; k++) {
        int a = sk_layout_cutter(e->l, t->letters[d], k);
        if (cut_by(now, a, d) != cut_by(want, a, d)) return true;
        if (a == axis) break;
    }
    return false;
}

/* One collective over one axis, from `from` (buffer src) to `to` (the returned buffer). */
static int collective(sk_lowering *e, const sk_tensor *t, const sk_state *from, const sk_state *to,
                      int axis, int src)
{
    bool gather = from->how[axis] == SK_SPLIT, whole = !gather && to->how[axis] == SK_REPLICATE;
    sk_reduce reduce = from->how[axis] == SK_PARTIAL_MAX ? SK_MAXIMUM : SK_SUM;
    int dst = whole ? src : sk_lower_piece(e, t, SK_ACTS, to, e->at.micro);
    const sk_extent *box = &e->p->bufs.v[gather ? dst : src].box; /* the unsplit side */
    int d = gather ? from->dim[axis] : to->dim[axis];
    int call = sk_lower_call(e,
                             gather  ? SK_ALLGATHER
                             : whole ? SK_ALLREDUCE
                                     : SK_REDUCE_SCATTER,
                             reduce, t->type, axis, t->name);
    if (whole) sk_lower_seg(e, call, src, dst, 1, sk_box_count(box, 0, box->n), 1);
    else sk_lower_rows(e, call, src, dst, box, d);
    sk_lower_start(e, call, SK_FLIES_NOT);
    return dst;
}

int sk_lower_slice(sk_lowering *e, const sk_tensor *t, const sk_state *to, int src)
{
    int dst = sk_lower_piece(e, t, SK_ACTS, to, e->at.micro);
    sk_inst *in = sk_lower_inst(e, SK_DO_SLICE);
    in->in[0] = src;
    in->out[0] = dst;
    return dst;
}

/* Does a node read this tensor as a partial sum?  Then it is not reduced in place. */
bool sk_lower_wanted_partial(const sk_lowering *e, const sk_tensor *t, int axis)
{
    return e->plan.as_part[t->id] >> axis & 1;
}

/* Reduced in place: the buffer is complete from now on, in every state under which it is available.
 */
static void relabel(sk_lowering *e, const sk_tensor *t, int buf, int axis)
{
    for (sk_at_hand *h = *hand_of(e, t); h; h = h->next)
        if (h->buf == buf) h->state.how[axis] = SK_REPLICATE;
}

static int copy_of(sk_lowering *e, const sk_tensor *t, const sk_state *s, int src)
{
    return sk_lower_slice(e, t, s, src); /* a slice of the replicated tensor */
}

/* Can the split over axis `a` move from one dim to another by one all-to-all? */
static bool moves(const sk_lowering *e, const sk_tensor *t, const sk_state *now,
                  const sk_state *want, int a)
{
    if (want->how[a] != SK_SPLIT || now->dim[a] == want->dim[a] || t->role == SK_PARAM)
        return false;
    sk_state next = *now;
    next.dim[a] = want->dim[a];
    return sk_lower_finest(e, t, now, a, now->dim[a]) &&
           sk_lower_finest(e, t, &next, a, next.dim[a]);
}

/* From a split along one dim to a split along another, over axis `a`. */
static sk_status exchange(sk_lowering *e, const sk_tensor *t, sk_state *now, const sk_state *want,
                          int a, int *buf)
{
    sk_state next = *now, whole = *now;
    next.dim[a] = want->dim[a];
    whole.how[a] = SK_REPLICATE;
    sk_extent box = sk_lower_box(e, t, &whole, e->at.micro);
    int dst = sk_lower_piece(e, t, SK_ACTS, &next, e->at.micro);
    int call = sk_lower_call(e, SK_ALLTOALL, SK_SUM, t->type, a, t->name);
    sk_lower_swap(e, call, *buf, dst, &box, now->dim[a], next.dim[a]);
    sk_lower_start(e, call, SK_FLIES_NOT);
    *buf = dst;
    *now = next;
    return SK_OK;
}

/* Undo a split over axis `a`. */
static sk_status gather(sk_lowering *e, const sk_tensor *t, sk_state *now, const sk_state *want,
                        int a, int *buf)
{
    if (moves(e, t, now, want, a)) return exchange(e, t, now, want, a, buf);
    sk_state next = *now;
    next.how[a] = SK_REPLICATE;
    *buf = collective(e, t, now, &next, a, *buf);
    *now = next;
    return SK_OK;
}

/* Bring axis `a` of the tensor to the wanted state; unwanted splits are undone already. */
static sk_status one_axis(sk_lowering *e, const sk_tensor *t, sk_state *now, const sk_state *want,
                          int a, int *buf)
{
    sk_how from = (sk_how)now->how[a], to = (sk_how)want->how[a];
    if (from == to) return SK_OK;
    sk_state next = *now;
    if (from == SK_PARTIAL && to == SK_SPLIT) {
        next.how[a] = SK_SPLIT, next.dim[a] = want->dim[a];
        *buf = collective(e, t, now, &next, a, *buf);
        *now = next;
        return SK_OK;
    }
    if (from == SK_PARTIAL || from == SK_PARTIAL_MAX) {
        next.how[a] = SK_REPLICATE;
        if (sk_lower_wanted_partial(e, t, a)) *buf = copy_of(e, t, now, *buf);
        *buf = collective(e, t, now, &next, a, *buf);
        if (t->role == SK_VALUE) relabel(e, t, *buf, a);
        *now = next;
    }
    if (to == SK_SPLIT) {
        next.how[a] = SK_SPLIT, next.dim[a] = want->dim[a];
        *buf = sk_lower_slice(e, t, &next, *buf);
        *now = next;
    }
    if (now->how[a] != want->how[a])
        return sk_fail(SK_EBUG, "'%s' is whole over '%s' and wanted as a partial sum", t->name,
                       e->l->mesh.name[a]);
    return SK_OK;
}

static bool batch_dim(const sk_lowering *e, const sk_tensor *t, const sk_state *s, int a)
{
    return s->how[a] == SK_SPLIT && t->letters[s->dim[a]] == e->g->batch;
}

/* The axis over which a single collective leads from one state to the other without touching the
 * batch dim, or -1. */
static int one_step(const sk_lowering *e, const sk_tensor *t, const sk_state *now,
                    const sk_state *want)
{
    int axis = -1;
    for (int a = 0; a < e->l->mesh.n; a++) {
        bool split = now->how[a] == SK_SPLIT && want->how[a] == SK_SPLIT;
        if (now->how[a] == want->how[a] && (!split || now->dim[a] == want->dim[a])) continue;
        if (axis >= 0 || split) return -1;
        axis = a;
    }
    if (axis < 0 || now->how[axis] == SK_REPLICATE || now->how[axis] == SK_PARTIAL_MAX) return -1;
    if (now->how[axis] == SK_SPLIT && want->how[axis] != SK_REPLICATE) return -1;
    if (batch_dim(e, t, now, axis) || batch_dim(e, t, want, axis)) return -1;
    for (int a = 0; a < e->l->mesh.n; a++)
        if (a != axis && undone(e, t, now, want, a)) return -1;
    return axis;
}

/* Can this be done in chunks of the batch?  Not if it is needed only because a shard was saved:
 * results keep the bits that they have without shards. */
static bool by_rows(const sk_lowering *e, const sk_tensor *t, const sk_state *now,
                    const sk_state *want)
{
    sk_state settled = sk_state_settled(now);
    int axis = t->letters[0] == e->g->batch ? one_step(e, t, now, want) : -1;
    if (axis < 0 || sk_lower_kept_piece(e, t)) return false;
    return now->how[axis] == SK_SPLIT || want->how[axis] != SK_REPLICATE ||
           sk_state_equal(want, &settled);
}

/* The axis that splits last is gathered first; in several rounds, since the batch has another order
 * of axes. */
static sk_status gather_all(sk_lowering *e, const sk_tensor *t, sk_state *now, const sk_state *want,
                            int *buf)
{
    for (bool more = true; more;) {
        more = false;
        for (int a = 0; a < e->l->mesh.n; a++) {
            if (!undone(e, t, now, want, a) || !sk_lower_finest(e, t, now, a, now->dim[a]))
                continue;
            SK_TRY(gather(e, t, now, want, a, buf));
            more = true;
        }
    }
    return SK_OK;
}

/* The letter that was summed over; 0: none.  In deterministic order there is only one. */
static char letter_summed(const sk_lowering *e, const sk_tensor *t, const sk_state *s)
{
    for (int a = 0; a < e->l->mesh.n; a++)
        if (t->from && s->how[a] == SK_PARTIAL) return e->sp->node[t->from->id].letter[a];
    return 0;
}

/* Completes partial sums while shards are small, the finest split first: that is the order of the
 * tree.  In deterministic order several sums are completed in this way before anything is split. */
static sk_status sum_all(sk_lowering *e, const sk_tensor *t, sk_state *now, const sk_state *want,
                         int *buf)
{
    int n = e->l->mesh.n, sums = 0;
    char letter = letter_summed(e, t, now);
    for (int a = 0; a < n; a++) sums += now->how[a] == SK_PARTIAL && want->how[a] != SK_PARTIAL;
    for (int k = n - 1; k >= 0; k--) {
        int a = sk_layout_cutter(e->l, letter, k);
        sk_state next = *want;
        if (e->l->canonical && sums > 1 && now->how[a] == SK_PARTIAL && want->how[a] == SK_SPLIT)
            next.how[a] = SK_REPLICATE;
        if (now->how[a] != SK_SPLIT && next.how[a] == SK_REPLICATE)
            SK_TRY(one_axis(e, t, now, &next, a, buf));
    }
    return SK_OK;
}

/* The letter that an axis splits, if its axes have an order of their own (sk_layout_cutter); else
 * 0. */
static char order_of(const sk_tensor *t, const sk_state *s, int a)
{
    char x = s->how[a] == SK_SPLIT ? t->letters[s->dim[a]] : 0;
    return x == SK_LETTER_BATCH || x == SK_LETTER_TIME ? x : 0;
}

static sk_status reshard(sk_lowering *e, const sk_tensor *t, sk_state now, const sk_state *want,
                         int *buf)
{
    int n = e->l->mesh.n;
    SK_TRY(sum_all(e, t, &now, want, buf));
    SK_TRY(gather_all(e, t, &now, want, buf));
    const char orders[] = {0, SK_LETTER_TIME, SK_LETTER_BATCH};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < n; k++) {
            int a = sk_layout_cutter(e->l, orders[i], k);
            if (order_of(t, want, a) == orders[i]) SK_TRY(one_axis(e, t, &now, want, a, buf));
        }
    return SK_OK;
}

static int load(sk_lowering *e, const sk_tensor *t, const sk_state *want)
{
    int buf = sk_lower_piece(e, t, SK_ACTS, want, e->at.micro);
    sk_lower_inst(e, SK_DO_LOAD)->out[0] = buf;
    return buf;
}

static sk_status need_param(sk_lowering *e, const sk_tensor *t, const sk_state *want, int *buf)
{
    *buf = sk_lower_gathered(e, e->plan.param_of[t->id]);
    SK_TRY(reshard(e, t, e->sp->made[t->id], want, buf));
    return SK_OK;
}

static int find_partly_settled(sk_lowering *e, const sk_tensor *t, sk_state *now)
{
    for (sk_at_hand *h = *hand_of(e, t); h; h = h->next)
        if (sk_state_partly_settled(&h->state, &e->sp->made[t->id], e->l->mesh.n)) {
            *now = h->state;
            return h->buf;
        }
    return -1;
}

int sk_lower_source(sk_lowering *e, const sk_tensor *t, sk_state *now)
{
    sk_state settled = sk_state_settled(&e->sp->made[t->id]);
    *now = e->sp->made[t->id];
    int buf = sk_lower_find(e, t, now);
    if (buf < 0) *now = settled, buf = sk_lower_find(e, t, &settled);
    if (buf < 0) buf = find_partly_settled(e, t, now);
    if (buf < 0 && sk_lower_piece_state(e, t, now)) buf = sk_lower_find(e, t, now);
    return buf;
}

/* Where another node had the sums over some axes taken, a copy was summed over the others: what was
 * not is still there. */
static void find_sums(sk_lowering *e, const sk_tensor *t, const sk_state *want, sk_state *now,
                      int *buf)
{
    int n = e->l->mesh.n;
    if (*buf < 0 || sk_state_has_sums(now, want, n)) return;
    for (sk_at_hand *h = *hand_of(e, t); h; h = h->next)
        if (sk_state_partly_settled(&h->state, &e->sp->made[t->id], n) &&
            sk_state_has_sums(&h->state, want, n)) {
            *now = h->state;
            *buf = h->buf;
            return;
        }
}

sk_status sk_lower_need(sk_lowering *e, const sk_tensor *t, const sk_state *want, int *buf)
{
    if (t->role == SK_PARAM) return need_param(e, t, want, buf);
    *buf = sk_lower_find(e, t, want);
    if (*buf >= 0) return SK_OK;
    if (t->role == SK_INPUT) *buf = load(e, t, want);
    else {
        sk_state now;
        *buf = sk_lower_source(e, t, &now);
        find_sums(e, t, want, &now, buf);
        bool rows = *buf >= 0 && by_rows(e, t, &now, want);
        if (*buf < 0) {
            if (sk_is_clone(e, t->from)) SK_TRY(sk_lower_clone(e, t->from));
            else if (!sk_lower_unpack(e, t)) SK_TRY(sk_lower_receive(e, t));
            *buf = sk_lower_source(e, t, &now);
        }
        SK_TRY(reshard(e, t, now, want, buf));
        if (rows) e->p->calls.v[e->p->calls.n - 1].by_rows = true; /* the one that reshard wrote */
    }
    sk_lower_have(e, t, want, *buf);
    return SK_OK;
}
