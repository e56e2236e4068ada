/* pass.h - a pass that a word of a layout brings along.
 *
 * compile.c has the tables of stations.  A word (layout/word.h) that rewrites the program names the
 * station behind which its pass runs; the pass runs only in layouts that say the word.
 *
 * What such a pass can do: change the order of instructions and write attributes of instructions,
 * calls and buffers (program.h).  A technique that needs no more is one file: parts/word/hoist.c.
 * A technique that adds buffers, collectives or instructions needs what is private to program/
 * (lowering.h): it is a file of src/program, a row of the tables in compile.c, and a word that only
 * says it.
 *
 *   What may pass what   sk_insts_depend (acts.h): one of two instructions writes what the other
 *                        reads or writes, so that their order stays.  sk_operands calls a function
 *                        for every operand of an instruction.
 *   To move              sk_insts_move (acts.h): a moved instruction is one of the task where it
 *                        arrives.
 *   Order of calls       Members of a group make the same calls in the same order (P1).  So a
 *                        pass decides about a START by what all members see alike: tasks, layers,
 *                        the layout; and leaves the STARTs of a group in one order on all ranks.
 *   What is not there    WAITs, algorithms, offsets, launches: later passes write them. */
#ifndef SK_PROGRAM_PASS_H
#define SK_PROGRAM_PASS_H

#include "program/program.h"

typedef struct sk_pass {
    const char *name;    /* for --pass NAME; NULL: the word's.  No other pass has it */
    const char *station; /* the pass of compile.c behind which it runs */
    const char *doc;     /* one line, for `skein explain --pass list` */
    /* Rewrites the list of instructions.  `tmp` ends with the compilation; lists of the program
     * grow in it, too. */
    sk_status (*list)(sk_program *p, sk_arena *tmp);
} sk_pass;

/* May a pass of a word run behind this one?  From `lower`, which writes the list, to `buckets`:
 * what follows orders messages, places waits and plans memory for the list as it is then. */
bool sk_pass_station(const char *name);

/* Are the passes of the word complete, behind such a station, and with names of their own?  Every
 * compilation asks it of every word. */
struct sk_word;
sk_status sk_pass_check(const struct sk_word *w);

#endif
