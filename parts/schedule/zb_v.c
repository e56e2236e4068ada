/* zb_v.c - Qi et al. 2023, section 6 (ZB-V): no bubble with 1F1B's memory.
 *
 * Two chunks per stage in V shape, so that the first stage computes the loss and can begin
 * backwards early.  Its list has five parts: first chunks until second ones come back; both in
 * turn; second chunks forward and backward; the steady state F I W of one and of the other; and I
 * alone while W still can wait.  With F = I = W no stage waits between its first task and its last,
 * if there are 2p-1 micro-batches; with fewer, the tasks of those that do not exist are left out.
 */
#include "program/pipeline_schedule.h"

typedef struct line { /* one stage */
    sk_tasks *tasks;
    int n_micro, chunk[2];
    int next[SK_WORK_W + 1][2]; /* micro-batch, by work and chunk */
} line;

static void add(line *l, sk_task_kind work, int which)
{
    int micro = l->next[work][which]++;
    if (micro < l->n_micro) sk_task_add(l->tasks, work, micro, l->chunk[which]);
}

static void back(line *l, int which)
{
    add(l, SK_WORK_I, which);
    add(l, SK_WORK_W, which);
}

static void fill(line *l, int p, int s)
{
    for (int i = 0; i < 2 * (p - s) - 1; i++) add(l, SK_WORK_F, 0);
    for (int i = 0; i < s; i++) add(l, SK_WORK_F, 1), add(l, SK_WORK_F, 0);
    for (int i = 0; i < p - s; i++) add(l, SK_WORK_F, 1), back(l, 1);
}

static void drain(line *l, int p, int s, int n)
{
    for (int i = 0; i < s; i++) add(l, SK_WORK_I, 0), add(l, SK_WORK_I, 1);
    for (int i = 0; i < p - s; i++) back(l, 0);
    while (l->next[SK_WORK_W][1] < n) add(l, SK_WORK_W, 1);
    while (l->next[SK_WORK_W][0] < n) add(l, SK_WORK_W, 0);
}

static sk_status list_tasks(const sk_pipe *pipe, sk_tasks *tasks)
{
    int p = pipe->n_stages, n = pipe->n_micro < 2 * p - 1 ? 2 * p - 1 : pipe->n_micro;
    for (int s = 0; s < p; s++) {
        line l = {.tasks = &tasks[s], .n_micro = pipe->n_micro, .chunk = {s, 2 * p - 1 - s}};
        fill(&l, p, s);
        while (l.next[SK_WORK_F][1] < n) {
            add(&l, SK_WORK_F, 0);
            back(&l, 0);
            add(&l, SK_WORK_F, 1);
            back(&l, 1);
        }
        drain(&l, p, s, n);
    }
    return SK_OK;
}

const sk_schedule sk_schedule_zb_v = {
    .name = "zb-v",
    .doc = "V-shaped; no stage waits once it has begun",
    .bubble = "0",
    .memory = "p",
    .chunks = 2,
    .folded = true,
    .list_tasks = list_tasks,
};
