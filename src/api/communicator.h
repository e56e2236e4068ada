/* communicator.h - a communicator of the library: one rank's end, and its memory; private to api/.
 *
 * A rank's heap:   calls, SK_CALL_SLOTS of SK_CALL_BYTES | memory that is given out
 *
 * A call stays in its slot while peers may read it.  At most SK_CALLS_OPEN are under
 * way, and they end in order; who begins call k + SK_CALL_SLOTS has seen all members
 * in call k + SK_CALL_SLOTS - SK_CALLS_OPEN or later, so that all are past call k.
 *
 * Memory is given out first fit, in lines of 64 bytes: to the caller, to calls that
 * need a workspace, and to operands that lie elsewhere, for the time of the call. */
#ifndef SK_API_COMMUNICATOR_H
#define SK_API_COMMUNICATOR_H

#include "api/handles.h"
#include "comm/boot.h"

enum { SK_CALL_SLOTS = 128, SK_CALL_BYTES = 256, SK_CALLS_OPEN = 32 };

typedef struct sk_world { /* what ranks of this process have in common */
    sk_arena arena;
    atomic_int refs;
    sk_heaps *heaps;
    sk_boot boot;
    bool joined;        /* another launcher started the ranks */
    const int *host_of; /* NULL: one host */
    int n;
    double timeout_s;
} sk_world;

typedef struct sk_comm_memory_block {
    int64_t at, bytes;
} sk_comm_memory_block;

/* What was chosen for a call.  Choosing plays the algorithms message by message, which may take a
 * millisecond, and programs make the same few calls again and again. */
typedef struct sk_comm_choice {
    int kind, reduction, type, root, pin, algorithm;
    int64_t n; /* elements; 0: nothing was chosen */
    uint64_t asked, degrees;
} sk_comm_choice;

enum { SK_COMM_CHOICES = 16 };

struct skein_comm {
    sk_arena arena;
    sk_world *world;
    int rank, *ranks; /* of the group of all: 0, 1, 2 ... */
    sk_comm *comm;
    char *base;
    int64_t bytes;
    struct {
        sk_comm_memory_block *v; /* rising, apart */
        int n, cap;
    } given;
    int64_t posted, waited;                 /* calls */
    int64_t workspace[SK_CALLS_OPEN];       /* of those under way: where it lies, 0: none */
    sk_comm_choice chosen[SK_COMM_CHOICES]; /* the last ones */
    int n_chosen;                           /* ever */
};

/* api_memory.c: -1: not enough is free.  Memory of the heap, not of the caller's own. */
int64_t sk_comm_memory_alloc(skein_comm *c, int64_t bytes);
bool sk_comm_memory_free(skein_comm *c, int64_t at); /* false: it was not given out */
bool sk_comm_memory_has(const skein_comm *c, const void *p, int64_t bytes);
/* A sentence on how much was asked for and is there. */
sk_status sk_comm_memory_short(const skein_comm *c, const char *who, int64_t bytes);

/* api_comm.c: is it fit for use? */
sk_status sk_communicator_check(const skein_comm *c, const char *who);
/* What a function of comm/ said, as the caller is told it. */
sk_status sk_communicator_error(const skein_comm *c, sk_status st);

#endif
