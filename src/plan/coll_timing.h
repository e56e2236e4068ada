/* coll_timing.h - how long collectives really take on this host.
 *
 * A collective is timed on ranks that are processes (workers.h), each bound to one core:
 * rank r to core r modulo their number.  All points of one call share the ranks and their heaps.
 * For each point:
 *
 *     once     buffers get a known pattern, results are compared element by element, then all is
 *              zeroed (repeated sums in place stay finite), unless time depends on the numbers
 *     sample   a barrier, then a batch of calls one after the other that lasts about 200 us (one
 *              call if that is longer); its time is that of the slowest rank, divided by the calls.
 *              Between hosts a batch lasts 5 ms: during a barrier of 0.1 to 0.2 ms the token bucket
 *              of a shaped link fills, by as much as a batch of 200 us sends
 *     point    9 to 201 samples, as many as fit in `seconds`: median, 10th and 90th percentile
 *
 * START is timed apart, a few calls each after a barrier, by the time that its thread ran: waiting
 * is not in it, nor are other programs.
 *
 * Such calls find their data where the call before left them, often in the cache of
 * the core that needs them.  `fresh` points are those of a computation: each rank
 * writes its source anew before every call, then all meet; only the call is timed.
 *
 * Kinds with a root go from root to root within a batch, so that a call cannot
 * begin before the one before it is over.  Benchmarks of MPI libraries sample in the
 * same way, so their numbers can be compared. */
#ifndef SK_PLAN_COLL_TIMING_H
#define SK_PLAN_COLL_TIMING_H

#include "coll/algorithm.h"
#include "comm/comm.h"

typedef struct sk_coll_spec {
    sk_coll_kind kind;
    sk_reduce reduce;
    sk_dtype type;
    int64_t bytes; /* the whole vector of one rank: buffer of an all-reduce or broadcast, input of a
                      reduce-scatter or all-to-all, output of an all-gather */
    int n_ranks;
    int algorithm;    /* index in sk_coll_parts; -1: directly in the heaps */
    uint64_t degrees; /* of its rounds; 0: the usual ones */
    bool in_place;    /* where coll/algorithm.h allows it: all-reduce, broadcast, reduce-scatter,
                         all-gather */
    bool fresh;       /* see above */
    bool starts;      /* time START, too */
    double seconds;   /* for the samples; 0: 0.2 */
} sk_coll_spec;

typedef struct sk_coll_timing {
    double median, p10, p90; /* seconds of one call */
    double start; /* seconds of a core that START takes, which sends the first round of a list; mean
                     of all ranks.  0: in the heaps */
    int64_t wrong; /* elements, over all ranks */
    int samples, batch;
} sk_coll_timing;

enum { SK_TIMED_RANKS = 4096 };

/* n points, out[n]; n_ranks is the same in all of them. */
sk_status sk_time_colls(const sk_coll_spec *specs, int n, sk_coll_timing *out);

/* The same for ranks that somebody else started: heaps of sk_time_heap() bytes each, then every
 * rank calls sk_time_rank(); every rank gets all results.  Of ends, the groups are not looked at.
 * Does not pin. */
int64_t sk_time_heap(const sk_coll_spec *specs, int n, const int *host_of);
sk_status sk_time_rank(sk_heaps *h, const sk_comm_opts *ends, const sk_coll_spec *specs, int n,
                       sk_coll_timing *out);

#endif
