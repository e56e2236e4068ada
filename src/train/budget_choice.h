/* budget_choice.h - the fastest layout of a job that fits into its budget (plan/budget.h), chosen
 * before the start. */
#ifndef SK_TRAIN_BUDGET_CHOICE_H
#define SK_TRAIN_BUDGET_CHOICE_H

#include "plan/budget.h"
#include "train/setup.h"

/* The options of a setup that has a layout and a graph. */
sk_status sk_setup_options(sk_setup *s, const sk_machine *m, int64_t bytes,
                           sk_budget_option **options, int *n);
/* Takes the first that fits into job->budget for its layout; an error report if none does. */
sk_status sk_budget_choose(sk_setup *s);

#endif
