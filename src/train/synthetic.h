/* synthetic.h - synthetic inputs: numbers from (step, row, column), the same under any layout.  For
 * measuring steps without data. */
#ifndef SK_TRAIN_SYNTHETIC_H
#define SK_TRAIN_SYNTHETIC_H

#include "run/run.h"
#include "train/job.h"

/* For sk_run_opts.fill; ctx is the sk_job. */
sk_status sk_synthetic_fill(void *ctx, const char *input, sk_dtype type, const sk_extent *box,
                            int64_t step, bool validation, void *to);

#endif
