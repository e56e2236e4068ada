/* shm_sync.h - how the members of a group on one host synchronise over a call; private to comm/
 * and coll/.
 *
 * tiny      I show my operand beside a number in my own cache lines, wait until the others show
 *           theirs, and make my result from copies.  The bytes travel once, nobody waits at the
 *           end: a rank has SK_TINY_SLOTS such lines, and whoever shows number t is done with all
 *           before it.  A rank that shows and waits for nobody, like the root of a broadcast, may
 *           be SK_TINY_SLOTS - 1 calls ahead of the slowest.
 * flags     start() raises `posted`; wait() sees everybody's, does my share with the others' memory
 *           in place, raises `done`, and sees everybody's.  One line per rank and flag.
 * tickets   with more ranks than cores a rank that waits keeps another from working.  So the last
 *           that comes goes on at once: shares are taken from a common counter, and whoever runs
 *           takes the next one.  Sums do not depend on who does them.  A rank is scheduled once a
 *           call, which is the least.
 *
 * That members agree (same call, kind, type, shapes, members) is checked in every call, by a hash
 * that each shows.  What the work is, sk_comm_client (comm/endpoint.h) knows. */
#ifndef SK_COMM_SHM_SYNC_H
#define SK_COMM_SHM_SYNC_H

#include "comm/comm.h"

typedef enum sk_sync_way { SK_WAY_ALONE, SK_WAY_TINY, SK_WAY_FLAGS, SK_WAY_TICKETS } sk_sync_way;

typedef struct sk_sync { /* a call, as far as synchronisation goes */
    int group;
    sk_sync_way way; /* all members find the same */
    bool rooted;     /* tiny: not all wait for all */
    int64_t at;      /* of the call in my heap */
    int64_t bytes;   /* of one member's operand */
    uint64_t sign;   /* hash of all that members must agree upon */
    uint64_t says;   /* tickets: `sign` with my place and address */
    uint64_t signs;  /* tickets: the sum of what all said when `known` was filled; 0: it was not */
    const void **known; /* tickets: [member] its call, valid while that sum stays the same */
} sk_sync;

typedef struct sk_group_state { /* a group, and my counts in it */
    sk_group group;
    uint64_t hash;           /* of its members */
    bool here;               /* the heaps of all members are on this host */
    uint64_t posted, waited; /* calls that were started, that are over */
    uint64_t tiny;           /* tiny calls that were done */
    uint64_t together;       /* tiny: everybody is known to have come to this number */
    /* tickets: calls that were started; the number of each among them; and the sums of signs when
     * the last call of a place was over, in even and odd laps, if known */
    uint64_t met, lap[SK_COMM_FLIGHT];
    uint64_t before[SK_COMM_FLIGHT][2];
    bool seen[SK_COMM_FLIGHT][2];
} sk_group_state;

void sk_sync_open(sk_comm *c, int group); /* counts go on where an earlier endpoint of mine ended */
void sk_sync_start(sk_comm *c, sk_group_state *m, const sk_sync *s);
sk_status sk_sync_wait(sk_comm *c, sk_group_state *m, sk_sync *s);
bool sk_sync_test(sk_comm *c, const sk_group_state *m, const sk_sync *s); /* have all come? */

#endif
