/* boot.h - who am I, how many are we, and who sits on my host?
 *
 * skein's own launcher forks ranks and needs none of this.  When something else
 * started this process, as one of many, the environment says so:
 *
 *     openmpi    OMPI_COMM_WORLD_RANK, _SIZE                    mpirun of Open MPI
 *     mpich      PMI_RANK, PMI_SIZE                             mpiexec of MPICH (Hydra)
 *     slurm      SLURM_PROCID, SLURM_NTASKS (of a step)         srun, with PMIx, PMI-2 or nothing
 *     torchrun   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT     torchrun and its kind
 *     skein      SKEIN_RANK, SKEIN_RANKS, SKEIN_JOB             anything else: set them yourself
 *
 * Sources that disagree, or a library that sees one rank where the launcher
 * started more, end the job with a story that holds the command to use instead.
 *
 * Ranks of one host share memory: they meet at a socket that has no file
 * (abstract, name made of the job), and the first of them hands out the memfds.
 * Two ranks are on one host if their machine (boot id) is the same, and their
 * SKEIN_HOST, if set: so one machine can play several.  More hosts need the wire
 * (comm/wire.h) of the MPI that started us. */
#ifndef SK_COMM_BOOT_H
#define SK_COMM_BOOT_H

#include "comm/wire.h"

typedef struct sk_boot {
    sk_arena *arena;
    const char *by;    /* "openmpi" ...; NULL: nobody else started us */
    int rank, n_ranks; /* n_ranks 0: nobody else started us */
    int host, n_hosts;
    int *host_of;         /* rank -> host; hosts are numbered by their first rank */
    int local, n_local;   /* my place among the ranks of my host */
    sk_wire *wire;        /* NULL: all ranks are on this host */
    char job[64];         /* alike on all ranks, unlike other jobs of this machine */
    struct sk_door *door; /* the meeting of this host's ranks */
} sk_boot;

/* The environment only.  Nobody started us: n_ranks 0 and SK_OK. */
sk_status sk_boot_look(sk_arena *a, sk_boot *out);
/* Meet the others: opens the wire if there is one, finds hosts, meets the ranks of this host.
 * After that sk_boot_share sends rank 0's bytes to all, sk_boot_leave ends it. */
sk_status sk_boot_join(sk_boot *b, double timeout_s);
sk_status sk_boot_share(sk_boot *b, void *data, size_t bytes);
/* Like sk_heaps_open, on every rank: bytes[] by rank of the world; heaps of this host are mapped
 * by all its ranks, sk_heap_base() of others is NULL. */
sk_status sk_boot_heaps(sk_boot *b, const int64_t *bytes, size_t extra_bytes, sk_heaps **out);
void sk_boot_leave(sk_boot *b);

#endif
