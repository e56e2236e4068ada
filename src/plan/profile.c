/* profile.c - timing the instructions of ranks that run without each other. */
#include "plan/profile.h"
#include "base/clock.h"
#include "base/proc.h"
#include "base/strings.h"
#include "plan/workers.h"
#include "plan/deadline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 1, STEPS = 3, MOST_SLOTS = 64 };

typedef struct profiling {
    const sk_profile_in *in;
    sk_heaps *heaps;
    int workers, slots;
    int rank[MOST_SLOTS];      /* by slot */
    int64_t first[MOST_SLOTS]; /* where the seconds of a slot begin in `notes` */
    float *notes;              /* shared: [slot][step][instruction] */
} profiling;

static const sk_program *program_of(const profiling *p, int slot)
{
    return p->in->programs[p->in->shape_of[p->rank[slot]]];
}

/* --- which ranks get a slot --- */

typedef struct budget {
    int64_t memory;
    double seconds;
} budget;

static bool afford(const profiling *p, budget *b, int rank)
{
    const sk_program *q = p->in->programs[p->in->shape_of[rank]];
    double seconds = sk_priced_step(q, p->in->machine) * (WARM + STEPS) * q->threads / p->workers;
    if (p->slots == MOST_SLOTS || q->heap_bytes > b->memory || seconds > b->seconds) return false;
    b->memory -= q->heap_bytes;
    b->seconds -= seconds;
    return true;
}

static void place(profiling *p, int rank) { p->rank[p->slots++] = rank; }

/* One of each shape first, so that little memory is enough for many ranks; then the others. */
static void fill_slots(profiling *p, sk_profile *out, bool *placed, bool *known)
{
    budget b = {p->in->memory, p->in->seconds};
    for (int turn = 0; turn < 2; turn++)
        for (int r = 0; r < p->in->n_ranks; r++) {
            int shape = p->in->shape_of[r];
            if (placed[r] || (turn == 0 && known[shape]) || !afford(p, &b, r)) continue;
            if (turn && !known[shape]) continue;
            out->measured += !known[shape];
            placed[r] = known[shape] = true;
            place(p, r);
        }
}

/* --- one core --- */

typedef struct slot {
    sk_run *run;
    int pc, end;
} slot;

static void take_times(const profiling *p, int at, int step, const slot *s)
{
    float *to = p->notes + p->first[at] + (int64_t)step * s->end;
    const double *times = sk_run_times(s->run);
    for (int i = 0; i < s->end; i++) to[i] = (float)(times[2 * i + 1] - times[2 * i]);
}

static sk_status one_step(const profiling *p, int worker, slot *slots, int64_t step)
{
    for (int i = worker; i < p->slots; i += p->workers) slots[i].pc = 0;
    for (bool going = true; going;) {
        going = false;
        for (int i = worker; i < p->slots; i += p->workers) {
            if (slots[i].pc == slots[i].end) continue;
            SK_TRY(sk_run_until_wait(slots[i].run, step, &slots[i].pc));
            going = true;
        }
    }
    return SK_OK;
}

static sk_status steps_of(const profiling *p, int worker, slot *slots)
{
    for (int step = 0; step < WARM + STEPS; step++) {
        SK_TRY(one_step(p, worker, slots, step));
        for (int i = worker; step >= WARM && i < p->slots; i += p->workers)
            take_times(p, i, step - WARM, &slots[i]);
    }
    return SK_OK;
}

static sk_status open_slot(const profiling *p, sk_arena *a, int at, slot *s)
{
    sk_run_opts o = *p->in->opts;
    o.alone = o.trace = true;
    o.slot = at;
    s->end = program_of(p, at)->n_train;
    o.timeout_s = sk_timeout(o.timeout_s, program_of(p, at), p->heaps);
    SK_TRY(sk_run_open(a, program_of(p, at), p->heaps, &o, &s->run));
    return sk_run_init(s->run, o.seed);
}

static sk_status run_slots(void *ctx, int worker)
{
    const profiling *p = ctx;
    sk_arena a = {0};
    slot slots[MOST_SLOTS] = {0};
    sk_status st = SK_OK;
    for (int i = worker; !st && i < p->slots; i += p->workers) st = open_slot(p, &a, i, &slots[i]);
    if (!st) st = steps_of(p, worker, slots);
    for (int i = 0; i < p->slots; i++)
        if (slots[i].run) sk_run_close(slots[i].run);
    sk_arena_end(&a);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

/* --- medians --- */

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double median_of(const profiling *p, int shape, int pc)
{
    float v[MOST_SLOTS * STEPS];
    int n = 0;
    for (int i = 0; i < p->slots; i++) {
        if (p->in->shape_of[p->rank[i]] != shape) continue;
        int64_t end = program_of(p, i)->n_train;
        for (int s = 0; s < STEPS; s++) v[n++] = p->notes[p->first[i] + s * end + pc];
    }
    sk_assert(n > 0);
    qsort(v, (size_t)n, sizeof *v, by_size);
    return (double)v[n / 2];
}

static void take_medians(sk_arena *a, const profiling *p, const bool *known, sk_profile *out)
{
    for (int s = 0; s < out->n_shapes; s++) {
        int n = p->in->programs[s]->n_train;
        if (!known[s]) continue;
        out->seconds[s] = sk_many(a, double, n);
        for (int pc = 0; pc < n; pc++) out->seconds[s][pc] = median_of(p, s, pc);
    }
}

static sk_status measure(sk_arena *a, profiling *p, const bool *known, sk_profile *out)
{
    int64_t heap[MOST_SLOTS], notes = 0;
    for (int i = 0; i < p->slots; i++) {
        heap[i] = program_of(p, i)->heap_bytes;
        p->first[i] = notes;
        notes += (int64_t)program_of(p, i)->n_train * STEPS;
    }
    SK_TRY(sk_heaps_open(p->slots, heap, true, (size_t)notes * sizeof *p->notes, &p->heaps));
    p->notes = sk_heaps_extra(p->heaps);
    sk_status st = sk_workers_run(p->heaps, p->workers, run_slots, p);
    if (!st) take_medians(a, p, known, out);
    sk_heaps_close(p->heaps);
    return st;
}

sk_status sk_profile_ranks(sk_arena *a, const sk_profile_in *in, sk_profile *out)
{
    sk_arena tmp = {0};
    profiling *p = sk_new(&tmp, profiling);
    int cores = sk_proc_cores() / in->programs[0]->threads;
    *out = (sk_profile){0};
    for (int r = 0; r < in->n_ranks; r++)
        if (in->shape_of[r] >= out->n_shapes) out->n_shapes = in->shape_of[r] + 1;
    p->in = in;
    p->workers = cores < 1 ? 1 : cores < in->n_ranks ? cores : in->n_ranks;
    out->seconds = sk_many(a, double *, out->n_shapes);
    bool *placed = sk_many(&tmp, bool, in->n_ranks), *known = sk_many(&tmp, bool, out->n_shapes);
    fill_slots(p, out, placed, known);
    out->slots = p->slots;
    if (p->workers > p->slots) p->workers = p->slots;
    sk_status st = p->slots ? measure(a, p, known, out) : SK_OK;
    if (out->measured < out->n_shapes)
        out->why = sk_print(a, "%d of %d programs, whose heaps or steps are too large to try",
                            out->n_shapes - out->measured, out->n_shapes);
    sk_arena_end(&tmp);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}
