/* launcher_detection.c - which launcher started this process, as which rank of how many: the
 * environment.
 *
 * Launchers nest.  sbatch and salloc give their script SLURM_PROCID=0 and the
 * SLURM_NTASKS of the allocation, but the script is no rank: what makes a rank is
 * a step with an ordinary number.  mpirun inside an allocation starts its daemons
 * with srun, so their ranks carry the daemon's SLURM_PROCID.  srun --mpi=pmi2 sets
 * PMI_RANK like Hydra does, but not MPI_LOCALNRANKS.  So Slurm's word counts only
 * where nobody is inside it, and torchrun's own children listen to torchrun alone.
 * All other sources speak about the same process and must agree: a forgotten
 * WORLD_SIZE=1 in a shell would else make n jobs out of one. */
#include "comm/boot.h"
#include "base/file_io.h"
#include "base/hash.h"
#include "base/strings.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_RANKS = 1 << 20, LAST_STEP = 0x7ffffff0 };

enum { OPENMPI, MPICH, SLURM, TORCHRUN, OWN, N_SOURCES };

static const struct source {
    const char *by, *program, *rank, *size, *local;
} sources[N_SOURCES] = {
    {"openmpi", "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpich", "mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
    {"slurm", "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", NULL},
    {"torchrun", "torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
    {"skein", "SKEIN_RANK", "SKEIN_RANK", "SKEIN_RANKS", NULL},
};

typedef struct claim { /* what a source says */
    bool made;
    int rank, n;
} claim;

/* --- words of the environment --- */

static bool is_set(const char *name) { return name && getenv(name) && *getenv(name); }
static const char *text_of(const char *name) { return is_set(name) ? getenv(name) : ""; }
static bool equal(const char *a, const char *b) { return !strcmp(a, b); }

/* Digits and nothing else, at most `most`. */
static bool number(const char *name, long most, int *out)
{
    const char *s = text_of(name);
    long x = 0;
    if (!*s) return false;
    for (; *s; s++) {
        if (!isdigit((unsigned char)*s)) return false;
        x = 10 * x + (*s - '0');
        if (x > most) return false;
    }
    *out = (int)x;
    return true;
}

/* A task of srun: batch scripts have no step, or one of the numbers at the very end. */
static bool in_step(void)
{
    int step;
    if (!is_set("SLURM_PROCID")) return false;
    return number(is_set("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID", LAST_STEP, &step);
}

static const char *size_name(int i)
{
    if (i == SLURM && !is_set("SLURM_STEP_NUM_TASKS")) return "SLURM_NTASKS";
    return sources[i].size;
}

/* --- claims --- */

static bool speaks(int i)
{
    const struct source *s = &sources[i];
    if (i == SLURM) return in_step();
    if (i == TORCHRUN) return is_set(s->rank) && is_set(s->size); /* RANK alone is anybody's word */
    if (i == MPICH && in_step() && !is_set(s->local)) return false; /* PMI-2 of srun */
    return is_set(s->rank) || is_set(s->size);
}

static sk_status read_claim(int i, claim *c)
{
    const struct source *s = &sources[i];
    const char *size = size_name(i);
    if (!c->made) return SK_OK;
    for (int k = 0; k < 2; k++) {
        const char *name = k ? size : s->rank, *other = k ? s->rank : size;
        if (!is_set(name))
            return sk_fail(SK_ECONF, "boot: %s=%s is set and %s is not; %s sets both, or set both",
                           other, text_of(other), name, s->program);
        if (!number(name, MOST_RANKS, k ? &c->n : &c->rank))
            return sk_fail(SK_ECONF, "boot: %s=%s is no number from 0 to %d", name, text_of(name),
                           MOST_RANKS);
    }
    if (c->rank >= c->n)
        return sk_fail(SK_ECONF, "boot: %s=%d, but %s=%d: ranks are 0 to %d", s->rank, c->rank,
                       size, c->n, c->n - 1);
    return SK_OK;
}

/* Those that speak about an outer process are dropped. */
static void keep_inner(claim *c)
{
    if (c[OPENMPI].made || c[MPICH].made) c[SLURM].made = false;
    if (!c[TORCHRUN].made || !is_set("TORCHELASTIC_RUN_ID")) return;
    c[OPENMPI].made = c[MPICH].made = c[SLURM].made = false;
}

/* Debian has both MPIs side by side: mpirun.openmpi and mpirun.mpich. */
const char *sk_boot_program(sk_arena *a, const char *by)
{
    int i = 0;
    while (i < OWN && !equal(sources[i].by, by)) i++;
    for (const char *p = text_of("PATH"); *p && i <= MPICH;) {
        int n = (int)strcspn(p, ":");
        const char *name = sk_print(a, "mpirun.%s", by);
        if (!access(sk_print(a, "%.*s/%s", n, p, name), X_OK)) return name;
        p += n + (p[n] != 0);
    }
    return sources[i].program;
}

/* mpirun -n 4 ..., with what must be gone from the environment before skein sees it. */
static const char *start_with(sk_arena *a, int i, int n, const char *without)
{
    const char *env = *without ? sk_print(a, "env%s ", without) : "";
    if (i == OWN) return sk_print(a, "%s%s", env, sk_boot_command(a));
    if (i == TORCHRUN) return sk_print(a, "torchrun --no-python ... %s%s", env, sk_boot_command(a));
    return sk_print(a, "%s -n %d %s%s", sk_boot_program(a, sources[i].by), n, env,
                    sk_boot_command(a));
}

static sk_status disagree(sk_arena *a, const claim *c, int i, int k)
{
    const struct source *s = &sources[i], *t = &sources[k];
    const char *drop = sk_print(a, " -u %s -u %s", t->rank, size_name(k));
    return sk_fail(SK_ECONF,
                   "boot: two launchers disagree: %s says rank %d of %d (%s, %s), %s says rank %d "
                   "of %d (%s, %s); if %s is right: %s",
                   s->by, c[i].rank, c[i].n, s->rank, size_name(i), t->by, c[k].rank, c[k].n,
                   t->rank, size_name(k), s->by, start_with(a, i, c[i].n, drop));
}

/* A PMIx launcher that nobody here knows: better no job than n jobs of one. */
static sk_status no_size(void)
{
    if (!is_set("PMIX_RANK") || equal(text_of("PMIX_RANK"), "0")) return SK_OK;
    return sk_fail(SK_ECONF,
                   "boot: PMIX_RANK=%s, but nothing says of how many; set SKEIN_RANK, SKEIN_RANKS "
                   "and SKEIN_JOB, or start with mpirun or srun --mpi=pmix",
                   text_of("PMIX_RANK"));
}

/* The source that speaks for this process; N_SOURCES: none. */
static sk_status find_source(sk_arena *a, sk_boot *b, claim *c, int *who)
{
    sk_status st = SK_OK;
    for (int i = 0; i < N_SOURCES; i++) c[i].made = speaks(i);
    keep_inner(c);
    for (int i = 0; i < N_SOURCES && !st; i++) st = read_claim(i, &c[i]);
    for (*who = 0; *who < N_SOURCES && !c[*who].made;) (*who)++;
    if (*who < N_SOURCES) b->rank = c[*who].rank;
    if (st) return st;
    for (int k = *who + 1; k < N_SOURCES; k++)
        if (c[k].made && (c[k].rank != c[*who].rank || c[k].n != c[*who].n))
            return disagree(a, c, *who, k);
    return *who < N_SOURCES ? SK_OK : no_size();
}

/* --- one host? --- */

static const char *nodes_name(void)
{
    return is_set("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
}

static bool together(int who, int n)
{
    int x = 0;
    const char *master = text_of("MASTER_ADDR");
    if (who == OWN) return true;
    if (who == SLURM) return number(nodes_name(), MOST_RANKS, &x) && x == 1;
    if (is_set(sources[who].local)) return number(sources[who].local, MOST_RANKS, &x) && x == n;
    return who == TORCHRUN &&
           (!*master || equal(master, "localhost") || equal(master, "127.0.0.1"));
}

/* --- the wire that goes with it --- */

static const char *its_module(int who)
{
    if (who == OPENMPI || who == MPICH) return sources[who].by;
    if (who != SLURM) return NULL;
    if (is_set("PMIX_RANK")) return "openmpi";
    return is_set("PMI_FD") || is_set("PMI_RANK") ? "mpich" : NULL;
}

static sk_status no_wire(sk_arena *a, const sk_boot *b, int who)
{
    const char *command = sk_boot_command(a);
    if (is_set("SKEIN_WIRE"))
        return sk_fail(SK_ECONF,
                       "boot: SKEIN_WIRE=none, but %s started %d ranks on several hosts; without "
                       "it: %s",
                       b->by, b->n_ranks, start_with(a, who, b->n_ranks, " -u SKEIN_WIRE"));
    if (who == SLURM)
        return sk_fail(SK_ECONF,
                       "boot: srun started %d ranks on %s nodes without PMI, so no MPI can reach "
                       "the others; with Open MPI: srun --mpi=pmix -n %d %s; with MPICH: srun "
                       "--mpi=pmi2 -n %d %s",
                       b->n_ranks, text_of(nodes_name()), b->n_ranks, command, b->n_ranks, command);
    return sk_fail(SK_ECONF,
                   "boot: %s started %d ranks on several hosts, which MPI must connect: mpirun -n "
                   "%d %s",
                   b->by, b->n_ranks, b->n_ranks, command);
}

static sk_status find_wire(sk_arena *a, sk_boot *b, int who)
{
    const char *forced = text_of("SKEIN_WIRE"), *module = its_module(who);
    b->together = together(who, b->n_ranks);
    if (*forced) module = equal(forced, "none") ? NULL : sk_strdup(a, forced);
    if (!module && !b->together) return no_wire(a, b, who);
    if (who == SLURM && *forced && module && equal(module, "openmpi") && !is_set("PMIX_RANK"))
        return sk_fail(SK_ECONF,
                       "boot: SKEIN_WIRE=openmpi, but srun gave no PMIx: srun --mpi=pmix "
                       "-n %d %s",
                       b->n_ranks, sk_boot_command(a));
    if (*forced || is_set("SKEIN_HOST") || !b->together) b->module = module;
    return SK_OK;
}

/* --- what to call the job --- */

/* Hydra says no job's name, but the other end of PMI_FD is a process of this job alone. */
static long proxy_pid(void)
{
    struct ucred c = {0};
    socklen_t n = sizeof c;
    int fd;
    if (number("PMI_FD", 1 << 20, &fd) && !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n))
        return c.pid;
    return getppid();
}

static sk_status name_job(sk_arena *a, sk_boot *b, int who)
{
    static const char *const names[N_SOURCES][3] = {
        {"PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_ess_base_jobid"},
        {"PMI_JOBID", NULL, NULL},
        {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEPID"},
        {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
        {"SKEIN_JOB", NULL, NULL}};
    const char *text = sources[who].by;
    for (int i = 0; i < 3; i++) text = sk_print(a, "%s/%s", text, text_of(names[who][i]));
    if (who == MPICH) text = sk_print(a, "%s/%ld", text, proxy_pid());
    if (who == OWN && !is_set("SKEIN_JOB") && b->n_ranks > 1)
        return sk_fail(SK_ECONF,
                       "boot: SKEIN_RANK=%d and SKEIN_RANKS=%d, but SKEIN_JOB is not "
                       "set: give this job a name that no other job here has",
                       b->rank, b->n_ranks);
    if (is_set("SKEIN_JOB")) text = sk_print(a, "%s/%s", text, text_of("SKEIN_JOB"));
    snprintf(b->job, sizeof b->job, "%s-%016llx", b->by, (unsigned long long)sk_hash_text(text));
    return SK_OK;
}

sk_status sk_boot_detect(sk_arena *a, sk_boot *out)
{
    claim c[N_SOURCES] = {0};
    int who = N_SOURCES;
    *out = (sk_boot){.arena = a};
    SK_TRY(find_source(a, out, c, &who));
    if (who == N_SOURCES || c[who].n == 1) return SK_OK;
    out->by = sources[who].by;
    out->n_ranks = c[who].n;
    out->vars[0] = sources[who].rank;
    out->vars[1] = size_name(who);
    for (int i = 0; i < 2; i++)
        out->said[i] = sk_print(a, "%s=%s", out->vars[i], text_of(out->vars[i]));
    SK_TRY(name_job(a, out, who));
    SK_TRY(find_wire(a, out, who));
    return SK_OK;
}

/* --- the command line --- */

static void quote(sk_out *o, const char *word)
{
    bool plain = *word && !word[strcspn(word, " \t\n'\"\\$&|;<>()*?[]#~`!{}")];
    sk_out_add(o, "%s", o->n ? " " : "");
    if (plain) {
        sk_out_add(o, "%s", word);
        return;
    }
    sk_out_add(o, "'");
    for (; *word; word++) sk_out_add(o, "%s%c", *word == '\'' ? "'\\'" : "", *word);
    sk_out_add(o, "'");
}

const char *sk_boot_command(sk_arena *a)
{
    char text[4096];
    sk_out o = {.arena = a};
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    for (ssize_t at = 0; at < n; at += (ssize_t)strlen(text + at) + 1) quote(&o, text + at);
    return o.s ? o.s : "skein";
}
