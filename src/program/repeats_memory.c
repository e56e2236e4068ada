/* repeats_memory.c - the memory plan of all micro-batches, from a program of few.
 *
 * The instructions of all laps are walked, not written.  A buffer of a lap is known by its family,
 * the buffers that are made by the same instruction for other micro-batches, and by the micro-batch
 * of the task that makes it.  A first walk finds where each is touched last; two more place them as
 * memory.c does, in either order.
 *
 * The bytes that takes are not periodic: holes are taken best-fit, so that buffers of the same
 * family wander, and a pipeline may need a few more bytes after hundreds of micro-batches.  So all
 * are walked, up to as many as a run may have instructions. */
#include "base/hash.h"
#include "program/acts.h"
#include "program/holes.h"
#include "program/lowering.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { NEAR = 4, MOST_OPERANDS = 1024 };

typedef struct lap_task { /* a task that is walked */
    int task, micro;      /* of the short list; its micro-batch in the long one */
} lap_task;

typedef struct life { /* of a buffer */
    int last;         /* where it is touched last; -1: it is not */
    bool taken;       /* an output took its memory over */
    int64_t at;
} life;

typedef struct touched { /* by an instruction */
    int *v, n;           /* roots, transient, in the order of their numbers */
} touched;

typedef enum walking { TO_FIND, AS_NUMBERED, LARGEST_FIRST } walking;

typedef struct walker {
    sk_program *p;
    const sk_repeats *r;
    sk_arena *tmp;
    int n_micro;          /* that are walked */
    int *task_of, *birth; /* by instruction, by buffer */
    int *family;          /* by buffer; -1: it is the same in all laps */
    int n_families;
    life *lives;           /* [family * n_micro + micro], then by buffer */
    touched *of;           /* by instruction */
    const sk_tasks *tasks; /* short, of the section at work */
    struct {
        lap_task *v;
        int n, cap;
    } done;
    struct {
        life **v;
        int64_t *bytes;
        int n, cap;
    } born;
    int pc, at, next[2]; /* the instruction; its place among all; the next micro-batch: backward,
                            forward */
    walking how;
    sk_holes holes;
    int64_t enough; /* bytes with which an order is of no use, and is not walked on; 0: any */
    bool failed;
} walker;

/* --- families --- */

typedef struct seer {
    walker *w;
    int ids[MOST_OPERANDS], n, pc;
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

static void fix(walker *w, int buf)
{
    for (; buf >= 0; buf = w->p->bufs.v[buf].within) w->family[buf] = -1;
}

/* Operands that two laps have in common. */
static void fix_shared(walker *w, const sk_repeat *x)
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

static uint64_t kind_of(const walker *w, int buf)
{
    const sk_buffer *b = &w->p->bufs.v[buf];
    const sk_inst *in = &w->p->insts.v[w->birth[buf]];
    int64_t key[] = {in->act,        (int64_t)(intptr_t)in->node,
                     in->part,       (int64_t)in->work,
                     in->layer,      (int64_t)(intptr_t)b->tensor,
                     b->kind,        b->type,
                     b->bytes,       b->part_at,
                     b->within >= 0, w->birth[buf] >= w->p->n_train};
    uint64_t h = sk_hash(0, key, sizeof key);
    return in->call < 0
               ? h
               : sk_hash(h, w->p->calls.v[in->call].what, strlen(w->p->calls.v[in->call].what));
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
static void find_families(walker *w)
{
    int size = 16, n = w->p->bufs.n;
    while (size < 4 * n) size *= 2;
    slot *count = sk_many(w->tmp, slot, size), *family = sk_many(w->tmp, slot, size);
    for (int i = 0; i < n; i++) {
        if (w->family[i] < 0) continue;
        uint64_t kind = kind_of(w, i);
        int task = w->task_of[w->birth[i]],
            *k = find(count, size, sk_hash(kind, &task, sizeof task));
        ++*k;
        int *f = find(family, size, sk_hash(kind, k, sizeof *k));
        if (!*f) *f = ++w->n_families;
        w->family[i] = *f - 1;
    }
}

static void tasks_of_section(walker *w, bool train, int from, int to)
{
    int n = w->p->plan->plan.tasks[train][w->p->stage].n, task = -1;
    for (int pc = from; pc < to; pc++) {
        int t = w->p->insts.v[pc].task;
        if (t >= n) t = n - 1;
        if (t > task) task = t;
        w->task_of[pc] = task;
    }
}

static void prepare(walker *w)
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

/* --- what instructions touch --- */

static bool is_placed(const walker *w, int buf)
{
    const sk_buffer *b = &w->p->bufs.v[buf];
    return !b->keep && !b->placement && b->bytes > 0;
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void list_touched(walker *w)
{
    w->of = sk_many(w->tmp, touched, w->p->insts.n + 1);
    for (int pc = 0; pc < w->p->insts.n; pc++) {
        seer s = {.w = w};
        touched *t = &w->of[pc];
        sk_operands(w->p, &w->p->insts.v[pc], collect, &s);
        w->failed |= s.n > MOST_OPERANDS;
        t->v = sk_many(w->tmp, int, s.n + 1);
        for (int i = 0; i < s.n && !w->failed; i++) {
            int root = sk_buffer_root(w->p, s.ids[i]), k = 0;
            while (k < t->n && t->v[k] != root) k++;
            if (k == t->n && is_placed(w, root)) t->v[t->n++] = root;
        }
        qsort(t->v, (size_t)t->n, sizeof *t->v, by_number);
    }
}

/* --- walking --- */

static const sk_task *task_at(const walker *w, int task) { return &w->tasks->v[task]; }

/* The micro-batch of the task that makes an operand of the current instruction; -1: it is not known
 * which.  It is the task's own, or as far from it as in the short list; of a task of the other kind
 * just before it, that of the task so many places before. */
static int micro_of(const walker *w, int buf)
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

/* NULL: not known. */
static life *life_of(walker *w, int buf)
{
    bool other = (w->birth[buf] < w->p->n_train) != (w->pc < w->p->n_train);
    if (w->family[buf] < 0) return &w->lives[(int64_t)w->n_families * w->n_micro + buf];
    int micro = other || w->task_of[w->pc] < 0 ? -1 : micro_of(w, buf);
    if (micro < 0 || micro >= w->n_micro) return NULL;
    return &w->lives[(int64_t)w->family[buf] * w->n_micro + micro];
}

static int64_t taken_by(const walker *w, int buf)
{
    return sk_memory_lines(w->p->bufs.v[buf].bytes);
}

static bool is_born(const walker *w, int buf) { return w->birth[buf] == w->pc; }

static void find_last(walker *w)
{
    const touched *t = &w->of[w->pc];
    for (int i = 0; i < t->n && !w->failed; i++) {
        life *x = life_of(w, t->v[i]);
        bool first = x && x->last < 0;
        /* made by what was not walked, or made twice: it is not what it was taken for */
        w->failed |= !x || (w->family[t->v[i]] >= 0 && first != is_born(w, t->v[i]));
        if (w->failed) break;
        x->last = w->at;
    }
}

/* --- placing, as memory.c does it --- */

static void bear(walker *w, life *x, int64_t bytes)
{
    int at = w->born.n;
    if (w->born.n == w->born.cap) {
        w->born.cap = w->born.cap ? 2 * w->born.cap : 64;
        w->born.v = sk_grow(w->tmp, w->born.v, sizeof(life *) * (size_t)at,
                            sizeof(life *) * (size_t)w->born.cap);
        w->born.bytes = sk_grow(w->tmp, w->born.bytes, sizeof(int64_t) * (size_t)at,
                                sizeof(int64_t) * (size_t)w->born.cap);
    }
    for (; w->how == LARGEST_FIRST && at && w->born.bytes[at - 1] < bytes; at--) {
        w->born.v[at] = w->born.v[at - 1];
        w->born.bytes[at] = w->born.bytes[at - 1];
    }
    w->born.v[at] = x;
    w->born.bytes[at] = bytes;
    w->born.n++;
}

/* The operand whose memory output 0 takes over here; NULL: none. */
static life *heir_of(walker *w)
{
    const sk_inst *in = &w->p->insts.v[w->pc];
    if (in->act != SK_DO_OP || !in->node->op->reuse || in->out[0] < 0) return NULL;
    if (!is_born(w, in->out[0])) return NULL;
    for (int r = 0; r < in->node->n_in; r++) {
        life *x = sk_memory_may_take(w->p, in, r) ? life_of(w, in->in[r]) : NULL;
        if (x && x->last == w->at) return x;
    }
    return NULL;
}

static void place(walker *w)
{
    const touched *t = &w->of[w->pc];
    life *from = heir_of(w), *out = from ? life_of(w, w->p->insts.v[w->pc].out[0]) : NULL;
    life *here[MOST_OPERANDS];
    for (int i = 0; i < t->n; i++) {
        here[i] = life_of(w, t->v[i]);
        if (is_born(w, t->v[i]) && here[i]->at < 0) bear(w, here[i], w->p->bufs.v[t->v[i]].bytes);
    }
    for (int i = 0; i < w->born.n; i++) {
        life *x = w->born.v[i];
        if (x == out) {
            x->at = from->at;
            from->taken = true;
        } else x->at = sk_holes_take(&w->holes, sk_memory_lines(w->born.bytes[i]));
    }
    w->born.n = 0;
    for (int i = 0; i < t->n; i++)
        if (here[i]->last == w->at && !here[i]->taken)
            sk_holes_give(&w->holes, here[i]->at, taken_by(w, t->v[i]));
}

/* --- laps --- */

static void begin_task(walker *w, int task)
{
    bool forward = task_at(w, task)->work == SK_WORK_F;
    *(lap_task *)sk_push(w->tmp, &w->done) = (lap_task){task, w->next[forward]++};
}

static void one_inst(walker *w, bool lap_begins)
{
    int task = w->task_of[w->pc];
    bool begins = task >= 0 && (lap_begins || !w->done.n || w->done.v[w->done.n - 1].task != task);
    if (begins) begin_task(w, task);
    if (w->how == TO_FIND) find_last(w);
    else place(w);
    w->at++;
}

static int more_laps(const walker *w, const sk_repeat *x)
{
    bool changes = w->r->train.pairs == 1 || x->n_tasks == 2 || x->at >= w->p->n_train;
    return changes ? x->more - (w->r->n_micro - w->n_micro) : x->more;
}

static bool is_useless(const walker *w) { return w->enough && w->holes.top >= w->enough; }

/* Instructions from..to of the program, with laps. */
static void section(walker *w, bool train, int from, int to)
{
    const sk_repeat *x = w->r->v, *end = x + w->r->n;
    bool begins = false;
    int lap = 0;
    w->tasks = &w->p->plan->plan.tasks[train][w->p->stage];
    w->done.n = w->next[0] = w->next[1] = 0;
    while (x < end && (x->at < from || !x->n)) x++;
    for (w->pc = from; w->pc < to && !w->failed && !is_useless(w);) {
        one_inst(w, begins);
        begins = false;
        w->pc++;
        if (x == end || w->pc != x->at + x->n) continue;
        if (lap++ < more_laps(w, x)) {
            w->pc = x->at;
            begins = true;
        } else x++, lap = 0;
    }
}

static int64_t walk(walker *w, walking how)
{
    const sk_program *p = w->p;
    int64_t lives = (int64_t)w->n_families * w->n_micro + p->bufs.n;
    w->how = how;
    w->at = 0;
    w->holes = (sk_holes){.arena = w->tmp};
    for (int64_t i = 0; i < lives; i++) {
        w->lives[i].at = -1;
        w->lives[i].taken = false;
        if (how == TO_FIND) w->lives[i].last = -1;
    }
    section(w, true, 0, p->n_train);
    for (w->pc = p->n_train; w->pc < p->n_mean && !w->failed; w->pc++) one_inst(w, false);
    if (p->n_mean < p->insts.n && !w->failed) section(w, false, p->n_mean, p->insts.n);
    return w->holes.top;
}

/* --- the whole --- */

/* As many as a run may have instructions for. */
static int most_micro(const sk_program *p, const sk_repeats *r)
{
    int64_t all = p->insts.n, lap = 0;
    for (int k = 0; k < r->n; k++) {
        const sk_repeat *x = &r->v[k];
        bool changes = r->train.pairs == 1 || x->n_tasks == 2 || x->at >= p->n_train;
        all += (int64_t)x->n * x->more;
        lap += changes ? x->n : 0;
    }
    int64_t over = all - SK_MOST_INSTS;
    return over <= 0 || !lap ? r->n_micro : r->n_micro - (int)((over + lap - 1) / lap);
}

static int64_t more_tables(const sk_program *p, const sk_repeats *r)
{
    int64_t sum = 0;
    for (int k = 0; k < r->n; k++)
        for (int pc = r->v[k].at; pc < r->v[k].at + r->v[k].n; pc++)
            if (p->insts.v[pc].act == SK_DO_START)
                sum += r->v[k].more * sk_table_bytes(&p->calls.v[p->insts.v[pc].call]);
    return sum;
}

bool sk_repeats_memory(sk_program *p, const sk_repeats *r)
{
    sk_arena tmp = {0};
    walker w = {.p = p, .r = r, .tmp = &tmp, .n_micro = most_micro(p, r)};
    int64_t bytes = 0, other = 0;
    if (!r->n) return true;
    int least = r->train.pairs == 1 ? r->n_micro : SK_LISTED + r->train.ahead;
    w.failed = w.n_micro < (least < r->n_micro ? least : r->n_micro);
    if (!w.failed) prepare(&w);
    if (!w.failed) list_touched(&w);
    if (!w.failed) {
        w.lives = sk_many(&tmp, life, (int64_t)w.n_families * w.n_micro + p->bufs.n + 1);
        walk(&w, TO_FIND);
    }
    if (!w.failed) w.enough = bytes = walk(&w, AS_NUMBERED), other = walk(&w, LARGEST_FIRST);
    sk_arena_end(&tmp);
    if (w.failed) return false;
    p->transient_bytes = other < bytes ? other : bytes;
    p->more_tables = more_tables(p, r);
    sk_plan_memory(p);
    return true;
}
