/* rate_groups.h - optim.groups for another optim.lr, with the ratios of all rates as they were.
 *
 *     optim.lr=1e-3 optim.groups="matrix: muon lr=0.02 momentum=0.9, rest: adamw"
 *     sk_rate_groups(a, job, 2e-3)  ->  "matrix: muon lr=0.04 momentum=0.9, rest: adamw"
 */
#ifndef SK_CLI_RATE_GROUPS_H
#define SK_CLI_RATE_GROUPS_H

#include "train/job.h"

/* The text with all rates that do not follow optim.lr by themselves; NULL: there are none. */
char *sk_rate_groups(sk_arena *a, const sk_job *job, double lr);

#endif
