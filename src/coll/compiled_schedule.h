/* compiled_schedule.h - a step list made ready for execution; private to coll/.
 *
 * What can be known of a list before any call: the number of each message between two members, how
 * long a send may stay in flight, how much staging is needed. */
#ifndef SK_COLL_COMPILED_SCHEDULE_H
#define SK_COLL_COMPILED_SCHEDULE_H

#include "coll/algorithm.h"

enum { SK_NEVER = 1 << 30 };

typedef struct sk_compiled_schedule {
    const sk_coll *coll;
    sk_steps steps;
    int *ordinal;      /* [step] the how-manieth send to its peer, or receive from it */
    int *due;          /* [step] of a send: the first round that writes what it sends */
    int *staging;      /* [step] first cell of the staging buffer it may use; -1: none */
    int *box;          /* [n + 1] which notes of my outbox are for member j */
    int staging_cells; /* most that one round uses */
    bool reads_src;    /* some step reads SK_SRC */
    bool apart;        /* SRC and DST may not be one memory; lists are proved to allow it */
    struct sk_compiled_schedule *next;
} sk_compiled_schedule;

/* The list of one member, from the arena.  sk_coll_can() has been asked. */
void sk_schedule_compile(sk_arena *a, const sk_coll *c, const sk_coll_ask *ask,
                         sk_compiled_schedule *out);

#endif
