/* boot.c - joining the other ranks: wire, hosts, rendezvous, heaps.
 *
 * Every rank sends a hello.  With a wire rank 0 collects the hellos and sends all of
 * them out along a binomial tree, together with a name for the job that it has
 * drawn; each host then has a rendezvous of its own.  Without a wire there is one
 * for all, and the first rank collects the hellos there.  Either way all ranks see
 * the same hellos and number the hosts alike. */
#include "comm/boot.h"
#include "comm/rendezvous.h"
#include "comm/heap.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/proc.h"

#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { TAG_CARD = 1, TAG_SHARE = 2 };

static double deadline(const sk_boot *b)
{
    return b->timeout_s > 0 ? sk_now() + b->timeout_s : 1e300;
}

/* --- over the wire --- */

static sk_status finish(sk_boot *b, sk_req r, int peer, double until)
{
    bool done = false;
    sk_assert(r >= 0); /* few are in use so early */
    for (int turn = 0;; turn++) {
        SK_TRY(b->wire->test(b->wire, r, &done, NULL));
        if (done) return SK_OK;
        if (sk_now() > until)
            return sk_fail(SK_EPEER, "boot: rank %d of %d said nothing for %g s (rank %d waits)",
                           peer, b->n_ranks, b->timeout_s, b->rank);
        if (turn < 1000) sched_yield();
        else usleep(200);
    }
}

static sk_status say(sk_boot *b, int to, int tag, const void *data, size_t bytes, double until)
{
    sk_req r = -1;
    SK_TRY(b->wire->send(b->wire, to, tag, data, (int64_t)bytes, &r));
    return finish(b, r, to, until);
}

static sk_status hear(sk_boot *b, int from, int tag, void *data, size_t bytes, double until)
{
    sk_req r = -1;
    SK_TRY(b->wire->recv(b->wire, from, tag, data, (int64_t)bytes, &r));
    return finish(b, r, from, until);
}

/* Rank r hears from r without its lowest bit, and tells r + 1, r + 2, r + 4 ... below that bit. */
static sk_status tell_tree(sk_boot *b, void *data, size_t bytes, double until)
{
    int bit = b->rank & -b->rank, top = 1;
    if (bit) SK_TRY(hear(b, b->rank - bit, TAG_SHARE, data, bytes, until));
    while (top < b->n_ranks) top *= 2;
    for (int m = (bit ? bit : top) / 2; m; m /= 2)
        if (b->rank + m < b->n_ranks) SK_TRY(say(b, b->rank + m, TAG_SHARE, data, bytes, until));
    return SK_OK;
}

/* --- opening it --- */

/* The launcher counts one way, the library another: what to type instead. */
static const char *cure(const sk_boot *b)
{
    const char *name = b->wire->name, *command = sk_boot_command(b->arena);
    const char *start = sk_boot_program(b->arena, b->by);
    if (!strcmp(b->by, "slurm"))
        return sk_print(b->arena, "srun --mpi=%s -n %d %s",
                        strcmp(name, "openmpi") ? "pmi2" : "pmix", b->n_ranks, command);
    if (strcmp(name, b->by))
        return sk_print(b->arena, "%s -n %d env -u SKEIN_WIRE %s", start, b->n_ranks, command);
    return sk_print(b->arena,
                    "use the mpirun of this library, or build skein's module with the MPI of this "
                    "%s",
                    start);
}

static sk_status open_wire(sk_boot *b)
{
    if (!b->module) return SK_OK;
    SK_TRY(sk_wire_open(b->module, &b->wire));
    if (b->wire->rank == b->rank && b->wire->n_ranks == b->n_ranks) return SK_OK;
    return sk_fail(SK_ECONF,
                   "boot: %s started this process as rank %d of %d, but the library of module %s "
                   "(%.60s) sees rank %d of %d; %s",
                   b->by, b->rank, b->n_ranks, b->wire->name, b->wire->library, b->wire->rank,
                   b->wire->n_ranks, cure(b));
}

/* --- hellos and hosts --- */

/* Processes of one machine that can hand each other descriptors and see each other's pids. */
static uint64_t machine_hash(void)
{
    static const char *const spaces[] = {"/proc/self/ns/net", "/proc/self/ns/pid"};
    char text[256];
    uint64_t uid = getuid(), h = sk_hash(SK_HASH_SEED, &uid, sizeof uid);
    if (!sk_proc_line("/proc/sys/kernel/random/boot_id", "", text, sizeof text))
        gethostname(text, sizeof text);
    text[sizeof text - 1] = 0;
    h = sk_hash(h, text, strlen(text));
    for (int i = 0; i < 2; i++) {
        ssize_t n = readlink(spaces[i], text, sizeof text);
        h = sk_hash(h, text, n > 0 ? (size_t)n : 0);
    }
    return h;
}

static sk_hello my_card(const sk_boot *b)
{
    const char *host = getenv("SKEIN_HOST");
    sk_hello hello = {.machine = machine_hash(),
                      .host = host && *host ? sk_hash_text(host) : 0,
                      .rank = b->rank,
                      .n_ranks = b->n_ranks,
                      .pid = getpid()};
    cpu_set_t may;
    _Static_assert(sizeof may == sizeof hello.cores, "one bit for each processor of a cpu_set_t");
    if (!sched_getaffinity(0, sizeof may, &may)) memcpy(hello.cores, &may, sizeof may);
    return hello;
}

/* Cores that the ranks of this host may use together.  A launcher that binds each to one core must
 * not make them believe that they share it, and all must believe the same. */
static int count_cores(const sk_boot *b, const sk_hello *hellos)
{
    int n = 0;
    for (int w = 0; w < 16; w++) {
        uint64_t any = 0;
        for (int i = 0; i < b->n_local; i++) any |= hellos[b->locals[i]].cores[w];
        n += __builtin_popcountll(any);
    }
    return n;
}

static void number_hosts(sk_boot *b, const sk_hello *hellos)
{
    b->n_hosts = b->n_local = 0;
    for (int r = 0; r < b->n_ranks; r++) {
        int k = 0;
        while (k < r &&
               (hellos[k].machine != hellos[r].machine || hellos[k].host != hellos[r].host))
            k++;
        b->host_of[r] = k < r ? b->host_of[k] : b->n_hosts++;
    }
    b->host = b->host_of[b->rank];
    for (int r = 0; r < b->n_ranks; r++) {
        if (b->host_of[r] != b->host) continue;
        if (r == b->rank) b->local = b->n_local;
        b->locals[b->n_local++] = r;
    }
    b->cores = count_cores(b, hellos);
    for (int i = 0; i < b->n_local; i++) b->pids[i] = hellos[b->locals[i]].pid;
}

/* --- meeting --- */

/* Who holds the name speaks.  It has no file and goes with the process.  Where nothing connects the
 * hosts all ranks find that alike, and rank 0 says it. */
static bool first_to(const sk_boot *b, const char *what)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    if (b->n_ranks > 1 && *b->job && !b->together && !b->module) return b->rank == 0;
    int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "skein-%s-%u-%d-%s", what,
                     (unsigned)getuid(), *b->job ? 0 : (int)getppid(), b->job);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 || !bind(fd, (struct sockaddr *)&name, bytes) || errno != EADDRINUSE;
}

/* A variable that an old job left in a shell makes a rank that waits for nobody. */
static void tell_late(void *ctx, const char *missing)
{
    sk_boot *b = ctx;
    if (!first_to(b, "late")) return;
    b->late(sk_print(b->arena,
                     "rank %d of %d waits for %s, for up to %g s: %s and %s are set, as by %s; if "
                     "nobody starts the others: %s",
                     b->rank, b->n_ranks, missing, b->timeout_s, b->said[0], b->said[1], b->by,
                     sk_print(b->arena, "env -u %s -u %s %s", b->vars[0], b->vars[1],
                              sk_boot_command(b->arena))));
}

static sk_status meet(sk_boot *b, sk_hello *hellos, double until)
{
    char name[128];
    snprintf(name, sizeof name, "skein-%ld-%s-%d", (long)getuid(), b->job, b->host);
    return sk_rendezvous_join(b->arena, name, b->locals, b->n_local, b->local, hellos, until,
                              b->late ? tell_late : NULL, b, &b->rendezvous);
}

static sk_status draw_name(sk_boot *b)
{
    unsigned long long x;
    if (getrandom(&x, sizeof x, 0) != (ssize_t)sizeof x)
        return sk_fail(SK_EIO, "boot: the kernel gives no random numbers");
    snprintf(b->job, sizeof b->job, "%s-%016llx", b->by, x);
    return SK_OK;
}

/* By wire: everybody knows everybody before the rendezvous of each host. */
static sk_status meet_hosts(sk_boot *b, sk_hello *hellos, double until)
{
    size_t all = (size_t)b->n_ranks * sizeof *hellos;
    if (b->rank) SK_TRY(say(b, 0, TAG_CARD, &hellos[b->rank], sizeof *hellos, until));
    for (int r = 1; !b->rank && r < b->n_ranks; r++)
        SK_TRY(hear(b, r, TAG_CARD, &hellos[r], sizeof *hellos, until));
    if (!b->rank) SK_TRY(draw_name(b));
    SK_TRY(tell_tree(b, b->job, sizeof b->job, until));
    SK_TRY(tell_tree(b, hellos, all, until));
    number_hosts(b, hellos);
    sk_hello *local = sk_many(b->arena, sk_hello, b->n_local);
    for (int i = 0; i < b->n_local; i++) local[i] = hellos[b->locals[i]];
    return meet(b, local, until);
}

/* One rendezvous of all. */
static sk_status meet_here(sk_boot *b, sk_hello *hellos, double until)
{
    for (int r = 0; r < b->n_ranks; r++) b->locals[r] = r;
    b->n_local = b->n_ranks;
    b->local = b->rank;
    SK_TRY(meet(b, hellos, until));
    SK_TRY(sk_rendezvous_bcast(b->rendezvous, hellos, (size_t)b->n_ranks * sizeof *hellos, NULL, 0,
                               until));
    number_hosts(b, hellos);
    if (b->n_hosts == 1) return SK_OK;
    int other = 0;
    while (!b->host_of[other]) other++;
    return sk_fail(SK_ECONF,
                   "boot: ranks 0 and %d are not on one host (see SKEIN_HOST), and %d hosts need "
                   "MPI to connect them: mpirun -n %d %s",
                   other, b->n_hosts, b->n_ranks, sk_boot_command(b->arena));
}

sk_status sk_boot_join(sk_boot *b, double timeout_s)
{
    sk_assert(b->n_ranks > 1 && !b->rendezvous);
    sk_proc_files(b->n_ranks +
                  64); /* sockets of the rendezvous, and a process for each rank to watch */
    b->timeout_s = timeout_s;
    b->host_of = sk_many(b->arena, int, b->n_ranks);
    b->locals = sk_many(b->arena, int, b->n_ranks);
    b->pids = sk_many(b->arena, int, b->n_ranks);
    sk_hello *hellos = sk_many(b->arena, sk_hello, b->n_ranks);
    hellos[b->rank] = my_card(b);
    SK_TRY(open_wire(b));
    if (b->wire) SK_TRY(meet_hosts(b, hellos, deadline(b)));
    else SK_TRY(meet_here(b, hellos, deadline(b)));
    return SK_OK;
}

sk_status sk_boot_bcast(sk_boot *b, void *data, size_t bytes)
{
    if (b->wire) SK_TRY(tell_tree(b, data, bytes, deadline(b)));
    else SK_TRY(sk_rendezvous_bcast(b->rendezvous, data, bytes, NULL, 0, deadline(b)));
    return SK_OK;
}

/* --- heaps --- */

typedef struct news { /* from the first rank of a host: how it went */
    int32_t code;
    char report[1020];
} news;

static sk_status make_heaps(sk_boot *b, const sk_heaps_ask *q, sk_heaps **out)
{
    news n = {0};
    int fd = -1;
    sk_status st = sk_heaps_make(q, &fd, out);
    n.code = (int32_t)st;
    if (st) snprintf(n.report, sizeof n.report, "%.1000s", sk_error_line());
    sk_status told = sk_rendezvous_bcast(b->rendezvous, &n, sizeof n, NULL, 0, deadline(b));
    if (!st && !told && b->n_local > 1)
        told = sk_rendezvous_bcast(b->rendezvous, &n, 1, (int[]){(*out)->fd, fd}, 2, deadline(b));
    if (fd >= 0) close(fd);
    if (!st && told) {
        sk_heaps_close(*out);
        *out = NULL;
    }
    if (st && told) return sk_fail(st, "%s", n.report);
    return st ? st : told;
}

static sk_status take_heaps(sk_boot *b, const sk_heaps_ask *q, sk_heaps **out)
{
    news n = {0};
    int fds[2] = {-1, -1};
    SK_TRY(sk_rendezvous_bcast(b->rendezvous, &n, sizeof n, NULL, 0, deadline(b)));
    n.report[sizeof n.report - 1] = 0;
    if (n.code) { /* the first rank tells it */
        sk_error_set("");
        return SK_EPEER;
    }
    SK_TRY(sk_rendezvous_bcast(b->rendezvous, &n, 1, fds, 2, deadline(b)));
    sk_status st = sk_heaps_map(q, fds[0], fds[1], out);
    close(fds[1]);
    return st;
}

sk_status sk_boot_heaps(sk_boot *b, const int64_t *bytes, sk_heap_aliases aliases,
                        size_t extra_bytes, sk_heaps **out)
{
    bool *here = sk_many(b->arena, bool, b->n_ranks);
    for (int r = 0; r < b->n_ranks; r++) here[r] = b->host_of[r] == b->host;
    sk_heaps_ask q = {.n_ranks = b->n_ranks,
                      .bytes = bytes,
                      .here = here,
                      .shared = true,
                      .cores = b->cores,
                      .aliases = aliases,
                      .extra_bytes = extra_bytes};
    SK_TRY(b->local ? take_heaps(b, &q, out) : make_heaps(b, &q, out));
    for (int i = 0; i < b->n_local; i++) /* a death before the first call is seen too */
        atomic_store(&sk_heaps_rank_state(*out, b->locals[i])->pid, b->pids[i]);
    return SK_OK;
}

bool sk_boot_speaks(const sk_boot *b) { return first_to(b, "report"); }

void sk_boot_leave(sk_boot *b)
{
    sk_rendezvous_close(b->rendezvous);
    b->rendezvous = NULL;
    if (b->wire) b->wire->close(b->wire);
    b->wire = NULL;
}
