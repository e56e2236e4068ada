/* inside.h - what reading, judging and printing a layout share.  Private to layout/. */
#ifndef SK_LAYOUT_INSIDE_H
#define SK_LAYOUT_INSIDE_H

#include "layout/layout.h"

enum { SK_MOST_RANKS = 1 << 20 };

extern const char sk_usual_schedule[];   /* where none is said */
extern const char *const sk_by_names[3]; /* of sk_by */

/* Do its words go together, and is each of them about something? */
sk_status sk_layout_sense(const sk_layout *l, int n_ranks);

#endif
