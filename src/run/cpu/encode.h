/* encode.h - the instructions ENCODE and DECODE, on all threads of a rank. */
#ifndef SK_RUN_ENCODE_H
#define SK_RUN_ENCODE_H

#include "base/threads.h"
#include "program/program.h"

/* The error feedback is kept in units of unscaled gradients, so it outlives changes of loss_scale.
 */
void sk_run_encode(const sk_program *p, const sk_inst *in, char *base, float loss_scale,
                   sk_threads *team);
void sk_run_decode(const sk_program *p, const sk_inst *in, char *base, sk_threads *team);

#endif
