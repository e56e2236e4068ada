/* loop_state.h - the training loop of one rank: its state, and what its files do for each other.
 *
 *     loop.c            the order of everything: steps, validation, saves, exports, the end
 *     loop_open.c       opening the run of a rank; another layout between two steps
 *     loop_peak.c       GPUs, and the peak flops that MFU is over
 *     loop_load.c       what a run begins from: init, a model directory, a checkpoint
 *     loop_step.c       a step, its decision, its report; validation
 *     loop_timed.c      whose gradients make a step: the log, its replay, a rank that was late
 *     loop_replicas.c   replicas that run apart: when they meet, and what they tell each other
 *     loop_nonfinite.c  numbers that are not finite: stop, skip, roll back
 *     loop_save.c       checkpoints
 *     loop_export.c     model directories, for samples and for others
 *
 * Private to these files and to range_test.c, a training without a launcher.  Functions that return
 * sk_status are called by all ranks together, unless their comment says otherwise. */
#ifndef SK_TRAIN_LOOP_STATE_H
#define SK_TRAIN_LOOP_STATE_H

#include "run/flight.h"
#include "run/run.h"
#include "train/commit_log.h"
#include "train/loop.h"
#include "train/loss_scale.h"
#include "train/lr_schedule.h"
#include "train/metrics.h"
#include "train/noise_scale.h"
#include "train/save_interval.h"

struct sk_rank_report; /* loop_save.c */

typedef struct sk_loop_told { /* a step that was done */
    sk_step_in in;
    sk_step_out out;
    double seconds, at; /* it took; sk_now() at its end */
} sk_loop_told;

typedef struct sk_loop {
    const sk_training *t;
    const sk_setup *s; /* of the phase */
    int phase;         /* train/relayout.h */
    sk_channel *channel;
    int rank;
    sk_arena arena;        /* of this rank */
    sk_arena life;         /* of the phase: run and boxes */
    const sk_program *own; /* of the phase */
    sk_run *run;
    sk_run *fallback;                   /* with room for all choices (fallback.h); NULL: none */
    sk_flight_book book, fallback_book; /* the text of instructions, for error reports */
    sk_lr_schedule lr_schedule;
    sk_loss_scale scale;
    int64_t shift;   /* of the samples of this phase: sk_feed.shift */
    int64_t changed; /* steps done when the batch last changed */
    int want;        /* the phase of the next step, if the noise scale says it */
    sk_noise_scale noise;
    double gain;     /* of the step under way: AdaScale, or 1 */
    double progress; /* of the schedule, in steps: `done`, with AdaScale more */
    sk_skipped_batches skipped_batches;
    int64_t rollback_step; /* of the checkpoint that the run rolled back to last; -1: never */
    int rollbacks;
    int rollbacks_in_row; /* of these, to `rollback_step` without another one in between */
    int64_t done;         /* steps */
    sk_validation val;    /* the last; not one of an earlier start */
    bool ended;           /* by a validation: val.stop_loss, val.stop_accuracy */
    bool owed;            /* stopped before what is due behind the step */
    int64_t tried;        /* the step of the last save that was tried, alike on all ranks */
    int64_t saved;        /* rank 0: the step of the newest checkpoint; -1: none */
    double tokens;
    int64_t updates;      /* of the optimizer */
    sk_loop_told *untold; /* loop_replicas.c: steps whose numbers other replicas do not know yet */
    int n_untold;
    int64_t meeting;        /* the step behind which ranks meet next */
    int64_t met;            /* rank 0: the step of the last meeting */
    double met_at;          /* rank 0: when it was over */
    double started;         /* when the loop began */
    double second_at;       /* when its second step began */
    sk_tensor_shard *boxes; /* parameters first, then state */
    int n_boxes, n_model;
    int64_t save_bytes;             /* of a checkpoint, all ranks */
    struct sk_rank_report *reports; /* rank 0: of all ranks, on a save */
    int bad_saves;                  /* in a row */
    char why_not[SK_WHY];           /* rank 0: why the last save failed */
    sk_save_interval save_interval; /* rank 0: of saves by the clock */
    double clock_rate;              /* how fast that clock runs: 1 except in tests */
    double step_s;                  /* the last step took */
    bool told_late;                 /* the warning about late saves was given */
    sk_commit_log commit_log;       /* sync=backup */
    sk_commits replay;              /* and what is replayed; n 0: nothing */
    sk_metrics metrics;             /* rank 0 */
    bool on_gpu;
    sk_nvml gpu;       /* rank 0: as it was at `gpu_polled` */
    double gpu_polled; /* sk_now(); 0: never */
    char uuid[48];     /* of its GPU */
} sk_loop;

/* loop_state.c */
void sk_loop_note(sk_loop *l, sk_record_kind kind, const char *text); /* to the console */
int sk_loop_host_of(const sk_loop *l, int rank);
int sk_loop_place_on_host(const sk_loop *l); /* ranks of its host that come before this one */
int sk_loop_ranks_on_host(const sk_loop *l); /* ranks of its host */
/* For sk_comm_small_gather: on rank 0, which reads them, room for `bytes` of every rank; else NULL.
 */
void *sk_loop_gather_buffer(sk_loop *l, size_t bytes);
int64_t sk_loop_box_bytes(const sk_tensor_shard *b); /* 0: this rank does not own it */
bool sk_loop_all_finite(const sk_tensor_shard *b);

/* loop_open.c */
void sk_loop_enter_phase(sk_loop *l, int phase);
sk_status sk_loop_open_run(sk_loop *l);
void sk_loop_close_run(sk_loop *l);
void sk_loop_clear_flight(sk_loop *l); /* before another program runs */
sk_status sk_loop_change_layout(sk_loop *l);
int sk_loop_next_phase(const sk_loop *l);
int64_t sk_loop_samples(const sk_loop *l); /* the first sample of the next step */

/* loop_peak.c */
sk_status sk_loop_detect_gpus(sk_loop *l);
sk_status sk_loop_find_peak(sk_loop *l);
void sk_loop_report_memory(sk_loop *l);
void sk_loop_poll_gpu(sk_loop *l);

/* loop_load.c */
sk_status sk_loop_first_weights(sk_loop *l);
sk_status sk_loop_fresh_weights(sk_loop *l); /* those of step 0; a barrier must follow */
sk_status sk_loop_load_state(sk_loop *l, const sk_training *t);

/* loop_step.c */
sk_status sk_loop_execute(sk_loop *l, const sk_step_in *in, sk_step_out *out);
sk_status sk_loop_step(sk_loop *l);
sk_status sk_loop_decision(sk_loop *l, sk_decision *d);
sk_decision sk_loop_decide(const sk_loop *l); /* rank 0: as things are now */
/* What is told of a step whose numbers are those of all ranks: tokens, files, the record. */
sk_status sk_loop_account(sk_loop *l, const sk_loop_told *x);
sk_status sk_loop_validate(sk_loop *l);

/* What a step reads; and all that follows a step: its numbers, counts and report. */
sk_step_in sk_loop_step_in(sk_loop *l);
sk_status sk_loop_end_step(sk_loop *l, const sk_loop_told *x);

/* loop_timed.c */
bool sk_loop_is_timed(const sk_loop *l);
bool sk_loop_is_stale(const sk_loop *l); /* sync=ssp */
sk_status sk_loop_settle(sk_loop *l);    /* where all ranks meet; else nothing */
/* A replay of sync=ssp: had all ranks of its run done so many steps before any began the next? */
bool sk_loop_may_meet(const sk_loop *l, int64_t done);
/* loop.c: is a validation, a checkpoint or a sample due there, by the number of steps? */
bool sk_loop_meets_at(const sk_loop *l, int64_t done);
sk_decision sk_loop_meeting(const sk_loop *l); /* in place of a decision: behind this step */
sk_commit_opts sk_loop_commit_opts(sk_loop *l);
sk_status sk_loop_open_log(sk_loop *l);
/* The step that began at `start`, and perhaps others, were made without this rank. */
sk_status sk_loop_catch_up(sk_loop *l, double start);

/* loop_replicas.c */
bool sk_loop_apart(const sk_loop *l);
/* Is it a step that each replica makes alone?  Steps before these have the sums of all. */
bool sk_loop_alone(const sk_loop *l, int64_t step);
sk_status sk_loop_keep_step(sk_loop *l, const sk_loop_told *x); /* until it is told */
sk_status sk_loop_tell(sk_loop *l);                             /* all that is untold */
/* The decision behind the step, if ranks meet there; else that nothing changes. */
sk_status sk_loop_meet(sk_loop *l, sk_decision *d);

/* loop_nonfinite.c.  The run may have rolled back afterwards: l->rollbacks tells. */
sk_status sk_loop_check_numbers(sk_loop *l, int64_t step, const sk_step_out *out);
sk_status sk_loop_own_numbers(sk_loop *l, const sk_step_out *out); /* of a replica that is apart */
sk_status sk_loop_bad_state(sk_loop *l, const char *what);

/* loop_save.c */
sk_status sk_loop_save(sk_loop *l); /* the run may have rolled back afterwards */
double sk_loop_clock(const sk_loop *l);
void sk_loop_after_save(sk_loop *l, double began); /* rank 0 */

/* loop_backward.c: what train.backward tells of the step, for its record (rank 0); and its file. */
sk_status sk_loop_backward_sums(sk_loop *l, const sk_loop_told *t, sk_backward_sums *b);
sk_status sk_loop_backward_file(sk_loop *l, const sk_step_in *in, const sk_step_out *out);

/* loop_export.c */
sk_status sk_loop_export(sk_loop *l, const char *name, sk_record_kind kind);

#endif
