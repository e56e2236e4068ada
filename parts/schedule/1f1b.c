/* 1f1b.c - Narayanan et al. 2019 (PipeDream-flush): one forward, one backward.
 *
 * Stage s runs p-s-1 forwards ahead, then alternates.  The bubble is GPipe's,
 * (p-1)/m, but only min(p-s, m) micro-batches are in flight. */
#include "program/schedule.h"

static void emit(sk_tasks *t, int stage, int n_stages, int n_micro)
{
    int ahead = n_stages - stage - 1, f = 0;
    if (ahead > n_micro) ahead = n_micro;
    while (f < ahead) sk_task_add(t, SK_FORWARD, f++);
    for (int b = 0; b < n_micro; b++) {
        if (f < n_micro) sk_task_add(t, SK_FORWARD, f++);
        sk_task_add(t, SK_BACKWARD, b);
    }
}

const sk_schedule sk_schedule_1f1b = {
    .name = "1f1b",
    .doc = "one forward, one backward; bubble (p-1)/m, p micro-batches in flight",
    .emit = emit,
};
