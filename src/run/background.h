/* background.h - a background worker: a thread of a rank that executes tasks in the order in which
 * they were begun.
 *
 * The rank begins a task under a number and goes on; it waits for that number when it needs the
 * result.  Copies between memories are such tasks, and the optimizer where it runs a step late. */
#ifndef SK_RUN_BACKGROUND_H
#define SK_RUN_BACKGROUND_H

#include "base/status.h"

typedef struct sk_background sk_background;
typedef sk_status sk_background_task(void *ctx);

sk_status sk_background_open(int n, sk_background **out); /* numbers are 0 to n - 1 */
void sk_background_close(sk_background *a); /* NULL is fine; finishes all tasks first */
void sk_background_begin(sk_background *a, int number, sk_background_task *run, void *ctx);
sk_status sk_background_wait(sk_background *a, int number, double timeout_s);
/* When the newest task of that number began and ended; valid after it was waited for. */
const double *sk_background_times(const sk_background *a, int number);

#endif
