/* validation.h - the numbers of a validation, and whether a run ends at them.
 *
 * A checkpoint has those of the validation behind its step, so a run that ended there is known to
 * be over when it is resumed, as long as val.stop_loss and val.stop_accuracy say so. */
#ifndef SK_TRAIN_VALIDATION_H
#define SK_TRAIN_VALIDATION_H

#include "train/job.h"

typedef struct sk_validation {
    int64_t step;          /* steps that were done; 0: there is none */
    double loss, accuracy; /* accuracy: below 0 or not a number where there are no classes */
} sk_validation;

static inline bool sk_validation_ends(const sk_validation *v, const sk_job *job)
{
    return v->step && ((job->stop_loss > 0 && v->loss <= job->stop_loss) ||
                       (job->stop_accuracy > 0 && v->accuracy >= job->stop_accuracy));
}

#endif
