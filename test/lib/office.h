/* office.h - for tests: a wire between threads of one process (comm/wire.h).
 *
 * Short messages are copied when they are sent.  Long ones lie with their sender until
 * somebody takes them, so that a sender that writes there too early is found out.
 *
 *     sk_office *o = sk_office_open(n);
 *     opts.wire = sk_office_wire(o, rank); */
#ifndef SK_TEST_OFFICE_H
#define SK_TEST_OFFICE_H

#include "comm/wire.h"

typedef struct sk_office sk_office;
sk_office *sk_office_open(int n_ranks);
sk_wire *sk_office_wire(sk_office *o, int rank);
int64_t sk_office_sent(const sk_wire *w); /* bytes so far; -1: the wire is no office's */
void sk_office_close(sk_office *o);

#endif
