/* flight.h - the last instructions of a rank, from the ring on its line of the board.
 *
 * The ring lives in shared memory and is written before each instruction, so it
 * can be read after the rank has died, or while it hangs. */
#ifndef SK_RUN_FLIGHT_H
#define SK_RUN_FLIGHT_H

#include "base/text.h"
#include "comm/comm.h"
#include "program/program.h"

/* One line an instruction, oldest first, with the seconds before the newest of `until`. */
void sk_flight_print(const sk_program *p, const sk_line *line, double until, sk_out *o);
double sk_flight_newest(const sk_line *line); /* when its newest instruction began; 0: never */

#endif
