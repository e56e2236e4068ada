/* doctor.c - `skein doctor`: what this host has, what skein would use, and why. */
#include "base/threads.h"
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/cmd.h"
#include "comm/boot.h"
#include "data/data.h"
#include "device/device.h"
#include "device/nvml.h"
#include "train/host_peak.h"

#include <dlfcn.h>
#include <glob.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUND_S 0.2
enum { LEAST = 4, MOST = 16 }; /* rounds of a measurement */

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

/* The i-th core of those that may be used, as evenly over them as rounds go. */
static bool pick(const cpu_set_t *all, int round, cpu_set_t *one)
{
    int cores = CPU_COUNT(all), wanted = round % LEAST * cores / LEAST, n = 0;
    CPU_ZERO(one);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, all) || n++ != wanted) continue;
        CPU_SET(i, one);
        return true;
    }
    return false;
}

/* One round; that of a single core is on another one each time, since the sibling of a virtual core
 * may belong to somebody else and be busy for long, which no clock here shows. */
static sk_status one_round(int cores, int round, sk_peak_rate *out)
{
    cpu_set_t all, one;
    bool pinned = cores == 1 && !sched_getaffinity(0, sizeof all, &all) &&
                  pick(&all, round, &one) && !sched_setaffinity(0, sizeof one, &one);
    sk_status st = sk_host_peak(cores, ROUND_S, out);
    if (pinned) sched_setaffinity(0, sizeof all, &all);
    return st;
}

/* The best of rounds, until LEAST in a row have raised it by less than a hundredth. */
static sk_status measure(int cores, sk_peak_rate *best)
{
    *best = (sk_peak_rate){0};
    for (int i = 0, still = 0; i < MOST && still < LEAST; i++) {
        sk_peak_rate p;
        SK_TRY(one_round(cores, i, &p));
        still = p.flops > 1.01 * best->flops ? 1 : still + 1;
        if (p.flops > best->flops) *best = p;
    }
    return SK_OK;
}

/* The peaks that MFU is over; a large spread, and why a peak could not be stored. */
static void peak(sk_table *t, const char *what, int cores)
{
    sk_arena *a = t->arena;
    sk_peak_rate p;
    sk_out o = {.arena = a};
    if (measure(cores, &p)) {
        say(t, what, "not measured", sk_strdup(a, sk_error_line()));
        return;
    }
    const char *before = sk_host_peak_find(a, cores).why;
    sk_kept_peak kept = sk_host_peak_keep(a, cores, p.flops);
    if (!kept.why)
        sk_out_add(&o, "stored peak, best of %lld measurement%s; ", (long long)kept.times,
                   sk_plural(kept.times));
    sk_out_add(&o, "measured now %.1f; f32 products of 256 x 256, one thread a core",
               1e-9 * p.flops);
    if (p.spread > 0.05) sk_out_add(&o, "; noisy, half take over %.0f %% longer", 100 * p.spread);
    if (before) sk_out_add(&o, "; %s", before);
    if (kept.why) sk_out_add(&o, "; %s", kept.why);
    say(t, what, sk_print(a, "%.1f GFLOP/s", 1e-9 * kept.flops), o.s);
}

static void processor(sk_table *t, const sk_host *h)
{
    sk_arena *a = t->arena;
    say(t, "processor", sk_print(a, "%s, %s", h->cpu, h->isa), "used: kernels and BLAS");
    say(t, "cores", sk_print(a, "%d", h->cores),
        "ranks x threads; default: cores / ranks threads each");
    say(t, "memory", sk_print(a, "%s, %s free", sk_bytes(a, h->memory), sk_bytes(a, h->available)),
        "heaps of all ranks must fit: skein plan");
    say(t, "BLAS", h->blas, "used for matrix products");
    peak(t, "peak of a core", 1);
    int all = h->cores < SK_THREADS_MAX ? h->cores : SK_THREADS_MAX;
    if (all > 1) peak(t, sk_print(a, "peak of %d cores", all), all);
}

/* --- launchers --- */

/* What started this very process. */
static void launcher(sk_table *t)
{
    sk_arena *a = t->arena;
    sk_boot b;
    if (sk_boot_detect(a, &b)) say(t, "started by", "unclear", sk_error_line());
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

/* --- GPUs --- */

/* Rows that a child writes into a pipe, a line each: what, found, use, with tabs between. */
static void put(FILE *to, const char *what, const char *found, const char *use)
{
    fprintf(to, "%s\t%s\t%s\n", what, found, use);
}

/* --- a newer cuDNN, such as PyTorch brings along --- */

/* The version of a libcudnn, 0 if it is none.  A child opens it: of two in one process, the second
 * would take the parts of the first, and its version. */
static unsigned cudnn_version(const char *path)
{
    int ends[2];
    unsigned v = 0;
    if (pipe(ends)) return 0;
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL), *f = so ? dlsym(so, "cudnnGetVersion") : 0;
        size_t (*version)(void);
        memcpy(&version, &f, sizeof f);
        v = f ? (unsigned)version() : 0;
        _exit(write(ends[1], &v, sizeof v) != sizeof v);
    }
    close(ends[1]);
    if (child > 0 && read(ends[0], &v, sizeof v) != sizeof v) v = 0;
    close(ends[0]);
    if (child > 0) waitpid(child, NULL, 0);
    return v;
}

/* The newest of a pattern that is newer than *v. */
static void newest(sk_arena *a, const char *pattern, unsigned *v, const char **path)
{
    glob_t g;
    if (glob(pattern, 0, NULL, &g)) return;
    for (size_t i = 0; i < g.gl_pathc; i++) {
        unsigned x = cudnn_version(g.gl_pathv[i]);
        if (x <= *v) continue;
        *v = x;
        *path = sk_strdup(a, g.gl_pathv[i]);
    }
    globfree(&g);
}

/* The newest in the common places; shown, but never used: a run should not depend on which Python
 * is installed. */
static const char *find_cudnn(sk_arena *a, unsigned *v)
{
    static const struct {
        const char *variable, *folder;
    } places[] = {{"VIRTUAL_ENV", "/lib/python3*/site-packages"},
                  {"CONDA_PREFIX", "/lib/python3*/site-packages"},
                  {NULL, "/usr/local/lib/python3*/site-packages"},
                  {NULL, "/usr/local/lib/python3*/dist-packages"},
                  {NULL, "/usr/lib/python3/dist-packages"},
                  {"HOME", "/.local/lib/python3*/site-packages"}};
    const char *wish = getenv("SKEIN_CUDNN"), *path = NULL;
    if (wish && !strcmp(wish, "0")) return NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *root = places[i].variable ? getenv(places[i].variable) : "";
        if (root && (*root || !places[i].variable))
            newest(a, sk_print(a, "%s%s/nvidia/cudnn/lib/libcudnn.so.9", root, places[i].folder), v,
                   &path);
    }
    return path;
}

static void tell_cudnn(FILE *to, sk_arena *a, const sk_device_library *used, unsigned v,
                       const char *path)
{
    unsigned p[3] = {0};
    if (used->here && sscanf(used->version, "%u.%u.%u", &p[0], &p[1], &p[2]) != 3) return;
    if (!path || v <= 10000 * p[0] + 100 * p[1] + p[2]) return;
    put(to, "newer cuDNN", sk_print(a, "%u.%u.%u", v / 10000, v / 100 % 100, v % 100),
        sk_print(a, "not used; SKEIN_CUDNN=%s would take it", path));
}

static void tell_tools(FILE *to, sk_arena *a)
{
    sk_device_library tools[SK_MAX_LIBRARIES];
    unsigned v = 0;
    const char *cudnn = find_cudnn(a, &v); /* before there is one in this process */
    int n = sk_device_libraries("cuda", true, tools);
    for (int i = 0; i < n; i++) {
        const sk_device_library *t = &tools[i];
        if (t->here)
            put(to, t->name, sk_print(a, "%s, %s", t->version, t->path),
                sk_print(a, "used for %s", t->use));
        else put(to, t->name, "not found", sk_print(a, "for %s: %s", t->use, t->why));
        if (!strcmp(t->name, "cuDNN")) tell_cudnn(to, a, t, v, cudnn);
    }
}

static void tell_gpu(FILE *to, sk_arena *a, int i)
{
    sk_device_facts f;
    sk_device *d = NULL;
    const char *name = sk_print(a, "cuda:%d", i);
    if (sk_device_open(name, &d) || sk_device_look(d, &f)) {
        put(to, sk_print(a, "GPU %s", name), "cannot be opened", sk_error_line());
        return;
    }
    const char *use =
        sk_print(a, "device=%s; peak %.1f TFLOP/s in bf16, %.1f in f32, %.1f TB/s", name,
                 1e-12 * f.flops[SK_PEAK_NARROW], 1e-12 * f.flops[SK_PEAK_F32], 1e-12 * f.bytes_s);
    if (f.capability < 90)
        use = "older than sm_90 (Hopper), which kernels need: for device=cpu alone";
    put(to, sk_print(a, "GPU %s", name),
        sk_print(a, "%s, sm_%d, %s, %s free", f.model, f.capability, sk_bytes(a, f.bytes),
                 sk_bytes(a, f.available)),
        use);
    sk_device_close(d);
}

static void tell_gpus(FILE *to)
{
    sk_arena a = {0};
    int n = sk_device_count("cuda");
    for (int i = 0; i < n; i++) tell_gpu(to, &a, i);
    tell_tools(to, &a);
    const char *use = "device=cpu: no GPU that CUDA can use";
    if (n == 1) use = "all ranks of this host share cuda:0";
    if (n > 1) use = sk_print(&a, "ranks take cuda:0 to cuda:%d in turn", n - 1);
    put(to, "device=cuda", n ? "can be used" : "cannot be used", use);
    sk_arena_end(&a);
}

static void read_rows(sk_table *t, FILE *from)
{
    char line[2048];
    while (fgets(line, sizeof line, from)) {
        char *found = strchr(line, '\t'), *use = found ? strchr(found + 1, '\t') : NULL;
        if (!use) continue;
        *found++ = *use++ = 0;
        use[strcspn(use, "\n")] = 0;
        say(t, sk_strdup(t->arena, line), sk_strdup(t->arena, found), sk_strdup(t->arena, use));
    }
}

/* A child process asks CUDA: this process stays without it, and survives a driver that hangs. */
static void ask_cuda(sk_table *t)
{
    int ends[2];
    if (pipe(ends)) return;
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        close(ends[0]);
        FILE *to = fdopen(ends[1], "w");
        if (to) tell_gpus(to);
        if (to) fclose(to);
        _exit(0);
    }
    close(ends[1]);
    FILE *from = fdopen(ends[0], "r");
    if (child > 0 && from) read_rows(t, from);
    if (from) fclose(from);
    int status = 0;
    if (child > 0 && waitpid(child, &status, 0) == child && status)
        say(t, "CUDA", "failed", "the process that asked it died: see what nvidia-smi says");
}

static void gpus(sk_table *t, const sk_host *h)
{
    static const char *const cuda[] = {"libcuda.so.1", NULL};
    sk_arena *a = t->arena;
    const char *nvcc = program(a, "nvcc"), *driver = library(cuda), *version = sk_nvml_driver();
    bool built = sk_device_known("cuda");
    if (!nvcc && !access("/usr/local/cuda/bin/nvcc", X_OK)) nvcc = "/usr/local/cuda/bin/nvcc";
    say(t, "nvcc", nvcc ? nvcc : "not found",
        nvcc ? "compiles the CUDA part when skein is built" : "needed to build the CUDA part");
    say(t, "GPU half", built ? "in this program" : "not in this program",
        built  ? "device=cuda"
        : nvcc ? "device=cpu only; cmake --preset release && cmake --build --preset release adds it"
               : "device=cpu only; install nvcc and build again");
    say(t, "NVIDIA driver",
        !driver
            ? "no driver"
            : sk_print(a, "%s, %d GPU%s", *version ? version : driver, h->gpus, sk_plural(h->gpus)),
        driver && h->gpus ? "runs kernels"
        : h->gpus ? "there are GPUs, but no libcuda.so.1: in a container, start it with them"
                  : "not needed for device=cpu");
    if (built) ask_cuda(t);
}

/* A name is known whether its data are installed or not: opening them shows it. */
static void data(sk_table *t)
{
    for (const sk_source *const *s = sk_source_parts; *s; s++) {
        if (!(*s)->known) continue;
        sk_arena tmp = {0};
        sk_store store = {.path = (*s)->known};
        sk_tokenizer *bytes = NULL;
        bool there = !sk_tokenizer_open(&tmp, "byte", &bytes) &&
                     !(*s)->open(&tmp, (*s)->known, bytes, false, &store);
        say(t, sk_print(t->arena, "data %s", (*s)->known), there ? "there" : "not found",
            there ? sk_print(t->arena, "data.train=%s", (*s)->known)
                  : sk_strdup(t->arena, sk_error_line()));
        sk_arena_end(&tmp);
    }
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    static const char *const head[] = {"what", "found", "use"};
    const char *format = NULL;
    const sk_argv_option options[] = {{"-o", &format, false}, {0}};
    sk_table t = {.arena = a, .head = head, .n_cols = 3};
    sk_host h;
    int n = 0;
    SK_TRY(sk_argv_words(a, argc, argv, options, NULL, 0, &n));
    sk_host_detect(&h);
    processor(&t, &h);
    launchers(&t);
    gpus(&t, &h);
    data(&t);
    return sk_table_print(&t, format, stdout);
}

const sk_cmd sk_cmd_doctor = {
    .name = "doctor",
    .doc = "what this host has, and what skein would use",
    .help = "usage: skein doctor [-o csv|json|md]\n\n"
            "Looks for processor features, BLAS, launchers, MPI, Slurm, GPUs and their libraries,\n"
            "known data sets.  Measures the peak of a core and of all cores, over which MFU is\n"
            "taken on a CPU, and stores the highest so far in $XDG_CACHE_HOME/skein or\n"
            "~/.cache/skein.  Changes nothing else.\n",
    .run = run,
};
