/* commit_log.h - commits.jsonl in the run directory: every choice that time made.
 *
 * With sync=backup:B a line for each step, by the rank whose gradient completed its set, before any
 * rank acted on it:
 *
 *     {"step":12,"ranks":[0,1,3],"dropped":[2]}
 *
 * Steps count from 1.  `skein train --replay RUN` reads the file and imposes what it says. */
#ifndef SK_TRAIN_COMMIT_LOG_H
#define SK_TRAIN_COMMIT_LOG_H

#include "base/arena.h"
#include "base/status.h"

#include <stdint.h>

typedef struct sk_commit_log {
    int fd; /* to be appended to; -1: closed */
} sk_commit_log;

/* What a run has chosen: by step, from 0; bit r: rank r. */
typedef struct sk_commits {
    unsigned *set;
    int64_t first, n, cap; /* steps from `first` to n - 1 are recorded */
} sk_commits;

/* Keep what the first `done` steps chose; of one rank, before any writes. */
sk_status sk_commit_log_cut(const char *run, int64_t done);
sk_status sk_commit_log_open(sk_commit_log *l, const char *run);
void sk_commit_log_close(sk_commit_log *l);
sk_status sk_commit_log_step(const sk_commit_log *l, int64_t step, unsigned set, int n_ranks);

/* SK_EDATA: it is none, is damaged, or of another number of ranks. */
sk_status sk_commits_read(sk_arena *a, const char *run, int n_ranks, sk_commits *out);

#endif
