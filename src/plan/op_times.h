/* ops.h - where the time of a step goes, op by op.
 *
 * Ranks run as in sk_time_steps, but traced; every launch of a step is one of a kind: an op, what
 * several ops were joined to on a GPU, or another act of the engine.  Times are by the clock of
 * whoever does the work: on a GPU between marks in the stream, which also has the waits for other
 * streams.  Bytes are those of the operands as they are planned, read or written once each, and of
 * exchanges those that leave the rank: an op that picks rows of a table counts all of it. */
#ifndef SK_PLAN_OP_TIMES_H
#define SK_PLAN_OP_TIMES_H

#include "run/run.h"

enum { SK_OP_TIMES = 256, SK_OP_NAME = 160, SK_OP_KERNEL = 32 };

typedef struct sk_op_time {    /* of one step of a rank, the mean over steps and ranks */
    char name[SK_OP_NAME];     /* "layernorm"; with shapes "layernorm B 16x1024x768 768" */
    char kernel[SK_OP_KERNEL]; /* of ops on a GPU: "cuDNN", "cuBLASLt", "flash", "own"; else "" */
    double launches, seconds, flops, bytes;
} sk_op_time;

typedef struct sk_op_times {
    double seconds; /* of a traced step, as the host sees it */
    int n;
    sk_op_time v[SK_OP_TIMES]; /* longest first; the last has all that found no place */
} sk_op_times;

sk_status sk_time_ops(const sk_program *const *programs, const sk_run_opts *o, double lr, int steps,
                      bool shapes, sk_op_times *out);

#endif
