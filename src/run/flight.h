/* flight.h - the flight recorder of a rank, in words: where it is and what it did last.
 *
 * The record of a rank (comm/control_block.h) lies in shared memory and is written before each
 * instruction, so it can be read after the rank has died, or while it hangs. */
#ifndef SK_RUN_FLIGHT_H
#define SK_RUN_FLIGHT_H

#include "base/strings.h"
#include "comm/comm.h"
#include "program/program.h"

/* One line an instruction, oldest first, with the seconds before the newest of `until`. */
void sk_flight_print(const sk_program *p, const sk_rank_state *line, double until, sk_out *o);
double
sk_flight_newest(const sk_rank_state *line); /* when its newest instruction began; 0: never */

/* An instruction without the columns of listings; NULL if the program has no such one. */
char *sk_flight_inst(const sk_program *p, int64_t pc, sk_arena *a);
/* "before the first step", "in step 7, instruction 97 B0 op ..".  p NULL: only the number. */
char *sk_flight_place(const sk_program *p, const sk_rank_state *line, sk_arena *a);

/* For sk_comm_opts: .where = sk_flight_where, .where_ctx = a book that lives as long as the comm.
 * all may be NULL, or hold NULL for ranks whose program is not here, or one of their class. */
typedef struct sk_flight_book {
    const sk_program *mine;
    const sk_program *const *all;
    char text[512];
} sk_flight_book;
const char *sk_flight_where(void *book, int rank, int pc);

#endif
