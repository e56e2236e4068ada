/* dualpipe_v.c - DeepSeek 2025 (DualPipe-V): DualPipe cut in half, every chunk kept once.
 *
 * Two chunks per stage in V shape.  In the steady state a forward of one chunk is next to a
 * backward of the other, so that a device can compute the one while bytes of the other travel; here
 * they are neighbours in the list.  Backwards are not split (B) there, and split at both ends,
 * where another stage waits for I.  The rule wants 2p micro-batches: of fewer, the tasks of those
 * that do not exist are left out.  Run one after the other the bubble is (p-1)(F+B-2W); as pairs
 * that take F&B, DeepSeek's (p-1)(F&B+B-3W).  Both count the times of chunks. */
#include "program/pipeline_schedule.h"

typedef struct line { /* one stage */
    sk_tasks *tasks;
    int n_micro, chunk[2], f[2], b[2]; /* f, b: the next micro-batch, by chunk */
    sk_tasks halves;                   /* I that were done, whose W is still to come */
    int paid;                          /* how many of them */
} line;

static void add(line *l, sk_task_kind work, int micro, int chunk)
{
    if (micro < l->n_micro) sk_task_add(l->tasks, work, micro, chunk);
}

static void forward(line *l, int which) { add(l, SK_WORK_F, l->f[which]++, l->chunk[which]); }
static void whole(line *l, int which) { add(l, SK_WORK_B, l->b[which]++, l->chunk[which]); }

static void half(line *l, int which)
{
    int micro = l->b[which]++;
    add(l, SK_WORK_I, micro, l->chunk[which]);
    sk_task_add(&l->halves, SK_WORK_W, micro, l->chunk[which]);
}

static void weight(line *l)
{
    sk_task t = l->halves.v[l->paid++];
    add(l, SK_WORK_W, t.micro, t.chunk);
}

static void fill(line *l, int p, int s)
{
    for (int i = 0; i < 2 * (p - s - 1); i++) forward(l, 0);
    for (int i = 0; i <= s; i++) forward(l, 0), forward(l, 1);
    for (int i = 0; i < p - s - 1; i++) half(l, 1), weight(l), forward(l, 1);
}

/* Of the last 2(s+1) backwards that alternate the second half is in halves. */
static void drain(line *l, int p, int s)
{
    for (int i = 0; i < p - s - 1; i++) whole(l, 1), forward(l, 1), whole(l, 0);
    for (int i = 0; i <= s; i++) whole(l, (i + 1) % 2);
    for (int i = s + 1; i < 2 * (s + 1); i++) half(l, (i + 1) % 2);
    for (int i = 0; i < p - s - 1; i++) weight(l), half(l, 0);
    for (int i = 0; i <= s; i++) weight(l);
}

static sk_status list_tasks(const sk_pipe *pipe, sk_tasks *tasks)
{
    int p = pipe->n_stages, n = pipe->n_micro < 2 * p ? 2 * p : pipe->n_micro;
    for (int s = 0; s < p; s++) {
        line l = {.tasks = &tasks[s], .n_micro = pipe->n_micro, .chunk = {s, 2 * p - 1 - s}};
        l.halves.arena = tasks[s].arena;
        fill(&l, p, s);
        for (int i = 0; i < n - 2 * p + s + 1; i++) {
            forward(&l, 0), whole(&l, 1);
            forward(&l, 1), whole(&l, 0);
        }
        drain(&l, p, s);
    }
    return SK_OK;
}

const sk_schedule sk_schedule_dualpipe_v = {
    .name = "dualpipe-v",
    .doc = "V-shaped; forwards overlap backwards of the other chunk",
    .bubble = "(p-1)/6m",
    .memory = "p + 1/2",
    .chunks = 2,
    .folded = true,
    .list_tasks = list_tasks,
};
