/* alias.c - heaps of one host that begin with the same memory.
 *
 * Writes through one alias are seen by all and by nobody else, also through a second mapping of the
 * same memory as another process has; what is an alias is not reserved; aliases that
 * cannot be are refused.  Ranks then update shards of common memory in turns, meet in a common
 * all-gather, and every one must see the whole, as threads and as processes, spinning and crowded.
 * Output: "alias: N checks, N bad". */
#include "coll/call.h"
#include "comm/heap.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, PAGE = 4096, COMMON = 3 << 20, REST = 70000, TURNS = 300, MIB = 1 << 20 };
enum { N = COMMON / 4 - 5 };

static atomic_int checks, bad;

#define CHECK(x) check(x, #x, __LINE__)
static bool check(bool good, const char *what, int line)
{
    atomic_fetch_add(&checks, 1);
    if (!good && atomic_fetch_add(&bad, 1) < 20) fprintf(stderr, "line %d: %s\n", line, what);
    return good;
}

static const int of[RANKS] = {0, 0, 0, 3}; /* the last is no alias */
static int64_t shared[RANKS] = {COMMON, COMMON, COMMON, 0};
static const int64_t bytes[RANKS] = {COMMON + REST, COMMON + 2 * REST, COMMON, MIB};

static sk_heaps_ask ask(bool processes)
{
    return (sk_heaps_ask){.n_ranks = RANKS,
                          .bytes = bytes,
                          .shared = processes,
                          .aliases = {.of = of, .bytes = shared},
                          .extra_bytes = 64};
}

/* --- places --- */

static void look(const sk_heaps *h, const sk_heaps *other)
{
    for (int r = 0; r < RANKS; r++) {
        int *first = sk_heap_base(h, r);
        bool own = of[r] == r;
        CHECK(sk_heap_bytes(h, r) == bytes[r]);
        CHECK(sk_heap_own(h, r) == bytes[r] - (own ? 0 : COMMON));
        if (r == 3) continue;
        first[COMMON / 4 - 1] = 7 + r;
        if (bytes[r] > COMMON) first[COMMON / 4] = 100 + r;
    }
    for (int r = 0; r < RANKS; r++) {
        const int *mine = sk_heap_base(h, r), *theirs = sk_heap_base(other, r);
        if (r == 3) continue;
        CHECK(mine[COMMON / 4 - 1] == 9 && theirs[COMMON / 4 - 1] == 9);
        CHECK(bytes[r] == COMMON || (mine[COMMON / 4] == 100 + r && theirs[COMMON / 4] == 100 + r));
    }
}

static void places(bool processes)
{
    sk_heaps_ask q = ask(processes);
    sk_heaps *h = NULL, *other = NULL;
    int fd = -1;
    struct stat st = {0};
    int64_t planned = 0;
    for (int r = 0; r < RANKS; r++)
        planned += (bytes[r] - (of[r] == r ? 0 : COMMON) + PAGE - 1) / PAGE * PAGE;
    if (!CHECK(!sk_heaps_make(&q, &fd, &h)) || !CHECK(fd >= 0)) exit(1);
    CHECK(!fstat(fd, &st));
    CHECK(st.st_blocks * 512 == planned);
    CHECK(!sk_heaps_map(&q, dup(h->fd), fd, &other));
    look(h, other);
    CHECK(!fstat(fd, &st));
    CHECK(st.st_blocks * 512 == planned); /* nothing of their own pages was touched */
    CHECK(sk_heaps_same(h, (int[]){0, 2, 1}, 3, COMMON));
    CHECK(!sk_heaps_same(h, (int[]){0, 2, 1}, 3, COMMON + 1));
    CHECK(!sk_heaps_same(h, (int[]){0, 3}, 2, 4));
    close(fd);
    sk_heaps_close(other);
    sk_heaps_close(h);
}

static void refused(const int *alias_of, const int64_t *common)
{
    sk_heaps *h = NULL;
    CHECK(sk_heaps_open_aliased(RANKS, bytes, (sk_heap_aliases){alias_of, common, NULL}, false, 0,
                                &h) == SK_EBUG);
    CHECK(!h);
}

static void error_messages(void)
{
    refused((int[]){0, 0, 1, 3}, shared);                            /* an alias of an alias */
    refused((int[]){0, 0, 9, 3}, shared);                            /* of nobody */
    refused(of, (int64_t[]){COMMON, COMMON, COMMON - PAGE, 0});      /* not as many */
    refused(of, (int64_t[]){COMMON + 8, COMMON + 8, COMMON + 8, 0}); /* no whole pages */
    refused(of, (int64_t[]){2 * COMMON, 2 * COMMON, 2 * COMMON, 0}); /* more than it has */
    refused((int[]){0, 0, 0, 0}, (int64_t[]){COMMON, COMMON, COMMON, PAGE}); /* not as many */
}

/* --- meeting --- */

typedef struct rank_job {
    sk_heaps *heaps;
    int rank, n;
    pthread_t thread;
} rank_job;

static sk_coll_call *lay_call(rank_job *j, char *base)
{
    sk_coll_call *call = (sk_coll_call *)(void *)(base + COMMON);
    int64_t mine = (int64_t)N * j->rank / j->n;
    *call = (sk_coll_call){
        .id = 5, .kind = SK_ALLGATHER, .type = SK_I32, .n_segs = 1, .algorithm = -1, .common = 1};
    call->segs[0] = (sk_seg){.src = mine * 4, .dst = 0, .outer = 1, .n = N, .inner = 1};
    return call;
}

/* Everybody writes its piece, meets, and reads all; a barrier ends the reading. */
static sk_status turns(rank_job *j, sk_comm *c, sk_coll_call *call, int *data)
{
    int64_t from = (int64_t)N * j->rank / j->n, to = (int64_t)N * (j->rank + 1) / j->n, wrong = 0;
    for (int t = 1; t <= TURNS; t++) {
        for (int64_t i = from; i < to; i += 97) data[i] = t * 1000 + j->rank;
        SK_TRY(sk_comm_start(c, call));
        SK_TRY(sk_comm_wait(c, call));
        for (int k = 0; k < j->n; k++)
            for (int64_t i = (int64_t)N * k / j->n; i < (int64_t)N * (k + 1) / j->n; i += 97)
                wrong += data[i] != t * 1000 + k;
        SK_TRY(sk_comm_barrier(c));
    }
    CHECK(!wrong);
    return SK_OK;
}

static void *be_rank(void *arg)
{
    rank_job *j = arg;
    char *base = sk_heap_base(j->heaps, j->rank);
    sk_group all = {.n = j->n, .me = j->rank, .ranks = (int[]){0, 1, 2, 3, 4, 5}};
    sk_comm_opts o = {.rank = j->rank, .groups = &all, .n_groups = 1, .timeout_s = 60};
    sk_comm *c = NULL;
    if (!CHECK(!sk_comm_open(j->heaps, &o, &c))) return NULL;
    sk_coll_call *call = lay_call(j, base);
    CHECK(!turns(j, c, call, (int *)(void *)base));
    sk_comm_close(c);
    return NULL;
}

/* Only an all-gather can be common.  A refused call ends the job for every rank, also for one that
 * has not yet seen that its last barrier is over: so this waits until all have left. */
static void refuse_broadcast(sk_heaps *h, int n)
{
    rank_job j = {.heaps = h, .n = n};
    sk_group all = {.n = n, .ranks = (int[]){0, 1, 2, 3, 4, 5}};
    sk_comm_opts o = {.groups = &all, .n_groups = 1, .timeout_s = 60};
    sk_comm *c = NULL;
    if (!CHECK(!sk_comm_open(h, &o, &c))) return;
    sk_coll_call *call = lay_call(&j, sk_heap_base(h, 0));
    call->kind = SK_BROADCAST;
    call->id = 6;
    CHECK(sk_comm_start(c, call) == SK_EBUG);
    sk_comm_close(c);
}

static void be_processes(rank_job *jobs, int n)
{
    int status;
    for (int r = 0; r < n; r++) {
        pid_t pid = fork();
        if (pid) continue;
        be_rank(&jobs[r]);
        _exit(atomic_load(&bad) != 0);
    }
    for (int r = 0; r < n; r++) CHECK(wait(&status) > 0 && !status);
}

static void meet(int n, bool processes)
{
    rank_job jobs[6];
    int64_t all[6] = {0}, common[6] = {0};
    sk_heaps *h = NULL;
    for (int r = 0; r < n; r++) all[r] = COMMON + REST, common[r] = COMMON;
    sk_heap_aliases aliases = {(int[]){0, 0, 0, 0, 0, 0}, common, NULL};
    if (!CHECK(!sk_heaps_open_aliased(n, all, aliases, processes, 64, &h))) return;
    for (int r = 0; r < n; r++) jobs[r] = (rank_job){.heaps = h, .rank = r, .n = n};
    if (processes) be_processes(jobs, n);
    else {
        for (int r = 0; r < n; r++) pthread_create(&jobs[r].thread, NULL, be_rank, &jobs[r]);
        for (int r = 0; r < n; r++) pthread_join(jobs[r].thread, NULL);
    }
    refuse_broadcast(h, n);
    sk_heaps_close(h);
}

int main(void)
{
    for (int processes = 0; processes < 2; processes++) {
        places(processes);
        for (int n = 1; n <= 6; n++) meet(n, processes);
    }
    error_messages();
    printf("alias: %d checks, %d bad\n", atomic_load(&checks), atomic_load(&bad));
    return atomic_load(&bad) != 0;
}
