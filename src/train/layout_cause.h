/* layout_cause.h - naming words of a layout in error reports.
 *
 * Nothing outside of parts/word spells a word.  A message that must name the word that is the
 * reason for something finds it by taking the words away one at a time: the cause is the word
 * without which the condition does not hold.
 *
 *     sk_fail(SK_ECONF, "leave out '%s'", sk_layout_cause(a, &layout, sk_layout_offloads)); */
#ifndef SK_TRAIN_LAYOUT_CAUSE_H
#define SK_TRAIN_LAYOUT_CAUSE_H

#include "base/arena.h"
#include "layout/layout.h"

typedef bool sk_layout_condition(const sk_layout *l);

/* The word as the layout says it: "replica", "gist=60", "offload=state", a sentence; "layout" if it
 * is no single word.  The condition holds for `l`. */
const char *sk_layout_cause(sk_arena *a, const sk_layout *l, sk_layout_condition *holds);
/* What `after` says and `before` does not: "recompute=full zero=3"; "": nothing. */
const char *sk_layout_added(sk_arena *a, const sk_layout *before, const sk_layout *after);

#endif
