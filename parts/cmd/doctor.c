/* doctor.c - `skein doctor`: what this machine has, what would be used, and why. */
#include "base/text.h"
#include "cli/ask.h"
#include "cli/cmd.h"
#include "data/data.h"
#include "train/host.h"

#include <dlfcn.h>
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

static void others(sk_table *t, const sk_host *h)
{
    static const char *const nccl[] = {"libnccl.so.2", "libnccl.so", NULL};
    static const char *const cuda[] = {"libcuda.so.1", NULL};
    static const struct {
        const char *what, *program, *use;
    } tools[] = {{"MPI", "mpirun", "not used yet: ranks of one host share memory"},
                 {"Slurm", "srun", "not used yet: start skein inside one node's job"},
                 {"nvcc", "nvcc", "compiles CUDA kernels when skein is built"}};
    sk_arena *a = t->arena;
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++) {
        const char *at = program(a, tools[i].program);
        say(t, tools[i].what, at ? at : "not found", at ? tools[i].use : "not needed");
    }
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
    others(&t, &h);
    data(&t);
    return sk_table_print(&t, format, stdout);
}

const sk_cmd sk_cmd_doctor = {
    .name = "doctor",
    .doc = "what this machine has, and what would be used",
    .help = "usage: skein doctor [-o csv|json|md]\n\n"
            "Looks for processor features, BLAS, MPI, Slurm, CUDA, NCCL and known data sets.  "
            "Changes nothing.\n",
    .run = run,
};
