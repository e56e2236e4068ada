/* pipedream_2bw.c - Narayanan et al. 2021: two versions of the weights are enough.
 *
 * The order of 1F1B; gradients are added up over p micro-batches, a group, and applied then.  The
 * micro-batches of a group read, forward and backward and on every stage, the weights from
 * before the group ahead of them was applied:
 *
 *     W(t+1) = W(t) - lr * gradient(W(t-1))
 *
 * That version is there when the first of them comes, and the one before it is not needed
 * any more.  The first two groups of a step read the weights that the step began with. */
#include "program/pipeline_schedule.h"

static int group(int micro, int each) { return micro / each; }

static int sees(int micro, int each) { return group(micro, each) > 1 ? group(micro, each) - 1 : 0; }

static void stage(sk_tasks *t, int s, const sk_pipe *pipe)
{
    int f = 0, n = pipe->n_micro, each = pipe->n_stages, ahead = each - s - 1;
    for (; f < ahead && f < n; f++) sk_task_see(t, SK_WORK_F, f, s, sees(f, each));
    for (int b = 0; b < n; b++) {
        if (f < n) sk_task_see(t, SK_WORK_F, f, s, sees(f, each)), f++;
        sk_task_see(t, SK_WORK_B, b, s, sees(b, each));
        if (b + 1 == n || group(b + 1, each) > group(b, each)) sk_task_see(t, SK_WORK_U, b, s, 0);
    }
}

static sk_status list_tasks(const sk_pipe *pipe, sk_tasks *tasks)
{
    for (int s = 0; s < pipe->n_stages; s++) stage(&tasks[s], s, pipe);
    return SK_OK;
}

const sk_schedule sk_schedule_pipedream_2bw = {
    .name = "pipedream-2bw",
    .doc = "1f1b, an update after every p micro-batches, two versions of the weights",
    .bubble = "(p-1)/m",
    .memory = "p",
    .chunks = 1,
    .async = true,
    .list_tasks = list_tasks,
};
