/* wait.c - the test of waits that end badly: who is blamed, how soon, and who is not.
 *
 * Ranks are processes without a launcher: nobody but the ranks themselves can see
 * that one of them is dead or stopped.  Every job has a deadline.  Output: each
 * failed check, then "waits: N checks, N bad". */
#include "base/clock.h"
#include "comm/endpoint.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEADLINE_S = 60, MAX_RANKS = 4, HEAP = 4096 };

static int checks, bad;

static bool check(bool good, const char *what, const char *job, int line)
{
    checks++;
    bad += !good;
    if (!good) printf("comm_wait.c:%d: %s: %s\n", line, job, what);
    return good;
}
#define CHECK(cond) check((cond), #cond, j->name, __LINE__)

typedef struct job {
    const char *name;
    int n;
    double timeout_s[MAX_RANKS];
    sk_status (*work)(struct job *j, sk_comm *c, int rank);
    bool reap; /* the dead are reaped at once, else they stay zombies to the end */
    sk_heaps *heaps;
    pid_t pid[MAX_RANKS];
    double began;
} job;

typedef struct outcome { /* of a rank, in shared memory */
    int status;
    double seconds;
} outcome;

static void nap(double seconds) { usleep((useconds_t)(seconds * 1e6)); }

static const char *text_of(void *ctx, int rank, int pc)
{
    snprintf(ctx, 64, "%d gemm of rank %d", pc, rank);
    return ctx;
}

static sk_status be(job *j, int rank)
{
    char text[64];
    int ids[MAX_RANKS] = {0, 1, 2, 3};
    sk_group all = {j->n, rank, ids};
    sk_comm *c = NULL;
    sk_comm_opts o = {.rank = rank, .groups = &all, .n_groups = 1, .timeout_s = j->timeout_s[rank]};
    SK_TRY(sk_comm_open(j->heaps, &o, &c));
    c->where = text_of;
    c->where_ctx = text;
    sk_status st = j->work(j, c, rank);
    sk_comm_close(c);
    atomic_store(&sk_heaps_rank_state(j->heaps, rank)->state, 3);
    return st;
}

static void note(job *j, int rank, sk_status st)
{
    outcome *o = (outcome *)sk_heaps_extra(j->heaps) + rank;
    *o = (outcome){(int)st, sk_now() - j->began};
}

static void begin(job *j)
{
    int64_t bytes[MAX_RANKS] = {HEAP, HEAP, HEAP, HEAP};
    alarm(DEADLINE_S);
    sk_status st = sk_heaps_open(j->n, bytes, true, sizeof(outcome) * MAX_RANKS, &j->heaps);
    sk_assert(!st);
    j->began = sk_now();
    fflush(NULL);
    for (int r = 0; r < j->n; r++) {
        note(j, r, (sk_status)-1);
        j->pid[r] = fork();
        if (j->pid[r]) continue;
        alarm(DEADLINE_S);
        note(j, r, be(j, r));
        _exit(0);
    }
}

/* Waits for the ranks that can end; what is left then is killed. */
static void end(job *j)
{
    const outcome *o = sk_heaps_extra(j->heaps);
    for (double until = sk_now() + 10; sk_now() < until; nap(0.005)) {
        int left = 0;
        for (int r = 0; r < j->n; r++) {
            siginfo_t how = {0};
            waitid(P_PID, (id_t)j->pid[r], &how, WEXITED | WNOHANG | (j->reap ? 0 : WNOWAIT));
            left += ((const volatile outcome *)&o[r])->status == -1 && how.si_pid == 0 &&
                    !kill(j->pid[r], 0) &&
                    atomic_load(&sk_heaps_rank_state(j->heaps, r)->step) != 99;
        }
        if (!left) break;
    }
    for (int r = 0; r < j->n; r++) kill(j->pid[r], SIGKILL);
    while (wait(NULL) > 0) continue;
}

static const char *report_of(job *j)
{
    const char *message = "";
    return sk_heaps_aborted(j->heaps, NULL, NULL, &message) ? message : "";
}

static void says(job *j, const char *words)
{
    if (!CHECK(strstr(report_of(j), words))) printf("  no '%s' in: %s\n", words, report_of(j));
}

static int status_of(job *j, int rank)
{
    return ((const outcome *)sk_heaps_extra(j->heaps))[rank].status;
}

static double seconds_of(job *j, int rank)
{
    return ((const outcome *)sk_heaps_extra(j->heaps))[rank].seconds;
}

/* A line as a rank in the middle of training has it.  Step 99 marks one that will not end. */
static void at(job *j, int rank, int step, int pc)
{
    atomic_store(&sk_heaps_rank_state(j->heaps, rank)->step, step);
    atomic_store(&sk_heaps_rank_state(j->heaps, rank)->pc, pc);
}

/* --- 0 waits for 1, 1 for 2, 2 for 3, and 3 is stopped --- */

static sk_status chain(job *j, sk_comm *c, int rank)
{
    SK_TRY(sk_comm_barrier(c));
    at(j, rank, rank == 3 ? 99 : 6, 90 + rank);
    if (rank == 3) {
        raise(SIGSTOP);
        return SK_OK;
    }
    return sk_comm_recv(c, rank + 1, 1, NULL, 0);
}

static void test_chain(void)
{
    job one = {.name = "chain", .n = 4, .timeout_s = {0.5, 20, 20, 20}, .work = chain}, *j = &one;
    char words[64];
    begin(j);
    end(j);
    says(j, "rank 0 waited 0.5");
    says(j, "in step 7, instruction 90 gemm of rank 0");
    says(j, "for rank 1, which waits for rank 2, which waits for rank 3;");
    says(j, "instruction 93 gemm of rank 3");
    snprintf(words, sizeof words, "rank 3 (pid %d) is stopped", j->pid[3]);
    says(j, words);
    snprintf(words, sizeof words, "kill -CONT %d", j->pid[3]);
    says(j, words);
    for (int r = 0; r < 3; r++) CHECK(status_of(j, r) == SK_EPEER && seconds_of(j, r) < 1.5);
    sk_heaps_close(j->heaps);
}

/* --- a rank that was stopped in the middle of a wait looks as if it waited itself --- */

static sk_status stopped(job *j, sk_comm *c, int rank)
{
    SK_TRY(sk_comm_barrier(c));
    at(j, rank, rank == 1 ? 99 : 0, 5);
    return sk_comm_recv(c, !rank, 1, NULL, 0); /* each waits for the other: 1 is stopped in it */
}

static void test_stopped(void)
{
    job one = {.name = "stopped", .n = 2, .timeout_s = {0.6, 20}, .work = stopped}, *j = &one;
    begin(j);
    while (atomic_load(&sk_heaps_rank_state(j->heaps, 1)->waits_for) != 0) nap(0.001);
    nap(0.05);
    kill(j->pid[1], SIGSTOP);
    end(j);
    says(j, "rank 1 (pid ");
    says(j, "is stopped");
    CHECK(status_of(j, 0) == SK_EPEER);
    sk_heaps_close(j->heaps);
}

static sk_status circle(job *j, sk_comm *c, int rank)
{
    (void)j;
    SK_TRY(sk_comm_barrier(c));
    return sk_comm_recv(c, (rank + 1) % 3, 1, NULL, 0);
}

static void test_circle(void)
{
    job one = {.name = "circle", .n = 3, .timeout_s = {0.4, 20, 20}, .work = circle}, *j = &one;
    begin(j);
    end(j);
    says(j, "they wait for each other");
    sk_heaps_close(j->heaps);
}

/* --- death, seen by the ranks alone --- */

static sk_status death(job *j, sk_comm *c, int rank)
{
    SK_TRY(sk_comm_barrier(c));
    at(j, rank, 3, 40 + rank);
    if (rank == 2) {
        nap(0.1);
        raise(SIGKILL);
    }
    return sk_comm_recv(c, rank ? 0 : 2, 1, NULL, 0);
}

static void test_death(bool reap)
{
    job one = {.name = reap ? "dead and reaped" : "dead",
               .n = 3,
               .timeout_s = {30, 30, 30},
               .work = death,
               .reap = reap},
        *j = &one;
    char words[64];
    begin(j);
    end(j);
    snprintf(words, sizeof words, "rank 2 (pid %d) died in step 4, instruction 42 gemm of rank 2",
             j->pid[2]);
    says(j, words);
    says(j, "rank 0 waited for it in step 4, instruction 40");
    for (int r = 0; r < 2; r++) CHECK(status_of(j, r) == SK_EPEER && seconds_of(j, r) < 1.1);
    sk_heaps_close(j->heaps);
}

/* Whoever started the ranks knows the signal: it has the first word. */
static void test_first_word(void)
{
    job one = {.name = "first word", .n = 3, .timeout_s = {30, 30, 30}, .work = death}, *j = &one;
    begin(j);
    waitid(P_PID, (id_t)j->pid[2], &(siginfo_t){0}, WEXITED | WNOWAIT);
    nap(0.03);
    CHECK(sk_heaps_abort(j->heaps, SK_EPEER, 2, "rank 2 died: signal 9"));
    end(j);
    says(j, "signal 9");
    sk_heaps_close(j->heaps);
}

/* --- what is no failure --- */

/* Rank 1 gives what it owes and leaves; 0 comes late.  Then 0 waits for several, of which 1 is gone
 * in good order and 2 is slow. */
static sk_status leaving(job *j, sk_comm *c, int rank)
{
    (void)j;
    SK_TRY(sk_comm_barrier(c));
    if (rank == 1) return sk_comm_send(c, 0, 1, c->base, 0);
    nap(rank ? 0.9 : 0.3);
    if (rank == 2) return sk_comm_send(c, 0, 1, c->base, 0);
    SK_TRY(sk_comm_recv(c, 1, 1, NULL, 0));
    sk_backoff p = {.peer = -1};
    sk_status st = SK_OK;
    while (!st && !sk_reached(&sk_heaps_channel(c->heaps, 2, 0)->sent, 1))
        st = sk_backoff_wait(c, &p);
    sk_backoff_end(c, &p);
    return st;
}

static void test_leaving(void)
{
    job one = {.name = "leaving", .n = 3, .timeout_s = {5, 5, 5}, .work = leaving}, *j = &one;
    begin(j);
    end(j);
    for (int r = 0; r < 3; r++) CHECK(status_of(j, r) == SK_OK);
    CHECK(!*report_of(j));
    sk_heaps_close(j->heaps);
}

static sk_status late(job *j, sk_comm *c, int rank)
{
    (void)j;
    SK_TRY(sk_comm_barrier(c));
    if (!rank) return sk_comm_recv(c, 1, 1, NULL, 0);
    nap(1.6);
    return sk_comm_send(c, 0, 1, c->base, 0);
}

/* Time in which the waiting rank itself was stopped does not count: Ctrl-Z, fg. */
static void test_absent(void)
{
    job one = {.name = "absent", .n = 2, .timeout_s = {1.0, 5}, .work = late}, *j = &one;
    begin(j);
    nap(0.3);
    kill(j->pid[0], SIGSTOP);
    nap(1.1);
    kill(j->pid[0], SIGCONT);
    end(j);
    CHECK(status_of(j, 0) == SK_OK);
    CHECK(!*report_of(j));
    sk_heaps_close(j->heaps);
}

/* --- ranks as threads: nobody can be dead, a deadline still holds --- */

typedef struct thread {
    job *j;
    int rank;
} thread;

static sk_status alone(job *j, sk_comm *c, int rank)
{
    (void)j;
    SK_TRY(sk_comm_barrier(c));
    if (!rank) return sk_comm_recv(c, 1, 1, NULL, 0);
    nap(0.8);
    return SK_OK;
}

static void *be_thread(void *arg)
{
    thread *t = arg;
    note(t->j, t->rank, be(t->j, t->rank));
    return NULL;
}

static void test_threads(void)
{
    job one = {.name = "threads", .n = 2, .timeout_s = {0.4, 5}, .work = alone}, *j = &one;
    int64_t bytes[] = {HEAP, HEAP};
    pthread_t t[2];
    thread ctx[2] = {{j, 0}, {j, 1}};
    CHECK(!sk_heaps_open(2, bytes, false, sizeof(outcome) * MAX_RANKS, &j->heaps));
    j->began = sk_now();
    for (int r = 0; r < 2; r++) CHECK(!pthread_create(&t[r], NULL, be_thread, &ctx[r]));
    for (int r = 0; r < 2; r++) pthread_join(t[r], NULL);
    CHECK(status_of(j, 0) == SK_EPEER && status_of(j, 1) == SK_OK);
    says(j, "rank 0 waited 0.4");
    says(j, "rank 1 (pid ");
    CHECK(!strstr(report_of(j), "died"));
    sk_heaps_close(j->heaps);
}

int main(void)
{
    test_chain();
    test_stopped();
    test_circle();
    test_death(false);
    test_death(true);
    test_first_word();
    test_leaving();
    test_absent();
    test_threads();
    printf("waits: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
