/* team.h - the threads of one rank.
 *
 * sk_team_run() calls work(ctx, part, of) once on every thread, the caller
 * being part 0, and returns when all are done.  Threads spin briefly between
 * jobs and then sleep, so that a team costs nothing while its rank waits. */
#ifndef SK_BASE_TEAM_H
#define SK_BASE_TEAM_H

#ifdef __cplusplus
extern "C" {
#endif

enum { SK_TEAM_MOST = 256 }; /* threads */

typedef struct sk_team sk_team;
typedef void sk_work(void *ctx, int part, int of);

sk_team *sk_team_open(int threads);
void sk_team_close(sk_team *t);
void sk_team_run(sk_team *t, sk_work *work, void *ctx);
int sk_team_size(const sk_team *t);

#ifdef __cplusplus
}
#endif

#endif
