/* interleaved.c - Narayanan et al. 2021: 1F1B over several chunks a stage.
 *
 * A stage takes p micro-batches through its first chunk, then through its second and so on,
 * then the next p.  Filling the pipeline takes p-1 chunks instead of p-1 whole stages, so
 * the bubble is 1F1B's over v; the price is v times the messages, and a few more chunks in
 * flight.  The order is made for whole groups of p micro-batches: those of the last
 * group that do not exist are left out, which can only make everybody wait less. */
#include "program/pipeline_schedule.h"

/* The k-th forward, or backward, of a stage that has whole groups. */
static void add(sk_tasks *t, const sk_pipe *pipe, int stage, sk_task_kind work, int k)
{
    int p = pipe->n_stages, v = pipe->n_chunks, lap = k % (p * v) / p;
    int micro = k / (p * v) * p + k % p;
    if (work == SK_WORK_B) lap = v - 1 - lap;
    if (micro < pipe->n_micro) sk_task_add(t, work, micro, lap * p + stage);
}

static sk_status list_tasks(const sk_pipe *pipe, sk_tasks *tasks)
{
    int p = pipe->n_stages, v = pipe->n_chunks, n = (pipe->n_micro + p - 1) / p * p * v;
    for (int s = 0; s < p; s++) {
        int f = 0, ahead = v == 1 ? p - s - 1 : 2 * (p - s - 1) + (v - 1) * p;
        while (f < ahead && f < n) add(&tasks[s], pipe, s, SK_WORK_F, f++);
        for (int b = 0; b < n; b++) {
            if (f < n) add(&tasks[s], pipe, s, SK_WORK_F, f++);
            add(&tasks[s], pipe, s, SK_WORK_B, b);
        }
    }
    return SK_OK;
}

const sk_schedule sk_schedule_interleaved = {
    .name = "interleaved",
    .doc = "1f1b over v chunks per stage",
    .bubble = "(p-1)/(v m)",
    .memory = "p + (p-1)/v",
    .list_tasks = list_tasks,
};
