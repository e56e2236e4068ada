/* pb.c - pipelined backpropagation (Petrowski et al. 1993, Kosson et al. 2020).
 *
 * The order of 1F1B, an update after every backward pass, and only the newest weights: a
 * backward pass reads what its stage has by then, p-s-1 updates after its forward pass.
 * Nothing is kept twice, and the gradient is not quite that of any weights; optimizer
 * sgd-pb mends what that costs (spike compensation, linear weight prediction). */
#include "program/pipeline_schedule.h"

static void stage(sk_tasks *t, int s, int ahead, int n_micro)
{
    int f = 0;
    while (f < ahead && f < n_micro) sk_task_see(t, SK_WORK_F, f++, s, 0);
    for (int b = 0; b < n_micro; b++) {
        if (f < n_micro) sk_task_see(t, SK_WORK_F, f++, s, b);
        sk_task_see(t, SK_WORK_B, b, s, b);
        sk_task_see(t, SK_WORK_U, b, s, 0);
    }
}

static sk_status list_tasks(const sk_pipe *pipe, sk_tasks *tasks)
{
    for (int s = 0; s < pipe->n_stages; s++)
        stage(&tasks[s], s, pipe->n_stages - s - 1, pipe->n_micro);
    return SK_OK;
}

const sk_schedule sk_schedule_pb = {
    .name = "pb",
    .doc = "1f1b, an update after every backward pass, no weights stashed",
    .bubble = "(p-1)/m",
    .memory = "p",
    .chunks = 1,
    .async = true,
    .list_tasks = list_tasks,
};
