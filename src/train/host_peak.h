/* host_peak.h - the peak of this host's cores, measured once and kept: what MFU is over on a CPU.
 *
 * Every measurement on a shared host is too low by as much as others disturbed it.  So the highest
 * one is kept for each number of cores that work at once, and all runs of the host divide by it:
 * MFUs of two runs differ only if their steps do.  A run measures only where nothing is kept;
 * `skein doctor` always measures, and raises what is kept where it was higher.
 *
 * The file is $XDG_CACHE_HOME/skein/peak-HOST-CORES.txt, or that in ~/.cache/skein:
 *
 *     skein peak 1, node7, Intel Xeon Gold 6230, AVX-512, 40 cores, OpenBLAS 0.3.21 SkylakeX
 *     1 1.4812e+11 3
 *     40 3.9105e+12 5
 *     sum 8d02f1a7
 *
 * The first line is the key: on another host, processor, set of cores or BLAS nothing of the file
 * holds.  Then cores at once, flops per second of all of them, and of how many measurements that is
 * the best; the last line is the CRC-32C of all before it.  A file that is anything else is not
 * used: the caller is told why, and what is kept next replaces it.  Writers hold a lock
 * (peak-....txt.lock) while they read, merge and rename, so that of two at once neither gets lost,
 * and readers see a whole file. */
#ifndef SK_TRAIN_HOST_PEAK_H
#define SK_TRAIN_HOST_PEAK_H

#include "train/host.h"

typedef struct sk_kept_peak {
    double flops;    /* per second, of all cores that were asked for; 0: nothing is kept */
    int64_t times;   /* measurements that it is the best of */
    const char *why; /* a file was not used, or nothing can be kept; NULL: all is well */
} sk_kept_peak;

/* Cores that work at once where `ranks` of a host have so many threads each. */
int sk_host_busy(int ranks, int threads, int cores);
/* What is kept for so many cores at once. */
sk_kept_peak sk_host_peak_find(sk_arena *a, int busy);
/* Keep a measurement.  Out comes what holds now: the highest so far, also where it cannot be kept.
 */
sk_kept_peak sk_host_peak_keep(sk_arena *a, int busy, double flops);
/* What is kept, or measured now by the threads of this process, and kept.  flops 0: neither. */
sk_kept_peak sk_host_peak_of(sk_arena *a, int busy);

#endif
