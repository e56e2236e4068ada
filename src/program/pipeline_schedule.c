/* pipeline_schedule.c - what schedules share: finding one, adding a task, interleaving W tasks, and
 * the check.
 *
 * Every rank computes the lists of all stages for itself.  All arithmetic is in integers, so that
 * all ranks get the same lists. */
#include "program/pipeline_schedule.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const sk_schedule *sk_schedule_find(const char *name)
{
    if (strchr(name, '/')) name = "file";
    for (const sk_schedule *const *s = sk_schedule_parts; *s; s++)
        if (!strcmp((*s)->name, name)) return *s;
    return NULL;
}

int sk_schedule_place(const sk_schedule *s, int n_stages, int chunk)
{
    int lap = chunk / n_stages, at = chunk % n_stages;
    return s->folded && lap % 2 ? n_stages - 1 - at : at;
}

void sk_task_add(sk_tasks *t, sk_task_kind work, int micro, int chunk)
{
    sk_task_see(t, work, micro, chunk, 0);
}

void sk_task_see(sk_tasks *t, sk_task_kind work, int micro, int chunk, int version)
{
    *sk_push(t->arena, t) =
        (sk_task){.work = work, .micro = micro, .chunk = chunk, .version = version};
}

/* --- interleaving W tasks --- */

enum { NEVER = INT_MAX };

typedef struct strand { /* one stage */
    int n, at;          /* of its F and I, in order */
    struct timed {
        int64_t when;
        sk_task task;
    } * order;
    sk_tasks halves; /* I tasks that are done, whose W is due */
    int paid;        /* how many of these W are done */
    int flying;      /* F tasks whose W is not done */
} strand;

typedef struct loom {
    const sk_pipe *pipe;
    const sk_weave *weave;
    int n_chunks, now;
    int *f_end, *i_end; /* [chunk][micro] */
    strand *strands;
} loom;

static int *end_of(const loom *l, sk_task_kind work, int chunk, int micro)
{
    return (work == SK_WORK_F ? l->f_end : l->i_end) + (ptrdiff_t)chunk * l->pipe->n_micro + micro;
}

static int later(int a, int b) { return a > b ? a : b; }

static int ready_at(const loom *l, sk_task t)
{
    if (t.work == SK_WORK_F) return t.chunk ? *end_of(l, SK_WORK_F, t.chunk - 1, t.micro) : 0;
    int forward = *end_of(l, SK_WORK_F, t.chunk, t.micro);
    if (t.chunk == l->n_chunks - 1) return forward;
    return later(forward, *end_of(l, SK_WORK_I, t.chunk + 1, t.micro));
}

/* The next task in order, if it can start now; else a W that is due. */
static bool choose(const loom *l, strand *s, sk_task *out)
{
    bool owes = s->paid < s->halves.n;
    if (s->at < s->n) {
        *out = s->order[s->at].task;
        bool full = out->work == SK_WORK_F && s->flying >= l->weave->most;
        if (ready_at(l, *out) <= l->now && !(full && owes)) return s->at++, true;
    }
    if (!owes) return false;
    *out = s->halves.v[s->paid++];
    out->work = SK_WORK_W;
    return true;
}

static void start(loom *l, strand *s, sk_task t)
{
    if (t.work == SK_WORK_W) {
        s->flying--;
        return;
    }
    *end_of(l, t.work, t.chunk, t.micro) = l->now + 1;
    if (t.work == SK_WORK_F) s->flying++;
    else *sk_push(s->halves.arena, &s->halves) = t;
}

static int by_time(const void *x, const void *y)
{
    const struct timed *a = x, *b = y;
    if (a->when != b->when) return a->when < b->when ? -1 : 1;
    if (a->task.work != b->task.work) return a->task.work < b->task.work ? -1 : 1;
    if (a->task.chunk != b->task.chunk) return a->task.chunk < b->task.chunk ? -1 : 1;
    return (a->task.micro > b->task.micro) - (a->task.micro < b->task.micro);
}

static void string_up(loom *l, const sk_schedule *s, int chunk, sk_task_kind work)
{
    strand *to = &l->strands[sk_schedule_place(s, l->pipe->n_stages, chunk)];
    int first = l->weave->when(l->pipe, work, chunk);
    for (int m = 0; m < l->pipe->n_micro; m++) {
        *end_of(l, work, chunk, m) = NEVER;
        to->order[to->n++] = (struct timed){.when = first + (int64_t)l->weave->every * m,
                                            .task = {.work = work, .micro = m, .chunk = chunk}};
    }
}

static loom set_up(sk_arena *a, const sk_schedule *s, const sk_pipe *pipe, const sk_weave *w)
{
    int n = pipe->n_chunks * pipe->n_micro, all = n * pipe->n_stages;
    loom l = {.pipe = pipe, .weave = w, .n_chunks = pipe->n_chunks * pipe->n_stages};
    l.f_end = sk_many(a, int, all);
    l.i_end = sk_many(a, int, all);
    l.strands = sk_many(a, strand, pipe->n_stages);
    for (int i = 0; i < pipe->n_stages; i++) {
        l.strands[i].order = sk_many(a, struct timed, 2 * n);
        l.strands[i].halves.arena = a;
    }
    for (int c = 0; c < l.n_chunks; c++) {
        string_up(&l, s, c, SK_WORK_F);
        string_up(&l, s, c, SK_WORK_I);
    }
    for (int i = 0; i < pipe->n_stages; i++)
        qsort(l.strands[i].order, (size_t)l.strands[i].n, sizeof(struct timed), by_time);
    return l;
}

/* One unit of time on all stages: how many of them work in it. */
static int beat(loom *l, sk_tasks *tasks)
{
    int works = 0;
    for (int i = 0; i < l->pipe->n_stages; i++) {
        sk_task t;
        if (!choose(l, &l->strands[i], &t)) continue;
        start(l, &l->strands[i], t);
        sk_task_add(&tasks[i], t.work, t.micro, t.chunk);
        works++;
    }
    l->now++;
    return works;
}

sk_status sk_schedule_weave(const sk_schedule *s, const sk_pipe *pipe, const sk_weave *w,
                            sk_tasks *tasks)
{
    sk_arena tmp = {0};
    loom l = set_up(&tmp, s, pipe, w);
    int left = 3 * l.n_chunks * pipe->n_micro, works = 1;
    while (left && works) left -= works = beat(&l, tasks);
    sk_arena_end(&tmp);
    if (!left) return SK_OK;
    return sk_fail(SK_EBUG, "schedule %s: its pattern leaves %d tasks that wait for each other",
                   s->name, left);
}

/* --- the check --- */

enum { DONE_F = 1, DONE_I = 2, DONE_W = 4, DONE_ALL = 7 };
static const int does[] = {[SK_WORK_F] = DONE_F,
                           [SK_WORK_B] = DONE_I | DONE_W,
                           [SK_WORK_I] = DONE_I,
                           [SK_WORK_W] = DONE_W,
                           [SK_WORK_U] = 0};
static const int needs[] = {[SK_WORK_F] = 0,
                            [SK_WORK_B] = DONE_F,
                            [SK_WORK_I] = DONE_F,
                            [SK_WORK_W] = DONE_I,
                            [SK_WORK_U] = DONE_ALL};

typedef struct book { /* what was done */
    const sk_schedule *s;
    const sk_pipe *pipe;
    const sk_tasks *tasks;
    int n_chunks;
    uint8_t *done; /* [chunk][micro] */
} book;

typedef struct word {
    char s[48];
} word;

/* As in a file of tasks: F3, or F3.1 where a stage has several chunks. */
static word word_of(const sk_pipe *p, int chunk, int micro, char letter)
{
    word w;
    if (p->n_chunks > 1) snprintf(w.s, sizeof w.s, "%c%d.%d", letter, micro, chunk / p->n_stages);
    else snprintf(w.s, sizeof w.s, "%c%d", letter, micro);
    return w;
}

static word name(const book *b, sk_task t)
{
    return word_of(b->pipe, t.chunk, t.micro, "FBIWU"[t.work]);
}

static uint8_t *page(const book *b, int chunk, int micro)
{
    return &b->done[(ptrdiff_t)chunk * b->pipe->n_micro + micro];
}

static sk_status one(const book *b, int stage, sk_task t)
{
    const char *is = b->s->name;
    if (t.chunk < 0 || t.chunk >= b->n_chunks || t.micro < 0 || t.micro >= b->pipe->n_micro)
        return sk_fail(SK_ECONF,
                       "schedule %s, stage %d: chunk %d, micro-batch %d; there are %d, %d", is,
                       stage, t.chunk, t.micro, b->n_chunks, b->pipe->n_micro);
    int home = sk_schedule_place(b->s, b->pipe->n_stages, t.chunk);
    if (home != stage)
        return sk_fail(SK_ECONF, "schedule %s, stage %d: %s is of chunk %d, which sits on stage %d",
                       is, stage, name(b, t).s, t.chunk, home);
    uint8_t *done = page(b, t.chunk, t.micro);
    if (*done & does[t.work])
        return sk_fail(SK_ECONF, "schedule %s, stage %d: %s does again what was done before it", is,
                       stage, name(b, t).s);
    if ((*done & needs[t.work]) != needs[t.work])
        return sk_fail(SK_ECONF, "schedule %s, stage %d: %s comes before its %c", is, stage,
                       name(b, t).s,
                       t.work == SK_WORK_W   ? 'I'
                       : t.work == SK_WORK_U ? 'B'
                                             : 'F');
    *done |= (uint8_t)does[t.work];
    return SK_OK;
}

static sk_status nothing_missing(const book *b)
{
    for (int c = 0; c < b->n_chunks; c++)
        for (int m = 0; m < b->pipe->n_micro; m++) {
            int done = *page(b, c, m);
            if (done == DONE_ALL) continue;
            char letter = !(done & DONE_F) ? 'F' : !(done & DONE_I) ? 'B' : 'W';
            return sk_fail(SK_ECONF,
                           "schedule %s, stage %d: %s is missing; every F needs its B, "
                           "or its I and W",
                           b->s->name, sk_schedule_place(b->s, b->pipe->n_stages, c),
                           word_of(b->pipe, c, m, letter).s);
        }
    return SK_OK;
}

/* Versions are counted from 0 in every step, and the last weights have seen all of it. */
static sk_status updates(const book *b, int stage)
{
    const sk_tasks *list = &b->tasks[stage];
    int made = 0, owed = 0;
    for (int i = 0; i < list->n; i++) {
        sk_task t = list->v[i];
        if (t.work != SK_WORK_U && (t.version < 0 || t.version > made))
            return sk_fail(SK_ECONF, "schedule %s, stage %d: %s reads version %d of %d", b->s->name,
                           stage, name(b, t).s, t.version, made);
        if (t.work == SK_WORK_U && !owed)
            return sk_fail(SK_ECONF, "schedule %s, stage %d: %s has nothing to add", b->s->name,
                           stage, name(b, t).s);
        made += t.work == SK_WORK_U;
        owed = t.work == SK_WORK_U ? 0 : owed + (t.work != SK_WORK_F);
    }
    if (b->s->async ? !owed : !made) return SK_OK;
    return sk_fail(SK_ECONF, "schedule %s, stage %d: %s", b->s->name, stage,
                   owed ? "the last backward passes are in no update"
                        : "has updates, and is not one of those that do");
}

/* The chunk whose task of the same kind must be done before, or -1. */
static int before(const book *b, sk_task t)
{
    if (t.work == SK_WORK_F) return t.chunk - 1;
    if (t.work >= SK_WORK_W || t.chunk == b->n_chunks - 1) return -1;
    return t.chunk + 1;
}

static bool can(const book *b, sk_task t)
{
    int chunk = before(b, t);
    return chunk < 0 || *page(b, chunk, t.micro) & (t.work == SK_WORK_F ? DONE_F : DONE_I);
}

static bool advance(const book *b, int stage, int *at)
{
    const sk_tasks *list = &b->tasks[stage];
    int from = *at;
    for (; *at < list->n && can(b, list->v[*at]); ++*at) {
        sk_task t = list->v[*at];
        *page(b, t.chunk, t.micro) |= (uint8_t)does[t.work];
    }
    return *at > from;
}

/* Every stage runs as far as it can, until no stage makes progress. */
static sk_status comes_to_its_end(const book *b, int *at)
{
    bool moves = true;
    while (moves) {
        moves = false;
        for (int s = 0; s < b->pipe->n_stages; s++) moves |= advance(b, s, &at[s]);
    }
    for (int s = 0; s < b->pipe->n_stages; s++) {
        if (at[s] == b->tasks[s].n) continue;
        sk_task t = b->tasks[s].v[at[s]];
        int from = before(b, t), there = sk_schedule_place(b->s, b->pipe->n_stages, from);
        sk_task stuck = b->tasks[there].v[at[there]];
        return sk_fail(SK_ECONF,
                       "schedule %s: stage %d stands at %s and waits for stage %d, which "
                       "stands at %s: nobody can go on",
                       b->s->name, s, name(b, t).s, there, name(b, stuck).s);
    }
    return SK_OK;
}

static sk_status check(const book *b, sk_arena *tmp)
{
    size_t n = (size_t)b->n_chunks * (size_t)b->pipe->n_micro;
    for (int s = 0; s < b->pipe->n_stages; s++)
        for (int i = 0; i < b->tasks[s].n; i++) SK_TRY(one(b, s, b->tasks[s].v[i]));
    SK_TRY(nothing_missing(b));
    for (int s = 0; s < b->pipe->n_stages; s++) SK_TRY(updates(b, s));
    memset(b->done, 0, n);
    return comes_to_its_end(b, sk_many(tmp, int, b->pipe->n_stages));
}

sk_status sk_schedule_check(const sk_schedule *s, const sk_pipe *pipe, const sk_tasks *tasks)
{
    if (s->chunks && s->chunks != pipe->n_chunks)
        return sk_fail(SK_ECONF, "schedule %s has %d chunks a stage, not %d", s->name, s->chunks,
                       pipe->n_chunks);
    sk_arena tmp = {0};
    book b = {s, pipe, tasks, .n_chunks = pipe->n_chunks * pipe->n_stages};
    b.done = sk_many(&tmp, uint8_t, b.n_chunks * pipe->n_micro);
    sk_status st = check(&b, &tmp);
    sk_arena_end(&tmp);
    return st;
}
