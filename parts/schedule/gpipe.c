/* gpipe.c - Huang et al. 2019: all forwards, then all backwards.
 *
 * Bubble (p-1)/m of the ideal time; every micro-batch is in flight at once. */
#include "program/schedule.h"

static void emit(sk_tasks *t, int stage, int n_stages, int n_micro)
{
    (void)stage, (void)n_stages;
    for (int m = 0; m < n_micro; m++) sk_task_add(t, SK_FORWARD, m);
    for (int m = n_micro - 1; m >= 0; m--) sk_task_add(t, SK_BACKWARD, m);
}

const sk_schedule sk_schedule_gpipe = {
    .name = "gpipe",
    .doc = "all forwards, then all backwards; bubble (p-1)/m, m micro-batches in flight",
    .emit = emit,
};
