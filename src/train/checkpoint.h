/* checkpoint.h - saving logical tensors so that a crash never costs more than the last step saved,
 * and reading them back under any other layout.
 *
 *     run/ckpt/
 *       LOCK                        flock and {"generation":17,"host":...,"pid":...,"start":...}
 *       step-0000001200/            committed
 *         MANIFEST.json             manifest.h
 *         m-00000.safetensors ...   parameters, one file per rank that owns any
 *         o-00000.safetensors ...   optimizer state and the like
 *       tmp-0000001205-g17-<nonce>/ in progress; swept away by the next holder of the lock
 *       trash-...                   on its way out
 *       LATEST                      a hint for people; never read
 *
 * Shards are plain safetensors.  A tensor in them is a box of a logical tensor
 * under the key `name@o0,o1:e0,e1`: offsets of the box, then its sizes, in the
 * order of the dims; or the bare name when the box is the whole tensor.
 *
 * Saving has phases, so that the train loop can put barriers between them:
 *
 *     rank 0      sk_ckpt_begin(home, step, bytes, name)        then broadcast name
 *     every rank  sk_ckpt_write_rank(dir, name, rank, &share, &report)   then gather reports
 *     rank 0      sk_ckpt_commit(home, name, ranks, &state)     all reports good
 *            or   sk_ckpt_abandon(home, name)                   else
 *     rank 0      sk_ckpt_retain(home, keep)
 *
 * Nothing is visible under its final name before every byte of it and the
 * directory itself are synced; the rename is the commit, and the sync of the
 * parent its receipt.  Whatever fails (a full disk first of all) fails with
 * SK_EIO, takes its temporary files with it, and leaves every older checkpoint
 * as it was.  A failed fsync is final for that save: nothing is retried.
 *
 * Reading looks at nothing that a manifest does not name, verifies the CRC of
 * every 4 MiB chunk before a byte of it reaches a tensor, and fills asked boxes
 * by intersection with stored ones: every element comes from exactly one place
 * or the load fails.  Only rank 0 should look into the directory
 * (sk_ckpt_find); the others get the path by message. */
#ifndef SK_TRAIN_CHECKPOINT_H
#define SK_TRAIN_CHECKPOINT_H

#include "train/manifest.h"

#include <limits.h>

enum { SK_CKPT_NAME = 64, SK_CKPT_TRIES = 3 };

/* ---- the directory and its lock: rank 0 only ---- */

typedef struct sk_ckpt_dir sk_ckpt_dir;
/* Make the directory if needed, take its lock and sweep what a dead run left behind.  SK_ECREATE
 * naming the holder if somebody has it.  The lock dies with the process. */
sk_status sk_ckpt_open(const char *dir, sk_ckpt_dir **out);
void sk_ckpt_close(sk_ckpt_dir *h);
int64_t sk_ckpt_generation(const sk_ckpt_dir *h); /* grows with every opening */

/* ---- saving ---- */

/* `bytes` of data are expected; less free space than 1.1 times that is an error (0: not asked). */
sk_status sk_ckpt_begin(sk_ckpt_dir *h, int64_t step, int64_t bytes, char name[SK_CKPT_NAME]);

typedef struct sk_ckpt_share { /* boxes that are not `mine`, or are empty, are skipped */
    const sk_tensor_shard *model, *state;
    int n_model, n_state;
} sk_ckpt_share;

typedef struct sk_ckpt_report { /* of fixed size, to be gathered */
    int64_t bytes;
    int32_t n_tensors, status; /* status: an sk_status */
} sk_ckpt_report;

/* Write this rank's files; `dir` is the home's directory as this rank sees it.  The report is
 * filled in either way. */
sk_status sk_ckpt_write_rank(const char *dir, const char *name, int rank,
                             const sk_ckpt_share *share, sk_ckpt_report *report);
/* Publish.  Generation, ranks and time of the state are filled in here.  A checkpoint of the same
 * step that is already there (a run went back and came again) is swapped out in one move.  On
 * failure everything of this save is removed. */
sk_status sk_ckpt_commit(sk_ckpt_dir *h, const char *name, int ranks, const sk_ckpt_state *state);
void sk_ckpt_abandon(sk_ckpt_dir *h, const char *name);

/* Keep the newest `keep` good checkpoints (0: all; 1 counts as 2) and what is newer than them;
 * remove the rest.  A checkpoint counts as good if this home committed it or a deep check passed;
 * each is checked once per run. */
sk_status sk_ckpt_retain(sk_ckpt_dir *h, int64_t keep);

/* ---- finding and reading ---- */

/* Is this the name of a checkpoint, and of which step? */
bool sk_ckpt_step(const char *name, int64_t *step);
/* Steps that have a directory, newest first.  No directory, no steps. */
sk_status sk_ckpt_list(sk_arena *a, const char *dir, int64_t **steps, int *n);

typedef struct sk_ckpt_found {
    char path[PATH_MAX];
    int64_t step;
    int skipped;
    const char *why; /* a line for every newer checkpoint that was not good; "" none */
} sk_ckpt_found;

/* step >= 0: that one or an error.  step < 0: the newest good one, going back at most
 * SK_CKPT_TRIES that have a manifest; SK_EDATA if there is none.  `deep` reads every byte. */
sk_status sk_ckpt_find(sk_arena *a, const char *dir, int64_t step, bool deep, sk_ckpt_found *out);

/* The manifest of a checkpoint directory.  If that is called step-N, it must be of step N. */
sk_status sk_ckpt_read(sk_arena *a, const char *path, sk_ckpt *out);
/* Fill the boxes, whatever the layout that wrote them.  A floating type is converted to the box's
 * own.  After a failure the boxes hold no defined values. */
sk_status sk_ckpt_fill(const sk_ckpt *c, const sk_tensor_shard *boxes, int n);
/* The stored tensor that the shard is read from, perhaps as a mean over replicas; NULL: none. */
const sk_ckpt_tensor *sk_ckpt_source(sk_arena *a, const sk_ckpt *c, const sk_tensor_shard *b);
sk_status sk_ckpt_load(const char *path, const sk_tensor_shard *boxes, int n); /* both */
/* Manifest, file sizes and every shard's own header; `deep`: also every chunk's CRC. */
sk_status sk_ckpt_verify(const char *path, bool deep);

#endif
