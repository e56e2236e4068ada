/* schedule.h - in which order a pipeline stage works on its micro-batches. */
#ifndef SK_PROGRAM_SCHEDULE_H
#define SK_PROGRAM_SCHEDULE_H

#include "base/arena.h"
#include "graph/graph.h"

typedef struct sk_task {
    sk_phase phase;
    int micro;
} sk_task;

typedef struct sk_tasks {
    sk_arena *arena;
    sk_task *v;
    int n, cap;
} sk_tasks;

typedef struct sk_schedule {
    const char *name, *doc;
    /* Every micro-batch once forward and once backward, in this stage's order. */
    void (*emit)(sk_tasks *t, int stage, int n_stages, int n_micro);
} sk_schedule;

extern const sk_schedule *const sk_schedule_parts[];
const sk_schedule *sk_schedule_find(const char *name);
void sk_task_add(sk_tasks *t, sk_phase phase, int micro);

#endif
