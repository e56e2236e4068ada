/* inside.h - one rank's end of the communication; private to comm/. */
#ifndef SK_COMM_INSIDE_H
#define SK_COMM_INSIDE_H

#include "comm/coll.h"
#include "comm/heap.h"
#include "comm/wire.h"

enum { SK_ONE_SHOT = 1024 }; /* elements of an all-reduce below which everybody sums for itself */

typedef struct sk_play sk_play; /* a step list that is being played: play.c */

typedef struct sk_member { /* a group, and my counts in it */
    sk_group group;
    uint64_t hash, posted, waited;
    bool here;                     /* the heaps of all members are on this host */
    sk_play *play[SK_COMM_FLIGHT]; /* those that are played, by number mod SK_COMM_FLIGHT */
} sk_member;

struct sk_comm {
    sk_arena arena;
    sk_heaps *heaps;
    int rank, n_ranks, n_groups;
    bool crowded; /* more ranks than cores: do not spin */
    double timeout_s;
    sk_wire *wire;          /* NULL: all ranks are here */
    const int *host_of;     /* NULL: one host */
    int playing;            /* plays that are not over */
    struct sk_post *post;   /* mail.c: messages under way on the wire */
    struct sk_stage *stage; /* play.c: lists and plays that are kept for the next time */
    sk_line *line;
    sk_member *groups;
    char *base;
    int64_t bytes;
    const sk_coll_call **calls; /* per member, of the collective at hand */
    const void **src;
    void **dst;
    _Alignas(64) char scratch[SK_ONE_SHOT * 8];
};

/* --- wait.c --- */

/* After sk_fail: put my story on the board, or drop it if somebody else was first. */
sk_status sk_comm_tell(sk_comm *c, sk_status code);
/* Somebody else told the story: SK_EPEER without words. */
sk_status sk_comm_hushed(void);
/* Until *flag, raised by the rank `peer`, is at least `least`. */
sk_status sk_await(sk_comm *c, const atomic_ullong *flag, uint64_t least, int peer);

/* A wait that is not for one flag.  Zeroed at first; call sk_patience_wait() each time there was
 * nothing to do, sk_patience_end() when it is over.  It spins, yields, then arms the bell and
 * returns once more before it sleeps, so that nothing is missed between looking and sleeping. */
typedef struct sk_patience {
    int turns;
    double since; /* when it began; 0: not yet asked for */
    int peer;     /* rank that is waited for; -1: several */
    bool poll;    /* something that rings no bell (a wire) must be looked at: never sleep long */
    bool armed;   /* asleep is set, `seen` was read */
    unsigned seen;
} sk_patience;
sk_status sk_patience_wait(sk_comm *c, sk_patience *p);
void sk_patience_end(sk_comm *c, sk_patience *p);

static inline bool sk_reached(const atomic_ullong *flag, uint64_t least)
{
    return atomic_load_explicit(flag, memory_order_acquire) >= least;
}

/* A count that I alone raise. */
static inline uint64_t sk_own_count(const atomic_ullong *flag)
{
    return atomic_load_explicit(flag, memory_order_relaxed);
}

/* --- shapes --- */

static inline int64_t sk_share(int64_t n, int i, int p) { return n * i / p; }
static inline int64_t sk_seg_count(const sk_seg *s) { return s->outer * s->n * s->inner; }
int64_t sk_call_count(const sk_coll_call *call); /* elements of all segments */
/* Is [at, at + count * size) inside my heap? */
bool sk_inside(const sk_comm *c, int64_t at, int64_t count, size_t size);

/* --- mail.c --- */

bool sk_here(const sk_comm *c, int rank); /* its heap is mapped */
sk_status sk_mail_open(sk_comm *c);
void sk_mail_close(sk_comm *c);

/* --- play.c --- */

sk_status sk_stage_open(sk_comm *c);
void sk_stage_close(sk_comm *c);
/* number: the how-manieth call on the group.  go() never waits; *waits_for: a rank it could not go
 * on for, or -1. */
sk_status sk_play_begin(sk_comm *c, sk_member *m, const sk_coll_call *call, uint64_t number,
                        sk_play **out);
sk_status sk_play_go(sk_comm *c, sk_play *p, bool *over, int *waits_for);
void sk_play_end(sk_comm *c, sk_play *p);

/* --- shm.c: the work of one member, directly in the heaps; all have posted --- */

void sk_shm_work(sk_comm *c, const sk_group *g, const sk_coll_call *call);
void sk_shm_end(sk_comm *c, const sk_coll_call *call); /* after all are done */

#endif
