/* collectives.h - the collectives of one endpoint; private to coll/. */
#ifndef SK_COLL_COLLECTIVES_H
#define SK_COLL_COLLECTIVES_H

#include "coll/algorithm.h"
#include "coll/segment.h"
#include "comm/endpoint.h"

enum { SK_CALL_BUCKETS = 256 };

/* A call that was seen before: what was found out about it then.  Calls do not change while they
 * are in flight; one that was changed in between is looked at again. */
typedef struct sk_call_state {
    sk_sync sync; /* first: comm/ hands back a pointer to it */
    const sk_coll_call *call;
    char head[sizeof(sk_coll_call)]; /* as it was then, with its first segment */
    sk_seg first;
    bool executes; /* as a step list or by a library; else directly in the heaps of one host */
    struct sk_call_state *next;
} sk_call_state;

typedef struct sk_execution sk_execution; /* a step list that is being executed: execute.c */

typedef struct sk_group_calls { /* in flight on a group, by number mod SK_COMM_FLIGHT */
    sk_call_state *state[SK_COMM_FLIGHT];
    sk_execution *execution[SK_COMM_FLIGHT]; /* NULL: in the heaps */
    double over_at[SK_COMM_FLIGHT];          /* when an execution was over; 0: not yet */
} sk_group_calls;

typedef struct sk_collectives {
    sk_call_state *states[SK_CALL_BUCKETS];
    sk_group_calls *groups;
    struct sk_executor *executor; /* compiled schedules and executions, kept for the next time */
    double over_at;   /* when the last call that was waited for was over, if it was executed */
    const void **src; /* room for pointers, n_ranks for each thread of the team */
    void **dst;
    int64_t *moved; /* for each thread of the team, 0 between calls: shm_collectives.c */
} sk_collectives;

/* --- check_call.c --- */

int64_t sk_call_count(const sk_coll_call *call); /* elements of all segments */
/* By its step list, or by a library; not in the heaps. */
bool sk_call_executes(const sk_coll_call *call);
sk_status sk_call_check(sk_comm *c, const sk_group_state *m, const sk_coll_call *call);
/* All-to-all-v: what goes to whom is known only when the call starts. */
sk_status sk_call_check_counts(const sk_comm *c, const sk_group *g, const sk_coll_call *call);

/* --- call_state.c --- */

/* What is known of a call, found out now if it is new or was changed. */
sk_status sk_call_state_of(sk_comm *c, const sk_group_state *m, const sk_coll_call *call,
                           sk_call_state **out);
/* A peer is at another call: fails with a message that describes both. */
sk_status sk_call_differ(sk_comm *c, const sk_sync *s, int peer, const void *theirs);

/* --- execute.c --- */

void sk_executor_open(sk_comm *c);
/* number: which call on the group it is.  progress() never waits; *waits_for: a rank it could not
 * go on for, or -1. */
sk_status sk_execute_begin(sk_comm *c, sk_group_state *m, const sk_call_state *s, uint64_t number,
                           sk_execution **out);
sk_status sk_execute_progress(sk_comm *c, sk_execution *p, bool *over, int *waits_for);
void sk_execute_end(sk_comm *c, sk_execution *p);
/* The next sk_execute_progress() will wait for the other members: a library's own collective.
 * Only sk_comm_wait() may call it then. */
bool sk_execute_blocks(const sk_execution *p);

/* --- shm_collectives.c: the work of a call in the heaps; sk_comm_client (comm/endpoint.h) --- */

void sk_shm_share(sk_comm *c, const sk_sync *s, const void *const *peers, int u);
void sk_shm_show(sk_comm *c, const sk_sync *s, char *to);
void sk_shm_result(sk_comm *c, const sk_sync *s, const char *const *shown);
bool sk_shm_needs(const sk_comm *c, const sk_sync *s, int i);

/* --- bytes_sent.c --- */

/* Bytes that must leave this member for a call that a library does with its own means, so that
 * nobody sees what it moves; of all-to-all-v, as its counts say now. */
int64_t sk_call_bytes_sent(const sk_comm *c, const sk_group *g, const sk_coll_call *call);

#endif
