/* bulk_copy_asm.h - the instructions under bulk_copy.h: copies of a run of bytes by the copy engine
 * of Hopper and later, and the barriers in shared memory that count the bytes that came.
 *
 * A barrier has one arrival a phase, sk_bulk_expect's, and its phase ends when as many bytes came
 * as were expected.  Phases are numbered 0, 1, 0, 1. */
#ifndef SK_KERNEL_BULK_COPY_ASM_H
#define SK_KERNEL_BULK_COPY_ASM_H

#include <cuda_runtime.h>
#include <stdint.h>

static __device__ inline unsigned sk_bulk_place(const void *shared)
{
    return (unsigned)__cvta_generic_to_shared(shared);
}

static __device__ inline void sk_bulk_open(uint64_t *bar)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(sk_bulk_place(bar)) : "memory");
}

/* After the last sk_bulk_open, by the same thread: the copy engine sees the barriers. */
static __device__ inline void sk_bulk_ready(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ inline void sk_bulk_expect(uint64_t *bar, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sk_bulk_place(bar)),
                 "r"(bytes)
                 : "memory");
}

/* All of them multiples of 16. */
static __device__ inline void sk_bulk_copy(void *to, const void *from, int bytes, uint64_t *bar)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(sk_bulk_place(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(sk_bulk_place(bar))
        : "memory");
}

/* A barrier of some warps of a block: `id` is 1 to 15, 0 being __syncthreads'. */
static __device__ inline void sk_group_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Waits for the end of the phase. */
static __device__ inline void sk_bulk_wait(uint64_t *bar, unsigned phase)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(sk_bulk_place(bar)),
                 "r"(phase)
                 : "memory");
}

#endif
