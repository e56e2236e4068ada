/* launch_kind.h - what a launch of a program is to a machine: a product, attention, or a kernel of
 * some name that moves bytes.  What is measured (machine_fit.h) and what is priced (simulator.h)
 * are named and counted by the same function. */
#ifndef SK_PLAN_LAUNCH_KIND_H
#define SK_PLAN_LAUNCH_KIND_H

#include "program/program.h"

typedef struct sk_launch_kind {
    const char *name;      /* of the fusion, the op, the optimizer, or of the instruction's act */
    sk_dtype type;         /* of its first operand */
    int n_shaped;          /* instructions in it that are products or attention */
    sk_kernel_shape shape; /* of the last of these */
    double flops;
    int64_t bytes;
} sk_launch_kind;

/* Of the launch that stands at instruction pc.  False: it is part of one that stands elsewhere. */
bool sk_launch_kind_of(const sk_program *p, int pc, sk_launch_kind *out);

#endif
