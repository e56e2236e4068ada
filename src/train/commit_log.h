/* commit_log.h - commits.jsonl in the run directory: every choice that time made.
 *
 * With sync=backup:B a line for each step, by the rank whose gradient completed its set, before any
 * rank acted on it:
 *
 *     {"step":12,"ranks":[0,1,3],"dropped":[2]}
 *
 * With sync=ssp:S a line for each step of each rank, when it updates the weights, with its turns
 * (comm/turns.h): in which it read the weights, and in which it updated them:
 *
 *     {"step":12,"rank":2,"read":71,"update":76}
 *
 * Where a run was resumed with another value of a key that its steps go by, a line behind the last
 * step that was done with the former one, by the name of the first such key:
 *
 *     {"step":12,"changed":"train.steps"}
 *
 * Steps count from 1, turns from 0.  `skein train --replay RUN` reads the file and imposes what it
 * says. */
#ifndef SK_TRAIN_COMMIT_LOG_H
#define SK_TRAIN_COMMIT_LOG_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sk_commit_log {
    int fd; /* to be appended to; -1: closed */
} sk_commit_log;

enum { SK_COMMIT_KEY = 64 };

/* What a run has chosen: by step, from 0. */
typedef struct sk_commits {
    unsigned *set;         /* bit r: rank r */
    int64_t (*turn)[2];    /* or by step and rank: read, update */
    int64_t from;          /* in: `first` is at most this step */
    int64_t first, n, cap; /* steps from `first` to n - 1 are recorded; n 0: nothing */
    int n_ranks;
    bool stale;
    const char *way;             /* sync=NAME of the run: for messages */
    int n_dropped;               /* of every set: B of sync=backup:B */
    int most_ahead;              /* S of sync=ssp:S; -1: any */
    int64_t changed_at;          /* steps done when a key was changed last; 0: never */
    char changed[SK_COMMIT_KEY]; /* the key */
} sk_commits;

/* Keep what the first `done` steps chose; of one rank, before any writes.  was, is: the texts of
 * the job that did them and of this one (config.yaml). */
sk_status sk_commit_log_cut(const char *run, int64_t done, const char *was, const char *is);
sk_status sk_commit_log_open(sk_commit_log *l, const char *run);
void sk_commit_log_close(sk_commit_log *l);
sk_status sk_commit_log_step(const sk_commit_log *l, int64_t step, unsigned set, int n_ranks);
sk_status sk_commit_log_turns(const sk_commit_log *l, int64_t step, int rank,
                              const int64_t turn[2]);

/* out has n_ranks, stale, way, n_dropped and most_ahead.  SK_EDATA: it is none, is damaged, of
 * another number of ranks or of another way. */
sk_status sk_commits_read(sk_arena *a, const char *run, sk_commits *out);
/* Take the first `steps` steps of what was read: turns are numbered without those behind. SK_EDATA:
 * a rank was farther ahead than most_ahead, in steps from `from` on. */
sk_status sk_commits_keep(sk_commits *c, sk_arena *a, const char *run, int64_t from, int64_t steps);
/* Had all ranks done `steps` steps before any began the next? */
bool sk_commits_together(const sk_commits *c, int64_t steps);

#endif
