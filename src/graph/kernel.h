/* kernel.h - the GPU half of an op.
 *
 * parts/op/NAME.c is complete alone and is the truth; parts/op/NAME.cu beside it, if there is one,
 * defines
 *
 *     extern "C" const sk_kernel sk_kernel_NAME = {"NAME", launch};
 *
 * and the build makes the table from the files.  launch() sees the same sk_args as the CPU half,
 * with two differences: the data of the views are addresses on the device, and one call does the
 * whole piece, so that `part` and `of` mean nothing.  It puts its work into the stream, a
 * cudaStream_t, and returns; it neither waits nor allocates.  It refuses with a sentence what it
 * does not know, such as a storage type, and takes every shape that the CPU half takes, empty ones
 * too.  It gives the same bits whenever it is given the same arguments: no atomics.
 *
 * test/parts_cuda.cu takes every pair through the op's samples and more shapes, one half against
 * the other; a kernel needs no test of its own. */
#ifndef SK_GRAPH_KERNEL_H
#define SK_GRAPH_KERNEL_H

#include "graph/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sk_kernel {
    const char *op;
    sk_status (*launch)(const sk_args *a, void *stream);
} sk_kernel;

extern const sk_kernel *const sk_kernel_parts[]; /* every parts/op/NAME.cu; NULL ends it */

/* The GPU half of the op of this name; NULL if it has none, or if skein_cuda is not linked. */
const sk_kernel *sk_kernel_find(const char *op);

#ifdef __cplusplus
}
#endif

#endif
