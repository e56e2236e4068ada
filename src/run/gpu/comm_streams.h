/* sides.h - the streams of a GPU beside the one that computes.
 *
 * Collectives and messages go on streams of their own (fabric.h says why).  What they read is there
 * when the computing stream has come to the instruction that starts them, and what they bring is
 * waited for by the instruction that says so: both by events.  At the end of a section the
 * computing stream waits for all, so that a recorded section is whole.  Private to run/. */
#ifndef SK_RUN_COMM_STREAMS_H
#define SK_RUN_COMM_STREAMS_H

#include "run/gpu/fabric.h"
#include "run/run_state.h"

typedef struct sk_comm_streams sk_comm_streams;

/* All ranks come here together; NULL in *out where a program exchanges nothing. */
sk_status sk_comm_streams_open(sk_arena *a, sk_run *r, sk_device *d, sk_stream *compute, char *base,
                               const sk_launch *l, sk_comm_streams **out);
void sk_comm_streams_close(sk_comm_streams *s); /* NULL is fine */
/* START, WAIT, SEND, RECV or SENT. */
sk_status sk_comm_streams_issue(sk_comm_streams *s, int pc);
sk_status sk_comm_streams_join(sk_comm_streams *s, int from,
                               int to);              /* compute waits for all of the section */
sk_status sk_comm_streams_watch(sk_comm_streams *s); /* the host waits: is all well? */
/* Of a traced section that is over: when bytes moved, by instruction; seconds from `zero`, which is
 * `begin`. */
sk_status sk_comm_streams_times(const sk_comm_streams *s, sk_event *zero, int from, int to,
                                double begin, double *moving);
void sk_comm_streams_abort(sk_comm_streams *s);

#endif
