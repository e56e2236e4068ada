/* sides.h - the streams of a GPU beside the one that computes.
 *
 * Collectives and messages go on streams of their own (fabric.h says why).  What they read is there
 * when the computing stream has come to the instruction that starts them, and what they bring is
 * waited for by the instruction that says so: both by events.  At the end of a section the
 * computing stream waits for all, so that a recorded section is whole.  Private to run/. */
#ifndef SK_RUN_SIDES_H
#define SK_RUN_SIDES_H

#include "run/fabric.h"
#include "run/inside.h"

typedef struct sk_sides sk_sides;

/* All ranks come here together; NULL in *out where a program exchanges nothing. */
sk_status sk_sides_open(sk_arena *a, sk_run *r, sk_device *d, sk_stream *compute, char *base,
                        const sk_launch *l, sk_sides **out);
void sk_sides_close(sk_sides *s); /* NULL is fine */
/* START, WAIT, SEND, RECV or SENT. */
sk_status sk_sides_issue(sk_sides *s, int pc);
sk_status sk_sides_join(sk_sides *s, int from, int to); /* compute waits for all of the section */
sk_status sk_sides_watch(sk_sides *s);                  /* the host waits: is all well? */
/* Of a traced section that is over: when bytes moved, by instruction; seconds from `zero`, which is
 * `begin`. */
sk_status sk_sides_times(const sk_sides *s, sk_event *zero, int from, int to, double begin,
                         double *moving);
void sk_sides_abort(sk_sides *s);

#endif
