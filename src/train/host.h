/* host.h - what this machine is, for people and for choosing the number of threads.
 *
 * Looking is cheap (files of the kernel, no measuring).  sk_host_peak() does
 * measure: how many floating-point operations per second the product of two
 * matrices of 256 x 256 reaches, with one thread of BLAS on each of `threads` threads at once: the
 * sum over them of what the fastest products reach within `seconds`, after a fifth of them to warm
 * up.  A product takes less than a millisecond, so that there are some in which no other program
 * had the core or disturbed it; how many were disturbed shows in the spread.  A run calls it on all
 * ranks at the same time, after the first step, where no peak of this host is kept yet
 * (host_peak.h), so that the sum over the ranks is what the machine can really give, and the start
 * is not delayed by it.  Ranks that have more threads than there are cores share their peak:
 * sk_host_share(). */
#ifndef SK_TRAIN_HOST_H
#define SK_TRAIN_HOST_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sk_host {
    int cores;         /* that this process may run on */
    char cpu[96];      /* "AMD EPYC 7713" */
    const char *isa;   /* "AVX-512", "AVX2", "SSE2" ... the best of the processor */
    int64_t memory;    /* bytes of this host, or of this container if that is less */
    int64_t available; /* of them free now */
    const char *blas;  /* "OpenBLAS 0.3.21 SkylakeX" */
    int gpus;          /* devices that the NVIDIA driver shows */
} sk_host;

void sk_host_detect(sk_host *out);

typedef struct sk_peak_rate {
    double flops;  /* per second, of all threads */
    double spread; /* how much longer the median takes, of the worst thread: 0.1 is a tenth */
} sk_peak_rate;

/* SK_EIO: no room for BLAS (device/blas_setup.h). */
sk_status sk_host_peak(int threads, double seconds, sk_peak_rate *out);
/* Of the peak of its threads, what a rank can have where `ranks` run on `cores`. */
double sk_host_share(int ranks, int threads, int cores);

#endif
