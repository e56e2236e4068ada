/* control_block.h - the control block of a job, and looking at it from outside.
 *
 * Beside the heaps a job has one shared area, the control block: the abort word and
 * its error report, the state of each rank, the flags of collectives
 * and messages, and what the launcher keeps behind them (sk_heaps_extra).  It is
 * a memfd called skein-board that stays open in the launcher and in every rank as
 * long as the heaps live.  So anybody who may read /proc/PID/fd of one of them
 * (the same user) can map it and see how the job stands, also when it is stuck or
 * half of it is dead.  It is mapped read only by others: looking changes nothing.
 *
 *     int *pids, n = sk_control_block_jobs(a, &pids);
 *     for (int i = 0; i < n; i++) {
 *         if (sk_control_block_open(pids[i], &h)) continue;
 *         printf("%s: step %lld\n", sk_control_block_info_of(h).label,
 *                (long long)atomic_load(&sk_heaps_rank_state(h, 0)->step));
 *         sk_heaps_close(h);
 *     }
 */
#ifndef SK_COMM_CONTROL_BLOCK_H
#define SK_COMM_CONTROL_BLOCK_H

#include "comm/comm.h"

enum { SK_LABEL = 256 };

typedef struct sk_control_block_info {
    int n_ranks;
    int pid;        /* who made it: the launcher, or the first rank of this host */
    double started; /* seconds since 1970 */
    const char *label;
    size_t extra_bytes;
} sk_control_block_info;

/* What people know the job by: its run directory.  Cut at SK_LABEL - 1 bytes. */
void sk_heaps_label(sk_heaps *h, const char *text);
sk_control_block_info sk_control_block_info_of(const sk_heaps *h);

/* The newest control block that process pid holds, read only and without heaps: sk_heap_base() is
 * NULL. Close it with sk_heaps_close().  SK_EIO if there is none, SK_EDATA if another version made
 * it. */
sk_status sk_control_block_open(int pid, sk_heaps **out);
/* One process for each control block that can be seen from here: who made it, if that one is alive.
 */
int sk_control_block_jobs(sk_arena *a, int **pids);

#endif
