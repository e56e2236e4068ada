/* endpoint.h - one rank's end of the communication; private to comm/ and coll/. */
#ifndef SK_COMM_ENDPOINT_H
#define SK_COMM_ENDPOINT_H

#include "comm/heap.h"
#include "comm/shm_sync.h"
#include "comm/wire.h"
#include "base/threads.h"

/* What coll/ gives to comm/, which knows no collectives.  Set by the first collective of an
 * endpoint (sk_comm.client), so that a rank that only sends and receives has none. */
typedef struct sk_comm_client {
    /* Advance all that is in flight, without waiting.  Called by whoever waits for anything. */
    sk_status (*progress)(sk_comm *c);
    /* Share u of a call; peers[i]: the call of member i, in its heap. */
    void (*share)(sk_comm *c, const sk_sync *s, const void *const *peers, int u);
    /* Tiny calls: copies my operand to `to`; makes my result out of what all members showed. */
    void (*show)(sk_comm *c, const sk_sync *s, char *to);
    void (*result)(sk_comm *c, const sk_sync *s, const char *const *shown);
    bool (*needs)(const sk_comm *c, const sk_sync *s, int i); /* does it read what i shows? */
    /* The call of rank `peer`, at `theirs`, is not mine: fails with a message. */
    sk_status (*differ)(sk_comm *c, const sk_sync *s, int peer, const void *theirs);
} sk_comm_client;

struct sk_comm {
    sk_arena arena;
    sk_heaps *heaps;
    int rank, n_ranks, n_groups;
    const atomic_int *aborted; /* the abort word: not 0 */
    bool fenced;               /* the kernel knows no membarrier: every raise needs a fence */
    bool crowded;              /* more ranks than cores: do not spin */
    double timeout_s;
    sk_wire *wire;                                     /* NULL: all ranks are here */
    const struct sk_links *links;                      /* NULL: those of a kind are alike */
    const int *host_of;                                /* NULL: one host */
    const char *(*where)(void *ctx, int rank, int pc); /* NULL: instructions have no text */
    void *where_ctx;
    sk_rank_state *state; /* mine, in the control block */
    char *base;           /* of my heap */
    int64_t bytes;
    int64_t bytes_sent; /* so far: sk_comm_bytes_sent */
    sk_threads *team;   /* may help with large calls; NULL: none */
    struct sk_p2p *p2p; /* p2p.c: messages in flight on the wire; NULL: no wire */
    sk_group_state *groups;
    const void **peers; /* shm_sync.c: by member, for the call at hand */
    const char **shown;
    const sk_comm_client *client;       /* NULL: no collective so far */
    struct sk_collectives *collectives; /* coll/: its state */
    int in_flight;                      /* calls that need client->progress() */
    struct sk_seen_rank *seen;          /* quorum.c: by rank */
};

/* --- wait.c --- */

/* After sk_fail: put my message into the control block, or drop it if somebody else was first. */
sk_status sk_comm_report(sk_comm *c, sk_status code);
/* Until *flag, raised by the rank `peer`, is at least `least`. */
sk_status sk_await(sk_comm *c, const atomic_ullong *flag, uint64_t least, int peer);

/* A wait that is not for one flag.  Zeroed at first; call sk_backoff_wait() each time there was
 * nothing to do, sk_backoff_end() when it is over.  It spins, yields, then arms the bell and
 * returns once more before it sleeps, so that nothing is missed between looking and sleeping. */
typedef struct sk_backoff {
    int turns;
    double since, looked; /* when it began, when it last looked at the clock; 0: not yet */
    int peer;             /* rank that is waited for; -1: several */
    bool poll;  /* something that rings no bell (a wire) must be looked at: never sleep long */
    bool armed; /* asleep is set, `seen` was read */
    unsigned seen;
} sk_backoff;
sk_status sk_backoff_wait(sk_comm *c, sk_backoff *p);
void sk_backoff_end(sk_comm *c, sk_backoff *p);

static inline bool sk_reached(const atomic_ullong *flag, uint64_t least)
{
    return atomic_load_explicit(flag, memory_order_acquire) >= least;
}

bool sk_wait_register(void); /* this process may raise flags without a fence */

/* Raise a flag of mine; then ring the bells of those who may sleep for it. */
static inline void sk_raise(const sk_comm *c, atomic_ullong *flag, uint64_t to)
{
    if (c->fenced) atomic_store(flag, to);
    else atomic_store_explicit(flag, to, memory_order_release);
}

/* A count that I alone raise. */
static inline uint64_t sk_own_count(const atomic_ullong *flag)
{
    return atomic_load_explicit(flag, memory_order_relaxed);
}

/* --- comm.c --- */

bool sk_on_this_host(const sk_comm *c, int rank); /* its heap is mapped */
/* Is [at, at + count * size) inside my heap? */
bool sk_in_heap(const sk_comm *c, int64_t at, int64_t count, size_t size);

/* --- p2p.c --- */

sk_status sk_p2p_open(sk_comm *c);
/* Advances messages on the wire; nothing in flight: two loads. */
sk_status sk_p2p_progress(sk_comm *c);

#endif
