/* sweep.h - many training jobs over the values of keys; between the files of `skein sweep`.
 *
 *     conf_axis.c        the values of a key: lists, ranges
 *     sweep_jobs.c       from axes to jobs: grid or random, each with a directory and a config
 *     sweep_record.c     what a sweep's directory keeps: sweep.json, job.yaml
 *     sweep_outcome.c    how a job ended, and whether its files are still those it left
 *     sweep_words.c      words that `sweep` and `swap` read alike
 *     sweep_lock.c       one sweep at a time in a directory
 *     sweep_rehearse.c   what `train` would refuse, before it is started
 *     sweep_run.c        jobs as processes, several at once
 *     sweep_results.c    losses of jobs, means over seeds, tables
 *     sweep_picture.c    loss against a key, on a terminal or as SVG
 *     sweep_study.c      steps to a target loss against the batch size
 *     sweep_fit.c        scaling laws over the jobs
 *
 * The directory of a sweep has sweep.json (the words that made it), LOCK, jobs.csv, and for each
 * job a run directory as `skein train` makes it, with three more files: job.yaml (the whole
 * job but its directory, which `train` is started with), console.log (what it printed) and outcome
 * (its exit code, error report, and sums of its losses and models, written as its last act).
 *
 * A job is finished if its outcome is 0 or SK_ENUM (it diverged).  Any other is started again,
 * from its newest checkpoint if it has one.  One that was done, and has lost its losses or its
 * model since, is damaged: its last checkpoint has nothing left to train, so it is not started, and
 * its row says so.  Lines behind those of the job count if it was trained further by hand, to
 * another model; then its row is that of the longer run. */
#ifndef SK_CLI_SWEEP_H
#define SK_CLI_SWEEP_H

#include "base/strings.h"
#include "cli/argv.h"
#include "cli/conf.h"
#include "train/metrics_read.h"

#include <stdio.h>

/* ---- axes */

typedef struct sk_axis {
    const char *key;
    const char **values; /* as they stand behind key= */
    const char **names;  /* of the values in the names of jobs; NULL: the values */
    int n;
    /* A range that --random draws from; values are those of a grid then, if it has any. */
    bool range, logarithmic, whole;
    double low, high;
} sk_axis;

/* The values of `text`, which was written behind key=.  SK_EUSAGE: none, or not to be told apart.
 */
sk_status sk_conf_axis(sk_arena *a, const char *key, const char *text, sk_axis *out);
/* A value within the range, from u in [0, 1). */
const char *sk_axis_at(sk_arena *a, const sk_axis *x, double u);

/* ---- jobs */

typedef struct sk_sweep_job {
    const char *name, *dir;
    const char **values; /* of each axis */
    sk_job *job;         /* NULL: its keys do not go together, `why` says it */
    const char *config;  /* the text of job.yaml */
    bool begun, ended;   /* there is a directory; there is an outcome */
    bool running;        /* a process is at work on it, of this sweep or of another */
    bool damaged;        /* it was done, and its losses or its model are not what they were then */
    sk_status code;      /* the outcome */
    const char *why;     /* its error report, or "" */
    /* sk_sweep_model_sum of the models it left and began with, as it ended; 0: not known */
    uint64_t final_sum, model_sum;
    sk_curve curve;
    double loss, val; /* final; NAN: none */
} sk_sweep_job;

typedef struct sk_sweep {
    sk_arena *arena;
    const char *dir, *file; /* file: NULL, or the FILE.yaml of all jobs */
    /* NULL, or a directory that may be moved with all in it: a job that began with a model below it
     * goes on with the model of that name in it now.  Whose bytes they are is asked elsewhere. */
    const char *home;
    const char **words; /* key=value that all jobs have */
    int n_words;
    const char **said; /* the words that jobs follow from, as they were written */
    int n_said;
    struct {
        sk_axis *v;
        int n, cap;
    } axes;
    struct {
        sk_sweep_job *v;
        int n, cap;
    } jobs;
    int64_t random; /* draws; 0: a grid */
    uint64_t seed;
} sk_sweep;

int sk_sweep_axis(const sk_sweep *s, const char *key); /* -1: no key of that name has many values */
/* Fill s->jobs from the axes. */
sk_status sk_sweep_expand(sk_sweep *s);
/* The job of these words: FILE.yaml and words of the sweep, `values` of its axes, and more words.
 */
sk_status sk_sweep_load(sk_sweep *s, const char *const *values, int n_more, char **more,
                        sk_job *out);

/* ---- what is kept */

bool sk_sweep_done(const sk_sweep_job *j);     /* with a model and losses */
bool sk_sweep_finished(const sk_sweep_job *j); /* nothing is left to do */
const char *sk_sweep_state(const sk_sweep_job *j);
/* sweep.json: the words to come back to a sweep with nothing but run=DIR. */
sk_status sk_sweep_save(const sk_sweep *s);
/* The words of DIR/COMMAND.json, of "sweep" or "swap". */
sk_status sk_sweep_recall(sk_arena *a, const char *command, const char *dir, char ***words, int *n);
/* Outcome, curve and final losses of a job, as they are on disk now. */
sk_status sk_sweep_look(sk_sweep *s, sk_sweep_job *j);
/* SK_ECREATE if the directory has jobs that are none of these: jobs.csv and sweep.json would lose
 * them. */
sk_status sk_sweep_has_all(sk_sweep *s);
/* Have job.yaml there; SK_ECREATE if there is one of another job. */
sk_status sk_sweep_keep(sk_sweep *s, const sk_sweep_job *j);
/* By the job's process: its streams are console.log, which is locked as long as it lives. */
void sk_sweep_streams(const char *dir);
void sk_sweep_outcome(const sk_sweep_job *j, sk_status code, const char *why);
/* By sk_sweep_look(): the outcome, the curve, and whether the job's files are as they were. */
sk_status sk_sweep_read_outcome(sk_sweep *s, sk_sweep_job *j);
/* Of the checksums.json of a model directory; 0: it has none. */
uint64_t sk_sweep_model_sum(sk_arena *a, const char *model);

/* ---- what is left over, by the holder of the lock */

/* NAME.tmp-PID of the files that a sweep writes, in its directory or in that of a job. */
void sk_sweep_remove_temporaries(const char *dir);
/* final/ of a job that is started again without a checkpoint: its last start met a full disk, or
 * died, between the model and the last checkpoint. */
sk_status sk_sweep_remove_orphan(sk_sweep *s, const sk_sweep_job *j, FILE *progress);

/* ---- running */

/* All jobs that are not finished, at most `at_once` at a time.  SK_ESTOP: a signal came. */
sk_status sk_sweep_run(sk_sweep *s, int at_once, FILE *progress);
/* Refuses the job if `train` would: compiles it, asks for its memory, opens its data. */
sk_status sk_sweep_rehearse(const sk_job *job);
/* DIR/LOCK, made with the directory.  SK_ECREATE if a sweep or swap is at work there. */
sk_status sk_sweep_lock(sk_arena *a, const char *command, const char *dir, FILE *progress, int *fd);
/* SK_EUSAGE if another launcher started this process as one of many. */
sk_status sk_sweep_alone(sk_arena *a, const char *command);

/* ---- results */

typedef struct sk_sweep_span {
    double least, most;
} sk_sweep_span;

typedef struct sk_sweep_group { /* jobs that differ in train.seed alone */
    sk_sweep_job **v;
    int n, n_done;
    double loss, loss_sd, val, val_sd;   /* over those that are done; NAN: none, or a single one */
    double tokens, seconds;              /* means */
    sk_sweep_span step_span, token_span; /* one that was trained further has more */
} sk_sweep_group;

typedef struct sk_sweep_groups {
    sk_sweep_group *v; /* the best first */
    int n;
    bool by_val; /* validation losses count: every job that is done has one */
} sk_sweep_groups;

sk_sweep_groups sk_sweep_group_jobs(sk_sweep *s);
double sk_sweep_score(const sk_sweep_groups *g, int i);   /* what groups are compared by */
double sk_sweep_sd(const double *x, int n, double *mean); /* NAN: fewer than two */
/* all: with every column, also one that is empty. */
sk_table sk_sweep_table(sk_sweep *s, const sk_sweep_groups *g, bool all);
sk_table sk_sweep_plan(sk_sweep *s, bool all); /* of --dry */
sk_status sk_sweep_csv(sk_sweep *s);           /* jobs.csv: one row a job */
/* "lr=0.001 batch=8": the axes but `but` (-1: all) and train.seed. */
const char *sk_sweep_label(const sk_sweep *s, const sk_sweep_job *j, int but);
const char *sk_sweep_short(const sk_sweep *s, int axis);
const char *sk_sweep_number(sk_arena *a, double x); /* "" if it is none */

/* ---- pictures, studies, fits */

void sk_sweep_draw(sk_sweep *s, const sk_sweep_groups *g, FILE *to);
sk_status sk_sweep_svg(sk_sweep *s, const sk_sweep_groups *g, const char *path);

sk_status sk_sweep_study(sk_sweep *s, const sk_sweep_groups *g, double target, const char *format);

typedef struct sk_sweep_predict { /* 0: not asked for */
    const char *words;            /* key=value, separated by blanks; NULL: none */
    double params, tokens, compute;
} sk_sweep_predict;
/* Before any job runs: SK_EDATA if all jobs together are too few points for the law. */
sk_status sk_sweep_may_fit(sk_sweep *s, const sk_sweep_predict *p);
sk_status sk_sweep_fit(sk_sweep *s, const sk_sweep_groups *g, const sk_sweep_predict *p,
                       const char *format);

#endif
