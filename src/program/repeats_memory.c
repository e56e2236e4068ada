/* repeats_memory.c - the memory plan of all micro-batches, from a program of few.
 *
 * The instructions of a short step are walked, a few laps longer than the list.  A buffer of a lap
 * is known by its family, the buffers that are made by the same instruction for other
 * micro-batches, and by the micro-batch of the task that makes it.  A first walk finds where each
 * is touched last; two more write down what is taken and given back, in the orders of memory.c
 * (lap_events.h).
 *
 * The bytes that takes are not periodic: holes are taken best-fit, so that buffers of the same
 * family wander, and a pipeline may need a few more bytes after hundreds of micro-batches.  (On 15
 * of the 16 stages of Llama 405B no state of the holes came again in 1,500 micro-batches.)  So all
 * laps are played, up to as many as a run may have instructions. */
#include "base/hash.h"
#include "program/acts.h"
#include "program/lap_events.h"
#include "program/lowering.h"

#include <stdlib.h>
#include <string.h>

enum { NEAR = 4, MOST_OPERANDS = 1024, LAPS = 20 /* of a short step, at first */ };

typedef struct lap_task { /* a task that is walked */
    int task, micro;      /* of the short list; its micro-batch in the long one */
} lap_task;

typedef struct life { /* of a buffer */
    int last;         /* where it is touched last; -1: it is not */
    bool born, taken; /* taken: an output took its memory over */
} life;

typedef struct birth {
    life *of;
    sk_lap_buffer buf;
    int64_t bytes;
} birth;

typedef struct touched { /* by an instruction */
    int *v, n;           /* roots, transient, in the order of their numbers */
} touched;

typedef enum walking { TO_FIND, AS_NUMBERED, LARGEST_FIRST } walking;

typedef struct walker {
    sk_program *p;
    const sk_repeats *r;
    sk_arena *tmp;
    int n_micro, all;     /* that are walked; that are played */
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
        birth *v;
        int n, cap;
    } born;
    struct {
        int *v, n, cap;
    } laps;              /* where those of the repeat at work begin among the events */
    int pc, at, next[2]; /* the instruction; its place among all; the next micro-batch: backward,
                            forward */
    walking how;
    sk_lap_events events;
    sk_lap_played *played; /* by order; of the program before */
    bool failed, uneven;   /* uneven: laps differ, a longer step may tell */
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

/* Micro -1, family < 0: not known. */
static sk_lap_buffer buffer_of(const walker *w, int buf)
{
    bool other = (w->birth[buf] < w->p->n_train) != (w->pc < w->p->n_train);
    if (w->family[buf] < 0) return (sk_lap_buffer){w->n_families + buf, -1};
    int micro = other || w->task_of[w->pc] < 0 ? -1 : micro_of(w, buf);
    if (micro < 0 || micro >= w->n_micro) return (sk_lap_buffer){-1, -1};
    return (sk_lap_buffer){w->family[buf], micro};
}

/* NULL: not known. */
static life *life_of(walker *w, int buf)
{
    sk_lap_buffer b = buffer_of(w, buf);
    if (b.family < 0) return NULL;
    if (b.micro < 0) return &w->lives[(int64_t)w->n_families * w->n_micro + buf];
    return &w->lives[(int64_t)b.family * w->n_micro + b.micro];
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

/* --- writing down, as memory.c places --- */

static void bear(walker *w, life *x, int buf)
{
    int at = w->born.n;
    int64_t bytes = w->p->bufs.v[buf].bytes;
    (void)sk_push(w->tmp, &w->born);
    for (; w->how == LARGEST_FIRST && at && w->born.v[at - 1].bytes < bytes; at--)
        w->born.v[at] = w->born.v[at - 1];
    w->born.v[at] = (birth){x, buffer_of(w, buf), bytes};
    x->born = true;
}

/* The operand whose memory output 0 takes over here; -1: none. */
static int heir_of(walker *w)
{
    const sk_inst *in = &w->p->insts.v[w->pc];
    if (in->act != SK_DO_OP || !in->node->op->reuse || in->out[0] < 0) return -1;
    if (!is_born(w, in->out[0])) return -1;
    for (int r = 0; r < in->node->n_in; r++) {
        life *x = sk_memory_may_take(w->p, in, r) ? life_of(w, in->in[r]) : NULL;
        if (x && x->last == w->at) return in->in[r];
    }
    return -1;
}

static void take_all(walker *w, int heir)
{
    life *out = heir < 0 ? NULL : life_of(w, w->p->insts.v[w->pc].out[0]);
    for (int i = 0; i < w->born.n; i++) {
        const birth *b = &w->born.v[i];
        if (b->of == out) {
            sk_lap_take_over(&w->events, b->buf, buffer_of(w, heir));
            life_of(w, heir)->taken = true;
        } else sk_lap_take(&w->events, b->buf, sk_memory_lines(b->bytes));
    }
    w->born.n = 0;
}

static void write_down(walker *w)
{
    const touched *t = &w->of[w->pc];
    life *here[MOST_OPERANDS];
    for (int i = 0; i < t->n; i++) {
        here[i] = life_of(w, t->v[i]);
        if (is_born(w, t->v[i]) && !here[i]->born) bear(w, here[i], t->v[i]);
    }
    take_all(w, heir_of(w));
    for (int i = 0; i < t->n; i++)
        if (here[i]->last == w->at && !here[i]->taken)
            sk_lap_give(&w->events, buffer_of(w, t->v[i]), taken_by(w, t->v[i]));
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
    else write_down(w);
    w->at++;
}

/* Has a longer step more of its laps? */
static bool grows(const sk_program *p, const sk_repeats *r, const sk_repeat *x)
{
    return r->train.pairs == 1 || x->n_tasks == 2 || x->at >= p->n_train;
}

static int more_laps(const walker *w, const sk_repeat *x)
{
    return grows(w->p, w->r, x) ? x->more - (w->r->n_micro - w->n_micro) : x->more;
}

static void mark_lap(walker *w) { *(int *)sk_push(w->tmp, &w->laps) = w->events.n; }

/* All laps of a repeat are written. */
static void end_repeat(walker *w, const sk_repeat *x)
{
    int more = w->all - w->n_micro;
    mark_lap(w);
    if (w->how == TO_FIND || !more || !grows(w->p, w->r, x)) return;
    if (!sk_lap_repeat(&w->events, w->laps.v, w->laps.n - 1, more)) w->uneven = true;
}

/* Instructions from..to of the program, with laps. */
static void section(walker *w, bool train, int from, int to)
{
    const sk_repeat *x = w->r->v, *end = x + w->r->n;
    bool begins = false;
    int lap = 0;
    w->tasks = &w->p->plan->plan.tasks[train][w->p->stage];
    w->done.n = w->next[0] = w->next[1] = 0;
    while (x < end && (x->at < from || !x->n)) x++;
    for (w->pc = from; w->pc < to && !w->failed && !w->uneven;) {
        if (x < end && w->pc == x->at) {
            if (!lap) w->laps.n = 0;
            mark_lap(w);
        }
        one_inst(w, begins);
        begins = false;
        w->pc++;
        if (x == end || w->pc != x->at + x->n) continue;
        if (lap++ < more_laps(w, x)) {
            w->pc = x->at;
            begins = true;
        } else end_repeat(w, x++), lap = 0;
    }
    sk_lap_section(&w->events);
}

static void walk(walker *w, walking how)
{
    const sk_program *p = w->p;
    int64_t lives = (int64_t)w->n_families * w->n_micro + p->bufs.n;
    w->how = how;
    w->at = 0;
    w->events = (sk_lap_events){
        .arena = w->tmp, .n_micro = w->n_micro, .n_families = w->n_families + p->bufs.n};
    for (int64_t i = 0; i < lives; i++) {
        w->lives[i].born = w->lives[i].taken = false;
        if (how == TO_FIND) w->lives[i].last = -1;
    }
    section(w, true, 0, p->n_train);
    for (w->pc = p->n_train; w->pc < p->n_mean && !w->failed; w->pc++) one_inst(w, false);
    sk_lap_section(&w->events);
    if (p->n_mean < p->insts.n && !w->failed) section(w, false, p->n_mean, p->insts.n);
}

/* --- the whole --- */

/* As many as a run may have instructions for. */
static int most_micro(const sk_program *p, const sk_repeats *r)
{
    int64_t all = p->insts.n, lap = 0;
    for (int k = 0; k < r->n; k++) {
        const sk_repeat *x = &r->v[k];
        all += (int64_t)x->n * x->more;
        lap += grows(p, r, x) ? x->n : 0;
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

/* What stood in the arena of an earlier walk. */
static void forget(walker *w)
{
    memset(&w->done, 0, sizeof w->done);
    memset(&w->born, 0, sizeof w->born);
    memset(&w->laps, 0, sizeof w->laps);
}

/* Walks a short step; false: its laps differ. */
static bool walk_short(walker *w, int n_micro, int64_t *bytes)
{
    w->n_micro = n_micro;
    w->uneven = false;
    w->lives = sk_many(w->tmp, life, (int64_t)w->n_families * n_micro + w->p->bufs.n + 1);
    walk(w, TO_FIND);
    if (w->failed) return false;
    walk(w, AS_NUMBERED);
    if (w->uneven) return false;
    *bytes = sk_lap_play_once(&w->played[0], &w->events, 0);
    walk(w, LARGEST_FIRST);
    if (w->uneven) return false;
    int64_t other = sk_lap_play_once(&w->played[1], &w->events, *bytes);
    if (other < *bytes) *bytes = other;
    return true;
}

/* The shortest step whose laps are alike; of a section of one lap, as of GPipe, all. */
static bool find_bytes(walker *w, int64_t *bytes)
{
    int some = w->r->train.pairs == 1 ? w->all : w->r->train.ahead + LAPS;
    for (bool told = false; !told && !w->failed; some *= 2) {
        sk_mark mark = sk_arena_mark(w->tmp);
        told = walk_short(w, some < w->all ? some : w->all, bytes);
        forget(w);
        sk_arena_back(w->tmp, mark);
    }
    return !w->failed;
}

static bool plan_one(sk_program *p, const sk_repeats *r, sk_lap_played *played)
{
    sk_arena tmp = {0};
    walker w = {.p = p, .r = r, .tmp = &tmp, .all = most_micro(p, r), .played = played};
    int64_t bytes = 0;
    if (!r->n) return true;
    int least = r->train.pairs == 1 ? r->n_micro : SK_LISTED + r->train.ahead;
    w.failed = w.all < (least < r->n_micro ? least : r->n_micro);
    if (!w.failed) prepare(&w);
    if (!w.failed) list_touched(&w);
    bool told = !w.failed && find_bytes(&w, &bytes);
    sk_arena_end(&tmp);
    if (!told) return false;
    p->transient_bytes = bytes;
    p->more_tables = more_tables(p, r);
    sk_plan_memory(p);
    return true;
}

bool sk_repeats_memory(sk_program *const *p, int n)
{
    sk_lap_played played[2] = {0};
    bool told = true;
    for (int i = 0; told && i < n; i++) {
        sk_repeats r;
        told = sk_repeats_find(p[i], &r) && plan_one(p[i], &r, played);
    }
    for (int i = 0; i < 2; i++) sk_lap_played_end(&played[i]);
    return told;
}
