/* model_export.h - models out of running heaps, checkpoints and directories, as Hugging Face
 * directories.
 *
 * sk_export_boxes() reads the memory of all ranks, so they must stand still: rank 0
 * calls it between two barriers. */
#ifndef SK_TRAIN_MODEL_EXPORT_H
#define SK_TRAIN_MODEL_EXPORT_H

#include "comm/comm.h"
#include "train/checkpoint.h"
#include "train/companions.h"
#include "train/noise_scale.h"
#include "train/setup.h"
#include "train/skipped_batches.h"
#include "train/validation.h"
#include "train/batch_schedule.h"

/* Parameters to the front: the graph has them by name, the optimizer's state it has not.  Returns
 * how many there are. */
int sk_shards_sort(const sk_graph *g, sk_tensor_shard *boxes, int n);

/* boxes[r], n[r]: what rank r keeps (sk_program_shards).  `tokens`: a directory with what goes with
 * the tokenizer (companions.h); it may be missing. */
sk_status sk_export_boxes(sk_arena *a, const sk_setup *s, sk_tensor_shard *const *boxes,
                          const int *n, const char *tokens, const char *dir);
/* `tokenizer`: as data.tokenizer names it; "" writes none; NULL: the run's, with what it kept.
 * `averages`: those of its weights where it has them (sk_hf_ckpt_averages), not the weights. */
sk_status sk_export_checkpoint(sk_arena *a, const sk_ckpt *c, const char *tokenizer, sk_dtype type,
                               bool averages, const char *dir);
/* Out of another model directory; `tokenizer` as above, "" copies its own if it has one. */
sk_status sk_export_model(sk_arena *a, const char *from, const char *tokenizer, sk_dtype type,
                          const char *dir, sk_hyper *hyper);
/* What either takes along with the weights; `tokenizer` as above. */
sk_status sk_export_checkpoint_tokens(sk_arena *a, const sk_ckpt *c, const char *tokenizer,
                                      sk_companions *out);
sk_status sk_export_model_tokens(sk_arena *a, const char *from, const char *tokenizer,
                                 const sk_hyper *hyper, sk_companions *out);
/* SK_ECREATE: both are one directory. */
sk_status sk_export_apart(const char *from, const char *to);
/* What checkpoint.extra holds of a run: its number of steps, the updates so far (more than steps
 * where stages update asynchronously), the loss scale and the skipped steps (loss_scale.h), skipped
 * batches, what it reads in which order, and its tokenizer. */
typedef struct sk_extra {
    int64_t steps, updates, good, skipped;
    bool pending; /* the last step's gradient waits for a late optimizer */
    double scale;
    sk_noise_scale noise; /* weight 0: not measured; and then progress is not said */
    double progress;      /* of the schedule, in steps */
    sk_validation val;    /* behind the last step; printed if it is of that step */
    bool owed;            /* a validation or a sample that was due behind it was left out */
    sk_skipped_batches skipped_batches;
    const char *data; /* sk_store_digest; "": not said */
    /* Which windows a step reads: 0 and "" are not said, by a checkpoint that is older than these.
     */
    int64_t batch, seq, windows;
    const char *order;
    sk_batch_state next;   /* what the next step reads; its .batch and .index are not printed */
    const char *tokenizer; /* "": none */
} sk_extra;
char *sk_extra_print(sk_arena *a, const sk_extra *x);
/* `where` for messages; what is not said is 0, updates are one a step then. */
sk_status sk_extra_read(sk_arena *a, const char *where, const char *text, int64_t step,
                        sk_extra *out);
const char *sk_extra_tokenizer(const char *extra); /* "": none */

#endif
