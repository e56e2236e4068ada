/* boot.c - the test of comm/launcher_detection.c, boot.c, rendezvous.c and control_block.c.
 *
 *     comm_boot           environments as launchers make them, then real meetings of processes
 *     comm_boot join      one rank under a launcher (test/comm/boot_mpi.sh): joins, shares, maps
 * heaps comm_boot has NAME  is there a wire of that name?  exit code 0: yes
 *
 * Output: each failed check, then "boot: N checks, N bad"; with join one line per rank. */
#include "base/clock.h"
#include "coll/call.h"
#include "comm/control_block.h"
#include "comm/boot.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEADLINE_S = 60, RANKS = 4, HEAP = 3 << 20, BIG = 100000, N = 5000 };

static struct tally {
    atomic_int checks, bad;
} * tally; /* in shared memory: processes count too */

static const char *at = "";

static bool check(bool good, const char *what, int line)
{
    atomic_fetch_add(&tally->checks, 1);
    if (good) return true;
    atomic_fetch_add(&tally->bad, 1);
    fprintf(stderr, "comm_boot.c:%d: %s: %s (%s)\n", line, at, what, sk_error_line());
    return false;
}
#define CHECK(cond) check((cond), #cond, __LINE__)

static void set_env(const char *text) /* "A=1 B=2", and nothing else */
{
    char *copy = strdup(text), *left = NULL;
    clearenv();
    for (char *w = strtok_r(copy, " ", &left); w; w = strtok_r(NULL, " ", &left)) {
        char *value = strchr(w, '=');
        *value = 0;
        setenv(w, value + 1, 1);
    }
    free(copy);
}

static bool same_text(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

/* --- environments --- */

#define OMPI(r, n, local)                                                                        \
    "OMPI_COMM_WORLD_RANK=" #r " OMPI_COMM_WORLD_SIZE=" #n " OMPI_COMM_WORLD_LOCAL_SIZE=" #local \
    " PMIX_NAMESPACE=514785281"                                                                  \
    " PMIX_RANK=" #r " "
#define HYDRA(r, n, local) "PMI_RANK=" #r " PMI_SIZE=" #n " MPI_LOCALNRANKS=" #local " "
#define STEP(r, n, nodes)                                                          \
    "SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=" #r " SLURM_STEP_NUM_TASKS=" #n \
    " SLURM_NTASKS=" #n " SLURM_STEP_NUM_NODES=" #nodes " SLURM_NNODES=" #nodes " "
#define BATCH(n) "SLURM_JOB_ID=77 SLURM_PROCID=0 SLURM_NTASKS=" #n " SLURM_NNODES=2 "
#define TORCH(r, n, local) \
    "RANK=" #r " WORLD_SIZE=" #n " LOCAL_WORLD_SIZE=" #local " MASTER_ADDR=a MASTER_PORT=29500 "
#define OWN(r, n) "SKEIN_RANK=" #r " SKEIN_RANKS=" #n " SKEIN_JOB=j "

static const struct good_case {
    const char *env, *by, *module;
    int rank, n;
    bool together;
} good_cases[] = {
    {"HOME=/root", NULL, NULL, 0, 0, false},
    {OMPI(1, 4, 4), "openmpi", NULL, 1, 4, true},
    {OMPI(1, 4, 2), "openmpi", "openmpi", 1, 4, false},
    {OMPI(1, 4, 4) "SKEIN_HOST=a", "openmpi", "openmpi", 1, 4, true},
    {OMPI(1, 4, 4) "SKEIN_WIRE=mpich", "openmpi", "mpich", 1, 4, true},
    {OMPI(1, 4, 4) "SKEIN_WIRE=none SKEIN_HOST=a", "openmpi", NULL, 1, 4, true},
    {OMPI(0, 1, 1), NULL, NULL, 0, 0, false},                         /* a world of one */
    {OMPI(3, 4, 2) BATCH(4), "openmpi", "openmpi", 3, 4, false},      /* mpirun in sbatch */
    {OMPI(3, 4, 2) STEP(1, 2, 2), "openmpi", "openmpi", 3, 4, false}, /* its daemons by srun */
    {OMPI(3, 4, 2) STEP(1, 2, 2) "PMI_RANK=1 PMI_SIZE=2", "openmpi", "openmpi", 3, 4, false},
    {OMPI(2, 4, 4) "RANK=2 WORLD_SIZE=4", "openmpi", NULL, 2, 4, true}, /* they agree */
    {HYDRA(2, 4, 4), "mpich", NULL, 2, 4, true},
    {HYDRA(2, 4, 2), "mpich", "mpich", 2, 4, false},
    {HYDRA(2, 4, 2) STEP(1, 2, 2), "mpich", "mpich", 2, 4, false}, /* proxies started by srun */
    {STEP(5, 8, 2) "PMIX_RANK=5", "slurm", "openmpi", 5, 8, false},
    {STEP(5, 8, 2) "PMI_RANK=5 PMI_SIZE=8 PMI_FD=9", "slurm", "mpich", 5, 8, false},
    {STEP(1, 8, 1), "slurm", NULL, 1, 8, true}, /* without PMI, on one node */
    {STEP(1, 4, 1) "RANK=1 WORLD_SIZE=4", "slurm", NULL, 1, 4, true},
    {STEP(0, 1, 1), NULL, NULL, 0, 0, false}, /* srun --pty bash */
    {BATCH(4), NULL, NULL, 0, 0, false},
    {BATCH(4) "SLURM_STEP_ID=4294967291", NULL, NULL, 0, 0, false},
    {BATCH(4) "SLURM_STEPID=4294967290", NULL, NULL, 0, 0, false}, /* salloc */
    {TORCH(3, 4, 4), "torchrun", NULL, 3, 4, true},
    {"RANK=3 WORLD_SIZE=4 MASTER_ADDR=localhost", "torchrun", NULL, 3, 4, true},
    {TORCH(3, 4, 4) "TORCHELASTIC_RUN_ID=x " STEP(0, 1, 1), "torchrun", NULL, 3, 4, true},
    {"RANK=3", NULL, NULL, 0, 0, false}, /* anybody's word */
    {OWN(2, 3), "skein", NULL, 2, 3, true},
    {"PMIX_RANK=0", NULL, NULL, 0, 0, false},
};

static const struct bad_case {
    const char *env;
    int rank; /* that may tell it, if it is rank 0 */
    const char *words[4];
} bad_cases[] = {
    {OMPI(1, 4, 4) "RANK=0 WORLD_SIZE=1",
     1,
     {"openmpi says rank 1 of 4", "torchrun says rank 0 of 1",
      "mpirun -n 4 env -u RANK -u WORLD_SIZE "}},
    {OMPI(1, 4, 4) HYDRA(1, 2, 2), 1, {"openmpi says rank 1 of 4", "mpich says rank 1 of 2"}},
    {OMPI(1, 4, 4) OWN(0, 4), 1, {"skein says rank 0 of 4", "env -u SKEIN_RANK -u SKEIN_RANKS "}},
    {STEP(1, 4, 1) "RANK=0 WORLD_SIZE=1", 1, {"slurm says rank 1 of 4", "srun -n 4 env -u RANK"}},
    {STEP(2, 8, 2), 2, {"2 nodes without PMI", "srun --mpi=pmix -n 8 ", "srun --mpi=pmi2 -n 8 "}},
    {STEP(2, 8, 2) "PMI_RANK=2 PMI_SIZE=8 SKEIN_WIRE=openmpi", 2, {"srun --mpi=pmix -n 8 "}},
    {OMPI(1, 4, 2) "SKEIN_WIRE=none", 1, {"SKEIN_WIRE=none", "several hosts"}},
    {TORCH(3, 4, 2), 3, {"torchrun started 4 ranks on several hosts", "mpirun -n 4 "}},
    {"RANK=x WORLD_SIZE=4", 0, {"RANK=x is no number"}},
    {"RANK=-1 WORLD_SIZE=4", 0, {"RANK=-1 is no number"}},
    {"RANK=1 WORLD_SIZE=99999999999999999999", 1, {"WORLD_SIZE=99999999999999999999"}},
    {"RANK=4 WORLD_SIZE=4", 4, {"RANK=4", "WORLD_SIZE=4", "0 to 3"}},
    {"OMPI_COMM_WORLD_RANK=1", 1, {"OMPI_COMM_WORLD_SIZE is not"}},
    {"SKEIN_RANKS=4", 0, {"SKEIN_RANKS=4 is set and SKEIN_RANK is not"}},
    {"SKEIN_RANK=1 SKEIN_RANKS=4", 1, {"SKEIN_JOB is not set"}},
    {"PMIX_RANK=3", 0, {"PMIX_RANK=3", "of how many"}},
};

static void environments(void)
{
    sk_arena a = {0};
    sk_boot b;
    for (size_t i = 0; i < sizeof good_cases / sizeof *good_cases; i++) {
        const struct good_case *c = &good_cases[i];
        set_env(at = c->env);
        if (!CHECK(!sk_boot_detect(&a, &b))) continue;
        CHECK(same_text(b.by, c->by) && same_text(b.module, c->module));
        CHECK(b.n_ranks == c->n && b.together == c->together);
        CHECK(!c->n || (b.rank == c->rank && *b.job));
    }
    for (size_t i = 0; i < sizeof bad_cases / sizeof *bad_cases; i++) {
        const struct bad_case *c = &bad_cases[i];
        set_env(at = c->env);
        CHECK(sk_boot_detect(&a, &b) == SK_ECONF && b.rank == c->rank);
        for (int k = 0; k < 4 && c->words[k]; k++) CHECK(strstr(sk_error_line(), c->words[k]));
    }
    sk_arena_end(&a);
}

/* Ranks of one job agree on its name, two jobs do not. */
static void names(void)
{
    static const char *const pairs[][3] = {
        {OMPI(0, 4, 4), OMPI(1, 4, 4), OMPI(1, 4, 4) "OMPI_MCA_orte_hnp_uri=7"},
        {STEP(0, 4, 1), STEP(3, 4, 1), STEP(3, 4, 1) "SLURM_STEP_ID=1"},
        {TORCH(0, 4, 4), TORCH(1, 4, 4), TORCH(1, 4, 4) "MASTER_PORT=29501"},
        {OWN(0, 4), OWN(1, 4), OWN(1, 4) "SKEIN_JOB=k"}};
    sk_arena a = {0};
    sk_boot b[3];
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        for (int k = 0; k < 3; k++) {
            set_env(at = pairs[i][k]);
            CHECK(!sk_boot_detect(&a, &b[k]));
        }
        CHECK(!strcmp(b[0].job, b[1].job) && strcmp(b[1].job, b[2].job));
    }
    sk_arena_end(&a);
}

/* --- one rank --- */

static void fill(unsigned char *p, int salt)
{
    for (int i = 0; i < BIG; i++) p[i] = (unsigned char)(i * 7 + i / 251 + salt);
}

static void share(sk_boot *b)
{
    static unsigned char got[BIG], want[BIG];
    for (int turn = 0; turn < 3; turn++) {
        fill(want, turn);
        fill(got, b->rank ? 99 : turn);
        CHECK(!sk_boot_bcast(b, got, BIG) && !memcmp(got, want, BIG));
    }
}

/* All ranks of this host, by a count in the extra memory. */
static void local_barrier(const sk_boot *b, sk_heaps *h, int turn)
{
    atomic_int *count = sk_heaps_extra(h);
    atomic_fetch_add(count, 1);
    for (double end = sk_now() + DEADLINE_S; atomic_load(count) < turn * b->n_local;) {
        if (sk_now() > end) _exit(3);
        sched_yield();
    }
}

/* Who sees whose heap, and that it is the same memory. */
static const char *look_around(sk_boot *b, sk_heaps *h)
{
    const char *seen = "";
    int *mine = sk_heap_base(h, b->rank);
    mine[0] = 1000 + b->rank;
    mine[HEAP / 4 - 1] = 2000 + b->rank;
    local_barrier(b, h, 1);
    for (int r = 0; r < b->n_ranks; r++) {
        const int *p = sk_heap_base(h, r);
        CHECK(!p == (b->host_of[r] != b->host) && sk_heap_bytes(h, r) == HEAP + r);
        if (!p) continue;
        CHECK(p[0] == 1000 + r && p[HEAP / 4 - 1] == 2000 + r);
        seen = sk_print(b->arena, "%s %d", seen, r);
    }
    local_barrier(b, h, 2);
    return seen;
}

/* An all-reduce and a barrier of the ranks of one host. */
static void reduce(sk_boot *b, sk_heaps *h)
{
    sk_group g = {b->n_ranks, b->rank, b->locals};
    sk_comm_opts o = {.rank = b->rank, .groups = &g, .n_groups = 1, .timeout_s = 20};
    sk_comm *c = NULL;
    char *base = sk_heap_base(h, b->rank);
    sk_coll_call *call = (sk_coll_call *)(void *)base;
    float *v = (float *)(void *)(base + 4096);
    *call =
        (sk_coll_call){.id = 1, .kind = SK_ALLREDUCE, .type = SK_F32, .n_segs = 1, .algorithm = -1};
    call->segs[0] = (sk_seg){.src = 4096, .dst = 4096, .outer = 1, .n = N, .inner = 1};
    for (int i = 0; i < N; i++) v[i] = (float)(i + b->rank);
    if (!CHECK(!sk_comm_open(h, &o, &c))) return;
    CHECK(!sk_comm_start(c, call) && !sk_comm_wait(c, call));
    int n = b->n_ranks, wrong = 0;
    for (int i = 0; i < N; i++) wrong += v[i] != (float)(n * i + n * (n - 1) / 2);
    CHECK(!wrong && !sk_comm_barrier(c));
    sk_comm_close(c);
}

static void use_heaps(sk_boot *b, const char **seen)
{
    int64_t *bytes = sk_many(b->arena, int64_t, b->n_ranks);
    sk_heaps *h = NULL, *mine = NULL;
    for (int r = 0; r < b->n_ranks; r++) bytes[r] = HEAP + r;
    if (!CHECK(!sk_boot_heaps(b, bytes, (sk_heap_aliases){0}, 4096, &h))) return;
    *seen = look_around(b, h);
    if (b->n_hosts == 1) reduce(b, h);
    if (!b->local) sk_heaps_label(h, "runs/here");
    if (CHECK(!sk_control_block_open(getpid(), &mine))) {
        CHECK(sk_control_block_info_of(mine).n_ranks == b->n_ranks && !sk_heap_base(mine, b->rank));
        sk_heaps_close(mine);
    }
    sk_heaps_close(h);
}

static sk_status one_rank(sk_arena *a, sk_boot *b, double timeout_s, const char **seen)
{
    SK_TRY(sk_boot_detect(a, b));
    SK_TRY(sk_boot_join(b, timeout_s));
    CHECK(b->locals[b->local] == b->rank && b->host_of[b->rank] == b->host);
    share(b);
    use_heaps(b, seen);
    sk_boot_leave(b);
    return SK_OK;
}

/* Under a launcher. */
static int join(void)
{
    sk_arena a = {0};
    sk_boot b;
    const char *seen = "", *wire;
    alarm(DEADLINE_S);
    sk_status st = one_rank(&a, &b, 20, &seen);
    if (st) {
        if (!b.rank) printf("skein: %s\n", sk_error_line());
        return (int)st;
    }
    wire = b.module ? b.module : "none";
    printf("rank %d of %d by %s, host %d of %d, local %d of %d, wire %s, heaps:%s, %d bad\n",
           b.rank, b.n_ranks, b.by, b.host, b.n_hosts, b.local, b.n_local, wire, seen,
           atomic_load(&tally->bad));
    return atomic_load(&tally->bad) != 0;
}

/* --- ranks of this test --- */

typedef struct cast {
    const char *env;  /* of all ranks */
    const char *host; /* letters: SKEIN_HOST by rank; NULL: none */
    unsigned absent;  /* bit r: rank r does not come */
    double timeout_s;
    bool plain; /* as nobody, with a /dev/shm of 1 MiB, where this test may do that */
} cast;

static void stoop(void)
{
    if (geteuid()) return;
    if (!unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        CHECK(!mount("none", "/dev/shm", "tmpfs", 0, "size=1m"));
    CHECK(!setresgid(65534, 65534, 65534) && !setresuid(65534, 65534, 65534));
}

static void act(const cast *c, int r, const char *words, sk_status code)
{
    char text[256], host[2] = {c->host ? c->host[r] : 0};
    sk_arena a = {0};
    sk_boot b;
    const char *seen = "";
    alarm(DEADLINE_S);
    snprintf(text, sizeof text, "SKEIN_RANK=%d SKEIN_RANKS=%d %s", r, RANKS, c->env);
    set_env(text);
    if (*host) setenv("SKEIN_HOST", host, 1);
    if (c->plain) stoop();
    sk_status st = one_rank(&a, &b, c->timeout_s, &seen);
    CHECK(st == code || (code && st == SK_EPEER));
    CHECK(!code || st == SK_EPEER || strstr(sk_error_line(), words));
    CHECK(st || same_text(seen, " 0 1 2 3"));
    if (st == code && code) _exit(7); /* told it */
    _exit(0);
}

/* Starts the ranks; the caller waits.  Those who print the report of `code` exit with 7. */
static int start_ranks(const cast *c, const char *words, sk_status code, pid_t *pid)
{
    int n = 0;
    fflush(NULL);
    for (int r = 0; r < RANKS; r++) {
        if (c->absent >> r & 1) continue;
        pid[n] = fork();
        if (!pid[n++]) act(c, r, words, code);
    }
    return n;
}

static int end_ranks(const pid_t *pid, int n)
{
    int told = 0, how = 0;
    for (int i = 0; i < n; i++) {
        CHECK(waitpid(pid[i], &how, 0) == pid[i] && WIFEXITED(how));
        CHECK(WEXITSTATUS(how) == 0 || WEXITSTATUS(how) == 7);
        told += WIFEXITED(how) && WEXITSTATUS(how) == 7;
    }
    return told;
}

static int play(const char *name, const cast *c, const char *words, sk_status code)
{
    pid_t pid[RANKS];
    at = name;
    return end_ranks(pid, start_ranks(c, words, code, pid));
}

static void meetings(void)
{
    CHECK(!play("four ranks", &(cast){.env = "SKEIN_JOB=a", .timeout_s = 20}, "", SK_OK));
    CHECK(!play("as nobody", &(cast){.env = "SKEIN_JOB=b", .timeout_s = 20, .plain = true}, "",
                SK_OK));
    double begin = sk_now();
    CHECK(play("rank 2 is missing", &(cast){.env = "SKEIN_JOB=c", .absent = 4, .timeout_s = 0.5},
               "rank 2 of 4 did not come within", SK_EPEER) == 3);
    CHECK(play("rank 0 is missing", &(cast){.env = "SKEIN_JOB=d", .absent = 1, .timeout_s = 0.5},
               "rank 0 of 4 did not come within", SK_EPEER) == 3);
    CHECK(sk_now() - begin < 5);
    CHECK(play("two hosts without MPI",
               &(cast){.env = "SKEIN_JOB=e", .host = "aabb", .timeout_s = 20},
               "ranks 0 and 2 are not on one host", SK_ECONF) == 4);
    CHECK(!play("one host with a name",
                &(cast){.env = "SKEIN_JOB=f", .host = "aaaa", .timeout_s = 20}, "", SK_OK));
}

static void two_jobs(void)
{
    pid_t one[RANKS], two[RANKS];
    at = "two jobs at once";
    cast a = {.env = "SKEIN_JOB=one", .timeout_s = 20};
    cast b = {.env = "SKEIN_JOB=two", .timeout_s = 20};
    int n = start_ranks(&a, "", SK_OK, one), m = start_ranks(&b, "", SK_OK, two);
    CHECK(!end_ranks(one, n) && !end_ranks(two, m));
}

/* The second rank 0 finds its place taken. */
static void one_name(void)
{
    pid_t one[RANKS], two[RANKS];
    at = "two jobs of one name";
    cast a = {.env = "SKEIN_JOB=same", .absent = 8, .timeout_s = 1};
    cast b = {.env = "SKEIN_JOB=same", .absent = 14, .timeout_s = 1};
    int n = start_ranks(&a, "", SK_EPEER, one);
    usleep(300000);
    int m = start_ranks(&b, "give each job its own SKEIN_JOB", SK_ECREATE, two);
    CHECK(end_ranks(two, m) == 1);
    end_ranks(one, n);
}

/* --- control blocks --- */

static void watcher(int pid)
{
    sk_arena a = {0};
    sk_heaps *h = NULL;
    int *pids, found = 0, n = sk_control_block_jobs(&a, &pids);
    for (int i = 0; i < n; i++) found += pids[i] == pid;
    CHECK(found == 1);
    if (!CHECK(!sk_control_block_open(pid, &h))) _exit(1);
    sk_control_block_info about = sk_control_block_info_of(h);
    CHECK(about.n_ranks == 64 && about.pid == pid && about.started > 1e9);
    CHECK(!strcmp(about.label, "runs/x") && about.extra_bytes == 4096);
    CHECK(atomic_load(&sk_heaps_rank_state(h, 63)->step) == 12 && !sk_heap_base(h, 0));
    CHECK(!strcmp(sk_heaps_extra(h), "extra"));
    sk_heaps_close(h);
    CHECK(sk_control_block_open(1 << 30, &h) == SK_EIO);
    _exit(0);
}

/* 64 ranks of which nobody does anything: the control block costs less than a MiB. */
static void control_block_cost(void)
{
    char path[64], to[64] = "";
    struct stat st = {0};
    for (int fd = 3; fd < 64; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, to, sizeof to - 1);
        if (n > 0 && !strncmp(to, "/memfd:skein-board", 18)) CHECK(!fstat(fd, &st));
    }
    CHECK(st.st_size > 1 << 20 && st.st_blocks > 0 && st.st_blocks * 512 < 1 << 20);
}

static void control_blocks(void)
{
    int64_t bytes[64] = {0};
    sk_heaps *h = NULL;
    pid_t me = getpid();
    int how = 0;
    at = "control blocks";
    if (!CHECK(!sk_heaps_open(64, bytes, true, 4096, &h))) return;
    control_block_cost();
    sk_heaps_label(h, "runs/x");
    strcpy(sk_heaps_extra(h), "extra");
    atomic_store(&sk_heaps_rank_state(h, 63)->step, 12);
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) watcher(me);
    CHECK(waitpid(pid, &how, 0) == pid && !how);
    sk_heaps_close(h);
    CHECK(sk_control_block_open(me, &h) == SK_EIO);
}

int main(int argc, char **argv)
{
    tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (argc > 1 && !strcmp(argv[1], "join")) return join();
    if (argc > 2 && !strcmp(argv[1], "has")) return !sk_wire_has(argv[2]);
    control_blocks();
    environments();
    names();
    meetings();
    two_jobs();
    one_name();
    printf("boot: %d checks, %d bad\n", atomic_load(&tally->checks), atomic_load(&tally->bad));
    return atomic_load(&tally->bad) != 0;
}
