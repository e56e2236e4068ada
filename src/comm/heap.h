/* heap.h - what lies in the shared control area; private to comm/.
 *
 * The area is apart from the heaps, so that a heap holds exactly the planned
 * bytes.  Every flag is a 64-bit count that only grows, has one writer and 128
 * bytes of its own (x86 fetches lines in pairs).  A count of k says that the
 * first k things happened; it is stored after what it announces.
 *
 *     board | line, bell of each rank | slot[rank][group] | pair[from][to] | extra
 *
 * Slots and pairs that are never used are never touched and cost no memory. */
#ifndef SK_COMM_HEAP_H
#define SK_COMM_HEAP_H

#include "comm/comm.h"

enum { SK_FLAG_ROOM = 128 };

/* One rank's end of one group. */
typedef struct sk_slot {
    _Alignas(SK_FLAG_ROOM) atomic_ullong posted; /* collectives started */
    atomic_ullong members;                       /* hash of who is in the group */
    int64_t call[SK_COMM_FLIGHT];                /* where in my heap the k-th call lies */
    _Alignas(SK_FLAG_ROOM) atomic_ullong done;   /* collectives of which I did my share */
} sk_slot;

/* Messages from one rank to another. */
typedef struct sk_pair {
    _Alignas(SK_FLAG_ROOM) atomic_ullong sent; /* written by the sender, like note */
    struct sk_note {
        int64_t at, bytes, tag; /* at: in the sender's heap */
    } note[SK_COMM_FLIGHT];
    _Alignas(SK_FLAG_ROOM) atomic_ullong received; /* written by the receiver */
} sk_pair;

/* Where a rank sleeps.  `ring` is the one word with many writers: who publishes something and
 * sees the rank asleep adds 1 and wakes the futex. */
typedef struct sk_bell {
    _Alignas(SK_FLAG_ROOM) atomic_uint asleep;
    atomic_uint ring;
    _Alignas(SK_FLAG_ROOM) atomic_ullong barrier; /* barriers this rank entered */
} sk_bell;

bool sk_heaps_quiet(const sk_heaps *h); /* no abort so far; one load */
int sk_heaps_ranks(const sk_heaps *h);
bool sk_heaps_crowded(const sk_heaps *h); /* more ranks than cores: do not spin */
sk_slot *sk_heaps_slot(const sk_heaps *h, int rank, int group);
sk_pair *sk_heaps_pair(const sk_heaps *h, int from, int to);
sk_bell *sk_heaps_bell(const sk_heaps *h, int rank);
void sk_bell_ring(sk_bell *b);                                 /* wake the rank if it sleeps */
void sk_bell_sleep(sk_bell *b, unsigned seen, double seconds); /* until rung since `seen` */

#endif
