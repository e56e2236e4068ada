/* comm_streams.h - the communication streams of a GPU.
 *
 * Collectives and messages are put on streams of their own (fabric.h says why).  Events keep the
 * order: a comm stream waits until the compute stream has come to the instruction that starts the
 * call, and the compute stream waits for the call at the instruction that says so.  At the end of a
 * section the compute stream waits for all comm streams, so that a captured section is complete.
 * Private to run/gpu/. */
#ifndef SK_RUN_COMM_STREAMS_H
#define SK_RUN_COMM_STREAMS_H

#include "run/gpu/fabric.h"
#include "run/run_state.h"

typedef struct sk_comm_streams sk_comm_streams;

/* All ranks call it together; NULL in *out where there is one rank. */
sk_status sk_comm_streams_open(sk_arena *a, sk_run *r, sk_device *d, sk_stream *compute, char *base,
                               const sk_launch *l, sk_comm_streams **out);
void sk_comm_streams_close(sk_comm_streams *s); /* NULL is fine */
/* START, WAIT, SEND, RECV or SENT. */
sk_status sk_comm_streams_issue(sk_comm_streams *s, int pc);
/* Compute waits for all of the section that ran in this step of r (sk_run_due). */
sk_status sk_comm_streams_join(sk_comm_streams *s, const sk_run *r, int from, int to);
sk_status sk_comm_streams_watch(sk_comm_streams *s); /* while the host waits: are all ranks well? */
/* Of a traced section that is over: when bytes moved, by instruction.  The event `zero` was at the
 * time `begin`. */
sk_status sk_comm_streams_times(const sk_comm_streams *s, sk_event *zero, const sk_run *r, int from,
                                int to, double begin, double *moving);
void sk_comm_streams_abort(sk_comm_streams *s);

#endif
