/* quorum_block.h - what quorum.c and turns.c keep in the control block; private to comm/. */
#ifndef SK_COMM_QUORUM_BLOCK_H
#define SK_COMM_QUORUM_BLOCK_H

#include "comm/heap.h"
#include "comm/quorum.h"
#include "comm/turns.h"

typedef struct sk_quorum_rank {
    _Alignas(SK_FLAG_BYTES) atomic_ullong at;   /* the step that it is in */
    atomic_ullong met;                          /* twice the step, and how often it met in it */
    _Alignas(SK_FLAG_BYTES) atomic_ullong done; /* steps that its weights have taken in */
    atomic_int readers;                         /* of its weights; CHANGES: they change */
    atomic_int reads;                           /* 1 + the rank whose weights it reads; 0: none */
    double sums[SK_QUORUM_SUMS];
    char result[SK_QUORUM_WINDOW][SK_QUORUM_RESULT]; /* by step */
} sk_quorum_rank;

typedef struct sk_quorum_block {
    _Alignas(SK_FLAG_BYTES) atomic_ullong word;    /* step << 32 | who has come */
    _Alignas(SK_FLAG_BYTES) atomic_ullong sealed;  /* steps */
    unsigned set[SK_QUORUM_WINDOW];                /* by step: who committed it */
    _Alignas(SK_FLAG_BYTES) atomic_ullong tickets; /* turns that were asked for, */
    _Alignas(SK_FLAG_BYTES) atomic_ullong over;    /* that are over: counted from the first */
    atomic_int holder;                             /* 1 + the rank whose turn it is; 0: none */
    atomic_int asked[SK_QUORUM_RANKS];             /* by ticket: 1 + who has it */
    sk_turn_state state;
    sk_quorum_rank rank[];
} sk_quorum_block;

/* What a rank saw of another one when it looked: sk_quorum_look(). */
typedef struct sk_seen_rank {
    long long heartbeat;
    double since, looked; /* the heartbeat is that; a look */
} sk_seen_rank;

/* Is there a rank behind `step` that has done nothing for as long as a wait may take? */
sk_status sk_quorum_look(sk_comm *c, int64_t step);

#endif
