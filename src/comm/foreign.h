/* foreign.h - collectives on memory that lies in no heap: piece by piece through a room that does.
 *
 * Costs two copies more than a collective in the heaps; the plan has no such
 * memory, so this is for callers that bring their own.  All members give the same
 * kind, type, n and room_bytes.  Any room of at least SK_FOREIGN_LEAST bytes will do; with
 * some MiB the copies stay in cache and the meetings are few. */
#ifndef SK_COMM_FOREIGN_H
#define SK_COMM_FOREIGN_H

#include "comm/comm.h"

enum { SK_FOREIGN_LEAST = 64 << 10 };

typedef struct sk_foreign {
    sk_coll_kind kind; /* all-reduce, broadcast, reduce, reduce-scatter, all-gather */
    sk_reduce reduce;
    sk_dtype type;
    int group, root;
    const void *src; /* anywhere; may be dst where comm.h allows it in the heap */
    void *dst;
    int64_t n;                /* elements of the whole, cut over the members as comm.h says */
    int64_t room, room_bytes; /* in this rank's heap, on a line of 64 */
} sk_foreign;

sk_status sk_comm_foreign(sk_comm *c, const sk_foreign *f);

#endif
