/* zb_h1.c - Qi et al. 2023: 1F1B whose weight halves fill the bubble.
 *
 * F and I go as in 1F1B.  The stage below waits only for I, so W can stand where a stage would
 * be idle.  As many W may be late as keeps p micro-batches in flight on every stage: no more than
 * 1F1B has on its first.  With F = I = W a third of 1F1B's bubble is left, (p-1)(F+I-W). */
#include "program/pipeline_schedule.h"

extern const sk_schedule sk_schedule_zb_h1;

static int when(const sk_pipe *pipe, sk_task_kind work, int stage)
{
    int p = pipe->n_stages;
    return work == SK_WORK_F ? stage : p + 2 * (p - 1 - stage);
}

static sk_status list_tasks(const sk_pipe *pipe, sk_tasks *tasks)
{
    sk_weave w = {.every = 3, .most = pipe->n_stages, .when = when};
    return sk_schedule_weave(&sk_schedule_zb_h1, pipe, &w, tasks);
}

const sk_schedule sk_schedule_zb_h1 = {
    .name = "zb-h1",
    .doc = "1f1b, weight gradients fill the bubble",
    .bubble = "(p-1)/3m",
    .memory = "p",
    .chunks = 1,
    .list_tasks = list_tasks,
};
