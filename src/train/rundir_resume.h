/* rundir_resume.h - what a run resumes from, and whether job and checkpoint go together.  Private
 * to rundir*.c. */
#ifndef SK_TRAIN_RUNDIR_RESUME_H
#define SK_TRAIN_RUNDIR_RESUME_H

#include "train/rundir.h"

bool sk_resume_is_checkpoint(sk_arena *a, const char *path);
sk_status sk_resume_put_path(char *to, const char *from); /* `to` has room for PATH_MAX */
/* t->from: a checkpoint, the newest of a run, or "". */
sk_status sk_resume_find(sk_arena *a, const sk_job *job, sk_training *t, const char **note);
/* t->from: the newest checkpoint of a directory of checkpoints. */
sk_status sk_resume_newest(sk_arena *a, const char *dir, sk_training *t, const char **note);
/* Steps, tokens, updates and the number of steps that an earlier part of the run chose.  job: to be
 * compared with the checkpoint; NULL: the checkpoint is of this run. */
sk_status sk_resume_read(sk_arena *a, const sk_job *job, sk_training *t, const char **note);
/* The value of a key of a section ("optim") in the text of a config; NULL: it has none. */
const char *sk_resume_value(sk_arena *a, const char *config, const char *section, const char *key);
/* Adds "SECTION.KEY was X and is Y" if both texts have the key with different values. */
bool sk_resume_change(sk_out *o, const char *was, const char *is, const char *section,
                      const char *key);

#endif
