/* loggp.h - the lists of all members played message by message, by LogGP (Alexandrov et al. 1995).
 *
 * Beside the closed form of coll/choose.h, which asks only the busiest member for rounds, messages
 * and bytes, this one follows every message.  A message of S bytes:
 *
 *     sender    o of its core; then its link out carries the message for S G, and the next one
 *               begins g after the last byte
 *     way       L
 *     receiver  its link in carries it for S G, one message after the other as they come, g between
 *               them; then o of its core, and S gamma where it is added
 *
 * A member begins a round when its messages of the round before have come.  So ranks may run ahead
 * of each other, and several messages to one member queue up: what rounds times alpha does not see.
 * What streams that meet lose on top of that (incast, coll/choose.h) is counted here, too.
 *
 * A link between hosts may have a bucket of tokens (burst): so many bytes of a call it carries in
 * no time, as it was idle before, and what it could have carried while it is idle within the call.
 * Of many calls one after the other (steady) each finds what the call before left: what its bytes
 * take or what its latencies do, whichever is more, since a link that waits for latencies gathers
 * tokens.  That is a call played twice, less a call played once, both from an empty bucket.
 *
 * The counts on the longest way tell which number makes how much of the time: it is their product
 * with the machine's numbers, exactly, so numbers can be fitted to measured times
 * (plan/price_fit.h). */
#ifndef SK_COLL_LOGGP_H
#define SK_COLL_LOGGP_H

#include "coll/choose.h"

/* Seconds: L, o, g; G per byte; incast, per byte and log2 of the streams; gamma per byte added. */
typedef enum sk_loggp_number {
    SK_LOGGP_LATENCY,
    SK_LOGGP_OVERHEAD,
    SK_LOGGP_GAP,
    SK_LOGGP_BYTE,
    SK_LOGGP_INCAST,
    SK_LOGGP_SUM,
    SK_LOGGP_N
} sk_loggp_number;

typedef struct sk_loggp { /* of links inside a host, and between two */
    double inside[SK_LOGGP_N], between[SK_LOGGP_N];
    double burst; /* bytes; of links between hosts */
    bool steady;  /* calls like this one after the other: the bucket has what the last one left */
} sk_loggp;

/* Of the numbers that closed forms are made of: L is alpha, o is `each`, G is beta. */
sk_loggp sk_loggp_of(const sk_costs *c);

/* Seconds of a call; hosts: on how many its members sit.  path (may be NULL): the counts.  INFINITY
 * where there is no list, or more than SK_LOGGP_MEMBERS: a few of 32 take a millisecond. */
enum { SK_LOGGP_MEMBERS = 32 };
double sk_loggp_play(const sk_loggp *m, int algorithm, const sk_coll_ask *ask, int hosts,
                     int64_t bytes, sk_loggp *path);

#endif
