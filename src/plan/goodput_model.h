/* goodput_model.h - what failures leave of a job's time: the best interval between checkpoints, the
 * part of the time that advances training, and how long a run takes.
 *
 * Hosts fail independently after exponential times.  A failure is noticed after `detect` seconds;
 * then all ranks start again from the last checkpoint, in `restart` seconds, in which hosts may
 * fail, too.  A checkpoint stops training for `checkpoint` seconds and is taken after every
 * `interval` seconds of work.  With one failure every M seconds and L = 1/M, an interval t takes
 *
 *     E(t) = e^(L restart) (M + detect) (e^(L (t + checkpoint)) - 1)
 *
 * seconds on average, without approximation (Daly 2006; Bouguerra et al. 2010).  t / E(t) is
 * greatest where (1 - L t) e^(L t) = e^(-L checkpoint), whatever detect and restart are.  To first
 * order (Young 1974) this is
 *
 *     t = sqrt(2 checkpoint M),    lost = checkpoint / t + (t / 2 + detect + restart) / M
 *
 * which is good as long as t is far below M.
 *
 * A failed host is back after `repair` seconds on average (exponential); until then one of `spares`
 * idle hosts takes its place.  Without a spare the job waits, or, if elastic, goes on with as many
 * whole replicas as the hosts that are left can hold, at a speed in proportion to their number, and
 * saves and restarts when it can have more.  The number of broken hosts is a birth-death chain,
 * solved exactly; that each of its states lasts for many intervals is the one approximation, which
 * sk_goodput_simulate does without: it plays one run event by event.
 *
 *     sk_goodput_in in = {.hosts = 2048, .replicas = 256, .host_mtbf = 2.3e7, .checkpoint = 5,
 *                         .detect = 10, .restart = 60};
 *     in.interval = sk_goodput_interval(5, in.host_mtbf / in.hosts);
 *     SK_TRY(sk_goodput_expect(&in, &expected));
 *
 * Times are in seconds.  Not in it: failures that come together (a switch, a rack), failures whose
 * rate changes with time, checkpoints that are damaged. */
#ifndef SK_PLAN_GOODPUT_MODEL_H
#define SK_PLAN_GOODPUT_MODEL_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sk_goodput_in {
    double host_mtbf; /* between two failures of one host; INFINITY: it never fails */
    double checkpoint, detect, restart;
    double repair;   /* mean; 0: a failed host is replaced at once */
    double interval; /* of work between two checkpoints, above 0; INFINITY: none is taken */
    int64_t hosts, spares;
    int64_t replicas; /* that the hosts hold, any number */
    bool elastic;
} sk_goodput_in;

typedef struct sk_goodput {
    double goodput; /* progress over that of all hosts without failures and checkpoints */
    double work, checkpoint, lost, down, wait; /* parts of the time: work that lasts, checkpoints,
                                                  work that is done again, detection and restarts,
                                                  waiting for repairs; their sum is 1 */
    double busy, idle; /* hosts that train; that are whole and do not, spares included (means) */
} sk_goodput;

typedef struct sk_goodput_run {
    double seconds;
    int64_t failures;
    bool done; /* false: it had `most` failures before */
} sk_goodput_run;

/* The best interval for a failure of the job every `mtbf` seconds; 0 if checkpoints cost nothing,
 * INFINITY without failures. */
double sk_goodput_interval(double checkpoint, double mtbf);
/* The best number of steps of so many seconds, at least 1; 0: take no checkpoints. */
int64_t sk_goodput_steps(double checkpoint, double mtbf, double step);
/* Young's interval; and the goodput to first order, 0 where that is below. */
double sk_goodput_young(double checkpoint, double mtbf);
double sk_goodput_first_order(const sk_goodput_in *in);

/* SK_EDATA with a sentence: a time that is negative or not a number, counts below 1. */
sk_status sk_goodput_expect(const sk_goodput_in *in, sk_goodput *out);
/* One run with `work` seconds of training to do, which ends after `most` failures at the latest. */
sk_status sk_goodput_simulate(const sk_goodput_in *in, double work, uint64_t seed, int64_t most,
                              sk_goodput_run *out);

#endif
