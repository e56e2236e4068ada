/* deadline.h - how long a rank may keep another waiting before that is called a hang.
 *
 * No user should have to choose this number.  The program is known, so its step is priced on the
 * preset `cpu` (plan/machine.h): every instruction of the rank and its share of every collective,
 * multiplied where the ranks of the host outnumber its cores.  Allowed are
 *
 *     SK_TIMEOUT_LEAST_S + SK_TIMEOUT_TIMES * priced step + bytes of a checkpoint / SK_SLOW_DISK
 *
 * The preset is optimistic (80 Gflop/s a thread), machines are shared and sanitizers are slow:
 * hence the factor.  The last term is there because ranks wait at a barrier while
 * rank 0 writes a model or the others their share.  A small model gets 20 s; GPT-2 124M
 * on two ranks of one thread 475 s, its step of 3072 tokens being priced at 15 s.  A rank
 * that dies is noticed in milliseconds whatever the deadline is; the deadline is for ranks that
 * live and do not come. */
#ifndef SK_PLAN_DEADLINE_H
#define SK_PLAN_DEADLINE_H

#include "comm/comm.h"
#include "program/program.h"
#include "plan/machine.h"

#define SK_TIMEOUT_LEAST_S 20.0
#define SK_TIMEOUT_TIMES   20.0
#define SK_SLOW_DISK       20e6 /* bytes per second */

/* Seconds.  cores: of this host, shared by ranks_here ranks. */
double sk_deadline(const sk_program *p, int cores, int ranks_here);

/* For sk_run_opts.timeout_s: the seconds that the user asked for, or, where that is 0, the deadline
 * of a rank with this program and these heaps. */
double sk_timeout(double asked, const sk_program *p, const sk_heaps *h);

/* A rank's training step by the machine's prices, waits for others not counted. */
double sk_priced_step(const sk_program *p, const sk_machine *m);

#endif
