/* threads.h - the threads of one rank.
 *
 * sk_threads_run() calls work(ctx, part, of) once on every thread, the caller
 * being part 0, and returns when all are done.  Threads spin briefly between
 * jobs and then sleep, so that they cost nothing while its rank waits. */
#ifndef SK_BASE_THREADS_H
#define SK_BASE_THREADS_H

#ifdef __cplusplus
extern "C" {
#endif

enum { SK_THREADS_MAX = 256 }; /* threads */

typedef struct sk_threads sk_threads;
typedef void sk_work(void *ctx, int part, int of);

sk_threads *sk_threads_open(int threads);
void sk_threads_close(sk_threads *t);
void sk_threads_run(sk_threads *t, sk_work *work, void *ctx);
int sk_threads_count(const sk_threads *t);

#ifdef __cplusplus
}
#endif

#endif
