/* peak.h - where a program needs the most memory, and what lies there then.
 *
 * Weights, gradients, state and tables are always there.  Results come and go; they share one
 * region of the heap, which is as large as the packing of program/memory.c makes it.  The peak is
 * the instruction at which most bytes of them live; what the region has beyond that is lost. */
#ifndef SK_PLAN_PEAK_H
#define SK_PLAN_PEAK_H

#include "program/program.h"

enum { SK_PEAK_NAMES = 4 };

typedef struct sk_peak {
    int pc;         /* -1: nothing comes and goes */
    int64_t live;   /* bytes of results at that instruction */
    int64_t region; /* that they have in the heap */
    int n;          /* the largest, by the op that made them, those of one together */
    struct {
        char name[32];
        int64_t bytes;
        int pieces;
    } top[SK_PEAK_NAMES];
} sk_peak;

void sk_peak_find(const sk_program *p, sk_peak *out);

#endif
