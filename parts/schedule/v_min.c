/* v_min.c - Qi et al. 2024 (V-Min): a third of 1F1B's memory, two thirds of its bubble.
 *
 * Two chunks per stage in V shape.  A micro-batch goes through all forwards and all I without a
 * pause, so nothing lives longer than it must.  On a stage F and I keep out of each other's way in
 * a period of 6, but for p a multiple of 3, where I begins two units later.  The bubble is 4p-5
 * units of 6m, or 4p-3 where 3 divides p. */
#include "program/pipeline_schedule.h"

extern const sk_schedule sk_schedule_v_min;

static int when(const sk_pipe *pipe, sk_task_kind work, int chunk)
{
    int n = 2 * pipe->n_stages;
    if (work == SK_WORK_F) return chunk;
    return n + (n - 1 - chunk) + (pipe->n_stages % 3 ? 0 : 2);
}

static sk_status list_tasks(const sk_pipe *pipe, sk_tasks *tasks)
{
    sk_weave w = {.every = 6, .most = 2 * ((pipe->n_stages + 4) / 3), .when = when};
    return sk_schedule_weave(&sk_schedule_v_min, pipe, &w, tasks);
}

const sk_schedule sk_schedule_v_min = {
    .name = "v-min",
    .doc = "V-shaped; a third of the memory of 1f1b, two thirds of its bubble",
    .bubble = "(4p-5)/6m",
    .memory = "(p+4)/3",
    .chunks = 2,
    .folded = true,
    .list_tasks = list_tasks,
};
