/* metrics.h - metrics.jsonl: one JSON object a line, written by rank 0 as it happens.
 *
 *     {"step":12,"loss":5.1,"grad_norm":2.2,"lr":0.0006,"tokens":9216,"ms":21.3,"tok_s":36056,
 *      "mfu":0.41,"mem_bytes":22544384,"exposed_pct":1.6,"scale":1,"skipped":0,"left_out":0}
 *     {"step":12,"val_loss":5.2}
 *
 * lr is the rate of optim.lr by schedule; with optim.groups, that of the first group that has
 * parameters, whichever rates the others have.
 *
 * Validations of a classifier have "val_accuracy":0.871 behind it: the part of samples whose class
 * has the largest logit.
 *
 * A model with experts has more in the lines of its steps, behind the rest:
 *
 *     "aux":0.0103,"drops":37,"drop_pct":1.2,"again":1
 *
 * the auxiliary loss, choices of experts that found no room, their part of all choices
 * of the step, and with train.dropless whether it was run again with room for all;
 * drops are those of the try then, and nothing was lost.  A layout with gist=N has
 * "again" too.
 *
 * A schedule of the learning rate that sets the momentum of steps too (onecycle) has
 *
 *     "momentum":0.91
 *
 * And a run that has something outside of its device:
 *
 *     "copy_ms":12.5,"copy_hidden_pct":93.1
 *
 * how long copies between memories took on rank 0, and how much of that it did not wait for.
 *
 * And one with train.noise:
 *
 *     "grad_var":3.1,"noise_scale":41.7
 *
 * tr(Sigma) of the gradient of one sample, as this step saw it, and the ratio of its average over
 * steps to that of |G|^2, in samples (noise_scale.h).  With optim.adascale behind them
 *
 *     "gain":3.2
 *
 * how many steps of the smaller batch this one counted for; lr has it as a factor.
 *
 * And one with train.batch_schedule:
 *
 *     "batch":64
 *
 * the samples of the step.  Before the first step with another batch there is a line of its own,
 * with the number of steps done: {"step":100,"batch":64}.
 *
 * And one with sync=backup, of a step that some ranks were late for:
 *
 *     "dropped":1
 *
 * how many; commits.jsonl has which (commit_log.h).
 *
 * And one with train.backward, as far as it is asked for (backward_outputs.h):
 *
 *     "sample_norm_mean":0.071,"sample_norm_max":0.12,"sample_variance":3.1,
 *     "ggn_trace":41.5,"ggn_mc_trace":40.2
 *
 * And one on a GPU, where the driver tells (device/nvml.h), at most every few seconds anew, of rank
 * 0's GPU and all who use it:
 *
 *     "gpu_mem":80530636800,"gpu_util":98,"gpu_watt":641.2
 *
 * bytes in use, percent of the time in which a kernel ran, watts.
 *
 * step counts from 1; tokens is the sum since the beginning of the training; mfu
 * is a fraction: flops of the model's graph (forward and backward, once, whatever
 * is recomputed or replicated) per second, over the peak of all that is used: of a GPU the data
 * sheet's (device/device.h), of a CPU the highest rate of matrix products that was ever measured on
 * its cores (host_peak.h); null if that is not known or rank 0, whose clock it is, has no work;
 * exposed_pct is the part of the step in which rank 0 waited for others or moved bytes; both are
 * null in a step that was made without rank 0 (sync=backup), which has its own clock alone; scale
 * is the factor of gradients in this step (loss_scale.h); skipped counts steps that changed
 * nothing, left_out batches that are not used (skipped_batches.h), since the beginning.  A number
 * that is not finite is null.
 *
 * Nothing is lost: when a run begins anew in a directory, is resumed or goes back, the lines of
 * steps that are done again go to metrics.jsonl.1, or .2 and so on, before they are cut off here. A
 * line that cannot be written is told once and costs no step. */
#ifndef SK_TRAIN_METRICS_H
#define SK_TRAIN_METRICS_H

#include "train/launcher_channel.h"

typedef struct sk_metrics {
    int fd; /* -1: closed */
    int64_t mem_bytes;
    bool told;        /* that writing failed */
    char aside[64];   /* the file that took the lines of steps that are done again; "": none did */
    int64_t n_again;  /* how many steps these are */
    double again_s;   /* and the seconds they took */
    int64_t val_step; /* of the validation that the last step has a line of; -1: none */
    double val_loss;
    char why[SK_WHY];
} sk_metrics;

bool sk_metrics_batch(sk_metrics *m, int64_t done, int64_t batch); /* it changes now */
/* Keep the lines of the first `done` steps of what is there; the rest goes aside. */
sk_status sk_metrics_open(sk_metrics *m, const char *path, int64_t mem_bytes, int64_t done);
void sk_metrics_close(sk_metrics *m);

typedef struct sk_choices { /* of experts, in a step */
    double aux, drops, all; /* all 0: the model has no experts */
    bool twice, again;      /* steps may be run again; this one was */
} sk_choices;

/* False, with `why`, the first time that writing fails. */
bool sk_metrics_step(sk_metrics *m, const sk_record *r, double tokens, const sk_choices *c);
/* A validation that is made again, by a run that died between its last checkpoint and its end, has
 * its line already; one of other data or batches is told by its loss. */
bool sk_metrics_val(sk_metrics *m, const sk_record *r);

#endif
