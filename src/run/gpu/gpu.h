/* gpu.h - the same program on a GPU.
 *
 * The device's part of the heap is one pool on the GPU, with the offsets of the plan; at the same
 * offsets the heap of the rank has addresses (comm.h, ghost), where what is kept appears when the
 * host is to see it: start values and checkpoints pass there.  What lives in the host's memory by
 * plan lies in the heap, pinned: run/gpu/gpu_offload.h.
 *
 * A step is three things: the host writes its batches and a few numbers (acts.h, sk_step_scalars)
 * to pinned memory; the instructions are given to streams, without waiting; the host waits for the
 * end, and reads the loss.  From the second step on the second thing is one call: the launches of
 * the first were recorded, and are played.  Private to run/. */
#ifndef SK_RUN_GPU_H
#define SK_RUN_GPU_H

#include "program/fuse.h"
#include "run/run_state.h"

typedef struct sk_gpu sk_gpu;

/* Refuses with a sentence what a GPU cannot do yet.  r->p, r->base and r->opts are there. */
sk_status sk_gpu_open(sk_arena *a, sk_run *r, sk_gpu **out);
void sk_gpu_close(sk_gpu *g); /* NULL is fine */
char *sk_gpu_base(const sk_gpu *g);
/* Searches algorithms and makes handles; nothing of value is in any buffer yet. */
sk_status sk_gpu_prepare(sk_arena *a, sk_run *r);
/* Its tables go to the device: another run over the same memory may have been there. */
sk_status sk_gpu_lay(sk_run *r);
/* The others: all ranks come here together, when r->comm is there.  Nothing of value is in any
 * buffer yet; then all are zeros. */
sk_status sk_gpu_meet(sk_arena *a, sk_run *r);
/* Instructions [from, to): a training step or a validation step; fills r->out and r->skip. */
sk_status sk_gpu_walk(sk_run *r, int from, int to);

/* A launch may be for several instructions: the one whose place it has; what was joined there, or
 * NULL; and by instruction the name of that. */
int sk_gpu_at(const sk_run *r, int pc);
const char *const *sk_gpu_names(const sk_run *r);
/* Which of its kernels the launch of an op takes; without a name: it has no launch. */
const sk_variant *sk_gpu_took(const sk_run *r, int pc);

sk_status sk_gpu_look(sk_gpu *g, sk_gpu_usage *out);

/* What is kept on the device, from the host's addresses to it and back. */
sk_status sk_gpu_push(sk_run *r);
sk_status sk_gpu_pull(sk_run *r);
sk_status sk_gpu_push_one(sk_run *r, int buf); /* where first values of it were written */

sk_status sk_gpu_poke(const sk_run *r, int buf, const void *data, size_t bytes);

sk_status sk_gpu_watch(sk_run *r); /* the host waits for the GPU: are the other ranks well? */
void sk_gpu_stop(sk_gpu *g);       /* threads beside the rank are to end; NULL is fine */

#endif
