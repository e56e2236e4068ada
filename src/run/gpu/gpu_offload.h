/* away.h - what a GPU's program keeps outside of the GPU: copies, and what the host does itself.
 *
 * The layout says what lives in the host's memory or in a file (offload), the compiler writes
 * copies, and the optimizer's instructions where state lives outside (program/tiers.c).  An
 * instruction works on one memory (P10): kernels see the pool, the host sees its region of the
 * heap, and only copies see both.  So order is kept by four rules:
 *
 *   COPY    goes on a stream of its direction, behind all that compute was given before it: its
 *           source is made, and nobody reads what its destination held
 *   COPIED  compute goes on behind that copy; the host does not wait
 *   host    before the host does an instruction it waits for all copies that the program has
 *           waited for so far (COPIED) and it has not: their bytes are here, or have left
 *   CLIP    the host reads its two numbers (scale, skip) before the first instruction that needs
 *           them
 *
 * What a file holds passes pinned slots of this file's own, SK_OFFLOAD_SLOTS of SK_OFFLOAD_SLOT
 * bytes beside the planned memory: the thread beside the rank reads them from the disk and gives
 * them to a stream of its own, and the other way round.  COPIED of such a copy holds the host until
 * the disk is done; compute has work until there meanwhile.
 *
 * The host's region is pinned when the run is opened, after all its pages were touched by all
 * threads.  Where that is refused copies are slower, and a line says so.
 *
 * Sections with such instructions are not recorded: the host walks them.  Private to run/. */
#ifndef SK_RUN_GPU_OFFLOAD_H
#define SK_RUN_GPU_OFFLOAD_H

#include "device/device.h"
#include "kernel/optim_kernel.h"
#include "run/run_state.h"

#ifndef SK_OFFLOAD_SLOT_KIB /* tests make it small, so that slots are used again and again */
#define SK_OFFLOAD_SLOT_KIB 16384
#endif
enum { SK_OFFLOAD_SLOTS = 4, SK_OFFLOAD_SLOT = SK_OFFLOAD_SLOT_KIB << 10 };

typedef struct sk_offload sk_offload;

/* NULL in *out: all is on the device.  `pulse` lies there too. */
sk_status sk_offload_open(sk_arena *a, sk_run *r, sk_device *d, sk_stream *compute, char *base,
                          sk_step_scalars *pulse, sk_offload **out);
/* Who waits for a copy gives up, so that threads beside the rank come to an end.  NULL is fine. */
void sk_offload_stop(sk_offload *w);

/* Is this instruction a copy, or the host's? */
bool sk_offload_does(const sk_program *p, const sk_inst *in);
bool sk_offload_any(const sk_program *p, int from, int to);

sk_status sk_offload_begin(sk_offload *w); /* of a section */
sk_status sk_offload_issue(sk_offload *w, int pc);
/* Before a call starts: sums of the optimizer that the host has made go to the device. */
sk_status sk_offload_start(sk_offload *w, const sk_inst *in);
/* Before STATS: where squares of gradients that live outside are, on the device; NULL: none do. */
sk_status sk_offload_squares(sk_offload *w, const double **out);
sk_status sk_offload_clipped(sk_offload *w); /* behind CLIP */
/* Behind a section, when all is done: r->copied, r->uncovered, r->moving. */
sk_status sk_offload_end(sk_offload *w, int from, int to);

#endif
