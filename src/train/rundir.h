/* rundir.h - the directory of a run: its name, where to resume from, what lies in it.
 *
 *     runs/1115-0142-demo/
 *       config.yaml  metrics.jsonl  rank0.log ...  tokenizer/  ckpt/  final/
 *     runs/last -> 1115-0142-demo
 *
 * A run without a name gets the time and the name of its config or model.  A directory
 * that holds checkpoints is continued only when asked (resume), and never overwritten. */
#ifndef SK_TRAIN_RUNDIR_H
#define SK_TRAIN_RUNDIR_H

#include "train/loop.h"

/* The run that `resume` speaks of: job.run, the directory it names, or runs/last.  false: none is
 * there.  `to` has room for PATH_MAX. */
bool sk_rundir_resumed(const sk_job *job, char *to);

/* Refuses a `resume` of nothing, as a run would; for commands that only look at a job. */
sk_status sk_rundir_resumable(sk_arena *a, const sk_job *job);

/* Fill dir, ckpt, from, step, tokens, updates and steps of *t, make the directories, take the lock
 * of the checkpoints.  `note` gets sentences about checkpoints that were passed over and about
 * another model, or "". */
sk_status sk_rundir_open(sk_arena *a, const sk_job *job, sk_training *t, const char **note);
/* resume_state.c: does this run keep the optimizer state that the checkpoint t->from has?  The keys
 * that differ are told by t->config, the job as text, and the checkpoint's own. */
sk_status sk_resume_state(sk_arena *a, const sk_setup *s, const sk_training *t);
/* Adds a line to the note if learning rates jump: of which groups, and the keys that they do by.
 * was: the job of the checkpoint t->from; NULL: not known. */
sk_status sk_resume_rate(sk_arena *a, const sk_setup *s, const sk_training *t, const sk_job *was,
                         const char **note);
/* Adds lines to the note on what the layout, or optim.ema, replaces by a mean, drops or begins. */
sk_status sk_resume_sync(sk_arena *a, const sk_setup *s, const sk_training *t, const char **note);
/* After ranks died: takes the lock again, and the newest checkpoint of the run if it has one. */
sk_status sk_rundir_restart(sk_arena *a, sk_training *t);
/* While ranks run: the newest complete checkpoint of the run with at most `most` steps done, or the
 * one it began from.  *out is t with the state of that checkpoint; SK_ENUM: there is none. */
sk_status sk_rundir_rollback(sk_arena *a, const sk_training *t, int64_t most, sk_training *out);
sk_status sk_rundir_config(const sk_training *t, const char *text);
bool sk_rundir_wrote(const char *config); /* is this the text of a config.yaml of skein? */
void sk_rundir_remove(const char *dir);   /* a directory of plain files */

/* Files that go with a model's tokens (companions.h).  RUN/tokenizer: of the run, or the run of the
 * checkpoint, that a job resumes; of a checkpoint's run; NULL: there is none. */
const char *sk_rundir_resumed_tokenizer(sk_arena *a, const sk_job *job);
const char *sk_rundir_tokenizer(sk_arena *a, const char *checkpoint);
/* Have those of this run in it; `tokenizer`: the one in use, NULL if the data are not text. */
sk_status sk_rundir_keep_tokenizer(sk_arena *a, const sk_job *job, const sk_training *t,
                                   const sk_tokenizer *tokenizer);

/* The run that `path` is or lies in, by its real path; NULL: none.  `path` need not be there. */
const char *sk_rundir_around(sk_arena *a, const char *path);
/* A directory with config.json below or at `what`: itself, final/ of a run, or NULL. */
const char *sk_rundir_model(sk_arena *a, const char *what);
/* A checkpoint at or below `what`: itself, or the newest good one of a run.  *passed: why the
 * newest one was passed over, in one sentence; "" if it was not. */
sk_status sk_rundir_checkpoint(sk_arena *a, const char *what, const char **out,
                               const char **passed);

/* All that is asked of a checkpoint before a run goes on from it, and by `skein verify`: manifest,
 * sizes and headers of its files, parameters that are those of its model, and its extra.  deep:
 * every byte, too. */
struct sk_extra;
sk_status sk_rundir_verify(sk_arena *a, const char *path, bool deep, sk_ckpt *c,
                           struct sk_extra *x);

#endif
