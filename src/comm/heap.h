/* heap.h - heaps and what lies in the control block; private to comm/ and coll/.
 *
 * The area is apart from the heaps, so that a heap holds exactly the planned
 * bytes.  Every flag is a 64-bit count that only grows, has one writer and 128
 * bytes of its own (x86 fetches lines in pairs).  A count of k says that the
 * first k things happened; it is stored after what it announces.
 *
 *     head | word | state, bell of each rank | slot[rank][group] | channel[from][to]
 *         | quorum | extra
 *
 * The area is a sparse memfd (comm/control_block.h).  Head, word, lines and extra are
 * reserved when it is made; slots, pairs and the quorum (quorum.h) are never touched where they
 * are not used, and cost no memory then.  All of it exists for every rank of the world, heaps only
 * for the ranks of this host. */
#ifndef SK_COMM_HEAP_H
#define SK_COMM_HEAP_H

#include "comm/control_block.h"

enum { SK_FLAG_BYTES = 128, SK_CONTROL_BLOCK_VERSION = 3 };

/* First in the area, so that a program that did not make it can tell whether it understands it. */
typedef struct sk_control_block_head {
    char magic[16]; /* "skein-board" */
    int32_t version, n_ranks;
    int64_t word_at, ranks_at, slots_at, pairs_at, quorum_at, extra_at,
        extra_bytes;                            /* of the parts */
    int64_t rank_bytes, slot_bytes, pair_bytes; /* of one */
    int64_t pid;
    double started; /* seconds since 1970 */
    char label[SK_LABEL];
} sk_control_block_head;

/* The abort word and the error report. */
typedef struct sk_abort_word {
    _Alignas(SK_FLAG_BYTES) atomic_int word, stop;
    int code, rank; /* these and the report: valid once the word says told */
    char report[SK_REPORT_BYTES];
    /* The barrier of this host's ranks: entries so far, by all of them; barriers that all entered,
     * raised by the last. */
    _Alignas(SK_FLAG_BYTES) atomic_ullong entered;
    _Alignas(SK_FLAG_BYTES) atomic_ullong passed;
} sk_abort_word;

enum {
    SK_TINY = 8 << 10,
    SK_TINY_SLOTS = 8
}; /* bytes that travel in the flag's own lines; their turns */

/* What a rank shows the others when there is little of it: number and bytes side by side, the
 * first of them in one cache line. */
typedef struct sk_tiny {
    _Alignas(SK_FLAG_BYTES) atomic_ullong seq; /* the how-manieth of this group */
    uint64_t sign;                             /* of the call: members must agree */
    int64_t call;                              /* where it lies in my heap */
    char data[SK_TINY];
} sk_tiny;

/* Calls that go by tickets: who came, which shares are taken, which are finished.  Written by all
 * members, one line for each call under way.  Counts only grow: each lap of SK_COMM_FLIGHT calls
 * adds the number of members. */
typedef struct sk_ticket_counts {
    _Alignas(64) atomic_ullong came;
    atomic_ullong signs[2]; /* sums of what members said of their calls, in even and odd laps: who
                               is ahead may be in the next lap already, but not in the one after */
    atomic_ullong taken, finished;
} sk_ticket_counts;

/* One rank's end of one group. */
typedef struct sk_group_slot {
    _Alignas(SK_FLAG_BYTES) atomic_ullong posted; /* collectives started */
    atomic_ullong members;                        /* hash of who is in the group */
    atomic_ullong met;                            /* those among them that went by tickets */
    int64_t call[SK_COMM_FLIGHT];                 /* where in my heap the k-th call lies */
    uint64_t sign[SK_COMM_FLIGHT];
    _Alignas(SK_FLAG_BYTES) atomic_ullong done; /* collectives of which I did my share */
    sk_ticket_counts meeting[SK_COMM_FLIGHT];   /* the first member's only */
    sk_tiny tiny[SK_TINY_SLOTS];
} sk_group_slot;

/* Messages from one rank to another. */
typedef struct sk_channel {
    _Alignas(SK_FLAG_BYTES) atomic_ullong sent; /* written by the sender, like note */
    struct sk_message {
        int64_t at, bytes, tag; /* at: in the sender's heap */
    } note[SK_COMM_FLIGHT];
    _Alignas(SK_FLAG_BYTES) atomic_ullong received; /* written by the receiver */
} sk_channel;

/* Where a rank sleeps.  `ring` is the one word with many writers: who publishes something and
 * sees the rank asleep adds 1 and wakes the futex. */
typedef struct sk_bell {
    _Alignas(SK_FLAG_BYTES) atomic_uint asleep;
    atomic_uint ring;
    _Alignas(SK_FLAG_BYTES) atomic_ullong barrier; /* barriers this rank entered */
    char notice[SK_SMALL_BYTES];                   /* small_bcast.c: read between two barriers */
} sk_bell;

struct sk_heaps {
    sk_arena arena;
    int n, n_here, cores; /* ranks of the world, of this host */
    void *reserved;       /* addresses, with the mapping inside */
    size_t reserved_bytes;
    char **base; /* NULL for ranks of other hosts */
    int64_t *bytes;
    int *alias_of; /* the rank that keeps the first alias_bytes of its heap: itself, or another */
    int64_t *alias_bytes;
    int fd; /* of the control block */
    sk_control_block_head *head;
    size_t control_block_bytes;
    sk_abort_word *abort;
    struct sk_rank_block {
        sk_rank_state line;
        sk_bell bell;
    } * ranks;
    sk_group_slot *slots;
    sk_channel *channels;
    struct sk_quorum_block *quorum;
    void *extra;
};

/* What heaps are asked for.  All ranks of a host ask for the same. */
typedef struct sk_heaps_ask {
    int n_ranks;
    const int64_t *bytes; /* by rank of the world */
    const bool *here;     /* which of them are on this host; NULL: all */
    bool shared;          /* ranks are processes */
    int cores;            /* that the ranks of this host may use; 0: those of this process */
    sk_heap_aliases aliases;
    size_t extra_bytes;
} sk_heaps_ask;

/* Two ways to the same heaps: the first rank of a host makes them, the others map what it hands
 * to them, its control block (h->fd) and *heap_fd: -1 if no other process needs it, else close it
 * when it is handed out.  sk_heaps_map owns control_block_fd from now on, also if it fails, and
 * never heap_fd. */
sk_status sk_heaps_make(const sk_heaps_ask *q, int *heap_fd, sk_heaps **out);
sk_status sk_heaps_map(const sk_heaps_ask *q, int control_block_fd, int heap_fd, sk_heaps **out);

/* heap_alias.c: heaps that begin with another's memory. */
bool sk_heap_aliased(const sk_heaps_ask *q, int r); /* here, and the first bytes are not its own */
size_t sk_heap_alias_bytes(const sk_heaps_ask *q, int r); /* how many */
sk_status sk_heap_aliases_check(const sk_heaps_ask *q);
/* After the heaps are placed in the mapping `map` of fd. */
sk_status sk_heap_aliases_map(sk_heaps *h, const sk_heaps_ask *q, int fd, const char *map);
/* Are the first `end` bytes of these heaps one memory? */
bool sk_heaps_same(const sk_heaps *h, const int *ranks, int n, int64_t end);

/* control_block.c: the control block of h->n ranks, new or the one behind fd, which it owns.
 * After a failure sk_heaps_close still ends what there is. */
sk_status sk_control_block_make(sk_heaps *h, size_t extra_bytes);
/* Why the kernel gave no shared memory, and for EFBIG what nobody would guess. */
const char *sk_control_block_refusal(int err);
sk_status sk_control_block_map(sk_heaps *h, int fd, bool writing);

bool sk_heaps_quiet(const sk_heaps *h); /* no abort so far; one load */
int sk_heaps_ranks(const sk_heaps *h);
bool sk_heaps_crowded(const sk_heaps *h); /* more ranks than cores: do not spin */
sk_channel *sk_heaps_channel(const sk_heaps *h, int from, int to);
void sk_bell_wake(sk_bell *b);
void sk_bell_sleep(sk_bell *b, unsigned seen, double seconds); /* until rung since `seen` */

/* Inline: a collective of 4 KiB takes a microsecond and asks these twenty times. */
static inline sk_group_slot *sk_heaps_slot(const sk_heaps *h, int rank, int group)
{
    return &h->slots[(size_t)rank * SK_COMM_GROUPS + (size_t)group];
}
static inline sk_bell *sk_heaps_bell(const sk_heaps *h, int rank) { return &h->ranks[rank].bell; }
static inline void sk_bell_ring(sk_bell *b) /* wake the rank if it sleeps */
{
    if (atomic_load(&b->asleep)) sk_bell_wake(b);
}

#endif
