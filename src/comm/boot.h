/* boot.h - who am I, how many are we, and who sits on my host?
 *
 * skein's own launcher forks ranks and needs none of this.  When something else
 * started this process, as one of many, the environment says so:
 *
 *     openmpi    OMPI_COMM_WORLD_RANK, _SIZE                    mpirun of Open MPI
 *     mpich      PMI_RANK, PMI_SIZE                             mpiexec of MPICH (Hydra)
 *     slurm      SLURM_PROCID, SLURM_STEP_NUM_TASKS             srun, with PMIx, PMI-2 or nothing
 *     torchrun   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT     torchrun and its kind
 *     skein      SKEIN_RANK, SKEIN_RANKS, SKEIN_JOB             anything else: set them yourself
 *
 * The inner launcher speaks for this process: mpirun under srun or sbatch, the
 * real torchrun under anything.  A batch script is no rank.  A world of one is no
 * world: skein then forks its own ranks.  Otherwise sources that disagree, or a
 * library that sees another number of ranks than the launcher started, end the
 * job with an error report that holds the command to use instead.
 *
 * Ranks of one host share memory: their rendezvous is a socket that has no file
 * (abstract, name made of the job), and the first of them hands out the memfds.
 * Two ranks are on one host if their machine is the same (boot id, network and
 * process namespaces, user), and their SKEIN_HOST, if set: so one machine can
 * stand for several.  Several hosts need the wire (comm/wire.h) of the MPI that started
 * us.  If the launcher says that all ranks are on this host, no MPI is opened;
 * SKEIN_HOST or SKEIN_WIRE=openmpi|mpich opens it all the same.
 *
 *     sk_boot b;
 *     SK_TRY(sk_boot_detect(a, &b));
 *     if (b.n_ranks) {
 *         SK_TRY(sk_boot_join(&b, 60));
 *         SK_TRY(sk_boot_bcast(&b, &seed, sizeof seed));
 *         SK_TRY(sk_boot_heaps(&b, bytes, aliases, extra, &heaps));
 *         sk_comm_opts o = {.rank = b.rank, .wire = b.wire, .host_of = b.host_of, ...};
 *         ...
 *         sk_boot_leave(&b);
 *     }
 *
 * Many failures here are seen by all ranks alike: b.rank is set as soon as one
 * source could be read, so that rank 0 can speak and the others stay quiet.  After a
 * failure leave by exiting with its code: every launcher then ends the others. */
#ifndef SK_COMM_BOOT_H
#define SK_COMM_BOOT_H

#include "comm/wire.h"

typedef struct sk_boot {
    sk_arena *arena;
    const char *by;                 /* "openmpi" ...; NULL: nobody else started us */
    int rank, n_ranks;              /* n_ranks 0: nobody else started us */
    const char *vars[2], *said[2];  /* the two variables that say so: "RANK", "RANK=0" */
    void (*late)(const char *text); /* gets a sentence when ranks are waited for; NULL: nobody */
    const char *module;             /* the wire to open; NULL: none is needed */
    bool together;                  /* the launcher says that all ranks are on this host */
    int host, n_hosts;              /* from here on: after sk_boot_join */
    int *host_of;                   /* rank -> host; hosts are numbered by their first rank */
    int *locals;                    /* the ranks of my host, rising */
    int *pids;                      /* of them */
    int local, n_local;             /* my place among them */
    int cores;                      /* that they may use together */
    sk_wire *wire;                  /* NULL: all ranks are on this host */
    char job[64];                   /* alike on all ranks, unlike other jobs of this machine */
    double timeout_s;
    struct sk_rendezvous *rendezvous; /* of this host's ranks */
} sk_boot;

/* The environment only.  Nobody started us: n_ranks 0 and SK_OK. */
sk_status sk_boot_detect(sk_arena *a, sk_boot *out);
/* Meet the others: opens the wire if there is one, finds hosts, meets the ranks of this host.  No
 * wait in here or below takes longer than timeout_s (0: no limit); the error report says who is
 * missing.
 */
sk_status sk_boot_join(sk_boot *b, double timeout_s);
/* Rank 0's bytes to all. */
sk_status sk_boot_bcast(sk_boot *b, void *data, size_t bytes);
/* Like sk_heaps_open_aliased, on every rank: bytes[] by rank of the world; heaps of this host are
 * mapped by all its ranks, sk_heap_base() of others is NULL.  Each host has a control block of its
 * own. */
sk_status sk_boot_heaps(sk_boot *b, const int64_t *bytes, sk_heap_aliases aliases,
                        size_t extra_bytes, sk_heaps **out);
/* The end, on all ranks together (MPI_Finalize waits for everybody).  Not after a failure. */
void sk_boot_leave(sk_boot *b);

/* What all ranks find wrong, one should say.  True for the first that asks, of this host's
 * ranks of the job (of those that this process's parent started, if the job has no name yet); let
 * it live for a second after it has spoken. */
bool sk_boot_speaks(const sk_boot *b);

/* For error reports: this process's own command line as a shell would read it, and what the program
 * that starts ranks is called here. */
const char *sk_boot_command(sk_arena *a);
const char *sk_boot_program(sk_arena *a, const char *by);

#endif
