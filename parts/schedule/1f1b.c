/* 1f1b.c - Narayanan et al. 2019 (PipeDream-flush): one forward, one backward.
 *
 * Stage s runs p-s-1 forwards ahead, then alternates.  The bubble is GPipe's,
 * but only min(p-s, m) micro-batches are in flight. */
#include "program/pipeline_schedule.h"

static void stage(sk_tasks *t, int s, int ahead, int n_micro)
{
    int f = 0;
    while (f < ahead && f < n_micro) sk_task_add(t, SK_WORK_F, f++, s);
    for (int b = 0; b < n_micro; b++) {
        if (f < n_micro) sk_task_add(t, SK_WORK_F, f++, s);
        sk_task_add(t, SK_WORK_B, b, s);
    }
}

static sk_status list_tasks(const sk_pipe *pipe, sk_tasks *tasks)
{
    for (int s = 0; s < pipe->n_stages; s++)
        stage(&tasks[s], s, pipe->n_stages - s - 1, pipe->n_micro);
    return SK_OK;
}

const sk_schedule sk_schedule_1f1b = {
    .name = "1f1b",
    .doc = "one forward, one backward",
    .bubble = "(p-1)/m",
    .memory = "p",
    .chunks = 1,
    .list_tasks = list_tasks,
};
