/* aside.h - a thread that does things beside a rank, in the order in which they were begun.
 *
 * The rank begins something under a number and goes on; it waits for that number when it needs it.
 * Copies between memories are done so, and the optimizer, where it is a step late. */
#ifndef SK_RUN_BACKGROUND_H
#define SK_RUN_BACKGROUND_H

#include "base/status.h"

typedef struct sk_background sk_background;
typedef sk_status sk_background_task(void *ctx);

sk_status sk_background_open(int n, sk_background **out); /* numbers are 0 to n - 1 */
void sk_background_close(sk_background *a); /* NULL is fine; what was begun is done first */
void sk_background_begin(sk_background *a, int number, sk_background_task *deed, void *ctx);
sk_status sk_background_wait(sk_background *a, int number, double timeout_s);
/* When the newest of that number ran: from, to.  After it was waited for. */
const double *sk_background_times(const sk_background *a, int number);

#endif
