/* ranks.h - for tests: compile a model under a layout, run it on threads, keep the losses. */
#ifndef SK_TEST_RANKS_H
#define SK_TEST_RANKS_H

#include "graph/model.h"
#include "program/program.h"
#include "run/run.h"

enum { SK_TEST_STEPS = 32, SK_TEST_RANKS = 64 };

typedef struct sk_trial {
    const sk_model *model;
    sk_hyper hyper;
    int64_t batch, seq;
    const char *layout;
    const char *optim;         /* NULL: adamw */
    const sk_optim *own_optim; /* one that is on no shelf */
    int n_micro;               /* 0: the layout's */
    int threads, steps;
    int64_t bucket_bytes;
    double clip;
    /* results */
    double loss[SK_TEST_STEPS], norm[SK_TEST_STEPS], valid;
    int64_t heap_bytes[SK_TEST_RANKS];
    int n_ranks;
} sk_trial;

/* A graph with its gradient, in the arena. */
sk_status sk_trial_graph(sk_arena *a, const sk_trial *t, sk_graph *g);
/* Programs of all ranks under the trial's layout, verified. */
sk_status sk_trial_compile(sk_arena *a, const sk_trial *t, sk_graph *g, sk_program ***programs,
                           int *n_ranks);
/* Run it: ranks are threads of this process.  Data are made up from (step, row, column). */
sk_status sk_trial_run(sk_trial *t);

#endif
