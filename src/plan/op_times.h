/* op_times.h - where the time of a step goes, op by op.
 *
 * Ranks run as in sk_time_steps, but traced.  Every launch of a step is counted under a name: an
 * op, a fusion of several ops on a GPU, or another instruction.  Steps are whole intervals, too:
 * what runs in some of them has the mean.  On a GPU times are those between
 * events in the stream, and include waits for other streams.  Bytes are those of the operands as
 * they are planned, each read or written once; of communication, those that leave the rank.  An op
 * that picks rows of a table counts all of the table. */
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
