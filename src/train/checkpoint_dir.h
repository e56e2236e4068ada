/* checkpoint_dir.h - the directory of checkpoints while its lock is held.  Private to
 * checkpoint_*.c; checkpoint.h is the interface. */
#ifndef SK_TRAIN_CHECKPOINT_DIR_H
#define SK_TRAIN_CHECKPOINT_DIR_H

#include "train/checkpoint.h"

struct sk_ckpt_dir {
    sk_arena arena;
    const char *dir;
    int fd, lock;
    int64_t generation;
    struct {
        int64_t *v;
        int n, cap;
    } good; /* steps committed or deeply verified by this process */
};

/* Is this the name of a checkpoint that is being written? */
bool sk_ckpt_tmp_name(const char *s, int64_t *step, int64_t *generation);
/* Remove a checkpoint: rename it to the trash first, so that no half of it is ever found. */
sk_status sk_ckpt_discard(sk_ckpt_dir *h, const char *name, int64_t step);
/* Note that the checkpoint of a step is good. */
void sk_ckpt_remember(sk_ckpt_dir *h, int64_t step);
/* The file in which a rank lists its shards until the commit. */
void sk_ckpt_side_name(char out[32], int rank);

#endif
