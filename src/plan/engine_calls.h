/* engine_calls.h - what engines do more about a collective than skein's own programs, by the lines
 * of their profile (plan/machine.h): calls for each tensor, copies of parts, sums in 32 bits,
 * weights that are gathered a second time in the backward pass. */
#ifndef SK_PLAN_ENGINE_CALLS_H
#define SK_PLAN_ENGINE_CALLS_H

#include "plan/machine.h"
#include "program/program.h"

/* Seconds of a call that a library executes; `in` starts it. */
double sk_engine_call(const sk_machine *m, const sk_program *p, const sk_inst *in, sk_reach reach);
/* Seconds for which the rank passes over its own memory before the call; 0 of other instructions.
 */
double sk_engine_passes(const sk_machine *m, const sk_program *p, const sk_inst *in);
/* How many times the instruction is executed: 2 if the engine recomputes it where skein's program
 * does not. */
int sk_engine_times(const sk_machine *m, const sk_program *p, int pc);
/* Is the call, a sum of sharded gradients, first waited for at the update? */
bool sk_engine_sums_late(const sk_machine *m, const sk_program *p, const sk_call_plan *plan);

#endif
