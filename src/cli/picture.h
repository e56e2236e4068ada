/* picture.h - one SVG that shows what a layout makes of a job, for `skein plan --svg`.
 *
 * Four panels under each other, all read from what a run would execute: the mesh with its
 * stages and hosts; the shards of one parameter and the ranks that hold them; the tasks of a
 * simulated step; the memory of each class of ranks, instruction by instruction.
 *
 * The file is plain text without scripts, in light and dark colours.  However many ranks there
 * are it stays under a megabyte: a panel that would grow shows a sample, and says which.  Elements
 * that tests count have a class ("rank", "piece", "task", "memory") and, for memory, the exact
 * bytes as data- attributes. */
#ifndef SK_CLI_PICTURE_H
#define SK_CLI_PICTURE_H

#include "base/strings.h"
#include "plan/simulator.h"
#include "train/setup.h"

typedef struct sk_picture {
    const sk_setup *setup;          /* with the program of each class */
    const sk_machine *machine;      /* that was simulated */
    const sk_simulation *simulated; /* with its trace */
    const int *host_of;             /* rank -> host; NULL: not known */
    const char *tensor;             /* a parameter; NULL: the largest */
} sk_picture;

/* Could a picture be written there?  Asked before hours of work that it is to show. */
sk_status sk_picture_place(const char *path);
sk_status sk_picture_write(sk_arena *a, const sk_picture *in, const char *path);

/* --- between the files of the picture --- */

enum { SK_SHEET_WIDE = 1160, SK_SHEET_LEFT = 20, SK_SHEET_COLOURS = 12 }; /* pixels; colours */

typedef struct sk_sheet {
    sk_arena *arena;
    sk_out out; /* what is drawn so far */
    int y;      /* where it ends */
} sk_sheet;

extern const char *const sk_sheet_colours[SK_SHEET_COLOURS]; /* black letters can be read on them */

/* Text for XML: at most `most` characters, the rest is three dots; what is no UTF-8 is '?'. */
const char *sk_sheet_text(sk_arena *a, const char *s, int most);
/* The title of a panel, and a line of small print under it. */
void sk_sheet_title(sk_sheet *s, const char *title);
void sk_sheet_note(sk_sheet *s, const char *note);
/* A coloured square with a word, at x; returns where the next one can stand. */
int sk_sheet_key(sk_sheet *s, int x, const char *colour, const char *word);

/* The sheet as a file. */
sk_status sk_sheet_save(const sk_sheet *s, const char *path);

void sk_picture_mesh(sk_sheet *s, const sk_picture *in);
sk_status sk_picture_shards(sk_sheet *s, const sk_picture *in, const sk_tensor *t);
void sk_picture_pipeline(sk_sheet *s, const sk_picture *in);
sk_status sk_picture_memory(sk_sheet *s, const sk_picture *in);

#endif
