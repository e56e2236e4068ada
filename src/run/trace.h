/* trace.h - a step as a timeline in Chrome's trace format, which Perfetto also reads.
 *
 * A process is a rank; its first thread is what the rank does, the others are the
 * bytes under way: one for each group, one for each stage that messages come from.
 * Slices of one thread never overlap: times are rounded to 1/64 of a microsecond,
 * which adds up exactly in binary.  The same writer serves simulations (plan/simulator.h) and the
 * times of a real run (sk_run_times). */
#ifndef SK_RUN_TRACE_H
#define SK_RUN_TRACE_H

#include "program/program.h"

#include <stdio.h>

typedef struct sk_trace_rank {
    const sk_program *program;
    int rank, ranks;           /* ranks: how many it stands for */
    const double *times;       /* [2 * n]: start and end of each instruction, seconds */
    const double *moving;      /* the same of the bytes of WAIT and RECV; NULL: not known */
    int n;                     /* instructions */
    const char *const *joined; /* by instruction: the name of a launch for several, or NULL; NULL:
                                  there are none */
} sk_trace_rank;

/* Seconds are counted from `begin`. */
sk_status sk_trace_write(FILE *to, const sk_trace_rank *ranks, int n, double begin);
/* One rank's events alone: such pieces, with commas between them, make a trace inside
 * SK_TRACE_HEAD and SK_TRACE_TAIL. */
#define SK_TRACE_HEAD "{\"displayTimeUnit\":\"ms\",\"traceEvents\":["
#define SK_TRACE_TAIL "\n]}\n"
sk_status sk_trace_piece(FILE *to, const sk_trace_rank *rank, double begin);

#endif
