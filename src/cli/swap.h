/* swap.h - stochastic weight averaging in parallel (Gupta, Serrano, DeCoste 2020); between the
 * files of `skein swap`.
 *
 *     phase 1   one training with large batches
 *     phase 2   workers that go on from its weights, each on its own: small batches, another seed
 *     phase 3   the mean of the workers' weights; all models are validated on all of data.val
 *
 * Every phase is a sweep (sweep.h) below the directory of the swap, and so resumed and skipped as
 * its jobs are:
 *
 *     LOCK                 held while it runs: sk_sweep_lock
 *     swap.json            the words that made it; once all is done, the rows of the table
 *     large/job/           phase 1, a run directory
 *     small/start          the step and the checksums of the model that workers begin with
 *     small/seed=2/ ...    phase 2: train.seed of phase 1 and so on
 *     average-4/           the mean of 4 workers, a model directory
 *     average-4.models     which models it is the mean of
 *     val/model=.../       a validation alone (train.steps=0) of each model
 *
 * Phases name models by the real path of the directory: a swap goes on under any spelling of
 * run=DIR, from any working directory.  One that was renamed or copied goes on with the models that
 * it has now, which are held to their sums as ever. */
#ifndef SK_CLI_SWAP_H
#define SK_CLI_SWAP_H

#include "base/file_io.h"
#include "cli/sweep.h"

typedef struct sk_swap {
    sk_arena *arena;
    const char *dir, *file; /* file: NULL, or the FILE.yaml of all phases */
    const char *real;       /* the real path of dir, once it is there */
    const char **words;     /* key=value that all phases have */
    int n_words;
    const char **large, **small; /* those of phases 1 and 2 */
    int n_large, n_small;
    const char **said; /* the words that all follows from, as they were written */
    int n_said;
    int workers, at_once;
    FILE *progress;
    sk_sweep one, two, three; /* the phases; jobs of three: large, workers, average */
    const char *average;      /* the model directory of phase 3 */
} sk_swap;

/* What phase 1, 2 or 3 trains or validates, without the models that are not there before it. */
void sk_swap_phase(sk_swap *w, sk_sweep *s, int phase);
/* Refuses what any of the phases would refuse; nothing if phase 1 has ended already. */
sk_status sk_swap_check(sk_swap *w);
/* small/start, empty before the first worker begins.  SK_EDATA: lost or damaged, before phase 1 is
 * trained again for nothing. */
sk_status sk_swap_recall_start(sk_swap *w, sk_text *was);
/* Notes the model that workers begin with.  SK_EDATA: they began with another one. */
sk_status sk_swap_start(sk_swap *w);
/* swap_models.c: SK_EDATA if models that were trained, averaged or validated are others now. */
sk_status sk_swap_trained(sk_swap *w, const sk_sweep *s);
sk_status sk_swap_note_average(sk_swap *w); /* before it is written */
sk_status sk_swap_averaged(sk_swap *w);
sk_status sk_swap_validated(sk_swap *w);
/* All that is not done yet.  SK_ESTOP: a signal came. */
sk_status sk_swap_run(sk_swap *w);
/* The table, and swap.json with its rows. */
sk_table sk_swap_table(sk_swap *w);
sk_status sk_swap_save(sk_swap *w, const sk_table *rows); /* rows NULL: none so far */
/* What the numbers say, for people. */
void sk_swap_tell(sk_swap *w, FILE *to);

#endif
