/* repeats.h - the programs of a step of many micro-batches, from lists of a few.
 *
 * Behind the first micro-batches of a run a stage does for each the same as for the one before:
 *
 *     1F1B, 3 tasks ahead, 20 micro-batches:    F x 3, then (F B) x 17, then B x 3
 *
 * So a program for the simulator and for the memory plan lists SK_LISTED micro-batches
 * (sk_compile_opts.listed), each as large as one of all, and says which of its instructions are
 * repeated, and how often.  That holds for schedules whose stages have one chunk each and do their
 * micro-batches in order: 1f1b, and steps without a pipeline.  Others are compiled whole, and
 * so are programs for GPUs, whose launches depend on where buffers lie.
 *
 * Nothing is taken on trust: a lap that is repeated must be equal to the lap before it, instruction
 * by instruction (sk_repeats_find), and the memory plan is that of the list written out
 * (sk_repeats_memory): what its laps take and give back is searched once, what the holes are then
 * is played.  Where either fails the caller compiles whole programs. */
#ifndef SK_PROGRAM_REPEATS_H
#define SK_PROGRAM_REPEATS_H

#include "program/pipeline_schedule.h"
#include "program/program.h"

enum { SK_LISTED = 10, SK_REPEATS = 4 };

typedef struct sk_runs { /* tasks of a stage: `ahead` F, `pairs` (F, B), `ahead` B; or forward only
                          */
    int ahead, pairs;
    bool forward; /* `ahead` F and nothing else */
} sk_runs;

typedef struct sk_repeat {
    int task, n_tasks; /* of its section */
    int at, n;         /* its instructions, done 1 + `more` times */
    int more;
} sk_repeat;

typedef struct sk_repeats { /* of a program, in its order */
    int n, n_micro;         /* micro-batches of the step */
    sk_repeat v[SK_REPEATS];
    sk_runs train, validate; /* of the step */
} sk_repeats;

/* Are tasks like that?  Fills out. */
bool sk_runs_read(const sk_tasks *tasks, int n_micro, sk_runs *out);
/* The same tasks of SK_LISTED micro-batches. */
sk_runs sk_runs_listed(const sk_runs *of);

/* Can the programs of this step be compiled from lists?  The lists of all stages, the batch and the
 * words of the layout are asked. */
bool sk_repeats_can(const sk_graph *g, const sk_layout *l, const sk_compile_opts *o);

/* Does a program list few? */
bool sk_program_listed(const sk_program *p);

/* Of a program of SK_LISTED micro-batches; false: its laps differ. */
bool sk_repeats_find(const sk_program *p, sk_repeats *out);

/* Plans the memory of all micro-batches of a step's programs: only their bytes and regions are
 * those of a run then, their buffers stay where they are.  False: not known without whole programs.
 */
bool sk_repeats_memory(sk_program *const *p, int n);

#endif
