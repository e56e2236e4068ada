/* zb_h2.c - Qi et al. 2023: no bubble, for twice the memory.
 *
 * Stage s takes 2(p-s)-1 forwards before its first backward, just as many as come before the
 * first I is back.  From its first task to its last no stage waits; stages begin and end one
 * after the other, so that over all of them (p-1)F of the fill stay visible. */
#include "program/pipeline_schedule.h"

extern const sk_schedule sk_schedule_zb_h2;

/* I comes right behind the (2(p-s)-1)-th F: s + 3(2(p-s)-2) + 1. */
static int when(const sk_pipe *pipe, sk_task_kind work, int stage)
{
    return work == SK_WORK_F ? stage : 6 * pipe->n_stages - 5 * stage - 5;
}

static sk_status list_tasks(const sk_pipe *pipe, sk_tasks *tasks)
{
    sk_weave w = {.every = 3, .most = 2 * pipe->n_stages - 1, .when = when};
    return sk_schedule_weave(&sk_schedule_zb_h2, pipe, &w, tasks);
}

const sk_schedule sk_schedule_zb_h2 = {
    .name = "zb-h2",
    .doc = "no stage waits once it has begun",
    .bubble = "0",
    .memory = "2p-1",
    .chunks = 1,
    .list_tasks = list_tasks,
};
