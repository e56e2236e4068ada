/* libFuzzer target: what launchers put into the environment, a line NAME=VALUE each. */
#include "comm/boot.h"
#include "lib/fuzz.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "MPI_LOCALNRANKS",
                                    "PMI_FD",
                                    "PMI_JOBID",
                                    "PMIX_RANK",
                                    "PMIX_NAMESPACE",
                                    "SLURM_PROCID",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_NTASKS",
                                    "SLURM_STEP_ID",
                                    "SLURM_STEPID",
                                    "SLURM_NNODES",
                                    "SLURM_STEP_NUM_NODES",
                                    "SLURM_JOB_ID",
                                    "RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "TORCHELASTIC_RUN_ID",
                                    "SKEIN_RANK",
                                    "SKEIN_RANKS",
                                    "SKEIN_JOB",
                                    "SKEIN_WIRE",
                                    "SKEIN_HOST"};
enum { N_NAMES = sizeof names / sizeof *names };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    sk_boot b;
    char *text = fuzz_text(&a, data, n);
    for (int i = 0; i < N_NAMES; i++) unsetenv(names[i]);
    for (char *line; (line = strsep(&text, "\n"));) {
        char *value = strchr(line, '=');
        if (!value) continue;
        *value++ = 0;
        for (int i = 0; i < N_NAMES; i++)
            if (!strcmp(names[i], line)) setenv(line, value, 1);
    }
    sk_status st = sk_boot_detect(&a, &b);
    fuzz_refused(st, SK_ECONF);
    if (!st && b.n_ranks) {
        sk_assert(b.n_ranks > 1 && b.rank >= 0 && b.rank < b.n_ranks && b.by);
        sk_assert(*b.job && strlen(b.job) < sizeof b.job && b.said[0] && b.said[1]);
    }
    sk_arena_end(&a);
    return 0;
}
