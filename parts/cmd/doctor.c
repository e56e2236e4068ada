/* doctor.c - `skein doctor`: what this machine has, what would be used, and why. */
#include "base/text.h"
#include "cli/ask.h"
#include "cli/cmd.h"
#include "comm/boot.h"
#include "data/data.h"
#include "train/host.h"

#include <dlfcn.h>
#include <glob.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

/* A program in PATH, or NULL. */
static const char *program(sk_arena *a, const char *name)
{
    const char *path = getenv("PATH");
    for (const char *p = path ? path : ""; *p;) {
        size_t n = strcspn(p, ":");
        const char *full = sk_print(a, "%.*s/%s", (int)n, p, name);
        if (!access(full, X_OK)) return full;
        p += n + (p[n] != 0);
    }
    return NULL;
}

/* A library that can be loaded: its name, or NULL. */
static const char *library(const char *const *names)
{
    for (; *names; names++) {
        void *h = dlopen(*names, RTLD_LAZY | RTLD_LOCAL);
        if (!h) continue;
        dlclose(h);
        return *names;
    }
    return NULL;
}

static void say(sk_table *t, const char *what, const char *found, const char *use)
{
    const char *cells[] = {what, found, use};
    sk_table_add(t, cells);
}

static void processor(sk_table *t, const sk_host *h)
{
    sk_arena *a = t->arena;
    say(t, "processor", sk_print(a, "%s, %s", h->cpu, h->isa), "used: kernels and BLAS");
    say(t, "cores", sk_print(a, "%d", h->cores),
        "ranks x threads; usual: cores / ranks threads each");
    say(t, "memory", sk_print(a, "%s, %s free", sk_bytes(a, h->memory), sk_bytes(a, h->available)),
        "heaps of all ranks must fit: skein plan");
    say(t, "BLAS", h->blas,
        sk_print(a, "used for matrix products: %.1f GFLOP/s on one core",
                 1e-9 * sk_host_peak(1, 0.1)));
}

/* --- launchers --- */

/* What started this very process. */
static void launcher(sk_table *t)
{
    sk_arena *a = t->arena;
    sk_boot b;
    if (sk_boot_look(a, &b)) say(t, "started by", "unclear", sk_error_line());
    else if (!b.n_ranks) say(t, "started by", "nobody else", "skein forks its ranks: train -n N");
    else
        say(t, "started by", sk_print(a, "%s, rank %d of %d", b.by, b.rank, b.n_ranks),
            b.module ? sk_print(a, "used: MPI module %s", b.module)
                     : "used: all ranks are on this host and need no MPI");
}

/* One MPI: its mpirun under either name, and skein's module for it. */
static void mpi(sk_table *t, const char *what, const char *module, const char *const *names)
{
    sk_arena *a = t->arena;
    const char *at = NULL;
    for (; *names && !at; names++) at = program(a, *names);
    bool has = sk_wire_has(module);
    const char *use = "not needed on one host";
    if (at && has) use = sk_print(a, "module %s: %s -n N skein train, any hosts", module, at);
    else if (at) use = sk_print(a, "no module %s: %s -n N works on one host only", module, at);
    say(t, what, at ? at : has ? "library only" : "not found", use);
}

/* The ways of srun to tell MPI who is who: one plugin each.  srun itself says them only where
 * Slurm is configured. */
static bool srun_speaks(const char *plugin)
{
    static const char *const places[] = {"/usr/lib/*/slurm*", "/usr/lib*/slurm*",
                                         "/usr/local/lib*/slurm*"};
    char path[128];
    bool found = false;
    for (size_t i = 0; i < sizeof places / sizeof *places && !found; i++) {
        glob_t g;
        snprintf(path, sizeof path, "%s/mpi_%s.so", places[i], plugin);
        found = !glob(path, GLOB_NOSORT, NULL, &g);
        if (found) globfree(&g);
    }
    return found;
}

static void slurm(sk_table *t)
{
    sk_arena *a = t->arena;
    const char *at = program(a, "srun"), *way = "srun -n N skein train, one node";
    if (srun_speaks("pmi2") && sk_wire_has("mpich")) way = "srun --mpi=pmi2 -n N skein train";
    if (srun_speaks("pmix") && sk_wire_has("openmpi")) way = "srun --mpi=pmix -n N skein train";
    say(t, "Slurm", at ? at : "not found", at ? way : "not needed");
}

static void launchers(sk_table *t)
{
    static const char *const openmpi[] = {"mpirun.openmpi", "orterun", "prterun", NULL};
    static const char *const mpich[] = {"mpirun.mpich", "mpiexec.hydra", NULL};
    launcher(t);
    mpi(t, "Open MPI", "openmpi", openmpi);
    mpi(t, "MPICH", "mpich", mpich);
    slurm(t);
}

static void others(sk_table *t, const sk_host *h)
{
    static const char *const nccl[] = {"libnccl.so.2", "libnccl.so", NULL};
    static const char *const cuda[] = {"libcuda.so.1", NULL};
    sk_arena *a = t->arena;
    const char *nvcc = program(a, "nvcc");
    say(t, "nvcc", nvcc ? nvcc : "not found",
        nvcc ? "compiles CUDA kernels when skein is built" : "not needed");
    const char *driver = library(cuda), *net = library(nccl);
    say(t, "CUDA", driver ? sk_print(a, "%s, %d GPUs", driver, h->gpus) : "no driver",
        driver && h->gpus ? "not used by this build's engine, which runs on the CPU"
                          : "not needed");
    say(t, "NCCL", net ? net : "not found", net ? "not used by the CPU engine" : "not needed");
}

static void data(sk_table *t)
{
    for (const sk_source *const *s = sk_source_parts; *s; s++) {
        if (!(*s)->known) continue;
        bool there = (*s)->knows((*s)->known);
        say(t, sk_print(t->arena, "data %s", (*s)->known), there ? "there" : "not found",
            there ? sk_print(t->arena, "data.train=%s", (*s)->known)
                  : sk_print(t->arena, "data.train=%s says what to install", (*s)->known));
    }
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    static const char *const head[] = {"what", "found", "use"};
    const char *format = NULL;
    const sk_ask_option options[] = {{"-o", &format, false}, {0}};
    sk_table t = {.arena = a, .head = head, .n_cols = 3};
    sk_host h;
    int n = 0;
    SK_TRY(sk_ask_words(a, argc, argv, options, NULL, 0, &n));
    sk_host_look(&h);
    processor(&t, &h);
    launchers(&t);
    others(&t, &h);
    data(&t);
    return sk_table_print(&t, format, stdout);
}

const sk_cmd sk_cmd_doctor = {
    .name = "doctor",
    .doc = "what this machine has, and what would be used",
    .help = "usage: skein doctor [-o csv|json|md]\n\n"
            "Looks for processor features, BLAS, launchers, MPI, Slurm, CUDA, NCCL and known data "
            "sets.  "
            "Changes nothing.\n",
    .run = run,
};
