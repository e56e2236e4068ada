/* launch.h - a whole training run on this host: setup, ranks, console, end.
 *
 * The launcher makes everything (programs, heaps, the run directory) and forks the
 * ranks, which inherit it; then it is the console and the guard:
 *
 *   - a rank that dies or fails ends the job: the abort word is raised with one
 *     story, the others leave at their next wait, and what is still there after
 *     GRACE_S is killed;
 *   - SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask for a stop at the next step boundary:
 *     the ranks save, the launcher returns SK_ESTOP; a second signal kills;
 *   - with `restarts`, a rank that was killed by a signal is no end: all begin again
 *     from the newest checkpoint, to the same bits, until that many beginnings in a
 *     row brought no newer one;
 *   - ranks die with the launcher (PR_SET_PDEATHSIG) and ignore Ctrl-C.
 *
 * Under another launcher (comm/boot.h) every process is one rank: it runs it as a
 * thread and watches over it, and rank 0's process is the console.  The process
 * that knows why a run ended says it; the others leave with its code, and their
 * launcher ends what is left.
 *
 * Nothing has a name in the system, so nothing is left behind, however it ends. */
#ifndef SK_TRAIN_LAUNCH_H
#define SK_TRAIN_LAUNCH_H

#include "comm/boot.h"
#include "train/job.h"

#include <stdio.h>

typedef struct sk_launch_opts {
    bool threads; /* ranks are threads of this process: for debuggers and sanitizers */
    int restarts; /* how often to begin again, without progress in between, when a rank is killed */
    FILE *to;     /* the console */
    sk_boot *boot; /* joined; this process is one rank of them.  NULL: all ranks are started here */
    char *(*config)(sk_arena *a, const sk_job *job); /* the job as text, for config.yaml */
} sk_launch_opts;

sk_status sk_launch(sk_arena *a, const sk_job *job, const sk_launch_opts *o);

#endif
