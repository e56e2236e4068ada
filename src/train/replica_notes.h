/* replica_notes.h - the numbers of a step, as replicas that run apart (sk_program.apart) tell them
 * to each other afterwards, and what a step of all of them reports.
 *
 * The loss is the mean over the tokens of all replicas, each with weights of its own; the norm is
 * the root of the mean square of theirs, each weighed by its tokens.  One that is not finite makes
 * the step of all not finite. */
#ifndef SK_TRAIN_REPLICA_NOTES_H
#define SK_TRAIN_REPLICA_NOTES_H

#include "run/run.h"

typedef struct sk_replica_note {
    double loss, tokens, norm, aux, drops;
} sk_replica_note;

sk_replica_note sk_replica_note_of(const sk_step_out *x);
/* v[i * stride]: of replica i, of n.  The other members of *to stay as they are. */
void sk_replica_notes_join(const sk_replica_note *v, int n, int stride, sk_step_out *to);

#endif
