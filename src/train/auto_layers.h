/* auto_layers.h - layers=auto: the numbers of layers of all stages that make the slowest stage of a
 * job fastest on a machine, by dynamic programming (plan/stage_partition.h).
 *
 * What layers take and what ranks need is read from programs of the same layout with equal stages,
 * compiled and simulated: where layers are alike, of one and of two layers a chunk, so that the
 * cost does not grow with the model.  Bytes of a stage grow by a line from there, on each stage by
 * its own.  Where layers are not alike, a program of all of them tells the times, and memory is no
 * limit.  Where a stage has several chunks, its layers are dealt to them evenly. */
#ifndef SK_TRAIN_AUTO_LAYERS_H
#define SK_TRAIN_AUTO_LAYERS_H

#include "plan/machine.h"
#include "train/job.h"

/* l.layers is "auto" and becomes a list.  memory: bytes of a rank, 0: any; where nothing keeps
 * within it, it is no limit. */
sk_status sk_auto_layers(const sk_job *job, const sk_machine *m, int64_t memory, sk_layout *l);

/* Is a model of few layers a small one of the same kind? */
bool sk_job_layers_alike(const sk_job *job);

/* For a text of short words, "pp=4 layers=auto": the same with another list.  false: it is longer
 * than the room. */
bool sk_layers_say(const char *text, const char *layers, char *to, size_t room);
/* A list whose chunks all have as many layers less that the smallest has `least`; their sum. */
int64_t sk_layers_shrink(const char *layers, int least, char to[SK_LAYERS_TEXT]);
int sk_layers_least(const char *layers); /* of the smallest chunk */

#endif
