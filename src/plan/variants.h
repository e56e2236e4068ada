/* variants.h - the machine as each of its hosts sees it, where hosts are unlike (topology.h).
 * Private to plan/. */
#ifndef SK_PLAN_VARIANTS_H
#define SK_PLAN_VARIANTS_H

#include "plan/machine.h"

typedef struct sk_variants {
    struct {
        sk_machine *v;
        int n, cap;
    } machines;   /* the first is the machine itself */
    int *of;      /* by rank: which of them */
    double *slow; /* by rank: how many times as long its work takes */
} sk_variants;

/* Refuses slow ranks of the command line that are not there. */
sk_status sk_variants_make(sk_arena *a, const sk_machine *m, int n_ranks, sk_variants *out);

#endif
