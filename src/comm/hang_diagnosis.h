/* hang_diagnosis.h - who keeps us waiting?  Read from the control block, /proc and pidfds; writes
 * nothing.
 *
 * A rank that waits says for whom in its state.  Following these words from rank
 * to rank leads to the one that waits for nobody, or that cannot wait because it is
 * stopped or dead.  That one is named, not its neighbours, which are victims too.
 *
 *     rank 0 waits for 2, 2 waits for 3, 3 is stopped: rank 3 is the cause
 *
 * Liveness comes from the kernel and not from flags: a dead rank's memory looks
 * just as before.  A pidfd is opened once for every process of this host and kept
 * as long as this process lives; it becomes readable when the process is over, also
 * while nobody has reaped it.  Threads of this process need no such look.  A process
 * that was never seen alive is not called dead: it may live in another PID namespace. */
#ifndef SK_COMM_HANG_DIAGNOSIS_H
#define SK_COMM_HANG_DIAGNOSIS_H

#include "comm/heap.h"

enum { SK_HANG_CHAIN = 8 };

typedef struct sk_hang {
    int rank;                 /* the root; of a cycle: its first */
    bool cycle;               /* everybody waits for somebody */
    int chain[SK_HANG_CHAIN]; /* the first ranks on the way, the root among them if there is room */
    int n;                    /* ranks on the way; may be more than SK_HANG_CHAIN */
} sk_hang;

/* Whom a rank that waits for `peer` waits for in the end. */
sk_hang sk_hang_find(const sk_heaps *h, int peer);

/* Of a rank's process: R S T t D Z as ps(1) shows them, 'X' not there, '?' not on this host or not
 * begun. */
char sk_process_state(const sk_rank_state *l);
const char *sk_process_state_name(char process); /* "stopped" ... */

/* A rank of this host that is over and that `me` waits for: peer, or with -1 any that did not end
 * in good order; -1: none.  Only deaths older than grace_s count: whoever started the ranks knows
 * more, and gets the first word. */
int sk_hang_dead_rank(const sk_heaps *h, int me, int peer, double grace_s);

#endif
