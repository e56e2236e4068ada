/* relayout.h - a run whose layout changes.
 *
 *     train.relayout="100: dp=2 tp=2, 200: dp=4"
 *
 * After 100 steps the run continues under another layout; a run that is resumed begins
 * in the phase of its step.  The number of ranks stays.  All phases are parsed, compiled
 * and verified before the run starts, and so are the moves between them
 * (program/relayout_moves.h): the heap of a rank has the bytes of its largest moment, which may be
 * a move, and the programs of all phases are enlarged to that (the last region, scratch,
 * is longer).  "planned = mapped" therefore holds for such runs too.
 *
 * A batch schedule (batch_schedule.h) is made of phases too: their programs differ in the batch,
 * with train.relayout in the layout as well.  Such a run may go back to the phase before, by the
 * noise scale or to a checkpoint, so there are moves in both directions.
 *
 * Phases share heaps and control block.  Counters there belong to a group, so every phase
 * has group numbers of its own: its programs run as copies (`runs`) whose numbers begin
 * after those of the phases before. */
#ifndef SK_TRAIN_RELAYOUT_H
#define SK_TRAIN_RELAYOUT_H

#include "program/relayout_moves.h"
#include "train/setup.h"

typedef struct sk_run_phase {
    int64_t from;      /* steps done when it begins; the first: 0 */
    sk_setup *setup;   /* of the first: the run's own */
    sk_program **runs; /* what sk_run_open gets, by rank */
    sk_moves moves;    /* from the phase before into this one; the first has none */
    sk_moves back;     /* into the phase before, with a batch schedule */
} sk_run_phase;

typedef struct sk_relayout {
    sk_run_phase *v;
    int n, cap;
    bool batches;  /* there is a batch schedule */
    bool by_noise; /* which says no steps */
} sk_relayout;

bool sk_relayout_asked(const sk_job *job); /* has it phases? */

/* For a setup whose programs of all ranks are made: reads job->relayout, plans every phase, and
 * makes s->relayout.  Programs of s get the bytes of the largest moment. */
sk_status sk_relayout_plan(sk_setup *s);
/* After sk_setup_data: all phases read the same data. */
void sk_relayout_data(sk_setup *s);
/* The phase that a run with so many steps done is in; 0 where the layout never changes, and where
 * the noise scale changes the batch. */
int sk_relayout_at(const sk_setup *s, int64_t done);
/* The same; by noise, the phase with this batch, or the largest below it. */
int sk_relayout_with(const sk_setup *s, int64_t done, int64_t batch);
/* The same of a rank whose program has this hash. */
int sk_relayout_of(const sk_setup *s, int64_t done, uint64_t hash);
const sk_setup *sk_relayout_setup(const sk_setup *s, int phase);
/* The program of the phase that the memory of a rank is for, for reports; the only one without
 * phases. */
const sk_program *sk_relayout_largest(const sk_setup *s, int rank);
/* What sk_run_open gets. */
const sk_program *sk_relayout_run(const sk_setup *s, int phase, int rank);

/* Everything this rank keeps, into the places of the next phase; on all ranks together, between
 * two steps.  The comm is still that of the old phase, and is idle afterwards. */
sk_status sk_relayout_move(const sk_moves *m, int rank, sk_heaps *heaps, sk_comm *c);

/* A line for each phase: its step, its layout, what moves into it.  "" without phases. */
char *sk_relayout_print(sk_arena *a, const sk_setup *s);
char *sk_relayout_line(sk_arena *a, const sk_setup *s, int phase); /* no newline */

/* --- also for the fallback program (fallback.c): two programs of a run over the same heaps --- */

/* Nothing is offloaded; `key` is what asks for the second program. */
sk_status sk_relayout_all_here(const sk_setup *s, const char *key);
void sk_relayout_grow(sk_program *p, int64_t to); /* bytes of the heap */
/* A copy whose groups are numbered after `before` others. */
sk_program *sk_relayout_renumbered(sk_arena *a, const sk_program *p, int before);

#endif
