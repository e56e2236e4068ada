/* goodput_job.h - a job on some number of GPUs, for `skein goodput`: its step, and what its
 * checkpoints hold. */
#ifndef SK_CLI_GOODPUT_JOB_H
#define SK_CLI_GOODPUT_JOB_H

#include "plan/machine.h"
#include "train/job.h"

enum { SK_GOODPUT_SIZES = 256 };

typedef struct sk_goodput_size {
    int gpus, hosts, replicas;
    double step, tokens; /* seconds, tokens of a step */
    int64_t state;       /* bytes of a checkpoint: each element once */
    int64_t written;     /* of them by the rank that writes the most */
    int64_t read;        /* by the rank that reads the most, and by all ranks */
    double read_all;
    int64_t memory;             /* of the fullest rank */
    const char *layout, *title; /* to be read again; for people */
    bool fits;                  /* or the memory of the machine is not known */
} sk_goodput_size;

/* gpus 0: as many as the job has; else its layout with more or fewer replicas along the axis `dp`,
 * or the one that splits the batch alone. */
sk_status sk_goodput_size_of(sk_arena *a, const sk_job *job, const sk_machine *m, int gpus,
                             sk_goodput_size *out);
/* "1..64": those that the layout can have, each twice the one before, and the last; "8,24,32":
 * exactly these.  Ascending, at most SK_GOODPUT_SIZES. */
sk_status sk_goodput_sizes(sk_arena *a, const sk_job *job, const char *text, int *sizes, int *n);

#endif
