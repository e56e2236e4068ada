/* pipeline_schedule.h - in which order the stages of a pipeline work on their micro-batches.
 *
 * The layers are assigned to chunks in forward order; a stage has one chunk, or several.  Chunk c
 * is on stage c mod p, or, folded, up and then down again:
 *
 *     p = 3, 2 chunks a stage       stage 0 1 2 0 1 2        folded: 0 1 2 2 1 0
 *
 * A schedule gives the order of every stage's tasks.  The backward pass of a chunk is one task (B),
 * or two: its input half (I), for which the stage before it waits, and its weight half (W), which
 * can come any time later (Qi et al. 2023).  Programs are written from these lists alone, and
 * verify proves that there is no deadlock.
 *
 * Usually weights change once a step, after all micro-batches.  In a schedule with asynchronous
 * updates (Narayanan et al. 2019, 2021) a stage's list has updates too (U), each with the gradients
 * accumulated since the one before.  After its k-th, a stage has weights of version k; every F and
 * B says which version it reads, and versions that are still to be read are kept.  The pipeline is
 * filled at the beginning of a step and drained at its end, so that no task is in flight between
 * steps. */
#ifndef SK_PROGRAM_PIPELINE_SCHEDULE_H
#define SK_PROGRAM_PIPELINE_SCHEDULE_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>

struct sk_layout;

typedef enum sk_task_kind {
    SK_WORK_F,
    SK_WORK_B,
    SK_WORK_I,
    SK_WORK_W,
    SK_WORK_U,
    SK_N_WORKS
} sk_task_kind;

typedef struct sk_task {
    sk_task_kind work;
    int micro, chunk; /* chunk of the whole pipeline; U: the newest micro-batch in it */
    int version;      /* of the weights it reads */
} sk_task;

typedef struct sk_tasks {
    sk_arena *arena;
    sk_task *v;
    int n, cap;
} sk_tasks;

typedef struct sk_pipe {
    int n_stages, n_chunks, n_micro; /* chunks a stage */
    const char *file;                /* of a schedule that is read from one */
} sk_pipe;

typedef struct sk_schedule {
    const char *name, *doc;
    const char *bubble, *memory; /* closed forms (doc/pipelines.md), or NULL */
    int chunks;                  /* a stage, if the schedule fixes it; 0: as the layout says */
    bool folded;
    bool async; /* stages update asynchronously, within a step */
    /* Fills tasks[stage] for every stage: each chunk and micro-batch once forward (F) and once
     * backward (B, or I and later W). */
    sk_status (*list_tasks)(const sk_pipe *pipe, sk_tasks *tasks);
} sk_schedule;

extern const sk_schedule *const sk_schedule_parts[];
const sk_schedule *sk_schedule_find(const char *name); /* with a '/': the part that reads files */
/* Chunks of layers of each stage: as the schedule has them, else as the layout says. */
int sk_schedule_chunks(const struct sk_layout *l);
int sk_schedule_place(const sk_schedule *s, int n_stages, int chunk); /* its stage */
void sk_task_add(sk_tasks *t, sk_task_kind work, int micro, int chunk);
/* The same, of weights of one version. */
void sk_task_see(sk_tasks *t, sk_task_kind work, int micro, int chunk, int version);

/* A schedule from the life of one micro-batch (the building block of Qi et al. 2024): the forward
 * and the input half of every chunk begin at `when`, those of the next micro-batch `every` units
 * later; all tasks take one unit.  That gives the order of F and I on each stage.  Idle times are
 * then removed, and W tasks are inserted: where a stage would wait, and before an F that would
 * exceed `most` F tasks whose W is not done. */
typedef struct sk_weave {
    int every, most;
    int (*when)(const sk_pipe *pipe, sk_task_kind work, int chunk);
} sk_weave;
sk_status sk_schedule_weave(const sk_schedule *s, const sk_pipe *pipe, const sk_weave *w,
                            sk_tasks *tasks);

/* Checks that every task is there once, on its stage, W after its I, B and I after their F, and
 * that there is no deadlock; with asynchronous updates, also that every backward pass is in an
 * update, and that no task reads weights that do not exist yet. */
sk_status sk_schedule_check(const sk_schedule *s, const sk_pipe *pipe, const sk_tasks *tasks);

#endif
