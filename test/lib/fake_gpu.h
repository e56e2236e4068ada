/* fake_gpu.h - for tests: a GPU that is none, so that its executor (run/gpu.c) runs everywhere.
 *
 * The device "cuda" of a program that calls sk_fake_gpu() has a memory of its own, which begins
 * with NaN, and a thread for every stream: what is given to one happens later, and the later the
 * more `delay_us` says, by lot.  Kernels and updates are the CPU halves.  So what is ordered only
 * by luck shows.  Codecs are the CPU halves too, and ranks, threads of one process, meet in
 * fake_nccl.c.  For states of f32. */
#ifndef SK_TEST_FAKE_GPU_H
#define SK_TEST_FAKE_GPU_H

#include <stddef.h>

void sk_fake_gpu(int delay_us);

/* f(a copy of `what`) happens when the stream comes there, or is recorded. */
void sk_fake_do(void *stream, void (*f)(void *what), const void *what, size_t bytes);

#endif
