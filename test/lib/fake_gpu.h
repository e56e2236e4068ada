/* fake_gpu.h - for tests: a fake GPU, so that the GPU backend (run/gpu/gpu.h) runs
 * everywhere.
 *
 * The device "cuda" of a program that calls sk_fake_gpu() has a memory of its own, which begins
 * with NaN, and a thread for every stream.  Work on a stream is delayed at random, up to delay_us,
 * so that a missing order shows.  With SKEIN_FAKE_LAZY=1 a stream works only while somebody waits
 * for it, or for an event of it, which is as late as CUDA may be: what is used without waiting is
 * then always wrong, not once in a hundred runs.  Kernels, codecs and updates are those of the CPU,
 * and take the types that the real ones take, no others.  Captured graphs are as strict as CUDA
 * graphs: a stream that has not joined, an event from before the capture and a stream that does not
 * come back are errors.  Ranks that are threads of one process communicate by lib/fake_nccl.h. */
#ifndef SK_TEST_FAKE_GPU_H
#define SK_TEST_FAKE_GPU_H

#include <stdbool.h>
#include <stddef.h>

void sk_fake_gpu(int delay_us);
/* Of all calls to come, that of this number fails, from 0; has it? */
void sk_fake_fail(int call);
bool sk_fake_failed(void);
/* f(a copy of `what`) happens when the stream comes there, or is recorded. */
void sk_fake_give(void *stream, void (*f)(void *what), const void *what, size_t bytes);

#endif
