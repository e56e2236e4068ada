/* rearrange.h - instructions that move or change numbers within one rank.  Private to run/cpu/. */
#ifndef SK_RUN_REARRANGE_H
#define SK_RUN_REARRANGE_H

#include "run/run_state.h"

/* Executes SLICE, PASTE, ADD, ZERO, PACK, UNPACK, ENCODE or DECODE; false: it is another one. */
bool sk_do_rearrange(sk_run *r, const sk_inst *in);

#endif
