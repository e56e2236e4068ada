/* stage_partition.h - a chain of layers cut into the stages of a pipeline, so that the slowest
 * stage is as fast as can be (PipeDream: Narayanan et al. 2019).
 *
 * A pipeline that is full does a micro-batch in the time of its slowest stage or message.  Of
 * layers i to j on r ranks that each take every r-th micro-batch and sum their gradients over a
 * ring, and of the message behind layer j, forward and back, that is
 *
 *     stage      max(sum of seconds, 2 (r-1)/r sum of weights / rate) / r
 *     message    2 passed / rate
 *
 * Dynamic programming from the last layer: the best of layers i to n on w ranks is the best, over
 * the end of the first stage and its ranks, of the slower of that stage and the rest.  The suffix
 * tells how many micro-batches a stage has in flight under 1F1B, ceil(w / r), so that memory is a
 * limit and no estimate.  O(L^2 p) without replication, O(L^2 p^2) with it.  Of partitions with
 * equally fast slowest stages the one is taken whose stages are most alike (the least sum of
 * squares).
 *
 * With several levels, from the ranks of a host outwards, a stage of a level is any number of whole
 * units of the level below, which are partitioned in the same way: what such a unit takes for
 * layers i to j stands in place of the sum of seconds. */
#ifndef SK_PLAN_STAGE_PARTITION_H
#define SK_PLAN_STAGE_PARTITION_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>

enum { SK_PARTITION_LEVELS = 3 };

typedef struct sk_chain_layer {
    double seconds; /* of a micro-batch, forward and backward */
    double weights; /* bytes of gradients that replicas sum for each update */
    double passed;  /* bytes of a micro-batch to the next layer */
    double stored;  /* bytes that are always there: weights, gradients, optimizer state */
    double saved;   /* bytes that a micro-batch keeps until its backward pass */
} sk_chain_layer;

typedef struct sk_partition_in {
    const sk_chain_layer *layers;
    int n;
    bool replicate; /* stages of several ranks, as many stages as is best, none without layers;
                       else one of each rank, and some may have no layers */
    struct {
        int n;       /* units of this level: ranks, hosts ... */
        double rate; /* bytes per second between them; 0: bytes cost nothing */
    } level[SK_PARTITION_LEVELS];
    int n_levels;  /* over 1 only with `replicate` and without `memory` */
    double memory; /* bytes of a rank; 0: any */
    int n_micro;   /* that a step has: no more are in flight; 0: any number */
    /* Without `replicate`, by stage; each may be NULL.  Seconds and bytes that are not its layers',
     * and micro-batches in flight where that is not as 1F1B has them. */
    const double *extra_seconds, *extra_bytes, *flight;
} sk_partition_in;

typedef struct sk_partition_stage {
    int from, end, ranks; /* layers [from, end) */
} sk_partition_stage;

typedef struct sk_partition {
    sk_partition_stage *v; /* first to last */
    int n;
    double seconds; /* of the slowest stage or message */
} sk_partition;

/* An error: no partition keeps within the memory. */
sk_status sk_stage_partition(sk_arena *a, const sk_partition_in *in, sk_partition *out);

#endif
