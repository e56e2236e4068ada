/* code.h - encoding and decoding as instructions: on all threads, some elements at a time. */
#ifndef SK_RUN_ENCODE_H
#define SK_RUN_ENCODE_H

#include "base/threads.h"
#include "program/program.h"

/* What was lost is kept as of gradients that are not scaled. */
void sk_run_encode(const sk_program *p, const sk_inst *in, char *base, float loss_scale,
                   sk_threads *team);
void sk_run_decode(const sk_program *p, const sk_inst *in, char *base, sk_threads *team);

#endif
