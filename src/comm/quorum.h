/* quorum.h - steps that the first N - B of N ranks commit, on one host.
 *
 * A word in the control block has the step under way and who has come in it.  A rank that has its
 * gradient arrives: it adds itself by compare-and-swap.  The arrival that makes the set complete
 * seals it: it tells the caller (who logs it), then lets the members go on.  A rank that finds the
 * set complete is late: what it computed is of no use, and it takes weights from a member.  Members
 * sum their gradients in place, in each other's memory, so that there is no server.
 *
 *     sk_quorum_begin(c, step);
 *     ... the gradient; at times: if (sk_quorum_over(c, step)) it is late already ...
 *     sk_quorum_arrive(c, &ask, &set);           SK_OK with me in the set, or not: late
 *     members: sum a share; sk_quorum_meet(); read the shares of others; sk_quorum_meet();
 *              sk_quorum_change(); change weights; sk_quorum_changed(c, step + 1, result)
 *     late:    sk_quorum_borrow(c, step + 1, &from, &done); copy; sk_quorum_return(c, from)
 *
 * While weights change nobody reads them, and while somebody reads them they do not change: a
 * member waits for readers, which only copy.  A rank is at most SK_QUORUM_WINDOW - 2 steps behind:
 * then it is waited for, like everywhere, up to the timeout of the job.  One that does nothing at
 * all for that time is told of wherever it is (its heartbeat). */
#ifndef SK_COMM_QUORUM_H
#define SK_COMM_QUORUM_H

#include "comm/comm.h"

enum {
    SK_QUORUM_RANKS = 32,
    SK_QUORUM_WINDOW = 64,
    SK_QUORUM_SUMS = 16,
    SK_QUORUM_RESULT = 128 /* bytes */
};

typedef struct sk_quorum_ask {
    int64_t step;
    int need;         /* members of a set */
    unsigned imposed; /* bit r: rank r; the set that a replay has recorded; 0: none */
    /* By the rank that completes the set, before anybody acts on it. */
    sk_status (*seal)(void *ctx, int64_t step, unsigned set);
    void *ctx;
} sk_quorum_ask;

void sk_quorum_begin(sk_comm *c, int64_t step);
bool sk_quorum_over(const sk_comm *c, int64_t step); /* sealed: one load */
sk_status sk_quorum_arrive(sk_comm *c, const sk_quorum_ask *ask, unsigned *set);
/* The numbers that a member shows beside its gradient: written before it arrives. */
double *sk_quorum_sums(const sk_comm *c, int rank);
/* Until all members have come here for the `time`-th time in this step: 1, 2. */
sk_status sk_quorum_meet(sk_comm *c, int64_t step, unsigned set, int time);

sk_status sk_quorum_change(sk_comm *c); /* until nobody reads my weights */
/* They are those after `done` steps; the result of the last one, for those who were late. */
void sk_quorum_changed(sk_comm *c, int64_t done, const void *result, size_t bytes);

/* A rank whose weights are those after `least` steps or more, and stay so until they are returned.
 */
sk_status sk_quorum_borrow(sk_comm *c, int64_t least, int *from, int64_t *done);
/* The result of a step that I was late for, also kept for those who are later still. */
const void *sk_quorum_result(sk_comm *c, int from, int64_t step);
void sk_quorum_return(sk_comm *c, int from);

#endif
