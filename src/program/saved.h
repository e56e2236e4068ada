/* saved.h - the saved set: what one task saves for a later one of the same micro-batch.
 *
 * A task is the forward pass of a chunk (F), its backward pass (B), or one half of it (I, W).  A
 * record says which tensor a task saves, in which state, in which form, and for which task:
 *
 *     saved bias.5 "bthsd" h/tp, as made, F0 -> I0
 *     saved residual.8 "btc" t/tp, a shard, F0 -> I0
 *     saved residual.8 "btc" whole, gathered, I0 -> W0
 *
 * Invariant: when a task is written, the tensors of its micro-batch that are available and that it
 * did not compute are those of records for it or for later tasks (sk_keep_saved).  So every
 * decision about saved activations is a form of a record, and nothing else:
 *
 *     recompute=full   a block reads what goes from block to block as made, never a gathered copy
 *     partition        a shard (saved_pieces.c) of a replicated tensor
 *     gist             signs or zeros (saved_packed.c)
 *     keep             a gathered weight (param_gathers.c), unless the backward pass reads another
 *                      version of it */
#ifndef SK_PROGRAM_SAVED_H
#define SK_PROGRAM_SAVED_H

#include "layout/layout.h"
#include "program/pipeline_schedule.h"

typedef enum sk_form {
    SK_AS_MADE,  /* as its node computes it, reduced over ranks or not, or as received */
    SK_PIECE,    /* split over axes whose ranks would all save the same */
    SK_SIGNS,    /* a bit an element: is it above 0? */
    SK_ZEROS,    /* a bit an element, and space for those that are not 0 */
    SK_GATHERED, /* a copy in the state that a reader needed: gathered, or split */
    SK_N_FORMS
} sk_form;
extern const char *const sk_form_names[SK_N_FORMS];

typedef struct sk_saved {
    const sk_tensor *tensor;
    sk_state state; /* of what is saved; of packed forms, before packing */
    sk_form form;
    sk_task from, to; /* chunk and work */
    int next;         /* another record of the tensor, or -1 */
} sk_saved;

typedef struct sk_saved_set {
    sk_saved *v;
    int n, cap;
    int *first; /* tensor id -> 1 + its first record; 0: it is not saved */
} sk_saved_set;

#endif
