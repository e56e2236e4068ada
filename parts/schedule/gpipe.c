/* gpipe.c - Huang et al. 2019: all forwards, then all backwards.
 *
 * Every micro-batch is in flight at once.  Backwards run in the reverse order, so that
 * what was computed last, and may still be in a cache, is used first. */
#include "program/pipeline_schedule.h"

static sk_status list_tasks(const sk_pipe *pipe, sk_tasks *tasks)
{
    for (int s = 0; s < pipe->n_stages; s++) {
        for (int m = 0; m < pipe->n_micro; m++) sk_task_add(&tasks[s], SK_WORK_F, m, s);
        for (int m = pipe->n_micro - 1; m >= 0; m--) sk_task_add(&tasks[s], SK_WORK_B, m, s);
    }
    return SK_OK;
}

const sk_schedule sk_schedule_gpipe = {
    .name = "gpipe",
    .doc = "all forwards, then all backwards",
    .bubble = "(p-1)/m",
    .memory = "m",
    .chunks = 1,
    .list_tasks = list_tasks,
};
