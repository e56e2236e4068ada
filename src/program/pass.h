/* pass.h - a pass that a word of a layout brings along.
 *
 * compile.c has the tables of stations.  A word (layout/word.h) that rewrites the program names the
 * station behind which its pass runs; the pass runs only in layouts that say the word.  So a
 * technique that needs no new instruction and no new attribute is one file: parts/word/hoist.c.
 * What a pass may know of the others stands in the program: the attributes of instructions, calls
 * and buffers (program.h). */
#ifndef SK_PROGRAM_PASS_H
#define SK_PROGRAM_PASS_H

#include "program/program.h"

typedef struct sk_pass {
    const char *station; /* the pass of compile.c behind which it runs */
    const char *doc;     /* one line, for `skein explain --pass list` */
    /* Rewrites the list of instructions.  `tmp` ends with the compilation; lists of the program
     * grow in it, too. */
    sk_status (*list)(sk_program *p, sk_arena *tmp);
} sk_pass;

/* May a pass of a word run behind this one?  From `lower`, which writes the list, to `buckets`:
 * what follows orders messages, places waits and plans memory for the list as it is then. */
bool sk_pass_station(const char *name);

#endif
