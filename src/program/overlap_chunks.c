/* overlap_chunks.c - the pass that overlaps products with the collectives that they wait for.
 *
 * If an operand of a product must be gathered over an axis, or its result reduced, the rank would
 * wait for the collective before the product or after it.  In chunks along the batch both run at
 * the same time:
 *
 *     gathered:  start g0, start g1, wait g0, work 0, wait g1, work 1
 *     reduced:   work 0, start s0, work 1, start s1, ... wait s0, s1 where the result is read
 *
 * so that the communication of all but one chunk is hidden.  The only row of a micro-batch is cut
 * along time: into chunks, where the calls do not cut time; into the shards of a ring, where they
 * do (overlap_ring.c).  Partial sums are often added to others before they are reduced (residuals,
 * branches of a gradient), and several products may read what is gathered: such a run of
 * neighbouring nodes is split together and hides more.  The gradient of a weight, which sums over
 * the batch, adds from chunk to chunk; in deterministic order, where the order of that sum is
 * fixed, it is not split.
 *
 * `lower` has written every node as a unit: what reshards its operands, the op, what sends its
 * results.  Calls that may be split have call.by_rows.  A run is written as
 *
 *     all chunks of its gathers; other instructions before its ops; for each chunk, the ops and the
 *     reductions of their results, moved up from where they are read first; the rest */
#include "program/overlap.h"

#include <string.h>

typedef sk_overlap_stop stop;
typedef sk_overlap_run run;
enum { MOST = SK_OVERLAP_MOST };

typedef struct overlap {
    sk_lowering *e;
    const sk_inst *old;
    int n;
    int *moved_by; /* by buffer: 1 + the first START or SLICE that reads it */
    char *pulled;  /* by instruction: written already */
    char *reduced; /* by buffer: a call of an earlier run makes it, chunk by chunk */
} overlap;

/* --- finding runs --- */

/* Operands with the batch have it as their first dim, and a result without it can be accumulated
 * over chunks. */
static bool by_rows(const sk_lowering *e, const sk_node *n)
{
    char b = e->g->batch;
    bool some = false;
    if (strchr(n->not_split, b) || sk_node_gathers(n, b)) return false;
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

/* Does the node sum over the batch?  A chunk of such a sum would read and write all of it: in time,
 * where products of chunks are small, it is left whole. */
static bool sums_rows(const sk_lowering *e, const sk_node *n)
{
    for (int o = 0; o < n->n_out; o++)
        if (n->letters_out[o][0] == e->g->batch) return false;
    return true;
}

/* Time follows the batch wherever that is, and nothing needs all of it. */
static bool by_time(const sk_lowering *e, const sk_node *n)
{
    const char t = SK_LETTER_TIME;
    if (!by_rows(e, n) || strchr(n->not_split, t) || sk_node_gathers(n, t)) return false;
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const char *v = i < n->n_in ? n->letters_in[i] : n->letters_out[i - n->n_in];
        bool has = v[0] == e->g->batch;
        if (strchr(v, t) != (has && v[1] == t ? v + 1 : NULL) || (has && v[1] != t)) return false;
    }
    return true;
}

static const sk_extent *box_of(const sk_lowering *e, const sk_inst *op)
{
    int i = 0;
    while (op->node->letters_in[i][0] != e->g->batch) i++;
    return &e->p->bufs.v[op->in[i]].box;
}

/* How many chunks; 0 or 1: it is not split. */
static int chunks_of(const sk_lowering *e, const run *r)
{
    const sk_extent *box = box_of(e, r->v[0].op);
    if (r->along >= SK_ALONG_RING) return e->l->mesh.size[r->along - SK_ALONG_RING];
    int64_t all = box->size[r->along == SK_ALONG_TIME];
    return (int)(all < e->l->overlap ? all : e->l->overlap);
}

/* The ring of a call that cuts time, as SK_ALONG_RING + its axis; SK_ALONG_TIME: it does not cut
 * time; -1: it does, into unequal shards (ranks would have unlike programs), or in deterministic
 * order, in which a ring does not sum. */
static int way_of(const sk_lowering *e, const sk_call_plan *c)
{
    const sk_call_seg *s = &c->segs[0];
    const sk_extent *whole = &e->p->bufs.v[c->kind == SK_ALLGATHER ? s->dst : s->src].box;
    int p = c->group < e->l->mesh.n ? e->l->mesh.size[c->group] : 0;
    if (c->kind == SK_ALLREDUCE || s->outer != whole->size[0]) return SK_ALONG_TIME;
    bool even = p > 1 && s->n >= p && s->n % p == 0;
    return even && !e->l->canonical && c->reduce == SK_SUM ? SK_ALONG_RING + c->group : -1;
}

/* Can the call be done in the chunks of the run?  The first one decides what these are. */
static bool goes_along(const sk_lowering *e, run *r, const sk_call_plan *c)
{
    if (r->along == SK_ALONG_BATCH) return true;
    int way = way_of(e, c);
    if (way >= 0 && r->along < 0) r->along = way;
    return way >= 0 && way == r->along;
}

static const sk_call_plan *call_at(const overlap *x, int pc)
{
    return &x->e->p->calls.v[x->old[pc].call];
}

static int dst_of(const overlap *x, int start) { return call_at(x, start)->segs[0].dst; }

/* The unit that begins here: is it one node that can be split? */
static bool read_unit(const overlap *x, const run *r, int pc, stop *s)
{
    const sk_inst *old = x->old;
    *s = (stop){.from = pc, .at = -1, .to = pc, .copy = -1, .reduce = -1};
    for (; s->to < x->n && old[s->to].task == old[pc].task && old[s->to].unit == old[pc].unit;
         s->to++)
        if (old[s->to].act == SK_DO_OP && !sk_is_clone(x->e, old[s->to].node) &&
            old[s->to].parts == 1)
            s->at = s->to;
    if (s->at < 0 || old[pc].task < 0) return false;
    s->op = &old[s->at];
    const int *region = x->e->plan.region_of;
    if (s->op->node->id == SK_NO_NODE) return false;
    s->whole = r->along != SK_ALONG_BATCH && sums_rows(x->e, s->op->node);
    bool splits = r->along ? by_time(x->e, s->op->node) : by_rows(x->e, s->op->node);
    return splits && !(region && region[s->op->node->id]);
}

/* Is this node's result reduced by one collective? */
static void find_reduce(const overlap *x, run *r, stop *s)
{
    const sk_node *n = s->op->node;
    if (n->n_out > 1 || n->into[0] || n->letters_out[0][0] != x->e->g->batch) return;
    int pc = x->moved_by[s->op->out[0]] - 1, copy = -1;
    if (pc >= 0 && x->old[pc].act == SK_DO_SLICE) copy = pc++;
    if (pc < 0 || pc >= x->n || x->old[pc].act != SK_DO_START) return;
    const sk_call_plan *c = call_at(x, pc);
    if (!c->by_rows || !sk_kind_sums(c->kind)) return;
    if (copy >= 0 && c->segs[0].src != x->old[copy].out[0]) return;
    if (!goes_along(x->e, r, c)) return;
    s->copy = copy;
    s->reduce = pc;
}

static bool written(const overlap *x, int from, int to, int buf)
{
    for (int pc = from; pc < to; pc++) {
        if (x->old[pc].act == SK_DO_START && dst_of(x, pc) == buf) return true;
        for (int o = 0; o < SK_MAX_OUT; o++)
            if (x->old[pc].out[o] == buf) return true;
    }
    return false;
}

/* Calls that gather operands of the op, from sources that exist when the run begins. */
static void find_gathers(const overlap *x, run *r, int begin, stop *s)
{
    for (int pc = s->from; pc < s->at; pc++) {
        if (x->old[pc].act != SK_DO_START || x->pulled[pc]) continue;
        const sk_call_plan *c = call_at(x, pc);
        if (!c->by_rows || c->kind != SK_ALLGATHER || written(x, begin, pc, c->segs[0].src))
            continue;
        for (int i = 0; i < s->op->node->n_in; i++)
            if (s->op->in[i] == c->segs[0].dst &&
                s->op->node->in[i] == x->e->p->bufs.v[c->segs[0].dst].tensor &&
                goes_along(x->e, r, c)) {
                *sk_push(x->e->tmp, &s->gathers) = pc;
                break;
            }
    }
}

/* May a node of the run read this buffer?  If earlier nodes of the run produce or gather it, the
 * node must read it in the same chunks. */
static bool reads_alike(const overlap *x, const run *r, const stop *s, int i)
{
    const sk_tensor *t = s->op->node->in[i];
    for (int k = 0; k < r->n; k++) {
        const stop *m = &r->v[k];
        for (int o = 0; o < m->op->node->n_out; o++) {
            if (m->op->node->out[o] != t) continue;
            bool reduced =
                m->reduce >= 0 && m->reduce < s->at && dst_of(x, m->reduce) == s->op->in[i];
            if (m->op->out[o] != s->op->in[i] || reduced) return false;
        }
        for (int g = 0; g < m->gathers.n; g++) {
            int dst = dst_of(x, m->gathers.v[g]);
            if (x->e->p->bufs.v[dst].tensor == t && dst != s->op->in[i]) return false;
        }
    }
    return true;
}

/* Such a result is complete when all its chunks have arrived: its reader is not split too. */
static bool reads_reduced(const overlap *x, const stop *s)
{
    for (int i = 0; i < s->op->node->n_in; i++)
        if (x->reduced[s->op->in[i]]) return true;
    return false;
}

/* Is a result of the run moved as a whole before this node reads it?  Then the run ends there. */
static bool moves_result(const overlap *x, const run *r, const stop *s)
{
    for (int pc = s->from; pc < s->at; pc++) {
        if (x->old[pc].act != SK_DO_START || call_at(x, pc)->by_rows) continue;
        for (int k = 0; k < r->n; k++)
            for (int o = 0; o < SK_MAX_OUT; o++)
                if (r->v[k].op->out[o] >= 0 && r->v[k].op->out[o] == call_at(x, pc)->segs[0].src)
                    return true;
    }
    return false;
}

static bool joins(const overlap *x, const run *r, const stop *s)
{
    const sk_node *n = s->op->node, *last = r->v[r->n - 1].op->node;
    const char *moved = x->e->plan.moved;
    if (!(n->op->flags & (SK_OP_HEAVY | SK_OP_LINEAR)) || n->layer != last->layer) return false;
    if (s->op->task != r->v[0].op->task || n->id != last->id + 1) return false;
    if (reads_reduced(x, s) || moves_result(x, r, s)) return false;
    if (moved && (moved[n->id] || moved[last->id])) return false;
    for (int i = 0; i < n->n_in; i++)
        if (!reads_alike(x, r, s, i)) return false;
    return true;
}

/* Does this node have communication to hide? */
static bool hides(const overlap *x, const run *r, const stop *s)
{
    for (int k = 0; k < r->n; k++)
        for (int g = 0; g < r->v[k].gathers.n; g++)
            for (int i = 0; i < s->op->node->n_in; i++)
                if (s->op->in[i] == dst_of(x, r->v[k].gathers.v[g])) return true;
    return s->reduce >= 0;
}

/* The run from this unit on, as far as there is communication to hide: along the batch, or along
 * the time of its only row. */
static bool find_run(overlap *x, int pc, run *r, bool time)
{
    stop s;
    *r = (run){.along = time ? -1 : SK_ALONG_BATCH, .chunks = {.flies = SK_FLIES_IN_TASK}};
    if (!read_unit(x, r, pc, &s) || !(s.op->node->op->flags & SK_OP_HEAVY)) return false;
    if (reads_reduced(x, &s) || (time && box_of(x->e, s.op)->size[0] != 1)) return false;
    while (x->old[s.from].act == SK_DO_UNPACK) s.from++; /* packed results are unpacked before */
    int begin = s.from;
    do {
        find_reduce(x, r, &s);
        find_gathers(x, r, begin, &s);
        r->v[r->n++] = s;
    } while (r->n < MOST && read_unit(x, r, r->v[r->n - 1].to, &s) && joins(x, r, &s));
    while (r->n && !hides(x, r, &r->v[r->n - 1])) r->n--;
    if (!r->n) return false;
    r->chunks.n = chunks_of(x->e, r);
    r->chunks.per = time ? r->chunks.n : 1;
    return r->chunks.n > 1;
}

/* --- rewriting --- */

static void pull(overlap *x, const run *r)
{
    for (int k = 0; k < r->n; k++) {
        for (int g = 0; g < r->v[k].gathers.n; g++) x->pulled[r->v[k].gathers.v[g]] = 1;
        if (r->v[k].copy >= 0) x->pulled[r->v[k].copy] = 1;
        if (r->v[k].reduce >= 0) x->pulled[r->v[k].reduce] = 1;
    }
}

static void write_gathers(overlap *x, run *r)
{
    sk_inst v[MOST * SK_MAX_IN];
    int n = 0;
    for (int k = 0; k < r->n; k++)
        for (int g = 0; g < r->v[k].gathers.n; g++) {
            int pc = r->v[k].gathers.v[g];
            v[n++] = x->old[pc];
            x->pulled[pc] = 1;
        }
    sk_split_rows(x->e, &r->chunks, v, n);
}

static void write_work(overlap *x, run *r)
{
    sk_inst v[3 * MOST];
    int n = 0;
    for (int k = 0; k < r->n; k++) {
        const stop *s = &r->v[k];
        const int moves[] = {s->copy, s->reduce};
        if (s->whole) continue;
        v[n++] = *s->op;
        for (int m = 0; m < 2; m++) {
            if (moves[m] < 0) continue;
            v[n] = sk_inst_like(s->op, x->old[moves[m]].act);
            v[n].in[0] = x->old[moves[m]].in[0];
            v[n].out[0] = x->old[moves[m]].out[0];
            v[n++].call = x->old[moves[m]].call;
            x->pulled[moves[m]] = 1;
            if (m) x->reduced[dst_of(x, moves[m])] = 1;
        }
    }
    sk_split_rows(x->e, &r->chunks, v, n);
}

static void write_rest(overlap *x, int from, int to)
{
    for (int pc = from; pc < to; pc++)
        if (!x->pulled[pc]) *sk_push(x->e->tmp, &x->e->p->insts) = x->old[pc];
}

static int write(void *ctx, const sk_inst *old, int pc)
{
    overlap *x = ctx;
    run r;
    x->old = old;
    bool begins = !pc || old[pc].task != old[pc - 1].task || old[pc].unit != old[pc - 1].unit;
    if (!begins || (!find_run(x, pc, &r, false) && !find_run(x, pc, &r, true))) {
        write_rest(x, pc, pc + 1);
        return pc + 1;
    }
    int first = x->e->p->insts.n;
    write_rest(x, pc, r.v[0].from);
    bool ring = r.along >= SK_ALONG_RING;
    if (ring) pull(x, &r);
    else write_gathers(x, &r);
    for (int k = 0; k < r.n; k++) write_rest(x, r.v[k].from, r.v[k].at);
    if (ring) sk_overlap_ring(x->e, old, &r);
    else write_work(x, &r);
    for (int k = 0; k < r.n; k++)
        if (r.v[k].whole) *sk_push(x->e->tmp, &x->e->p->insts) = *r.v[k].op;
    for (int k = 0; k < r.n; k++) write_rest(x, r.v[k].at + 1, r.v[k].to);
    for (int k = first; k < x->e->p->insts.n; k++) x->e->p->insts.v[k].unit = old[pc].unit;
    return r.v[r.n - 1].to;
}

static void see_move(overlap *x, int buf, int pc)
{
    if (!x->moved_by[buf]) x->moved_by[buf] = pc + 1;
}

sk_status sk_overlap_chunks(sk_lowering *e)
{
    const sk_program *p = e->p;
    overlap x = {.e = e, .n = p->insts.n};
    if (e->l->overlap < 2) return SK_OK;
    x.moved_by = sk_many(e->tmp, int, p->bufs.n + 1);
    x.pulled = sk_many(e->tmp, char, p->insts.n + 1);
    x.reduced = sk_many(e->tmp, char, p->bufs.n + 1);
    for (int pc = 0; pc < p->insts.n; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        if (in->act == SK_DO_SLICE) see_move(&x, in->in[0], pc);
        for (int s = 0; in->act == SK_DO_START && s < p->calls.v[in->call].n_segs; s++)
            see_move(&x, p->calls.v[in->call].segs[s].src, pc);
    }
    return sk_rewrite(e, write, &x);
}
