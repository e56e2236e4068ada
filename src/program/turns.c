/* turns.c - a product beside the collectives that bring its operands or take its result away.
 *
 * Where an axis splits what a product needs whole, or leaves it a partial sum, the rank would wait
 * for bytes before the work or after it.  In turns along the batch it does both at once:
 *
 *     gathered:  start g0, start g1, wait g0, work 0, wait g1, work 1
 *     reduced:   work 0, start s0, work 1, start s1, ... wait s0, s1 where the result is read
 *
 * so that all but one turn can hide.  The batch is the first dim, so a turn is a part of each
 * buffer that lies in line, and no byte more is sent.  Partial sums are often added to others
 * before they are reduced (residuals, branches of a gradient): such a sum takes part in the turns
 * of the product before it.  The gradient of a weight, which sums over the batch, adds from turn to
 * turn; in canonical order, where the order of that sum is fixed, it stays whole. */
#include "program/emit.h"

#include <string.h>

typedef struct slot { /* a buffer, and the first of its parts, one a turn; -1: it has no batch */
    int whole, parts;
} slot;

typedef struct run {
    const sk_node *node[2]; /* the product, and a sum that ends it */
    int n, turns;
    slot in[2][SK_MAX_IN], out[2][SK_MAX_OUT];
    unsigned add[2];
    int gather[SK_MAX_IN];   /* by operand of the product: axis that it is gathered over, or -1 */
    int n_gathers, calls;    /* and the first of these calls: one an operand, turn by turn */
    const sk_tensor *result; /* of the last node */
    int axis;                /* that it is reduced over, or -1 */
    sk_state want;
    slot sum, to; /* what is reduced: the result or a copy of it; and where it goes */
} run;

static int at(slot s, int turn) { return s.parts < 0 ? s.whole : s.parts + turn; }

static slot slot_of(sk_emit *e, const run *r, const char *letters, int whole)
{
    slot s = {whole, letters[0] == e->g->batch ? e->p->bufs.n : -1};
    for (int j = 0; s.parts >= 0 && j < r->turns; j++) sk_emit_part(e, whole, j, r->turns);
    return s;
}

/* --- what is to be done --- */

/* Whoever has the batch has it first, and a result without it can be added up. */
static bool by_rows(const sk_emit *e, const sk_node *n)
{
    char b = e->g->batch;
    bool some = false;
    if (strchr(n->whole, b) || sk_node_far(n, b)) return false;
    for (int i = 0; i < n->n_in; i++) {
        const char *p = strchr(n->letters_in[i], b);
        if (p && p != n->letters_in[i]) return false;
        some |= p != NULL;
    }
    for (int o = 0; o < n->n_out; o++) {
        const char *p = strchr(n->letters_out[o], b);
        bool adds = n->op->flags & SK_OP_ADDS && !e->l->canonical;
        if (p ? p != n->letters_out[o] : !adds) return false;
    }
    return some;
}

static int turns_of(const sk_emit *e, const sk_node *n)
{
    int i = 0;
    while (n->letters_in[i][0] != e->g->batch) i++;
    sk_extent box = sk_piece_of(e->g, e->l, n->in[i]->letters, &e->sp->node[n->id].in[i],
                                e->p->coord, e->micro, e->p->n_micro);
    return box.size[0] < e->l->overlap ? (int)box.size[0] : e->l->overlap;
}

/* The state that a partial sum is brought to: whole for another stage, else as its first reader
 * wants it. */
static bool wanted(const sk_emit *e, const sk_tensor *t, sk_state *want)
{
    uint64_t there = e->training ? e->read_by[t->id] : e->read_forward[t->id];
    int reader = e->reader[t->id] - 1, k = 0;
    *want = sk_state_settled(&e->sp->made[t->id]);
    if (there & ~(1ull << e->p->stage)) return true;
    if (reader < 0) return false;
    while (e->g->nodes.v[reader]->in[k] != t) k++;
    *want = e->sp->node[reader].in[k];
    return true;
}

/* Is this node's result reduced by one collective? */
static bool ends(const sk_emit *e, const sk_node *n, run *r)
{
    const sk_tensor *t = n->out[0];
    const sk_state *made = &e->sp->made[t->id];
    sk_state settled = sk_state_settled(made);
    if (n->n_out > 1 || n->into[0] || t->letters[0] != e->g->batch) return false;
    if (!wanted(e, t, &r->want)) return false;
    int axis = sk_emit_one_step(e, t, made, &r->want);
    if (axis < 0 || made->how[axis] != SK_PSUM) return false;
    if (r->want.how[axis] == SK_WHOLE && !sk_state_equal(&r->want, &settled)) return false;
    r->result = t;
    r->axis = axis;
    return true;
}

/* The next node, if it only adds the product's partial sum to others. */
static const sk_node *follower(const sk_emit *e, const sk_node *n)
{
    const sk_node *next = n->id + 1 < e->g->nodes.n ? e->g->nodes.v[n->id + 1] : NULL;
    if (!next || !(next->op->flags & SK_OP_LINEAR) || next->layer != n->layer) return NULL;
    if (next->phase != n->phase || e->late[next->id] != e->late[n->id]) return NULL;
    if (e->sp->chunk[next->id] != e->sp->chunk[n->id] || n->into[0]) return NULL;
    for (int i = 0; i < next->n_in; i++)
        if (next->in[i] == n->out[0] && by_rows(e, next) &&
            sk_state_equal(&e->sp->node[next->id].in[i], &e->sp->made[n->out[0]->id]))
            return next;
    return NULL;
}

static void find_end(const sk_emit *e, run *r)
{
    const sk_node *next = follower(e, r->node[0]);
    r->axis = -1;
    r->n = 1;
    if (next && ends(e, next, r)) r->node[r->n++] = next;
    else ends(e, r->node[0], r);
}

static void find_gathers(sk_emit *e, run *r)
{
    const sk_node *n = r->node[0];
    for (int i = 0; i < n->n_in; i++) {
        const sk_tensor *t = n->in[i];
        const sk_state *want = &e->sp->node[n->id].in[i];
        sk_state now;
        r->gather[i] = -1;
        if (t->role != SK_VALUE || t->letters[0] != e->g->batch || (i && t == n->in[0])) continue;
        if (sk_emit_find(e, t, want) >= 0 || sk_emit_source(e, t, &now) < 0) continue;
        int axis = sk_emit_one_step(e, t, &now, want);
        if (axis < 0 || now.how[axis] != SK_SPLIT) continue;
        r->gather[i] = axis;
        r->n_gathers++;
    }
}

/* --- doing it --- */

static void start_gathers(sk_emit *e, run *r)
{
    const sk_node *n = r->node[0];
    slot from[SK_MAX_IN];
    sk_state now[SK_MAX_IN];
    for (int i = 0; i < n->n_in; i++) {
        const sk_state *want = &e->sp->node[n->id].in[i];
        if (r->gather[i] < 0) continue;
        from[i] = slot_of(e, r, n->in[i]->letters, sk_emit_source(e, n->in[i], &now[i]));
        int whole = sk_emit_piece(e, n->in[i], SK_ACTS, want, e->micro);
        r->in[0][i] = slot_of(e, r, n->in[i]->letters, whole);
        sk_emit_have(e, n->in[i], want, whole);
    }
    r->calls = e->p->calls.n;
    for (int j = 0; j < r->turns; j++)
        for (int i = 0; i < n->n_in; i++) {
            if (r->gather[i] < 0) continue;
            int call = sk_emit_collective(e, n->in[i], &now[i], &e->sp->node[n->id].in[i],
                                          r->gather[i], at(from[i], j), at(r->in[0][i], j));
            sk_emit_fly(e, call);
            sk_emit_busy(e, n->in[i], call);
        }
}

/* Operands that are not gathered in turns, and places for results. */
static sk_status buffers(sk_emit *e, run *r, int k)
{
    const sk_node *n = r->node[k];
    for (int i = 0; i < n->n_in; i++) {
        int buf = -1;
        if (!k && r->gather[i] >= 0) continue;
        if (k && n->in[i] == r->node[0]->out[0]) {
            r->in[k][i] = r->out[0][0];
            continue;
        }
        SK_TRY(sk_emit_need(e, n->in[i], &e->sp->node[n->id].in[i], &buf));
        r->in[k][i] = slot_of(e, r, n->letters_in[i], buf);
    }
    for (int o = 0; o < n->n_out; o++) {
        int buf = -1;
        bool add = false;
        SK_TRY(sk_emit_output(e, n, o, &buf, &add));
        r->out[k][o] = slot_of(e, r, n->letters_out[o], buf);
        r->add[k] |= (unsigned)add << o;
    }
    return SK_OK;
}

/* An all-reduce works in place, or on a copy if somebody wants the partial sum as well. */
static void place_result(sk_emit *e, run *r)
{
    const sk_tensor *t = r->result;
    r->sum = r->to = r->out[r->n - 1][0];
    if (r->want.how[r->axis] == SK_WHOLE && !sk_emit_wanted_partial(e, t, r->axis)) {
        sk_emit_relabel(e, t, r->to.whole, r->axis);
        return;
    }
    r->to = slot_of(e, r, t->letters, sk_emit_piece(e, t, SK_ACTS, &r->want, e->micro));
    if (r->want.how[r->axis] == SK_WHOLE) r->sum = r->to;
    sk_emit_have(e, t, &r->want, r->to.whole);
}

static void work(sk_emit *e, const run *r, int k, int turn)
{
    const sk_node *n = r->node[k];
    sk_inst *in = sk_emit_inst(e, SK_DO_OP);
    in->node = n;
    in->turn = turn;
    in->turns = r->turns;
    in->add = r->add[k];
    for (int i = 0; i < n->n_in; i++) in->in[i] = at(r->in[k][i], turn);
    for (int o = 0; o < n->n_out; o++) {
        in->out[o] = at(r->out[k][o], turn);
        if (turn && r->out[k][o].parts < 0) in->add |= 1u << o;
    }
}

static void reduce(sk_emit *e, const run *r, int turn)
{
    slot made = r->out[r->n - 1][0];
    if (r->sum.whole != made.whole) {
        sk_inst *in = sk_emit_inst(e, SK_DO_SLICE);
        in->in[0] = at(made, turn);
        in->out[0] = at(r->sum, turn);
    }
    int call = sk_emit_collective(e, r->result, &e->sp->made[r->result->id], &r->want, r->axis,
                                  at(r->sum, turn), at(r->to, turn));
    sk_emit_fly(e, call);
    sk_emit_busy(e, r->result, call);
}

static sk_status write_run(sk_emit *e, run *r)
{
    start_gathers(e, r);
    for (int k = 0; k < r->n; k++) SK_TRY(buffers(e, r, k));
    if (r->axis >= 0) place_result(e, r);
    for (int j = 0; j < r->turns; j++) {
        for (int i = 0; i < r->n_gathers; i++) sk_emit_settle(e, r->calls + j * r->n_gathers + i);
        for (int k = 0; k < r->n; k++) work(e, r, k, j);
        if (r->axis >= 0) reduce(e, r, j);
    }
    if (r->n > 1) e->joined = r->node[1]->id;
    for (int k = 0; k < r->n; k++) SK_TRY(sk_emit_made(e, r->node[k]));
    return SK_OK;
}

sk_status sk_emit_turns(sk_emit *e, const sk_node *n, bool *done)
{
    run r = {.node = {n}};
    *done = n->id == e->joined;
    if (*done) e->joined = -1;
    if (*done || e->l->overlap < 2 || !(n->op->flags & SK_OP_HEAVY) || !by_rows(e, n)) return SK_OK;
    r.turns = turns_of(e, n);
    if (r.turns < 2) return SK_OK;
    find_end(e, &r);
    find_gathers(e, &r);
    *done = r.n_gathers || r.axis >= 0;
    return *done ? write_run(e, &r) : SK_OK;
}
