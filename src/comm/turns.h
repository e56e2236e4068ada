/* turns.h - ranks that change the weights one after the other, on one host (sync=ssp:S).
 *
 * There is no server: the newest weights are those of the rank that changed them last.  Each step
 * of a rank has two turns.  In the first it takes the newest weights and computes a gradient with
 * them, while others go on; in the second it takes the newest once more, updates them, and its own
 * are the newest.  Turns are numbered from 0, have one rank at a time, and go in the order in which
 * they were asked for, or in the order that a replay imposes: so the numbers of all turns are all
 * that time decides.
 *
 *     sk_turn_begin(c, step); sk_turn_bound(c, step, most);     at most so far ahead of the slowest
 *     sk_turn_take(c, -1, &turn); ... sk_turn_state(c) is mine ...; sk_turn_end(c);
 *
 * Who waits for a turn, or for slower ranks, waits up to the timeout of the job for each turn and
 * each step of another rank: one that goes on, however slowly, does not hang. */
#ifndef SK_COMM_TURNS_H
#define SK_COMM_TURNS_H

#include "comm/comm.h"

typedef struct sk_turn_state { /* of whoever has the turn */
    bool begun;
    int newest;      /* 1 + the rank whose weights they are; 0: all have the same */
    int64_t updates; /* of the optimizer so far */
    double loss, tokens, aux, drops, right; /* sums of the updates since rank 0 took them */
} sk_turn_state;

void sk_turn_begin(sk_comm *c, int64_t step);
void sk_turn_done(sk_comm *c, int64_t steps); /* so many steps of mine are over */
int64_t sk_turn_ahead(const sk_comm *c);      /* the most steps of a rank that are over */
/* Until no rank has less than step - most steps behind it; most -1: any. */
sk_status sk_turn_bound(sk_comm *c, int64_t step, int most);
/* Until all other ranks have done as many steps as I have. */
sk_status sk_turn_settle(sk_comm *c);
/* turn: the number that is imposed; -1: the next.  The first of all is `first`. */
sk_status sk_turn_take(sk_comm *c, int64_t first, int64_t turn, int64_t *got);
void sk_turn_end(sk_comm *c);
sk_turn_state *sk_turn_state_of(sk_comm *c);

#endif
