/* sim_laps.h - simulating steps of many micro-batches, whose programs list a few
 * (program/repeats.h).
 *
 * A rank that comes to the end of a lap goes back to its begin, as often as the step has it.  All
 * that ranks wait for (messages, calls, arrivals) is counted, so that every lap waits for its own.
 *
 * Of schedules whose laps are pairs (F, B) not all are walked.  Nothing in a lap asks for the time:
 * if in as many laps as ranks can be apart every instruction of every rank ended the same time
 * after it had ended a lap before, so it will in all laps that follow.  Then the rest of the step
 * is that time, times its laps.  If not, twice as many laps are walked, in the end all: as where
 * ranks that do not meet in a lap take different times, for one is slow.  Steps whose ranks have
 * random factors (step_jitter.h) are walked whole at once. */
#ifndef SK_PLAN_SIM_LAPS_H
#define SK_PLAN_SIM_LAPS_H

#include "plan/sim_state.h"
#include "program/repeats.h"

struct sk_sim_laps {
    sk_repeats r;
    int more[SK_REPEATS]; /* laps that are walked behind the first */
    int at, lap;          /* the repeat that comes, or is walked; its laps so far */
    double *ended;        /* pairs: when the instructions of the lap before ended */
    double *least, *most; /* pairs, by lap: how much later instructions ended than in the one before
                           */
    double busy, exposed, core, between, flops, host; /* at the end of the last pair */
    double lap_busy, lap_exposed, lap_core, lap_between, lap_flops, lap_host;
    double exposed_by[SK_N_EXPOSED], lap_exposed_by[SK_N_EXPOSED];
};

/* How many micro-batches to walk first; 0: programs list all. */
int sk_sim_laps_first(const sk_sim *k);
void sk_sim_laps_open(sk_sim *k, sk_sim_rank *w);
/* Behind an instruction: w->pc is the next. */
void sk_sim_laps_go(sk_sim_rank *w);
/* All ranks are at their ends.  Adds the laps that were not walked; false: walk more of them. */
bool sk_sim_laps_end(sk_sim *k);

#endif
