/* blas_setup.h - waking the BLAS that this processor deserves.
 *
 * OpenBLAS picks its kernels when it is loaded.  A version older than the
 * processor may not know it and fall back to SSE3 code, four times slower than
 * the AVX-512 kernels it also contains.  sk_blas_wake() notices this and starts
 * the program again with OPENBLAS_CORETYPE set; once, in a few milliseconds, and
 * never if the user has set it.
 *
 * OpenBLAS asks for a work buffer of 128 MiB a thread again and again until it gets one, its own
 * threads from the moment it is loaded on.  Where address space is limited (ulimit -v) the program
 * starts again without these, which skein does not use, and buffers are only asked for where they
 * fit: else it is SK_EIO with a sentence. */
#ifndef SK_DEVICE_BLAS_SETUP_H
#define SK_DEVICE_BLAS_SETUP_H

#include "base/status.h"

#include <stdint.h>

void sk_blas_wake(char **argv);
/* Is there address space for so many callers (below), and for `beside` bytes of others? */
sk_status sk_blas_fits(int callers, int64_t beside);
/* Up to this many threads of the process will call BLAS at once, each for itself.  OpenBLAS maps
 * a work buffer whenever one more caller than ever before is inside; this takes them all once and
 * gives them back, so that no step of a run has to.  SK_EIO: they do not fit.  Threads that are
 * ranks find theirs reserved by who starts them. */
sk_status sk_blas_reserve(int callers);
const char *sk_blas_name(void); /* "OpenBLAS 0.3.21 SkylakeX" */

#endif
