/* optimize.h - the end of a step on the host: norm, clipping, updates.  Private to run/.
 *
 * Each function executes one instruction on the threads of the rank, over r->base.  The GPU backend
 * calls them too, for gradients and optimizer state that are offloaded to the host. */
#ifndef SK_RUN_OPTIMIZE_H
#define SK_RUN_OPTIMIZE_H

#include "run/run_state.h"

/* Shards with fewer elements are not worth waking the threads. */
enum { SK_SMALL_PIECE = 1 << 14 };

/* grad_norm.c */
void sk_do_squares(sk_run *r, const sk_inst *in);
double sk_offloaded_squares(const sk_run *r); /* the sum of all that SQUARES saw in this step */
void sk_do_stats(sk_run *r, const sk_inst *in);
void sk_do_sumsq(sk_run *r, const sk_inst *in);
void sk_do_clip(sk_run *r, const sk_inst *in);

/* Calls f with the elements of a share (part, of) of a buffer as f32, a block at a time. */
typedef void sk_see_elements(void *ctx, const real *x, int64_t n);
void sk_see_part(const sk_run *r, int buf, int part, int of, sk_see_elements *f, void *ctx);

/* optim_passes.c */
/* The k-th number of the optimizer of a parameter; and its decay, if the parameter decays. */
double sk_run_rate(const sk_run *r, const sk_param_plan *q); /* times the rate of the step */
/* Is this the momentum, and does the schedule set it?  Where it is 0 there is none to set. */
bool sk_run_cycles(const sk_run *r, const sk_param_plan *q, int k);
float sk_run_knob(const sk_run *r, const sk_param_plan *q, int k, bool decays);
float sk_run_decay(const sk_run *r, const sk_param_plan *q);
void sk_do_update(sk_run *r, const sk_inst *in); /* or hands it to the background worker */
void sk_do_predict(sk_run *r, const sk_inst *in);
sk_status sk_do_join(sk_run *r);
void sk_do_narrow(sk_run *r, const sk_inst *in);
void sk_do_pend(sk_run *r, const sk_inst *in);

/* weight_average.c */
void sk_do_average(sk_run *r, const sk_inst *in);
void sk_do_combine(sk_run *r, const sk_inst *in);

#endif
