/* repeats_memory.c - the memory plan of all micro-batches, from a program of few.
 *
 * The program is written out again, lap by lap, for as many micro-batches as it takes, and planned
 * like any other.  A buffer of a lap is known by its family, the buffers that are made by the same
 * instruction for other micro-batches, and by the micro-batch of the task that makes it.
 *
 * Transient buffers are placed in the order of time (memory.c).  So once the same places are taken
 * by buffers of the same age at the end of two periods of laps, and the memory has grown in neither,
 * it never grows again: more periods take the same bytes. */
#include "base/hash.h"
#include "program/acts.h"
#include "program/lowering.h"

#include <string.h>

enum { NEAR = 4, MOST_WRITTEN = 1 << 20 };

typedef struct lap_task { /* a task of the list that is written */
    int task, micro;      /* of the short list; its micro-batch in the long one */
} lap_task;

typedef struct writer {
    sk_program *p;
    const sk_repeats *r;
    sk_arena *tmp;
    int n_micro;          /* that are written */
    int *task_of, *birth; /* by instruction, by buffer */
    int *family;          /* by buffer; -1: it is the same in all laps */
    int n_families, *made; /* [family * n_micro + micro]: 1 + the buffer in q */
    sk_program q;
    const sk_tasks *tasks; /* short, of the section at work */
    struct {
        lap_task *v;
        int n, cap;
    } done;
    int pc, next[2];       /* the next micro-batch: backward, forward */
    sk_ints bounds[2];     /* of the validation and the training section: where laps of q begin */
    bool failed;
} writer;

/* --- families --- */

typedef struct seer {
    writer *w;
    int ids[256], n, pc;
} seer;

static void see_birth(void *ctx, int *buf, unsigned how)
{
    seer *s = ctx;
    (void)how;
    for (int b = *buf; b >= 0; b = s->w->p->bufs.v[b].within)
        if (s->w->birth[b] < 0) s->w->birth[b] = s->pc;
}

static void collect(void *ctx, int *buf, unsigned how)
{
    seer *s = ctx;
    (void)how;
    if (s->n < (int)(sizeof s->ids / sizeof *s->ids)) s->ids[s->n] = *buf;
    s->n++;
}

static void fix(writer *w, int buf)
{
    for (; buf >= 0; buf = w->p->bufs.v[buf].within) w->family[buf] = -1;
}

/* Operands that two laps have in common. */
static void fix_shared(writer *w, const sk_repeat *x)
{
    for (int i = 0; i < x->n; i++) {
        seer a = {.w = w}, b = {.w = w};
        sk_operands(w->p, &w->p->insts.v[x->at + i], collect, &a);
        sk_operands(w->p, &w->p->insts.v[x->at + i - x->n], collect, &b);
        w->failed |= a.n != b.n || a.n > (int)(sizeof a.ids / sizeof *a.ids);
        for (int k = 0; k < a.n && !w->failed; k++)
            if (a.ids[k] == b.ids[k]) fix(w, a.ids[k]);
    }
}

static uint64_t kind_of(const writer *w, int buf)
{
    const sk_buffer *b = &w->p->bufs.v[buf];
    const sk_inst *in = &w->p->insts.v[w->birth[buf]];
    int64_t key[] = {in->act, (int64_t)(intptr_t)in->node, in->part, (int64_t)in->work,
                     in->layer, (int64_t)(intptr_t)b->tensor, b->kind, b->type, b->bytes, b->part_at,
                     b->within >= 0, w->birth[buf] >= w->p->n_train};
    uint64_t h = sk_hash(0, key, sizeof key);
    return in->call < 0 ? h
                        : sk_hash(h, w->p->calls.v[in->call].what,
                                  strlen(w->p->calls.v[in->call].what));
}

typedef struct slot {
    uint64_t key;
    int value; /* 0: free */
} slot;

static int *find(slot *table, int size, uint64_t key)
{
    unsigned at = (unsigned)(key ^ key >> 32) & (unsigned)(size - 1);
    while (table[at].value && table[at].key != key) at = (at + 1) & (unsigned)(size - 1);
    table[at].key = key;
    return &table[at].value;
}

/* The k-th buffer of a kind in a task is of the same family in all tasks. */
static void find_families(writer *w)
{
    int size = 16, n = w->p->bufs.n;
    while (size < 4 * n) size *= 2;
    slot *count = sk_many(w->tmp, slot, size), *family = sk_many(w->tmp, slot, size);
    for (int i = 0; i < n; i++) {
        if (w->family[i] < 0) continue;
        uint64_t kind = kind_of(w, i);
        int task = w->task_of[w->birth[i]], *k = find(count, size, sk_hash(kind, &task, sizeof task));
        ++*k;
        int *f = find(family, size, sk_hash(kind, k, sizeof *k));
        if (!*f) *f = ++w->n_families;
        w->family[i] = *f - 1;
    }
}

static void tasks_of_section(writer *w, bool train, int from, int to)
{
    int n = w->p->plan->plan.tasks[train][w->p->stage].n, task = -1;
    for (int pc = from; pc < to; pc++) {
        int t = w->p->insts.v[pc].task;
        if (t >= n) t = n - 1;
        if (t > task) task = t;
        w->task_of[pc] = task;
    }
}

static void prepare(writer *w)
{
    const sk_program *p = w->p;
    w->task_of = sk_many(w->tmp, int, p->insts.n + 1);
    w->birth = sk_many(w->tmp, int, p->bufs.n + 1);
    w->family = sk_many(w->tmp, int, p->bufs.n + 1);
    memset(w->birth, -1, sizeof(int) * (size_t)p->bufs.n);
    memset(w->task_of, -1, sizeof(int) * (size_t)p->insts.n);
    for (seer s = {.w = w}; s.pc < p->insts.n; s.pc++)
        sk_operands(p, &p->insts.v[s.pc], see_birth, &s);
    if (p->n_train) tasks_of_section(w, true, 0, p->n_train);
    if (p->n_mean < p->insts.n) tasks_of_section(w, false, p->n_mean, p->insts.n);
    for (int i = 0; i < p->bufs.n; i++)
        if (p->bufs.v[i].keep || w->birth[i] < 0 || w->task_of[w->birth[i]] < 0) fix(w, i);
    for (int k = 0; k < w->r->n; k++) fix_shared(w, &w->r->v[k]);
    if (!w->failed) find_families(w);
}

/* --- writing --- */

static const sk_task *task_at(const writer *w, int task) { return &w->tasks->v[task]; }

/* The micro-batch of the task that makes an operand of the current instruction; -1: it is not known
 * which.  It is the task's own, or as far from it as in the short list; of a task of the other kind
 * just before it, that of the task so many places before. */
static int micro_of(const writer *w, int buf)
{
    const lap_task *here = &w->done.v[w->done.n - 1];
    int at = w->task_of[w->pc], from = w->task_of[w->birth[buf]];
    const sk_task *to = task_at(w, at), *by = task_at(w, from);
    int off = by->micro - to->micro;
    bool near = at - from <= NEAR && w->done.n > at - from;
    if (by->work == to->work || !off) return here->micro + off;
    if (!near) return off < -NEAR || off > NEAR ? -1 : here->micro + off;
    const lap_task *there = here - (at - from);
    return task_at(w, there->task)->work == by->work ? there->micro : -1;
}

static int written(writer *w, int buf)
{
    bool other = buf >= 0 && (w->birth[buf] < w->p->n_train) != (w->pc < w->p->n_train);
    if (buf < 0 || buf >= w->p->bufs.n || w->family[buf] < 0) return buf;
    int micro = other || w->task_of[w->pc] < 0 ? -1 : micro_of(w, buf);
    if (micro < 0 || micro >= w->n_micro) {
        w->failed = true;
        return buf;
    }
    int *at = &w->made[w->family[buf] * w->n_micro + micro];
    if (*at) {
        w->failed |= w->birth[buf] == w->pc && w->q.bufs.v[*at - 1].last != w->q.insts.n;
        return *at - 1; /* made twice: it would not be the same */
    }
    w->failed |= w->birth[buf] != w->pc; /* what makes it was not written */
    int within = written(w, w->p->bufs.v[buf].within);
    sk_buffer *b = sk_push(w->tmp, &w->q.bufs);
    *b = w->p->bufs.v[buf];
    b->within = within;
    b->first = -1;
    b->last = w->q.insts.n; /* where it was made; the plan of lives says when it ends */
    *at = w->q.bufs.n;
    return *at - 1;
}

static void write_operand(void *ctx, int *buf, unsigned how)
{
    (void)how;
    *buf = written(ctx, *buf);
}

/* A call is written for its start and again for its wait, whose table is no other one. */
static int write_call(writer *w, const sk_inst *in)
{
    sk_call_plan c = w->p->calls.v[in->call];
    sk_call_seg *segs = sk_many(w->tmp, sk_call_seg, c.n_segs + 1);
    if (c.n_segs) memcpy(segs, c.segs, sizeof *segs * (size_t)c.n_segs);
    c.segs = segs;
    if (in->act != SK_DO_START) w->q.more_tables -= sk_table_bytes(&c);
    *(sk_call_plan *)sk_push(w->tmp, &w->q.calls) = c;
    return w->q.calls.n - 1;
}

static void begin_task(writer *w, int task)
{
    bool forward = task_at(w, task)->work == SK_WORK_F;
    *(lap_task *)sk_push(w->tmp, &w->done) = (lap_task){task, w->next[forward]++};
}

static void write_inst(writer *w, bool lap_begins)
{
    int task = w->task_of[w->pc];
    bool begins = task >= 0 && (lap_begins || !w->done.n || w->done.v[w->done.n - 1].task != task);
    if (begins) begin_task(w, task);
    sk_inst *in = sk_push(w->tmp, &w->q.insts);
    *in = w->p->insts.v[w->pc];
    if (in->call >= 0) in->call = write_call(w, in);
    sk_operands(&w->q, in, write_operand, w);
    w->failed |= w->q.insts.n > MOST_WRITTEN;
}

static int more_laps(const writer *w, const sk_repeat *x)
{
    bool changes = w->r->train.pairs == 1 || x->n_tasks == 2 || x->at >= w->p->n_train;
    return changes ? x->more - (w->r->n_micro - w->n_micro) : x->more;
}

/* Laps of pairs, and of validation. */
static bool has_bounds(const writer *w, const sk_repeat *x)
{
    return x->n_tasks == 2 || x->at >= w->p->n_train;
}

/* Instructions from..to of the program, with laps. */
static void write_section(writer *w, bool train, int from, int to)
{
    w->tasks = &w->p->plan->plan.tasks[train][w->p->stage];
    w->done.n = w->next[0] = w->next[1] = 0;
    const sk_repeat *x = w->r->v, *end = x + w->r->n;
    while (x < end && x->at < from) x++;
    int lap = 0;
    bool begins = false;
    for (w->pc = from; w->pc < to && !w->failed;) {
        if (x < end && w->pc == x->at && has_bounds(w, x))
            *sk_push(w->tmp, &w->bounds[train]) = w->q.insts.n;
        write_inst(w, begins);
        begins = false;
        w->pc++;
        if (x == end || w->pc != x->at + x->n) continue;
        if (lap++ < more_laps(w, x)) {
            w->pc = x->at;
            begins = true;
        } else x++, lap = 0;
    }
}

static void copy_lists(writer *w)
{
    const sk_program *p = w->p;
    sk_program *q = &w->q;
    *q = *p;
    q->arena = w->tmp;
    q->more_tables = 0;
    memset(&q->insts, 0, sizeof q->insts);
    memset(&q->calls, 0, sizeof q->calls);
    q->bufs.v = sk_many(w->tmp, sk_buffer, p->bufs.n + 1);
    memcpy(q->bufs.v, p->bufs.v, sizeof *q->bufs.v * (size_t)p->bufs.n);
    q->bufs.cap = p->bufs.n + 1;
    for (int i = 0; i < q->bufs.n; i++) q->bufs.v[i].first = q->bufs.v[i].last = -1;
    q->params.v = sk_many(w->tmp, sk_param_plan, sk_n_grads(p) + 1);
    memcpy(q->params.v, p->params.v, sizeof *q->params.v * (size_t)sk_n_grads(p));
    q->memories.v = sk_many(w->tmp, int, p->memories.n + 1);
    if (p->memories.n) memcpy(q->memories.v, p->memories.v, sizeof(int) * (size_t)p->memories.n);
    for (int s = 0; s < SK_N_SUMS; s++) {
        q->sums[s].buf = sk_many(w->tmp, int, p->sums[s].n + 1);
        if (p->sums[s].n)
            memcpy(q->sums[s].buf, p->sums[s].buf, sizeof(int) * (size_t)p->sums[s].n);
    }
}

static bool write_out(writer *w)
{
    copy_lists(w);
    w->made = sk_many(w->tmp, int, (int64_t)w->n_families * w->n_micro + 1);
    write_section(w, true, 0, w->p->n_train);
    w->q.n_train = w->q.insts.n;
    for (w->pc = w->p->n_train; w->pc < w->p->n_mean; w->pc++) write_inst(w, false);
    w->q.n_mean = w->q.insts.n;
    if (w->p->n_mean < w->p->insts.n) write_section(w, false, w->p->n_mean, w->p->insts.n);
    return !w->failed;
}

/* --- the allocator's state --- */

typedef struct state { /* at the begin of a lap */
    uint64_t taken;    /* a sum of hashes: what lies where, and how old it is */
    int64_t top;
} state;

/* Older than all laps: known by where it begins. */
static int64_t age_of(const sk_buffer *b, int first_lap, int pc)
{
    return b->first < first_lap ? -1 - (int64_t)b->first : pc - b->first;
}

static state *states_of(const writer *w, const sk_ints *bounds)
{
    const sk_program *q = &w->q;
    state *s = sk_many(w->tmp, state, bounds->n + 1);
    for (int i = 0; i < q->bufs.n; i++) {
        const sk_buffer *b = &q->bufs.v[i];
        int64_t end = b->offset + b->bytes;
        if (b->keep || b->within >= 0 || b->first < 0 || b->placement) continue;
        for (int k = bounds->n; k-- > 0 && bounds->v[k] > b->first;) {
            int64_t key[] = {b->offset, b->bytes, age_of(b, bounds->v[0], bounds->v[k])};
            if (end > s[k].top) s[k].top = end;
            if (b->last >= bounds->v[k]) s[k].taken += sk_hash(0, key, sizeof key);
        }
    }
    return s;
}

/* Laps of the period in which the last states come again; 0: there is none. */
static int period_of(const writer *w, bool train)
{
    const sk_ints *b = &w->bounds[train];
    const state *s = states_of(w, b);
    for (int n = 1, last = b->n - 1; 2 * n <= last; n++)
        if (!memcmp(&s[last], &s[last - n], sizeof *s) &&
            !memcmp(&s[last], &s[last - 2 * n], sizeof *s))
            return n;
    return 0;
}

/* --- the whole --- */

static int64_t tables_of_laps(const writer *w)
{
    int64_t sum = 0;
    for (int k = 0; k < w->r->n; k++) {
        const sk_repeat *x = &w->r->v[k];
        int64_t left = x->more - more_laps(w, x);
        for (int pc = x->at; pc < x->at + x->n; pc++)
            if (w->p->insts.v[pc].act == SK_DO_START)
                sum += left * sk_table_bytes(&w->p->calls.v[w->p->insts.v[pc].call]);
    }
    return sum;
}

/* Plans so many micro-batches.  Returns how many more would have to be written out to know that
 * the rest takes the same bytes; 0: it is known; -1: all. */
static int plan_some(writer *w)
{
    int left = w->r->n_micro - w->n_micro, period = 1;
    w->q.more_tables += tables_of_laps(w);
    sk_number(&w->q);
    sk_plan_memory(&w->q);
    if (!left) return 0;
    for (int train = 0; train < 2; train++) {
        if (!w->bounds[train].n) continue;
        int n = period_of(w, train), k = period;
        if (!n) return -1;
        while (period % n) period += k;
    }
    return left % period;
}

static void take_regions(sk_program *p, const sk_program *q)
{
    memcpy(p->kind_at, q->kind_at, sizeof p->kind_at);
    memcpy(p->kind_bytes, q->kind_bytes, sizeof p->kind_bytes);
    p->heap_bytes = q->heap_bytes;
    p->own_bytes = q->own_bytes;
    p->shared_bytes = q->shared_bytes;
    p->shares_with = q->shares_with;
}

/* `n_micro` of them; more is what plan_some says. */
static bool try_some(sk_program *p, const sk_repeats *r, int n_micro, int *more)
{
    sk_arena tmp = {0};
    writer w = {.p = p, .r = r, .tmp = &tmp, .n_micro = n_micro};
    prepare(&w);
    bool fine = !w.failed && write_out(&w);
    if (fine) *more = plan_some(&w);
    if (fine && !*more) take_regions(p, &w.q);
    sk_arena_end(&tmp);
    return fine;
}

bool sk_repeats_memory(sk_program *p, const sk_repeats *r)
{
    int some = 4 * (r->train.ahead + 1) + SK_LISTED, more = 1;
    if (!r->n) return true;
    if (r->train.pairs == 1 || some > r->n_micro) some = r->n_micro;
    while (more) {
        if (!try_some(p, r, some, &more)) return false;
        some = more < 0 ? 2 * some : some + more;
        if (some > r->n_micro) some = r->n_micro;
    }
    return true;
}
