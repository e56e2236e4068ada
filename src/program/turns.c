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
 * before they are reduced (residuals, branches of a gradient), and several products may read what
 * is gathered: such neighbours take turns together, and hide more.  The gradient of a weight, which
 * sums over the batch, adds from turn to turn; in canonical order, where the order of that sum is
 * fixed, it stays whole. */
#include "program/emit.h"

#include <string.h>

typedef struct slot { /* a buffer, and the first of its parts, one a turn; -1: it has no batch */
    int whole, parts;
} slot;

typedef struct stop { /* one node of a run */
    const sk_node *n;
    slot in[SK_MAX_IN], out[SK_MAX_OUT];
    unsigned add;
    int gather[SK_MAX_IN]; /* axis that an operand is gathered over, or -1 */
    int axis;              /* that the result is reduced over, or -1 */
    sk_state want;
    slot sum, to; /* what is reduced: the result or a copy of it; and where it goes */
} stop;

enum { MOST = 8 };
typedef struct run { /* nodes that take turns together, one behind the other in the graph */
    stop v[MOST];
    int n, turns;
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
                                e->p->coord, e->at.micro, e->p->n_micro);
    return box.size[0] < e->l->overlap ? (int)box.size[0] : e->l->overlap;
}

/* The state that a partial sum is brought to: whole for another stage, else as its first reader
 * wants it. */
static bool wanted(const sk_emit *e, const sk_tensor *t, sk_state *want)
{
    uint64_t there = e->training ? e->plan.read_by[t->id] : e->plan.read_forward[t->id];
    int reader = e->plan.reader[t->id] - 1, k = 0;
    *want = sk_state_settled(&e->sp->made[t->id]);
    if (there & ~(1ull << e->p->stage)) return true;
    if (reader < 0) return false;
    while (e->g->nodes.v[reader]->in[k] != t) k++;
    *want = e->sp->node[reader].in[k];
    return true;
}

/* Is this node's result reduced by one collective? */
static void find_end(const sk_emit *e, stop *x)
{
    const sk_tensor *t = x->n->out[0];
    const sk_state *made = &e->sp->made[t->id];
    sk_state settled = sk_state_settled(made);
    x->axis = -1;
    if (x->n->n_out > 1 || x->n->into[0] || t->letters[0] != e->g->batch) return;
    if (!wanted(e, t, &x->want)) return;
    int axis = sk_emit_one_step(e, t, made, &x->want);
    if (axis < 0 || made->how[axis] != SK_PSUM) return;
    if (x->want.how[axis] == SK_WHOLE && !sk_state_equal(&x->want, &settled)) return;
    x->axis = axis;
}

/* Where a tensor is made in the run, or NULL. */
static stop *maker(run *r, const sk_tensor *t)
{
    for (int k = 0; k < r->n; k++)
        if (r->v[k].n == t->from) return &r->v[k];
    return NULL;
}

static bool gathered(const run *r, const sk_tensor *t)
{
    for (int k = 0; k < r->n; k++)
        for (int i = 0; i < r->v[k].n->n_in; i++)
            if (r->v[k].gather[i] >= 0 && r->v[k].n->in[i] == t) return true;
    return false;
}

static void find_gathers(sk_emit *e, run *r, stop *x)
{
    for (int i = 0; i < x->n->n_in; i++) {
        const sk_tensor *t = x->n->in[i];
        const sk_state *want = &e->sp->node[x->n->id].in[i];
        sk_state now;
        x->gather[i] = -1;
        if (t->role != SK_VALUE || t->letters[0] != e->g->batch) continue;
        if (maker(r, t) || gathered(r, t) || sk_emit_kept_piece(e, t)) continue;
        if (sk_emit_find(e, t, want) >= 0 || sk_emit_source(e, t, &now) < 0) continue;
        int axis = sk_emit_one_step(e, t, &now, want);
        if (axis < 0 || now.how[axis] != SK_SPLIT) continue;
        x->gather[i] = axis;
    }
}

/* May this node take turns with those before it?  What it reads of them must be as they make or
 * gather it. */
static bool joins(const sk_emit *e, run *r, const sk_node *n)
{
    const sk_node *last = r->v[r->n - 1].n;
    bool fits = n->op->flags & (SK_OP_HEAVY | SK_OP_LINEAR) && by_rows(e, n) && !sk_is_clone(e, n);
    if (e->plan.moved && (e->plan.moved[n->id] || e->plan.moved[last->id])) return false;
    if (!fits || n->layer != last->layer || n->phase != last->phase) return false;
    if (e->at.work >= SK_WORK_I && e->plan.weight_half[n->id] != e->plan.weight_half[last->id])
        return false;
    if (e->sp->chunk[n->id] != e->sp->chunk[last->id]) return false;
    for (int i = 0; i < n->n_in; i++) {
        const sk_tensor *t = n->in[i];
        const sk_state *as = &e->sp->node[n->id].in[i];
        if (maker(r, t) && !sk_state_equal(as, &e->sp->made[t->id])) return false;
        for (int k = 0; k < r->n; k++)
            for (int j = 0; j < r->v[k].n->n_in; j++)
                if (r->v[k].n->in[j] == t && r->v[k].gather[j] >= 0 &&
                    !sk_state_equal(as, &e->sp->node[r->v[k].n->id].in[j]))
                    return false;
    }
    return true;
}

/* Is there something to hide behind this node? */
static bool hides(const run *r, const stop *x)
{
    for (int i = 0; i < x->n->n_in; i++)
        if (gathered(r, x->n->in[i])) return true;
    return x->axis >= 0;
}

/* From this node on, as far as there is something to hide. */
static void find_run(sk_emit *e, const sk_node *n, run *r)
{
    int id = n->id;
    do {
        stop *x = &r->v[r->n];
        x->n = e->g->nodes.v[id++];
        find_end(e, x);
        find_gathers(e, r, x);
        r->n++;
    } while (r->n < MOST && id < e->g->nodes.n && joins(e, r, e->g->nodes.v[id]));
    while (r->n && !hides(r, &r->v[r->n - 1])) r->n--;
}

/* --- doing it --- */

static void open_gathers(sk_emit *e, run *r, stop *x, slot *from, sk_state *now)
{
    for (int i = 0; i < x->n->n_in; i++) {
        const sk_tensor *t = x->n->in[i];
        const sk_state *want = &e->sp->node[x->n->id].in[i];
        if (x->gather[i] < 0) continue;
        from[i] = slot_of(e, r, t->letters, sk_emit_source(e, t, &now[i]));
        int whole = sk_emit_piece(e, t, SK_ACTS, want, e->at.micro);
        x->in[i] = slot_of(e, r, t->letters, whole);
    }
}

static void start_gathers(sk_emit *e, run *r)
{
    slot from[MOST][SK_MAX_IN];
    sk_state now[MOST][SK_MAX_IN];
    for (int k = 0; k < r->n; k++) open_gathers(e, r, &r->v[k], from[k], now[k]);
    for (int c = 0; c < r->turns * r->n * SK_MAX_IN; c++) {
        int turn = c / (r->n * SK_MAX_IN), k = c / SK_MAX_IN % r->n, i = c % SK_MAX_IN;
        const stop *x = &r->v[k];
        if (i >= x->n->n_in || x->gather[i] < 0) continue;
        const sk_state *want = &e->sp->node[x->n->id].in[i];
        int call = sk_emit_collective(e, x->n->in[i], &now[k][i], want, x->gather[i],
                                      at(from[k][i], turn), at(x->in[i], turn));
        if (!turn) sk_emit_have(e, x->n->in[i], want, x->in[i].whole);
        sk_emit_start(e, call, SK_FLIES_IN_TASK);
    }
}

/* The place of an operand that the run makes or gathers. */
static bool inside(run *r, const sk_tensor *t, slot *s)
{
    for (int k = 0; k < r->n; k++) {
        const stop *x = &r->v[k];
        for (int i = 0; i < x->n->n_in; i++)
            if (x->gather[i] >= 0 && x->n->in[i] == t) return *s = x->in[i], true;
        for (int o = 0; o < x->n->n_out; o++)
            if (x->n->out[o] == t) return *s = x->out[o], true;
    }
    return false;
}

static sk_status buffers(sk_emit *e, run *r, stop *x)
{
    const sk_node *n = x->n;
    for (int i = 0; i < n->n_in; i++) {
        int buf = -1;
        if (inside(r, n->in[i], &x->in[i])) continue;
        SK_TRY(sk_emit_need(e, n->in[i], &e->sp->node[n->id].in[i], &buf));
        x->in[i] = slot_of(e, r, n->letters_in[i], buf);
    }
    for (int o = 0; o < n->n_out; o++) {
        int buf = -1;
        bool add = false;
        SK_TRY(sk_emit_output(e, n, o, &buf, &add));
        x->out[o] = slot_of(e, r, n->letters_out[o], buf);
        x->add |= (unsigned)add << o;
    }
    return SK_OK;
}

/* An all-reduce works in place, or on a copy if somebody wants the partial sum as well. */
static void place_result(sk_emit *e, const run *r, stop *x)
{
    const sk_tensor *t = x->n->out[0];
    x->sum = x->to = x->out[0];
    if (x->axis < 0) return;
    if (x->want.how[x->axis] == SK_WHOLE && !sk_emit_wanted_partial(e, t, x->axis)) {
        sk_emit_relabel(e, t, x->to.whole, x->axis);
        return;
    }
    x->to = slot_of(e, r, t->letters, sk_emit_piece(e, t, SK_ACTS, &x->want, e->at.micro));
    if (x->want.how[x->axis] == SK_WHOLE) x->sum = x->to;
    sk_emit_have(e, t, &x->want, x->to.whole);
}

static void work(sk_emit *e, const run *r, const stop *x, int turn)
{
    sk_inst *in = sk_emit_inst(e, SK_DO_OP);
    in->node = x->n;
    in->turn = turn;
    in->turns = r->turns;
    in->add = x->add;
    for (int i = 0; i < x->n->n_in; i++) in->in[i] = at(x->in[i], turn);
    for (int o = 0; o < x->n->n_out; o++) {
        in->out[o] = at(x->out[o], turn);
        if (turn && x->out[o].parts < 0) in->add |= 1u << o;
    }
}

static void reduce(sk_emit *e, const stop *x, int turn)
{
    const sk_tensor *t = x->n->out[0];
    if (x->sum.whole != x->out[0].whole) {
        sk_inst *in = sk_emit_inst(e, SK_DO_SLICE);
        in->in[0] = at(x->out[0], turn);
        in->out[0] = at(x->sum, turn);
    }
    int call = sk_emit_collective(e, t, &e->sp->made[t->id], &x->want, x->axis, at(x->sum, turn),
                                  at(x->to, turn));
    sk_emit_start(e, call, SK_FLIES_IN_TASK);
}

static sk_status write_run(sk_emit *e, run *r)
{
    start_gathers(e, r);
    for (int k = 0; k < r->n; k++) {
        SK_TRY(buffers(e, r, &r->v[k]));
        place_result(e, r, &r->v[k]);
    }
    for (int turn = 0; turn < r->turns; turn++) {
        for (int k = 0; k < r->n; k++) {
            const stop *x = &r->v[k];
            work(e, r, x, turn);
            if (x->axis >= 0) reduce(e, x, turn);
        }
    }
    if (r->n > 1) e->joined = r->v[r->n - 1].n->id;
    for (int k = 0; k < r->n; k++) SK_TRY(sk_emit_made(e, r->v[k].n));
    return SK_OK;
}

sk_status sk_emit_turns(sk_emit *e, const sk_node *n, bool *done)
{
    run r = {0};
    *done = n->id <= e->joined;
    if (n->id == e->joined) e->joined = -1;
    if (*done || e->l->overlap < 2 || !(n->op->flags & SK_OP_HEAVY) || !by_rows(e, n)) return SK_OK;
    r.turns = turns_of(e, n);
    if (r.turns < 2) return SK_OK;
    find_run(e, n, &r);
    *done = r.n;
    return *done ? write_run(e, &r) : SK_OK;
}
