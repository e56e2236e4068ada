/* fits.h - is there enough memory for the plan?  Checked before the start.
 *
 * The plan has the bytes of every rank, by kind, before anything is mapped.  Where they are more
 * than is free, the error report names the fullest rank, what it needs and has, the largest kind,
 * and a change that would fit: smaller micro-batches, recomputation, sharding, or all of them. Each
 * change is compiled, so its bytes are those that a run would map. */
#ifndef SK_TRAIN_FITS_H
#define SK_TRAIN_FITS_H

#include "train/setup.h"

/* The memory of this host, for its ranks; of programs for GPUs, what lives in the host's memory.
 * The programs of all ranks must be there.  Address space too (ulimit -v), with the buffers of
 * BLAS; threads: all ranks are of one process.  And open files (ulimit -n), whose limit is raised
 * as far as it may be. */
sk_status sk_fits_host(const sk_setup *s, bool threads);
/* "9.8 GiB = weights 1.6 GiB + ..., most of it activations": of the memory that ranks compute in.
 */
char *sk_fits_kinds(sk_arena *a, const sk_program *p);
/* sk_run_opts.no_memory: a GPU has `free` bytes, less than p needs.  ctx: the sk_setup. */
sk_status sk_fits_device(void *ctx, const sk_program *p, const char *device, int64_t free);

#endif
