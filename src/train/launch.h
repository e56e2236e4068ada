/* launch.h - a training run on this host from beginning to end.
 *
 * The launcher makes everything (programs, heaps, the run directory) and forks the
 * ranks, which inherit it; then it is the console and supervises them:
 *
 *   - a rank that dies or fails ends the job: the abort flag is set with one error
 *     report, the others end at their next wait, and ranks that are alive after
 *     GRACE_S are killed;
 *   - SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask for a stop at the next step boundary:
 *     the ranks save, the launcher returns SK_ESTOP; a second signal kills;
 *   - with `restarts`, after a rank was killed by a signal all ranks restart from the
 *     newest checkpoint, to the same bits, until that many restarts in a row brought
 *     no newer checkpoint;
 *   - ranks die with the launcher (PR_SET_PDEATHSIG) and ignore Ctrl-C.
 *
 * Under another launcher (comm/boot.h) every process is one rank: it runs it as a
 * thread and supervises it, and rank 0's process is the console.  The process
 * that knows why a run ended reports it; the others exit with the same code, and
 * their launcher ends the rest.
 *
 * Shared memory has no name in the system, so nothing is left behind, however a run ends. */
#ifndef SK_TRAIN_LAUNCH_H
#define SK_TRAIN_LAUNCH_H

#include "comm/boot.h"
#include "train/job.h"

#include <stdio.h>

typedef struct sk_launch_opts {
    bool threads;  /* ranks are threads of this process: for debuggers and sanitizers */
    int restarts;  /* without progress in between, when ranks are killed */
    FILE *to;      /* the console */
    sk_boot *boot; /* joined; this process is one rank of them.  NULL: all ranks are started here */
    char *(*config)(sk_arena *a, const sk_job *job); /* the job as text, for config.yaml */
    /* The job that a checkpoint was saved in; NULL: nobody reads the text. */
    sk_status (*saved_job)(sk_arena *a, const char *checkpoint, sk_job *out);
    const char *layout_line; /* why it has this layout; NULL: the user said it, or it is dp=RANKS */
} sk_launch_opts;

sk_status sk_launch(sk_arena *a, const sk_job *job, const sk_launch_opts *o);

#endif
