/* part_help.h - what a part says about itself, for `skein list` and `skein help`.
 *
 *     for (const sk_part_kind *k = sk_kinds; k->kind; k++)
 *         if ((p = sk_part_find(k, "adamw"))) fputs(sk_part_help(a, k->kind, p), stdout);
 *
 * Every kind has name and doc; kinds whose parts declare more (keys, forms, costs) have a row in
 * part_help.c.  A part needs none. */
#ifndef SK_CLI_PART_HELP_H
#define SK_CLI_PART_HELP_H

#include "cli/cmd.h"

/* Every part begins with these two. */
typedef struct sk_part_head {
    const char *name, *doc;
} sk_part_head;

const sk_part_head *sk_part_find(const sk_part_kind *k, const char *name); /* NULL: none */
/* One line: numbers that it is chosen by; "": it has none. */
const char *sk_part_cost(sk_arena *a, const char *kind, const void *part);
/* Kind, name, doc, and all that the part declares. */
char *sk_part_help(sk_arena *a, const char *kind, const void *part);
/* The names of parts of any kind that are nearest to this one, up to 2; returns how many. */
int sk_part_near(sk_arena *a, const char *name, const char *out[2]);
/* Of all parts of this name, with what stands behind a colon left out, of any kind but one ("": of
 * any); and the names of all parts of a kind that is called so.  NULL: there is nothing. */
char *sk_part_help_on(sk_arena *a, const char *name, const char *but);

#endif
