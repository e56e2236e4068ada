/* inside.h - one rank's end of the communication; private to comm/. */
#ifndef SK_COMM_ENDPOINT_H
#define SK_COMM_ENDPOINT_H

#include "coll/algorithm.h"
#include "coll/segment.h"
#include "comm/heap.h"
#include "comm/wire.h"
#include "base/threads.h"

/* How a call is done.  All members find the same. */
typedef enum sk_way {
    SK_WAY_ALONE,   /* a group of one */
    SK_WAY_TINY,    /* shown in the flag's lines, everybody makes its own result */
    SK_WAY_FLAGS,   /* in the heaps: all have come, shares, all are done */
    SK_WAY_TICKETS, /* the same with more ranks than cores: whoever runs takes the next share */
    SK_WAY_EXECUTE  /* a step list */
} sk_way;

typedef struct sk_call_state { /* a call that was looked at before */
    const sk_coll_call *call;
    char head[sizeof(sk_coll_call)]; /* as it was then, with its first segment */
    sk_seg first;
    int64_t bytes; /* of all segments */
    uint64_t sign; /* hash of all that members must agree upon */
    sk_way way;
    /* by tickets: where the members' calls lie, and the sum of what they say if that is so */
    const sk_coll_call **calls;
    uint64_t says, signs; /* what I say of mine; of all, once calls are known */
    struct sk_call_state *next;
} sk_call_state;
enum { SK_CALL_BUCKETS = 256 }; /* buckets of calls that are remembered */

typedef struct sk_execution sk_execution; /* a step list that is being played: play.c */

typedef struct sk_group_state { /* a group, and my counts in it */
    sk_group group;
    uint64_t hash, posted, waited;
    uint64_t met, tiny; /* calls by tickets that were started; tiny ones that were done */
    sk_call_state *flight[SK_COMM_FLIGHT];
    /* by tickets: the meeting's signs when its last call was over, in even and odd laps; known? */
    uint64_t before[SK_COMM_FLIGHT][2];
    bool seen[SK_COMM_FLIGHT][2];
    uint64_t lap[SK_COMM_FLIGHT];       /* by tickets: the number among those */
    uint64_t together;                  /* tiny: everybody is known to have come to this number */
    bool here;                          /* the heaps of all members are on this host */
    double over_at[SK_COMM_FLIGHT];     /* when a play was over; 0: not yet */
    sk_execution *play[SK_COMM_FLIGHT]; /* those that are played, by number mod SK_COMM_FLIGHT */
} sk_group_state;

struct sk_comm {
    sk_arena arena;
    sk_heaps *heaps;
    int rank, n_ranks, n_groups;
    const atomic_int *aborted; /* the abort word: not 0 */
    bool fenced;               /* the kernel knows no membarrier: every raise needs a fence */
    bool crowded;              /* more ranks than cores: do not spin */
    double timeout_s;
    sk_wire *wire;                                     /* NULL: all ranks are here */
    const int *host_of;                                /* NULL: one host */
    const char *(*where)(void *ctx, int rank, int pc); /* NULL: instructions have no text */
    void *where_ctx;
    int playing;         /* plays that are not over */
    double over_at;      /* when the last call that was waited for was over, if it was played */
    struct sk_p2p *post; /* mail.c: messages under way on the wire */
    struct sk_executor *stage; /* play.c: lists and plays that are kept for the next time */
    sk_rank_state *line;
    sk_group_state *groups;
    char *base;
    int64_t bytes;
    int64_t left;     /* bytes so far: sk_comm_bytes_sent */
    sk_threads *team; /* NULL: alone */
    sk_call_state *known[SK_CALL_BUCKETS];
    const sk_coll_call **calls, **table; /* per member, of the collective at hand; room for them */
    const void **src; /* room for pointers, n_ranks for each thread of the team */
    void **dst;
    int64_t *moved;     /* for each thread of the team, 0 between calls: shm.c */
    const char **shown; /* per member: its tiny data; NULL: use the heaps */
};

/* --- wait.c --- */

/* After sk_fail: put my story on the board, or drop it if somebody else was first. */
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

/* --- shapes --- */

int64_t sk_call_count(const sk_coll_call *call); /* elements of all segments */
/* Is [at, at + count * size) inside my heap? */
bool sk_in_heap(const sk_comm *c, int64_t at, int64_t count, size_t size);

/* --- mail.c --- */

bool sk_on_this_host(const sk_comm *c, int rank); /* its heap is mapped */
sk_status sk_p2p_open(sk_comm *c);
void sk_p2p_close(sk_comm *c);

/* --- play.c --- */

sk_status sk_executor_open(sk_comm *c);
void sk_executor_close(sk_comm *c);
/* number: the how-manieth call on the group.  go() never waits; *waits_for: a rank it could not go
 * on for, or -1. */
sk_status sk_execute_begin(sk_comm *c, sk_group_state *m, const sk_coll_call *call, uint64_t number,
                           sk_execution **out);
sk_status sk_execute_progress(sk_comm *c, sk_execution *p, bool *over, int *waits_for);
void sk_execute_end(sk_comm *c, sk_execution *p);

/* --- shm.c: the work of one collective, in the heaps; all have come, c->calls is filled --- */

/* Share u of n: everything that lands in member u's memory or, where the result is the same
 * everywhere, the u-th part of it.  Any member may do any share. */
void sk_shm_share(sk_comm *c, const sk_group *g, const sk_coll_call *call, int u);
/* My own result only, out of c->shown. */
void sk_shm_mine(sk_comm *c, const sk_group *g, const sk_coll_call *call);
/* What I show: all my segments of SRC, one after the other.  Returns bytes; 0 if I have none. */
int64_t sk_shm_show(const sk_comm *c, const sk_group *g, const sk_coll_call *call, char *to);

/* --- left.c --- */

/* Bytes that must leave this member for a call that a library does with its own means, so that
 * nobody sees what it moves; of all-to-all-v, as its counts say now. */
int64_t sk_call_bytes_sent(const sk_comm *c, const sk_group *g, const sk_coll_call *call);

/* --- meet.c: how members of one host come together over a call --- */

void sk_sync_start(sk_comm *c, sk_group_state *m, const sk_call_state *k);
sk_status sk_sync_wait(sk_comm *c, sk_group_state *m, sk_call_state *k);
bool sk_sync_test(sk_comm *c, const sk_group_state *m, const sk_call_state *k);
sk_status sk_comm_differ(sk_comm *c, const sk_coll_call *mine, int peer,
                         const sk_coll_call *theirs);

#endif
