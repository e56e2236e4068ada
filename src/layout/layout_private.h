/* layout_private.h - what reading, validating and printing a layout share.  Private to layout/. */
#ifndef SK_LAYOUT_LAYOUT_PRIVATE_H
#define SK_LAYOUT_LAYOUT_PRIVATE_H

#include "layout/word.h"

enum { SK_MOST_RANKS = 1 << 20 };

/* Do its words go together, and does each of them have something to do?  validate.c */
sk_status sk_layout_validate(const sk_layout *l, int n_ranks);

#endif
