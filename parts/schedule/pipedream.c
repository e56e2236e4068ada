/* pipedream.c - Narayanan et al. 2019: every micro-batch is a batch of its own.
 *
 * The order of 1F1B, and each stage updates its weights after every backward pass, without
 * waiting for the others.  A forward pass reads the newest weights; its backward pass
 * reads the same ones, which stage s keeps until then: p-s versions.  So the gradient is that of
 * weights which are p-s-1 updates old.  With stages that start together and stop together
 * once a step, the bubble is that of 1F1B over all micro-batches of the step: take many. */
#include "program/pipeline_schedule.h"

static int saw(int micro, int ahead) { return micro > ahead ? micro - ahead : 0; }

static void stage(sk_tasks *t, int s, int ahead, int n_micro)
{
    int f = 0;
    while (f < ahead && f < n_micro) sk_task_see(t, SK_WORK_F, f++, s, 0);
    for (int b = 0; b < n_micro; b++) {
        if (f < n_micro) sk_task_see(t, SK_WORK_F, f, s, saw(f, ahead)), f++;
        sk_task_see(t, SK_WORK_B, b, s, saw(b, ahead));
        sk_task_see(t, SK_WORK_U, b, s, 0);
    }
}

static sk_status list_tasks(const sk_pipe *pipe, sk_tasks *tasks)
{
    for (int s = 0; s < pipe->n_stages; s++)
        stage(&tasks[s], s, pipe->n_stages - s - 1, pipe->n_micro);
    return SK_OK;
}

const sk_schedule sk_schedule_pipedream = {
    .name = "pipedream",
    .doc = "1f1b, an update after every backward pass, weights stashed for it",
    .bubble = "(p-1)/m",
    .memory = "p",
    .chunks = 1,
    .async = true,
    .list_tasks = list_tasks,
};
