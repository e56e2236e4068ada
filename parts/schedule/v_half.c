/* v_half.c - Qi et al. 2024 (V-Half): half of 1F1B's memory, half of its bubble.
 *
 * Two chunks per stage in V shape: the first stage has the first chunk and the last.  The chunks of
 * a stage that wait longest stand beside those that wait least, so all stages have the same peak.
 * F and I take 2 units a stage on the way up and 1 on the way down.  A stage's F and I must not
 * meet in a period of 6: with these steps they never do, if I waits 1 unit (4 for even p) more
 * at the fold.  The bubble is 3p-4 units of 6m for p > 2. */
#include "program/pipeline_schedule.h"

extern const sk_schedule sk_schedule_v_half;

/* Up in steps of 2, then down in steps of 1. */
static int along(int p, int n, int fold) { return n < p ? 2 * n : n + p - 1 + fold; }

static int when(const sk_pipe *pipe, sk_task_kind work, int chunk)
{
    int p = pipe->n_stages;
    if (work == SK_WORK_F) return along(p, chunk, 0);
    return 3 * p - 1 + along(p, 2 * p - 1 - chunk, p % 2 ? 1 : 4);
}

static sk_status list_tasks(const sk_pipe *pipe, sk_tasks *tasks)
{
    sk_weave w = {.every = 6, .most = 2 * (pipe->n_stages / 2 + 1), .when = when};
    return sk_schedule_weave(&sk_schedule_v_half, pipe, &w, tasks);
}

const sk_schedule sk_schedule_v_half = {
    .name = "v-half",
    .doc = "V-shaped; half the memory of 1f1b, half its bubble",
    .bubble = "(3p-4)/6m",
    .memory = "p/2 + 1",
    .chunks = 2,
    .folded = true,
    .list_tasks = list_tasks,
};
