/* gpu_offload.h - offload of a GPU run: copies between memories, and instructions of the host.
 *
 * The layout says which buffers live in the memory of the host or in a file (offload); the compiler
 * writes the copies, and gives the optimizer's instructions to the host where state is offloaded
 * (program/offload_copies.c).  An instruction works on one memory (P10): kernels see the pool, the
 * host sees its region of the heap, and only copies see both.  So four rules keep the order:
 *
 *   COPY    is put on a stream of its direction, behind all that the compute stream was given
 *           before: its source is computed, and nobody reads what its destination held
 *   COPIED  the compute stream waits for that copy; the host does not
 *   host    before the host executes an instruction it waits for all copies that the program has
 *           waited for so far (COPIED) and the host has not
 *   CLIP    the host reads the two results of CLIP (scale, skip) before the first instruction that
 *           needs them
 *
 * Copies to and from the file pass SK_OFFLOAD_SLOTS pinned slots of SK_OFFLOAD_SLOT bytes, which
 * are not part of the planned memory.  The background worker reads from the disk into a slot and
 * copies the slot to the device on a stream of its own, and the other way round.  COPIED of such a
 * copy blocks the host until the disk is done; the compute stream has work until there meanwhile.
 *
 * The host's region is pinned when the run is opened, after all threads have touched its pages.
 * Where pinning is refused copies are slower, and a warning says so.
 *
 * Sections with such instructions are not captured as CUDA graphs: the host issues them one by one.
 * Private to run/gpu/. */
#ifndef SK_RUN_GPU_OFFLOAD_H
#define SK_RUN_GPU_OFFLOAD_H

#include "device/device.h"
#include "kernel/optim_kernel.h"
#include "run/run_state.h"

#ifndef SK_OFFLOAD_SLOT_KIB /* tests make it small, so that slots are reused */
#define SK_OFFLOAD_SLOT_KIB 16384
#endif
enum { SK_OFFLOAD_SLOTS = 4, SK_OFFLOAD_SLOT = SK_OFFLOAD_SLOT_KIB << 10 };

typedef struct sk_offload sk_offload;

/* NULL in *out: nothing is offloaded.  `scalars` lies on the device. */
sk_status sk_offload_open(sk_arena *a, sk_run *r, sk_device *d, sk_stream *compute, char *base,
                          sk_step_scalars *scalars, sk_offload **out);
/* Waits for copies give up, so that background workers come to an end.  NULL is fine. */
void sk_offload_stop(sk_offload *w);

/* Is this instruction a copy, or one that the host executes? */
bool sk_offload_does(const sk_program *p, const sk_inst *in);
bool sk_offload_any(const sk_program *p, int from, int to);

sk_status sk_offload_begin(sk_offload *w); /* of a section */
sk_status sk_offload_issue(sk_offload *w, int pc);
/* Before a collective starts: copies sums of the optimizer that the host computed to the device. */
sk_status sk_offload_start(sk_offload *w, const sk_inst *in);
/* Before STATS: where the squares of offloaded gradients are, on the device; NULL: none is
 * offloaded. */
sk_status sk_offload_squares(sk_offload *w, const double **out);
sk_status sk_offload_clipped(sk_offload *w); /* behind CLIP */
/* Behind a section, when all is done: r->copied, r->uncovered, r->moving. */
sk_status sk_offload_end(sk_offload *w, int from, int to);

#endif
