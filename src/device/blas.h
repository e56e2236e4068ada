/* blas.h - waking the BLAS that this processor deserves.
 *
 * OpenBLAS picks its kernels when it is loaded.  A version older than the
 * processor may not know it and fall back to SSE3 code, four times slower than
 * the AVX-512 kernels it also contains.  sk_blas_wake() notices this and starts
 * the program again with OPENBLAS_CORETYPE set; once, in a few milliseconds, and
 * never if the user has set it. */
#ifndef SK_DEVICE_BLAS_H
#define SK_DEVICE_BLAS_H

void sk_blas_wake(char **argv);
/* Up to this many threads of the process will call BLAS at once, each for itself.  OpenBLAS maps
 * a work buffer whenever one more caller than ever before is inside; this takes them all once and
 * gives them back, so that no step of a run has to. */
void sk_blas_reserve(int callers);
const char *sk_blas_name(void); /* "OpenBLAS 0.3.21 SkylakeX" */

#endif
