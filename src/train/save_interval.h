/* save_interval.h - when to save a checkpoint, by the clock (ckpt.every=10m).
 *
 * A save is due when `every` seconds have passed since the last one, and when all saves so far
 * together with the next one (assumed to cost as much as the last) take at most
 * SK_SAVE_INTERVAL_COST of the time.  So a large model on a slow disk saves less often than asked,
 * and a crash loses more steps.  Only the cost of the first save is unknown; what it takes beyond
 * its part delays the second.
 *
 * Rank 0 has the clock and decides for all (launcher_channel.h). */
#ifndef SK_TRAIN_SAVE_INTERVAL_H
#define SK_TRAIN_SAVE_INTERVAL_H

#define SK_SAVE_INTERVAL_COST 0.01 /* of the run */

typedef struct sk_save_interval {
    double every;        /* seconds; 0: not by the clock */
    double began, last;  /* when the run began; when the last save was over */
    double spent, stall; /* seconds in which the run stood still: for all saves, for the last */
} sk_save_interval;

double sk_save_interval_next(const sk_save_interval *p); /* when the next save is due */
void sk_save_interval_saved(sk_save_interval *p, double now, double stall);

#endif
