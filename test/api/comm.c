/* comm.c - skein.h: collectives and messages from a program of one's own.
 * Every kind, with memory of any place, by each algorithm, on threads and on processes, against
 * what it must be; two halves and a wait that ends in time; mistakes, failures and deaths. Output:
 * "api_comm: N checks, N bad". */
#include "skein.h"

#include "lib/check.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 4096, N_ALGORITHMS = 4 };
static const char *const algorithms[N_ALGORITHMS] = {NULL, "ring", "direct", "shm"};

/* Whole numbers, so that sums are exact in any order. */
static float value(int rank, int64_t i) { return (float)((i * 7 + rank * 13) % 101); }

static float summed(int n, int64_t i, skein_reduction how)
{
    float x = value(0, i);
    for (int r = 1; r < n; r++) {
        float y = value(r, i);
        x = how == SKEIN_MAX ? (y > x ? y : x) : how == SKEIN_MIN ? (y < x ? y : x) : x + y;
    }
    return x;
}

static int64_t part_at(int64_t n, int i, int p) { return n * i / p; }

/* How many elements of the result are wrong; -1: the call failed. */
static int64_t try_call(skein_comm *c, skein_kind kind, int64_t n, const char *algorithm,
                        bool inside, skein_reduction how)
{
    static _Thread_local float own[2][2 * MOST];
    int p = skein_comm_ranks(c), me = skein_comm_rank(c), root = p - 1;
    int64_t from = part_at(n, me, p), mine = part_at(n, me + 1, p) - from, wrong = 0;
    float *src = own[0], *dst = own[1];
    if (inside && (skein_comm_alloc(c, (int64_t)sizeof own[0], (void **)&src) ||
                   skein_comm_alloc(c, (int64_t)sizeof own[1], (void **)&dst)))
        return -1;
    for (int64_t i = 0; i < n; i++)
        src[i] = value(me, kind == SKEIN_ALL_GATHER ? from + i : i), dst[i] = -1;
    skein_call k = {.size = sizeof k,
                    .kind = kind,
                    .reduction = how,
                    .root = root,
                    .src = src,
                    .dst = dst,
                    .n = n,
                    .algorithm = algorithm};
    int st = skein_comm_call(c, &k);
    if (kind == SKEIN_ALL_REDUCE || (kind == SKEIN_REDUCE && me == root))
        for (int64_t i = 0; i < n; i++) wrong += dst[i] != summed(p, i, how);
    if (kind == SKEIN_SCAN)
        for (int64_t i = 0; i < n; i++) wrong += dst[i] != summed(me + 1, i, how);
    if (kind == SKEIN_REDUCE_SCATTER)
        for (int64_t i = 0; i < mine; i++) wrong += dst[i] != summed(p, from + i, how);
    if (kind == SKEIN_BROADCAST)
        for (int64_t i = 0; i < n; i++) wrong += dst[i] != value(root, i);
    for (int r = 0; r < p && kind == SKEIN_ALL_GATHER; r++)
        for (int64_t i = part_at(n, r, p); i < part_at(n, r + 1, p); i++)
            wrong += dst[i] != value(r, i);
    for (int r = 0; r < p && kind == SKEIN_ALL_TO_ALL; r++)
        for (int64_t i = 0; i < mine; i++) wrong += dst[r * mine + i] != value(r, from + i);
    if (inside && (skein_comm_free(c, src) || skein_comm_free(c, dst))) return -1;
    return st ? -1 : wrong;
}

static int every_call(skein_comm *c, void *ctx)
{
    static const skein_kind kinds[] = {SKEIN_ALL_REDUCE, SKEIN_REDUCE_SCATTER, SKEIN_ALL_GATHER,
                                       SKEIN_BROADCAST,  SKEIN_REDUCE,         SKEIN_ALL_TO_ALL,
                                       SKEIN_SCAN};
    static const int64_t sizes[] = {0, 1, 3, 64, 1000, MOST};
    (void)ctx;
    for (int k = 0; k < 7; k++)
        for (int s = 0; s < 6; s++)
            for (int a = 0; a < N_ALGORITHMS; a++)
                for (int inside = 0; inside < 2; inside++) {
                    skein_reduction how = (skein_reduction)((k + s) % 3);
                    int64_t wrong = try_call(c, kinds[k], sizes[s], algorithms[a], inside, how);
                    bool cannot =
                        wrong < 0 && k && algorithms[a] && strstr(sk_error_line(), algorithms[a]);
                    if (cannot)
                        continue; /* not every algorithm does every kind; all ranks see it alike */
                    if (wrong) {
                        fprintf(stderr, "kind %d, n %lld, %s: %lld wrong: %s\n", (int)kinds[k],
                                (long long)sizes[s], algorithms[a] ? algorithms[a] : "chosen",
                                (long long)wrong, sk_error_line());
                        return 1;
                    }
                }
    return 0;
}

/* --- messages, types, order --- */

static int messages(skein_comm *c, void *ctx)
{
    int p = skein_comm_ranks(c), me = skein_comm_rank(c), st;
    int64_t x[3] = {me, 10 * me, 7}, y[3] = {-1, -1, -1};
    double mean = me;
    uint16_t bf16[2] = {0x3f80, 0x4000}; /* 1, 2 */
    (void)ctx;
    if ((st = skein_send_recv(c, (me + 1) % p, x, (me + p - 1) % p, y, sizeof x))) return st;
    if (y[0] != (me + p - 1) % p || y[1] != 10 * y[0] || y[2] != 7) return 1;
    if (p > 1 && me == 0 && (st = skein_send(c, p - 1, x, sizeof x))) return st;
    if (p > 1 && me == p - 1 && ((st = skein_recv(c, 0, y, sizeof y)) || y[0] != 0))
        return st ? st : 2;
    if ((st = skein_send_recv(c, me, x, me, y, sizeof x)) || y[1] != 10 * me) return st ? st : 3;
    if ((st = skein_all_reduce(c, &mean, 1, SKEIN_F64, SKEIN_MEAN)) || mean != (p - 1) / 2.0)
        return st ? st : 4;
    if ((st = skein_all_reduce(c, bf16, 2, SKEIN_BF16, SKEIN_MAX)) || bf16[1] != 0x4000)
        return st ? st : 5;
    if ((st = skein_all_reduce(c, x, 3, SKEIN_I64, SKEIN_SUM)) || x[2] != 7 * p) return st ? st : 6;
    if ((st = skein_broadcast(c, y, 3, SKEIN_I64, p - 1)) || y[0] != p - 1) return st ? st : 7;
    for (int i = 0; i < 300; i++) /* more than there are slots for calls */
        if ((st = skein_all_reduce(c, &mean, 1, SKEIN_F64, SKEIN_MAX))) return st;
    return skein_barrier(c);
}

/* --- two halves --- */

static int halves(skein_comm *c, void *ctx)
{
    int p = skein_comm_ranks(c), me = skein_comm_rank(c), st, done = 0;
    float *v[32];
    int64_t ticket[32];
    (void)ctx;
    for (int i = 0; i < 32; i++) {
        if ((st = skein_comm_alloc(c, 400, (void **)&v[i]))) return st;
        for (int k = 0; k < 100; k++) v[i][k] = (float)(me + i);
        skein_call call = {.size = sizeof call,
                           .src = v[i],
                           .dst = v[i],
                           .n = 100,
                           .algorithm = i % 3 == 1 ? "ring" : NULL};
        if ((st = skein_comm_start(c, &call, &ticket[i]))) return st;
    }
    skein_call more = {.size = sizeof more, .src = v[0], .dst = v[0], .n = 100};
    if (skein_comm_start(c, &more, &ticket[0]) != SK_EUSAGE || !strstr(sk_error_line(), "32"))
        return 1;
    if ((st = skein_comm_wait(c, ticket[20], -1, NULL))) return st; /* and all before it */
    if ((st = skein_comm_wait(c, ticket[3], 0, &done)) || !done) return st ? st : 2;
    for (done = 0; !done;)
        if ((st = skein_comm_wait(c, ticket[31], 0.01, &done))) return st;
    for (int i = 0; i < 32; i++) {
        if (v[i][99] != (float)(p * (p - 1) / 2 + p * i)) return 3;
        if ((st = skein_comm_free(c, v[i]))) return st;
    }
    return 0;
}

static void nap(double s)
{
    nanosleep(
        &(struct timespec){.tv_sec = (time_t)s, .tv_nsec = (long)(1e9 * (s - (double)(time_t)s))},
        NULL);
}

/* Rank 0 comes only when rank 1 has waited in vain three times: a short wait says so and can be
 * taken up again. */
static int late(skein_comm *c, void *ctx)
{
    int st, done = 1;
    float *v;
    int64_t ticket;
    char word = 'w';
    (void)ctx;
    if ((st = skein_comm_alloc(c, 1 << 16, (void **)&v))) return st;
    for (int i = 0; i < 1 << 14; i++) v[i] = 1;
    if (!skein_comm_rank(c) && (st = skein_recv(c, 1, &word, 1))) return st;
    skein_call call = {.size = sizeof call, .src = v, .dst = v, .n = 1 << 14};
    if ((st = skein_comm_start(c, &call, &ticket))) return st;
    for (int i = 0; i < 3 && skein_comm_rank(c); i++)
        if ((st = skein_comm_wait(c, ticket, 0.01, &done)) || done) return st ? st : 1;
    if (skein_comm_rank(c) && (st = skein_send(c, 0, &word, 1))) return st;
    for (done = 0; !done;)
        if ((st = skein_comm_wait(c, ticket, 0.02, &done))) return st;
    return v[99] == (float)skein_comm_ranks(c) ? 0 : 2;
}

/* --- mistakes --- */

static int wrong_arguments(skein_comm *c, void *ctx)
{
    float x[4] = {1, 2, 3, 4};
    int64_t ticket;
    void *memory = x;
    int p = skein_comm_ranks(c);
    (void)ctx;
    skein_call k = {.size = sizeof k, .src = x, .dst = x, .n = 4};
    if (skein_comm_start(c, &k, &ticket) != SK_EUSAGE) return 1; /* not of skein_comm_alloc */
    k.n = -1;
    if (skein_comm_call(c, &k) != SK_EUSAGE) return 2;
    k.n = INT64_MAX / 2;
    if (skein_comm_call(c, &k) != SK_EUSAGE) return 3;
    k.n = 1 << 28; /* more than there is memory to copy it through */
    if (skein_comm_call(c, &k) != SK_EUSAGE || !strstr(sk_error_line(), "more bytes")) return 4;
    k.n = 4;
    k.kind = SKEIN_ALL_TO_ALL;
    if (skein_comm_call(c, &k) != SK_EUSAGE || !strstr(sk_error_line(), "overlap")) return 5;
    k.kind = (skein_kind)99;
    if (skein_comm_call(c, &k) != SK_EUSAGE || !strstr(sk_error_line(), "kind is 99")) return 6;
    k.kind = SKEIN_ALL_REDUCE;
    k.algorithm = "no-such";
    if (!skein_comm_call(c, &k) || !strstr(sk_error_line(), "skein_call.algorithm 'no-such'"))
        return 7;
    k.algorithm = NULL;
    k.size = 3;
    if (skein_comm_call(c, &k) != SK_EUSAGE || !strstr(sk_error_line(), "sizeof")) return 8;
    if (skein_broadcast(c, x, 4, SKEIN_F32, p) != SK_EUSAGE || !strstr(sk_error_line(), "root is"))
        return 9;
    if (skein_all_reduce(c, NULL, 4, SKEIN_F32, SKEIN_SUM) != SK_EUSAGE) return 10;
    if (skein_all_reduce(c, x, 4, (skein_dtype)77, SKEIN_SUM) != SK_EUSAGE) return 11;
    if (skein_send(c, skein_comm_rank(c), x, 4) != SK_EUSAGE) return 12;
    if (skein_send(c, 99, x, 4) != SK_EUSAGE || !strstr(sk_error_line(), "rank is 99; ranks are 0"))
        return 13;
    if (skein_recv(c, p, x, 4) != SK_EUSAGE || skein_recv(c, 0, NULL, 4) != SK_EUSAGE) return 13;
    if (skein_comm_free(c, x) != SK_EUSAGE) return 14;
    if (skein_comm_alloc(c, -1, &memory) != SK_EUSAGE || memory != x) return 15;
    if (skein_comm_wait(c, 12345, 0, NULL) != SK_EUSAGE) return 16;
    if (skein_comm_call(c, NULL) != SK_EUSAGE) return 17;
    struct {
        skein_call call;
        int64_t later;
    } newer = {.call = {.src = x, .dst = x, .n = 4}, .later = 1};
    newer.call.size = sizeof newer;
    if (skein_comm_call(c, &newer.call) != SK_EUSAGE || !strstr(sk_error_line(), "version"))
        return 18;
    newer.later = 0;
    if (skein_comm_call(c, &newer.call) || x[3] != (float)(4 * p))
        return 19; /* after all of that it works */
    return skein_barrier(c);
}

static int disagree(skein_comm *c, void *ctx)
{
    float x[64] = {0};
    (void)ctx;
    return skein_all_reduce(c, x, skein_comm_rank(c) ? 64 : 32, SKEIN_F32, SKEIN_SUM);
}

static int rank_one_fails(skein_comm *c, void *ctx)
{
    int *heard = ctx;
    if (skein_comm_rank(c) == 1) return 42;
    int st = skein_barrier(c);
    if (!skein_comm_rank(c)) *heard = st;
    return st;
}

static int rank_one_aborts(skein_comm *c, void *ctx)
{
    (void)ctx;
    if (skein_comm_rank(c) != 1) return skein_barrier(c);
    skein_comm_abort(c, "the weather is bad");
    return 0;
}

static int rank_one_stays_away(skein_comm *c, void *ctx)
{
    (void)ctx;
    if (skein_comm_rank(c) == 1) nap(0.5);
    return skein_comm_rank(c) == 1 ? 0 : skein_barrier(c);
}

static int rank_one_dies(skein_comm *c, void *ctx)
{
    (void)ctx;
    if (skein_comm_rank(c) == 1) kill(getpid(), SIGKILL);
    return skein_barrier(c);
}

static void failures(void)
{
    int heard = 0;
    skein_comm *c = NULL;
    fails((sk_status)skein_comm_run(2, 0, 0, 0, NULL, NULL), SK_EUSAGE, "f is NULL");
    fails((sk_status)skein_comm_run(0, 0, 0, 0, messages, NULL), SK_EUSAGE, "0 ranks");
    fails((sk_status)skein_comm_run(2, -5, 0, 0, messages, NULL), SK_EUSAGE, "-5 bytes");
    fails((sk_status)skein_comm_run(2, 0, 0, 8, messages, NULL), SK_EUSAGE, "flags");
    fails((sk_status)skein_comm_open(2, 0, 0, NULL), SK_EUSAGE, "NULL");
    fails((sk_status)skein_barrier(NULL), SK_EUSAGE, "NULL");
    fails((sk_status)skein_comm_join(0, 0, NULL), SK_EUSAGE, "NULL");
    check(skein_comm_rank(NULL) == -1 && skein_comm_ranks(NULL) == 0);
    for (int flags = 0; flags < 2; flags++) {
        check(!skein_comm_run(3, 0, 0, flags, wrong_arguments, NULL));
        fails((sk_status)skein_comm_run(2, 0, 5, flags, disagree, NULL), SK_EUSAGE, "where rank");
        fails((sk_status)skein_comm_run(3, 0, 5, flags, rank_one_fails, &heard), (sk_status)42,
              "rank");
        check(flags || heard == SK_EPEER);
        fails((sk_status)skein_comm_run(3, 0, 5, flags, rank_one_aborts, NULL), SK_EPEER,
              "weather");
        fails((sk_status)skein_comm_run(2, 0, 0.2, flags, rank_one_stays_away, NULL), SK_EPEER,
              "rank 1");
    }
    fails((sk_status)skein_comm_run(2, 0, 5, SKEIN_PROCESSES, rank_one_dies, NULL), SK_EPEER,
          "died");
    skein_comm_close(c);
}

/* --- threads of one's own --- */

static void *own_thread(void *c)
{
    return (void *)(intptr_t)(messages(c, NULL) || halves(c, NULL));
}

static void own_threads(void)
{
    skein_comm *a[3] = {0}, *b[2] = {0};
    pthread_t t[5];
    void *result;
    check(!skein_comm_open(3, 1 << 20, 0, a) &&
          !skein_comm_open(2, 1 << 20, 0, b)); /* two at once */
    for (int i = 0; i < 5; i++)
        check(!pthread_create(&t[i], NULL, own_thread, i < 3 ? a[i] : b[i - 3]));
    for (int i = 0; i < 5; i++) {
        pthread_join(t[i], &result);
        check(!result);
    }
    for (int i = 0; i < 3; i++) skein_comm_close(a[2 - i]);
    for (int i = 0; i < 2; i++) skein_comm_close(b[i]);
}

/* --- processes that somebody else started --- */

static int joined(const char *rank)
{
    skein_comm *c = NULL;
    setenv("SKEIN_RANK", rank, 1);
    int st = skein_comm_join(1 << 20, 20, &c);
    if (!st && skein_comm_rank(c) != atoi(rank)) st = 1;
    if (!st) st = messages(c, NULL);
    skein_comm_close(c);
    return st;
}

static void join(void)
{
    char job[64];
    skein_comm *c = NULL;
    pid_t pid[2];
    check(!skein_comm_join(0, 1, &c) && skein_comm_ranks(c) == 1 && !messages(c, NULL)); /* alone */
    skein_comm_close(c);
    snprintf(job, sizeof job, "api-comm-%d", (int)getpid());
    setenv("SKEIN_JOB", job, 1);
    setenv("SKEIN_RANKS", "2", 1);
    fflush(NULL);
    for (int i = 0; i < 2; i++)
        if (!(pid[i] = fork())) _exit(joined(i ? "1" : "0"));
    for (int i = 0; i < 2; i++) {
        int how = 1;
        char line[64];
        snprintf(line, sizeof line, "%d", (int)pid[i]);
        check(waitpid(pid[i], &how, 0) == pid[i] && how == 0);
    }
}

int main(void)
{
    for (int n = 1; n <= 4; n++)
        for (int flags = 0; flags < 2; flags++) {
            if (flags && n == 3) continue;
            check(!skein_comm_run(n, 1 << 20, 0, flags, every_call, NULL));
            check(!skein_comm_run(n, 0, 0, flags, messages, NULL));
            check(!skein_comm_run(n, 1 << 20, 0, flags, halves, NULL));
        }
    check(!skein_comm_run(2, 0, 0, 0, late, NULL));
    check(!skein_comm_run(2, 0, 0, SKEIN_PROCESSES, late, NULL));
    own_threads();
    failures();
    join();
    printf("api_comm: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
