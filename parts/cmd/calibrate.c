/* calibrate.c - `skein calibrate`: measures this machine and writes the file that prices come from.
 *
 * Small training jobs (cli/calibrate_jobs.h) run one after the other, every launch of them timed;
 * then copies, files and launches by themselves, on a processor the collectives, on a GPU how far
 * it lowers its clocks under load.  What cannot be measured by one process on one device, links
 * between devices and hosts, stays as in the machine that the file is made from. */
#include "base/clock.h"
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/calibrate_jobs.h"
#include "cli/cmd.h"
#include "plan/coll_calibration.h"
#include "plan/device_rates.h"
#include "plan/launch_kind.h"
#include "plan/machine_fit.h"
#include "plan/simulator.h"
#include "plan/step_timing.h"
#include "train/host_peak.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_JOBS = 32 };
static const double seconds_of_cpu = 100, seconds_of_gpu = 180; /* where none are asked for */

static const char help[] =
    "usage: skein calibrate [device=cpu|cuda|cuda:N] [--seconds S] [--like NAME] [--out FILE]\n"
    "                       [key=value ...] [-o csv|json|md]\n\n"
    "Measures this machine in at most about S (100; a GPU 180) seconds and writes the file of\n"
    "a machine that skein simulate and goodput read when none is named, or FILE, for --cluster\n"
    "of all commands: matrix products by type and (m, n, k), attention by width and length,\n"
    "other kernels by bytes (norms, losses, optimizers), launches, copies between memories and\n"
    "to files; on a processor (per thread) also the collectives of a host and ranks that\n"
    "outnumber its cores, on a GPU how far it slows down under load.  Links between GPUs and\n"
    "hosts stay those of --like NAME, a built-in machine; the GPU's name chooses one.\n"
    "It runs small training jobs; with keys of a job (model=..., train.seq=...) that job alone.\n"
    "The rows of what=job say how far the file is off for them: simulated over measured.\n"
    "    skein calibrate device=cuda\n"
    "    skein calibrate --seconds 60 --out machine.txt -o csv\n"
    "    skein simulate model=nano --cluster machine.txt\n";

typedef struct calibration {
    sk_arena *arena;
    const char *device, *like, *own; /* own: words of one job; "": the list */
    const char *further;             /* words for all jobs */
    bool gpu;
    double seconds, end;
    sk_calibrate_job job[MOST_JOBS];
    int n, left_out;
    sk_machine_fit *fit;
    sk_machine machine;
    sk_device_rates rates;
    double burst, sustained; /* seconds of a step; 0: not measured */
    sk_table table;
} calibration;

static double left(const calibration *c) { return c->end - sk_now(); }

/* --- the table --- */

static const char *const columns[] = {"what", "name", "type", "size", "us", "rate", "unit"};
enum { COLS = sizeof columns / sizeof *columns };

static void add(calibration *c, const char *what, const char *name, const char *type,
                const char *size, double seconds, double rate, const char *unit)
{
    sk_arena *a = c->arena;
    const char *cells[COLS] = {what,
                               name,
                               type,
                               size,
                               seconds > 0 ? sk_print(a, "%.2f", 1e6 * seconds) : "",
                               rate > 0 ? sk_print(a, "%.4g", rate) : "",
                               unit};
    sk_table_add(&c->table, cells);
}

/* --- jobs --- */

static sk_status time_job(calibration *c, const char *words, double seconds)
{
    sk_calibrate_job *j = &c->job[c->n];
    *j = (sk_calibrate_job){.words = words};
    SK_TRY(sk_calibrate_open(c->arena, words, c->further, j));
    if (j->setup->n_ranks != 1)
        return sk_fail(SK_EUSAGE, "calibrate: the job \"%.200s\" has %d ranks; 1 is needed", words,
                       j->setup->n_ranks);
    const sk_program *p = j->setup->programs[0];
    SK_TRY(sk_time_launches(c->arena, p, &j->opts, j->job.lr, seconds, &j->times));
    sk_machine_fit_add(c->fit, p, &j->times);
    c->n++;
    return SK_OK;
}

/* What matters most comes first: the last ones are left out where the time is over.  A job that
 * this machine cannot run (too little memory, no products in 8 bits) is told, and the others say
 * what they can. */
static sk_status time_jobs(calibration *c, double share)
{
    const char *const *list = c->gpu ? sk_calibrate_on_gpu : sk_calibrate_on_cpu;
    const char *const own[] = {c->own, NULL};
    int n = 0, done = 0;
    double end = sk_now() + share * c->seconds;
    if (*c->own) list = own;
    while (list[n]) n++;
    sk_status st = SK_OK;
    for (; done < n && (!done || sk_now() < end); done++) {
        sk_status one = time_job(c, list[done], fmax(0.5 * (end - sk_now()) / (n - done), 0.1));
        if (one && !*c->own)
            fprintf(stderr, "skein: not measured: \"%s\": %s\n", list[done], sk_error_line());
        if (one) st = one;
    }
    c->left_out = n - done;
    return c->n ? SK_OK : sk_trail(st, SK_HERE);
}

/* The job with the most work in a step. */
static const sk_calibrate_job *hardest(const calibration *c)
{
    const sk_calibrate_job *best = &c->job[0];
    for (int i = 1; i < c->n; i++)
        if (c->job[i].setup->flops > best->setup->flops) best = &c->job[i];
    return best;
}

static sk_status droop(calibration *c)
{
    const sk_calibrate_job *j = hardest(c);
    double seconds = fmin(10, fmax(0.1 * c->seconds, 0.2));
    SK_TRY(sk_time_droop(j->setup->programs[0], &j->opts, j->job.lr, seconds, &c->burst,
                         &c->sustained));
    return SK_OK;
}

/* --- the machine --- */

/* The built-in machine whose devices are of this kind. */
static const char *preset_of(const char *gpu)
{
    static const char *const known[][2] = {{"GB200", "gb200-72"}, {"B200", "b200-8"},
                                           {"H200", "h200-8"},    {"H100", "h100-8"},
                                           {"A100", "a100-8"},    {"V100", "v100-8"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(gpu, known[i][0])) return known[i][1];
    return "h100-8";
}

static double both_ways(double a, double b) { return a > 0 && b > 0 ? 2 / (1 / a + 1 / b) : 0; }

/* Updates of the optimizer by the host's processor, for states that are offloaded to it.  Beside a
 * GPU they are 1.6 GB, some times the cache of a server; otherwise 0.4 GB. */
static sk_status host_rate(calibration *c)
{
    sk_calibrate_job *j = sk_new(c->arena, sk_calibrate_job);
    const char *words = sk_print(c->arena,
                                 "model=tiny model.num_hidden_layers=%d model.hidden_size=1024 "
                                 "model.num_attention_heads=16 train.batch=1 train.seq=16",
                                 c->gpu ? 8 : 2);
    double bytes = 0, seconds = 0;
    SK_TRY(sk_calibrate_open(c->arena, words, c->gpu ? "device=cpu" : c->further, j));
    const sk_program *p = j->setup->programs[0];
    SK_TRY(sk_time_launches(c->arena, p, &j->opts, j->job.lr, 0.5, &j->times));
    for (int pc = 0; pc < p->n_train; pc++) {
        sk_launch_kind k;
        if (p->insts.v[pc].act != SK_DO_UPDATE || !sk_launch_kind_of(p, pc, &k)) continue;
        bytes += (double)k.bytes;
        seconds += j->times.seconds[pc];
    }
    if (seconds > 0) c->machine.host_rate = bytes / seconds;
    return SK_OK;
}

static sk_status begin_machine(calibration *c)
{
    sk_machine *m = &c->machine;
    const char *like = c->like ? c->like : c->gpu ? preset_of(c->rates.facts.model) : "cpu";
    SK_TRY(sk_machine_read(c->arena, like, m));
    snprintf(m->name, sizeof m->name, "calibrated");
    sk_host_mark(m->costs.host, sizeof m->costs.host);
    m->doc = sk_print(c->arena, "measured on %s%s%s; links as %s", m->costs.host,
                      c->gpu ? ", " : "", c->rates.facts.model, like);
    return SK_OK;
}

static void take_rates(calibration *c)
{
    const sk_device_rates *r = &c->rates;
    sk_machine *m = &c->machine;
    for (int i = 0; i < SK_COPY_SIZES && r->size[i] > 0; i++) {
        sk_machine_fit_op(c->fit, "any", SK_F32, r->size[i], r->inside[i]);
        m->memory_rate = r->size[i] / r->inside[i];
    }
    m->copy_rate = both_ways(r->in, r->out);
    double file = both_ways(r->read, r->written);
    if (file > 0) m->file_rate = file;
    m->issue = c->gpu ? r->issue : 0;
    if (r->facts.bytes > 0) m->memory = r->facts.bytes;
    if (r->facts.flops[SK_PEAK_NARROW] > 0) m->peak = r->facts.flops[SK_PEAK_NARROW];
}

/* Rates of kernels are those under load; flops are those of a device that is not. */
static void take_droop(calibration *c)
{
    sk_machine *m = &c->machine;
    m->kernels.sustained = 0;
    if (!c->gpu || c->burst <= 0) return;
    m->kernels.sustained = fmin(fmax(c->burst / c->sustained, 0.1), 1);
    m->flops /= m->kernels.sustained;
    m->kernels.flops_f32 /= m->kernels.sustained;
    m->kernels.flops_fp8 /= m->kernels.sustained;
}

/* What the cores took for a step of ranks that outnumber them, over what the machine says. */
static sk_status crowd_of(calibration *c, const char *words, double *out)
{
    enum { STEPS = 4 };
    sk_calibrate_job *j = sk_new(c->arena, sk_calibrate_job);
    sk_simulation s;
    sk_step_timing t;
    SK_TRY(sk_calibrate_open(c->arena, words, c->further, j));
    const sk_program *const *programs = (const sk_program *const *)j->setup->programs;
    SK_TRY(sk_time_steps(programs, &j->opts, j->job.lr, STEPS, &t));
    sk_simulate_in in = {.machine = &c->machine, .programs = programs};
    SK_TRY(sk_simulate(c->arena, &in, &s));
    *out = t.cores / (s.seconds * (double)c->machine.costs.cores);
    return SK_OK;
}

/* Layouts of every kind count alike: the mean of logarithms. */
static sk_status crowd(calibration *c)
{
    double sum = 0;
    int n = 0;
    c->machine.crowd = 0;
    if (*c->own || c->machine.costs.cores > 8) return SK_OK; /* 16 ranks would not crowd them */
    for (; sk_calibrate_crowd[n] && (n < 2 || left(c) > 0); n++) {
        double one = 1;
        SK_TRY(crowd_of(c, sk_calibrate_crowd[n], &one));
        add(c, "crowd", strrchr(sk_calibrate_crowd[n], ' ') + 1, "", "16 ranks", 0, one,
            "measured/simulated");
        sum += log(one);
    }
    c->machine.crowd = fmin(fmax(exp(sum / n), 1), 10);
    return SK_OK;
}

static sk_status processor(calibration *c)
{
    sk_host h;
    sk_machine *m = &c->machine;
    double seconds = fmin(fmax(0.5 * left(c), 0.05 * c->seconds), 20);
    sk_host_detect(&h);
    m->memory = h.available;
    sk_kept_peak kept = sk_host_peak_of(c->arena, 1);
    if (kept.why) fprintf(stderr, "skein: %s\n", kept.why);
    if (kept.flops > 0) m->peak = kept.flops;
    SK_TRY(sk_calibrate(c->arena, seconds, &m->costs));
    return crowd(c);
}

static sk_status measure(calibration *c)
{
    const int64_t most = c->gpu ? 256 << 20 : 64 << 20;
    const char *folder = getenv("TMPDIR");
    c->fit = sk_machine_fit_begin(c->arena);
    SK_TRY(time_jobs(c, c->gpu ? 0.7 : 0.5));
    if (c->gpu) SK_TRY(droop(c));
    SK_TRY(sk_measure_device(c->arena, c->device, folder ? folder : "/tmp", most, &c->rates));
    SK_TRY(begin_machine(c));
    take_rates(c);
    sk_machine_fit_end(c->fit, &c->machine);
    take_droop(c);
    SK_TRY(host_rate(c));
    return c->gpu ? SK_OK : processor(c);
}

/* --- what was measured, as a table --- */

static void add_kernels(calibration *c)
{
    const sk_kernel_rates *k = &c->machine.kernels;
    sk_arena *a = c->arena;
    for (int i = 0; i < k->n_products; i++) {
        const sk_product_rate *p = &k->product[i];
        add(c, "product", "", p->fp8 ? "fp8" : sk_dtype_name(p->type),
            sk_print(a, p->batch > 1 ? "%gx%gx%g x%g" : "%gx%gx%g", p->m, p->n, p->k, p->batch),
            2 * fmax(p->batch, 1) * p->m * p->n * p->k / p->rate, 1e-12 * p->rate, "Tflop/s");
    }
    for (int i = 0; i < k->n_attention_at; i++) {
        const sk_attention_at *p = &k->attention_at[i];
        const char *size = sk_print(a, "%gx%g", p->width, p->keys);
        add(c, "attention", "forward", sk_dtype_name(p->type), size, 0, 1e-12 * p->forward,
            "Tflop/s");
        add(c, "attention", "backward", sk_dtype_name(p->type), size, 0, 1e-12 * p->backward,
            "Tflop/s");
    }
    for (int i = 0; i < k->n_ops; i++) {
        const sk_measured_op *o = &k->op[i];
        add(c, "op", o->name, sk_dtype_name(o->type), sk_print(a, "%.0f", o->bytes), o->seconds,
            1e-9 * o->bytes / o->seconds, "GB/s");
    }
}

static void add_rest(calibration *c)
{
    const sk_device_rates *r = &c->rates;
    const sk_machine *m = &c->machine;
    add(c, "copy", "to device", "", "", 0, 1e-9 * r->in, "GB/s");
    add(c, "copy", "to host", "", "", 0, 1e-9 * r->out, "GB/s");
    add(c, "copy", "file read", "", r->how, 0, 1e-9 * r->read, "GB/s");
    add(c, "copy", "file written", "", r->how, 0, 1e-9 * r->written, "GB/s");
    add(c, "host", "optimizer", "", "", 0, 1e-9 * m->host_rate, "GB/s");
    add(c, "launch", "shortest", "", "", m->overhead, 0, "");
    add(c, "launch", "host, issued", "", "", r->issue, 0, "");
    add(c, "launch", "device, issued", "", "", r->alone, 0, "");
    add(c, "launch", "device, in a graph", "", "", r->in_graph, 0, "");
    add(c, "launch", "host, a graph", "", "", r->replay, 0, "");
    add(c, "step", "outside of launches", "", "", m->step, 0, "");
    if (c->burst > 0) {
        add(c, "step", "burst", "", "", c->burst, 0, "");
        add(c, "step", "sustained", "", "", c->sustained, c->burst / c->sustained, "of burst");
    }
}

/* "gpt2 128x2 batch 4x64 micro=2" */
static const char *title(sk_arena *a, const sk_job *j)
{
    sk_out o = {.arena = a};
    sk_out_add(&o, "%s %lldx%lld batch %lldx%lld", j->model->name, (long long)j->hyper.hidden_size,
               (long long)j->hyper.num_hidden_layers, (long long)j->batch, (long long)j->seq);
    if (!strcmp(j->matmul, "fp8")) sk_out_add(&o, " fp8");
    if (*j->layout) sk_out_add(&o, " %s", j->layout);
    if (strcmp(j->optim_name, "adamw")) sk_out_add(&o, " %s", j->optim_name);
    return o.s;
}

/* Each job on the machine that was made of them. */
static sk_status add_jobs(calibration *c)
{
    for (int i = 0; i < c->n; i++) {
        const sk_calibrate_job *j = &c->job[i];
        const sk_program *p = j->setup->programs[0];
        sk_arena tmp = {0};
        sk_simulation s;
        sk_simulate_in in = {.machine = &c->machine, .programs = &p};
        sk_status st = sk_simulate(&tmp, &in, &s);
        if (!st)
            add(c, "job", title(c->arena, &j->job), sk_dtype_name(j->job.dtype),
                sk_print(c->arena, "%d steps", j->times.steps), j->times.plain,
                s.seconds / j->times.plain, "simulated/measured");
        sk_arena_end(&tmp);
        if (st) return sk_trail(st, SK_HERE);
    }
    return SK_OK;
}

/* --- the command --- */

/* Words about what is trained are a job of the user's; the others are for all jobs. */
static void sort_words(calibration *c, const char *const *words, int n)
{
    sk_out own = {.arena = c->arena}, all = {.arena = c->arena};
    for (int i = 0; i < n; i++) {
        bool everywhere =
            !strncmp(words[i], "device=", 7) || !strncmp(words[i], "train.scratch=", 14);
        sk_out_add(everywhere ? &all : &own, "%s ", words[i]);
        if (!strncmp(words[i], "device=", 7)) c->device = words[i] + 7;
    }
    c->gpu = strcmp(c->device, "cpu") != 0;
    if (!c->gpu) sk_out_add(&all, "train.threads=1 ");
    c->own = own.n ? own.s : "";
    c->further = all.n ? all.s : "";
}

static sk_status read_seconds(const char *text, bool gpu, double *out)
{
    *out = gpu ? seconds_of_gpu : seconds_of_cpu;
    if (!text || (sk_read_real(text, out) && *out >= 0.5 && *out <= 3600)) return SK_OK;
    return sk_fail(SK_EUSAGE, "command line: --seconds is \"%.80s\"; 0.5 to 3600 are needed", text);
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    enum { MOST_WORDS = 24 };
    const char *words[MOST_WORDS], *seconds = NULL, *path = NULL, *format = NULL;
    calibration *c = sk_new(a, calibration);
    int n = 0;
    double start = sk_now();
    const sk_argv_option options[] = {{"--seconds", &seconds, false},
                                      {"--out", &path, false},
                                      {"--like", &c->like, false},
                                      {"-o", &format, false},
                                      {0}};
    SK_TRY(sk_argv_words(a, argc, argv, options, words, MOST_WORDS, &n));
    c->arena = a;
    c->device = "cpu";
    c->table = (sk_table){.arena = a, .head = columns, .n_cols = COLS};
    sort_words(c, words, n);
    SK_TRY(read_seconds(seconds, c->gpu, &c->seconds));
    if (!path) path = sk_machine_path_on(a, c->gpu);
    if (!path)
        return sk_fail(SK_EUSAGE, "calibrate: neither XDG_CONFIG_HOME nor HOME is set; say where "
                                  "to write: skein calibrate --out FILE");
    SK_TRY(sk_machine_can_write(a, path));
    c->end = start + c->seconds;
    SK_TRY(measure(c));
    SK_TRY(sk_machine_write(a, path, &c->machine));
    add_kernels(c);
    add_rest(c);
    SK_TRY(add_jobs(c));
    SK_TRY(sk_table_print(&c->table, format, stdout));
    if (c->left_out)
        fprintf(stderr,
                "skein: the time was over before the last %d of the jobs; --seconds %.0f "
                "or more would have measured them\n",
                c->left_out, 2 * c->seconds);
    fprintf(format ? stderr : stdout, "measured in %.1f s, written to %s\n", sk_now() - start,
            path);
    return SK_OK;
}

const sk_cmd sk_cmd_calibrate = {.name = "calibrate",
                                 .doc = "measure this machine: what simulate predicts steps from",
                                 .help = help,
                                 .run = run};
