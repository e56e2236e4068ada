/* async_copy.h - copies from global to shared memory that no thread waits for (cp.async); only GPU
 * halves include it. */
#ifndef SK_KERNEL_ASYNC_COPY_H
#define SK_KERNEL_ASYNC_COPY_H

#include <cuda_runtime.h>

/* 16 bytes, aligned to 16. */
static __device__ inline void sk_async_copy16(uint4 *to, const void *from)
{
    unsigned place = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
}

/* All copies of this thread have ended. */
static __device__ inline void sk_async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/* 4 bytes. */
static __device__ inline void sk_async_copy4(void *to, const void *from)
{
    unsigned place = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place), "l"(from) : "memory");
}

#endif
