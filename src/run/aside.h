/* aside.h - a thread that does things beside a rank, in the order in which they were begun.
 *
 * The rank begins something under a number and goes on; it waits for that number when it needs it.
 * Copies between memories are done so, and the optimizer, where it is a step late. */
#ifndef SK_RUN_ASIDE_H
#define SK_RUN_ASIDE_H

#include "base/status.h"

typedef struct sk_aside sk_aside;
typedef sk_status sk_deed(void *ctx);

sk_status sk_aside_open(int n, sk_aside **out); /* numbers are 0 to n - 1 */
void sk_aside_close(sk_aside *a);               /* NULL is fine; what was begun is done first */
void sk_aside_begin(sk_aside *a, int number, sk_deed *deed, void *ctx);
sk_status sk_aside_wait(sk_aside *a, int number, double timeout_s);
/* When the newest of that number ran: from, to.  After it was waited for. */
const double *sk_aside_times(const sk_aside *a, int number);

#endif
