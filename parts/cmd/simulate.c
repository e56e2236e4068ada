/* simulate.c - `skein simulate`: the programs of all ranks, simulated.
 *
 * Compiles one program per shape of rank and simulates one rank per class of equal
 * ranks (plan/rank_classes.h) above SK_SIMULATE_EACH ranks, every rank below.  Needs no data, no
 * devices, and no more time for sixteen thousand ranks than for eight. */
#include "base/clock.h"
#include "base/file_io.h"
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/cmd.h"
#include "cli/vary.h"
#include "plan/coll_calibration.h"
#include "plan/step_jitter.h"
#include "plan/simulator.h"
#include "plan/profile.h"
#include "run/trace.h"
#include "train/host_peak.h"
#include "train/idle.h"
#include "train/setup.h"
#include "train/synthetic.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static const char usage[] =
    "usage: skein simulate [FILE.yaml] [key=value ...] [-n RANKS] [--cluster NAME|FILE]\n"
    "                      [--trace FILE] [--fold yes|no] [-o csv|json|md]\n"
    "                      [--vary NAME=LIST ... [--scaling strong|weak] [--svg FILE]]\n"
    "                      [--sensitivity] [--slow RANK@FACTOR,hostN@FACTOR ...]\n"
    "                      [--jitter SIGMA[,PROBABILITY@FACTOR]] [--draws N]\n\n"
    "Simulates the programs that skein train would run: the time of a step, how much of it\n"
    "is work, exposed communication and bubble, bytes on the wire, and a trace for\n"
    "chrome://tracing or ui.perfetto.dev.  Needs no data and no devices.  mfu is that of a run:\n"
    "flops of the model over the peak of all that is used, of GPUs by their data sheet in 16 "
    "bits,\n"
    "of `here` as stored on this host (skein doctor); a machine in a file may name its `peak`.\n"
    "    skein simulate model=llama-7b layout=\"pp=8 dp=256 tp=8 micro=64\" train.batch=16384 \\\n"
    "        train.seq=4096 --cluster h100-8\n";

static const sk_option options[] = {
    {"cluster",
     "cpu (default, or what skein calibrate measured), a100-8, h100-8, h200-8, b200-8, "
     "unit, "
     "here (measured now), or a file",
     true},
    {"trace", "write the step to this file, in Chrome's trace format", true},
    {"fold", "yes or no: simulate one rank per class of equal ranks (above 64 ranks)", true},
    {"o", "csv, json or md instead of text", true},
    {"vary",
     "a row for each combination: tp=1..8,mbs=1,2,4 (words of the layout, keys of the job), "
     "nic=0.5x..2x (numbers of the machine)",
     true},
    {"scaling", "strong, or weak (train.batch grows with the ranks): rows get their efficiency",
     true},
    {"svg", "draw the rows of --vary to a file", true},
    {"slow",
     "3@1.2,8-15@1.05,host2@1.1: these ranks, or all of a host, take so many times as long for "
     "their work",
     true},
    {"jitter",
     "0.02: work of each rank takes exp(0.02 z) times as long in a step, z normal; "
     "0.02,0.001@1.5: and 1.5 times that once in 1,000; median and p99 of the step",
     true},
    {"draws", "steps with jitter to simulate (200)", true},
    {"sensitivity", "the step with each number of the machine 10 % better and worse", false},
    {0},
};

typedef struct simulation {
    sk_arena *arena;
    sk_job *job;
    sk_setup *setup;
    sk_machine machine;
    double peak; /* flops per second of all ranks */
    sk_simulation simulated;
    sk_jitter_result jitter; /* zeros: the machine has none */
    bool here;               /* measure instructions */
    sk_profile profile;      /* of `here` */
    sk_call_times calls;
    const char *trace; /* NULL: none */
    const char *fold;  /* "yes", "no"; NULL: above SK_SIMULATE_EACH ranks */
} simulation;

/* The rate at which one thread reads one part of memory and writes another. */
static double measure_memory(sk_arena *a)
{
    enum { BYTES = 32 << 20, TIMES = 4 };
    char *from = sk_alloc(a, BYTES), *to = sk_alloc(a, BYTES);
    double best = 1e9;
    for (int i = 0; i < TIMES; i++) {
        double start = sk_now();
        memcpy(to, from, BYTES);
        best = fmin(best, sk_now() - start);
        from[i] = to[BYTES - 1]; /* so that no copy can be left out */
    }
    return 2 * (double)BYTES / best;
}

/* What calls cost: as calibrated on this host, or measured for a moment. */
static sk_status measure_calls(sk_arena *a, sk_machine *m, const char **how)
{
    const double moment = 2;
    const char *warning = NULL;
    char mark[sizeof m->costs.host];
    SK_TRY(sk_machine_default(a, NULL, m, &warning));
    sk_host_mark(mark, sizeof mark);
    *how = "as calibrated";
    if (!strcmp(mark, m->costs.host)) return SK_OK;
    *how = "too";
    return sk_calibrate(a, moment, &m->costs);
}

/* This host, as it is now: a fifth of a second of matrix products and copies, for what is not
 * measured itself, and what calls cost. */
static sk_status measure_here(sk_arena *a, sk_machine *m)
{
    sk_host h;
    sk_arena tmp = {0};
    const char *how = NULL;
    SK_TRY(measure_calls(a, m, &how));
    sk_host_detect(&h);
    m->costs.cores = h.cores;
    snprintf(m->name, sizeof m->name, "here");
    m->doc = sk_print(a, "%s, measured now; calls %s", h.cpu, how);
    sk_peak_rate rate;
    SK_TRY(sk_host_peak(1, 0.1, &rate));
    m->flops = rate.flops;
    m->memory_rate = measure_memory(&tmp);
    m->memory = h.available;
    sk_arena_end(&tmp);
    return SK_OK;
}

/* Half of the memory and a minute: a run of the same job takes no less. */
static sk_status measure_ranks(simulation *s, const sk_simulate_in *in)
{
    const double seconds = 30;
    sk_run_opts o = {.fill = sk_synthetic_fill,
                     .fill_ctx = s->job,
                     .seed = s->job->seed,
                     .knobs = sk_setup_knobs(s->job),
                     .scratch = *s->job->scratch ? s->job->scratch : NULL};
    sk_profile_in p = {.programs = in->programs,
                       .shape_of = in->shape_of,
                       .n_ranks = s->setup->n_ranks,
                       .machine = &s->machine,
                       .opts = &o,
                       .memory = s->machine.memory / 2,
                       .seconds = seconds};
    SK_TRY(sk_profile_ranks(s->arena, &p, &s->profile));
    return sk_time_calls(s->arena, in->programs, s->profile.n_shapes, &s->calls);
}

/* The peak flops that MFU of a run on such machines is over. */
static void find_peak(simulation *s)
{
    const sk_setup *u = s->setup;
    s->peak = sk_machine_peak(&s->machine, u->n_ranks, u->threads);
    if (!s->here) return;
    sk_kept_peak kept = sk_host_peak_of(s->arena, sk_host_busy(u->n_ranks, u->threads, u->cores));
    if (kept.why) fprintf(stderr, "skein: %s\n", kept.why);
    s->peak = kept.flops;
}

static sk_status walk(simulation *s)
{
    const sk_program *const *programs = NULL;
    int *shape_of = NULL;
    SK_TRY(sk_setup_layout(s->arena, s->job, s->setup));
    SK_TRY(sk_argv_job_stands(s->setup));
    SK_TRY(sk_setup_second_programs(s->setup)); /* refuses what a run would */
    find_peak(s);
    sk_compile_opts o = sk_setup_opts(s->setup);
    o.validate = false;
    o.host_of = sk_machine_hosts(s->arena, &s->machine, &s->setup->layout, s->setup->n_ranks);
    o.costs = &s->machine.costs;
    o.listed = !s->trace && !s->here;
    SK_TRY(sk_simulate_compile(s->arena, &s->setup->graph, &s->setup->layout, &o, &programs,
                               &shape_of));
    sk_simulate_in in = {.machine = &s->machine,
                         .programs = programs,
                         .shape_of = shape_of,
                         .by_class = s->fold ? !strcmp(s->fold, "yes")
                                             : s->setup->n_ranks > SK_SIMULATE_EACH,
                         .trace = s->trace != NULL};
    if (s->here) SK_TRY(measure_ranks(s, &in));
    in.seconds = s->profile.seconds;
    in.calls = s->here ? &s->calls : NULL;
    if (s->machine.topology.jitter.draws)
        SK_TRY(sk_jitter_steps(s->arena, &in, s->job->seed, &s->jitter));
    return sk_simulate(s->arena, &in, &s->simulated);
}

static sk_status write_trace(const simulation *s)
{
    sk_trace_rank *r = sk_many(s->arena, sk_trace_rank, s->simulated.n);
    for (int i = 0; i < s->simulated.n; i++) {
        const sk_simulated_rank *p = &s->simulated.v[i];
        r[i] = (sk_trace_rank){.program = p->program,
                               .rank = p->rank,
                               .ranks = p->ranks,
                               .times = p->times,
                               .moving = p->moving,
                               .n = p->program->n_train};
    }
    FILE *to = fopen(s->trace, "we");
    if (!to) return sk_fail(SK_ECREATE, "cannot create '%s': %s", s->trace, strerror(errno));
    sk_status st = sk_trace_write(to, r, s->simulated.n, 0);
    if (fclose(to) && !st) st = sk_fail(SK_EIO, "cannot write '%s': %s", s->trace, strerror(errno));
    return st;
}

/* --- showing --- */

static double tokens(const simulation *s)
{
    return (double)s->job->batch *
           (sk_graph_is_sequences(&s->setup->graph) ? (double)s->job->seq : 1);
}

/* As of a run: by the flops of the model's graph counted once, over the peak of all that is used.
 */
static double mfu(const simulation *s)
{
    return s->peak > 0 ? s->setup->flops / s->simulated.seconds / s->peak : 0;
}

/* Ranks without work (train/idle.h), as a sentence; NULL: none. */
static const char *idle_text(const simulation *s)
{
    int n = 0;
    for (int i = 0; i < s->simulated.n; i++)
        if (sk_idle(s->simulated.v[i].program)) n += s->simulated.v[i].ranks;
    return sk_idle_text(s->arena, s->setup, n);
}

/* All of it, or " (tp 30.1 · dp 3.3)" of a hundred parts. */
static const char *exposed_text(const simulation *s)
{
    const double shown = 0.05;
    const sk_simulation *p = &s->simulated;
    sk_out o = {.arena = s->arena};
    for (int i = 0; i < SK_N_EXPOSED; i++) {
        double part = 100 * p->exposed_by[i] / p->seconds;
        const char *name = sk_exposed_name(&s->setup->layout.mesh, i);
        if (part < shown || !name) continue;
        sk_out_add(&o, "%s%s %.1f", o.n ? " · " : " (", name, part);
    }
    if (o.n) sk_out_add(&o, ")");
    return sk_or_empty(o.s);
}

static const char *const columns[] = {"class",  "ranks",      "first_rank", "stage",  "step_s",
                                      "busy_s", "exposed_s",  "bubble_s",   "bubble", "exposed_pct",
                                      "flops",  "sent_bytes", "mem_bytes",  "tok_s",  "mfu"};
enum { COLS = sizeof columns / sizeof *columns, MOST_COLS = COLS + SK_N_EXPOSED + 2 };

/* Exposed seconds by axis stand behind the columns, of the memory if there are any; steps with
 * jitter behind those. */
static const char *exposed_name(const simulation *s, int i)
{
    if (i == SK_EXPOSED_MEMORY && s->simulated.exposed_by[i] <= 0) return NULL;
    return sk_exposed_name(&s->setup->layout.mesh, i);
}

static int head_of(const simulation *s, const char **head)
{
    int n = COLS;
    memcpy(head, columns, sizeof columns);
    for (int i = 0; i < SK_N_EXPOSED; i++) {
        const char *name = exposed_name(s, i);
        if (name) head[n++] = sk_print(s->arena, "exposed_%s_s", name);
    }
    if (s->jitter.median > 0) head[n++] = "step_p50_s", head[n++] = "step_p99_s";
    return n;
}

static void add_exposed(const simulation *s, const double *by, const char **cell)
{
    for (int i = 0; i < SK_N_EXPOSED; i++)
        if (exposed_name(s, i)) *cell++ = sk_print(s->arena, "%.9g", by[i]);
    *cell++ = sk_print(s->arena, "%.9g", s->jitter.median); /* past the columns without jitter */
    *cell = sk_print(s->arena, "%.9g", s->jitter.p99);
}

/* `bubble` is over the work, so that a pipeline's is (p-1)/m. */
static void add_row(sk_table *t, const simulation *s, const char *name, const sk_simulated_rank *r,
                    double flops, int64_t wire, int64_t memory)
{
    sk_arena *a = t->arena;
    double step = s->simulated.seconds;
    bool works = !r->program || !sk_idle(r->program); /* the row of all has none */
    const char *cells[MOST_COLS] = {name,
                                    sk_print(a, "%d", r->ranks),
                                    sk_print(a, "%d", r->rank),
                                    sk_print(a, "%d", r->stage),
                                    sk_print(a, "%.9g", step),
                                    sk_print(a, "%.9g", r->busy),
                                    sk_print(a, "%.9g", r->exposed),
                                    sk_print(a, "%.9g", r->bubble),
                                    sk_print(a, "%.9g", r->busy > 0 ? r->bubble / r->busy : 0),
                                    sk_print(a, "%.4g", step > 0 ? 100 * r->exposed / step : 0),
                                    sk_print(a, "%.9g", flops),
                                    sk_print(a, "%lld", (long long)wire),
                                    sk_print(a, "%lld", (long long)memory),
                                    sk_print(a, "%.6g", step > 0 ? tokens(s) / step : 0),
                                    works ? sk_print(a, "%.4g", mfu(s)) : ""};
    add_exposed(s, r->exposed_by, cells + COLS);
    sk_table_add(t, cells);
}

static int64_t fullest(const simulation *s)
{
    int64_t most = 0;
    for (int i = 0; i < s->simulated.n; i++)
        if (sk_device_bytes(s->simulated.v[i].program) > most)
            most = sk_device_bytes(s->simulated.v[i].program);
    return most;
}

/* The first row is the whole job: means of the times, sums of flops and bytes, the most memory. */
static sk_status table(const simulation *s, const char *format)
{
    const sk_simulation *p = &s->simulated;
    const char *head[MOST_COLS];
    sk_table t = {.arena = s->arena, .head = head, .n_cols = head_of(s, head)};
    sk_simulated_rank all = {.ranks = s->setup->n_ranks,
                             .stage = -1,
                             .busy = p->busy,
                             .exposed = p->exposed,
                             .bubble = p->bubble};
    memcpy(all.exposed_by, p->exposed_by, sizeof all.exposed_by);
    add_row(&t, s, "all", &all, p->flops, p->wire, fullest(s));
    for (int i = 0; i < p->n; i++)
        add_row(&t, s, sk_print(s->arena, "%d", i), &p->v[i], p->v[i].flops, p->v[i].wire,
                sk_device_bytes(p->v[i].program));
    return sk_table_print(&t, format, stdout);
}

static void traffic(const simulation *s)
{
    const sk_simulation *p = &s->simulated;
    const sk_mesh *m = &s->setup->layout.mesh;
    sk_arena *a = s->arena;
    printf("wire      %s in all", sk_bytes(a, p->wire));
    for (int i = 0; i < m->n; i++)
        if (p->wire_axis[i]) printf(" · %s over %s", sk_bytes(a, p->wire_axis[i]), m->name[i]);
    if (p->wire_sends) printf(" · %s between stages", sk_bytes(a, p->wire_sends));
    if (p->wire_near) printf(" · %s among those near", sk_bytes(a, p->wire_near));
    if (p->wire_world) printf(" · %s over all", sk_bytes(a, p->wire_world));
    printf("\n");
}

static void measured(const simulation *s)
{
    const sk_profile *p = &s->profile;
    printf("work      measured: %d of %d program%s, on %d rank%s without each other; %d call%s\n",
           p->measured, p->n_shapes, sk_plural(p->n_shapes), p->slots, sk_plural(p->slots),
           s->calls.n, sk_plural(s->calls.n));
    if (p->why) printf("          priced, not measured: %s\n", p->why);
}

/* Presets of GPUs count 16-bit products; files say what they count. */
static bool slower_than_told(const sk_machine *m, const sk_job *job)
{
    const sk_machine *preset = sk_machines;
    while (preset->name[0] && strcmp(preset->name, m->name)) preset++;
    return preset->name[0] && !m->per_thread && !m->unit && job->dtype == SK_F32;
}

static void summary(const simulation *s, const char *idle)
{
    const sk_simulation *p = &s->simulated;
    sk_arena *a = s->arena;
    double step = p->seconds > 0 ? p->seconds : 1;
    int64_t most = fullest(s), memory = s->machine.memory;
    printf("machine   %s · %s\n", s->machine.name, s->machine.doc);
    if (s->here) measured(s);
    printf("model     %s · %s parameters · %.4g flop a step\n", s->job->model_name,
           sk_commas(a, s->setup->n_params), s->setup->flops);
    printf("layout    %s · %d micro-batch%s · %d simulated\n",
           sk_layout_title(a, &s->setup->layout), s->setup->n_micro,
           s->setup->n_micro > 1 ? "es" : "", p->n);
    sk_idle_print("warning   ", idle, stdout);
    if (*s->job->batch_schedule)
        printf("batch     %lld, the first of train.batch_schedule=\"%s\"\n",
               (long long)s->job->batch, s->job->batch_schedule);
    if (s->machine.unit) printf("step      %g units\n", p->seconds);
    else
        printf("step      %.6g s · %.4g tok/s · mfu %.1f %%\n", p->seconds, tokens(s) / step,
               100 * mfu(s));
    printf("time      busy %.1f %% · exposed %.1f %%%s · bubble %.1f %% of the step (mean of "
           "ranks)\n",
           100 * p->busy / step, 100 * p->exposed / step, exposed_text(s), 100 * p->bubble / step);
    if (s->jitter.median > 0)
        printf("jitter    step %.6g s at the median · %.6g s p99 · %.6g s the longest of %d\n",
               s->jitter.median, s->jitter.p99, s->jitter.worst, s->machine.topology.jitter.draws);
    traffic(s);
    if (p->copied > 0)
        printf("copies    %.4g s between memories, %.1f %% of it overlapped with work (mean of "
               "ranks)\n",
               p->copied, 100 * (1 - p->uncovered / p->copied));
    printf("memory    %s on the fullest rank%s\n\n", sk_bytes(a, most),
           !memory         ? ""
           : most > memory ? sk_print(a, ": does not fit in %s", sk_bytes(a, memory))
                           : sk_print(a, " of %s: fits", sk_bytes(a, memory)));
}

/* Options of tables that do not go together. */
static sk_status check_tables(const simulation *s, const sk_conf_rest *rest)
{
    bool vary = sk_conf_option(rest, "vary"), each = sk_conf_option(rest, "sensitivity");
    const char *scaling = sk_conf_option(rest, "scaling"), *svg = sk_conf_option(rest, "svg");
    if (!vary && (scaling || svg))
        return sk_fail(SK_EUSAGE, "command line: --%s is about the rows of --vary NAME=LIST",
                       scaling ? "scaling" : "svg");
    if (vary && each)
        return sk_fail(SK_EUSAGE, "command line: --vary and --sensitivity are two tables; one of "
                                  "them is needed");
    if ((vary || each) && (s->here || s->trace))
        return sk_fail(SK_EUSAGE, "command line: %s goes with one step, not with --%s",
                       s->here ? "--cluster here" : "--trace", vary ? "vary" : "sensitivity");
    return SK_OK;
}

/* A GPU's instructions are not measured one by one for a job: its file says what they take. */
static sk_status find_machine(simulation *s, const char *cluster, const char **warning)
{
    sk_arena *a = s->arena;
    bool gpu = sk_setup_on_gpu(s->job), here = cluster && !strcmp(cluster, "here");
    s->here = here && !gpu;
    if (s->here) return measure_here(a, &s->machine);
    const char *path = sk_machine_path_on(a, true);
    if (here && !(path && sk_is_file(path)))
        return sk_fail(SK_EUSAGE,
                       "--cluster here with device=%s: this GPU was not measured yet; "
                       "skein calibrate device=%s does that",
                       s->job->device, s->job->device);
    return sk_machine_default_on(a, here ? NULL : cluster, gpu, &s->machine, warning);
}

static sk_status disturb(sk_machine *m, const sk_conf_rest *rest)
{
    for (int i = 0; i < rest->n_given; i++)
        if (!strcmp(rest->given[i].name, "slow"))
            SK_TRY(sk_topology_slow(&m->topology, rest->given[i].value));
    return sk_topology_jitter(&m->topology, sk_conf_option(rest, "jitter"),
                              sk_conf_option(rest, "draws"));
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    simulation s = {.arena = a, .job = sk_new(a, sk_job), .setup = sk_new(a, sk_setup)};
    sk_conf_rest rest = {.options = options};
    SK_TRY(sk_argv_job(a, argc, argv, usage, s.job, &rest));
    if (rest.help) return SK_OK;
    const char *cluster = sk_conf_option(&rest, "cluster"), *format = sk_conf_option(&rest, "o");
    const char *warning = NULL;
    s.trace = sk_conf_option(&rest, "trace");
    s.fold = sk_conf_option(&rest, "fold");
    if (s.fold && strcmp(s.fold, "yes") && strcmp(s.fold, "no"))
        return sk_fail(SK_EUSAGE, "command line: --fold %s; yes or no is needed", s.fold);
    s.here = cluster && !strcmp(cluster, "here") && !sk_setup_on_gpu(s.job);
    SK_TRY(check_tables(&s, &rest));
    if (s.here) SK_TRY(sk_argv_alone(a, "simulate --cluster here", false));
    SK_TRY(find_machine(&s, cluster, &warning));
    if (warning) fprintf(stderr, "skein: %s\n", warning);
    SK_TRY(disturb(&s.machine, &rest));
    if (slower_than_told(&s.machine, s.job))
        fprintf(
            stderr,
            "skein: warning: the flops of %s are those of 16-bit products, and train.dtype is f32: "
            "times are too short, and mfu is over the peak of 16-bit products; train.dtype=bf16 "
            "matches them\n",
            s.machine.name);
    if (cluster) s.job->machine = &s.machine;
    if (sk_conf_option(&rest, "vary"))
        return sk_vary_print(a, argc, argv, s.job, &s.machine, &rest);
    if (sk_conf_option(&rest, "sensitivity"))
        return sk_sensitivity_print(a, s.job, &s.machine, format);
    SK_TRY(sk_argv_layout(a, s.job));
    SK_TRY(walk(&s));
    if (s.trace) SK_TRY(write_trace(&s));
    bool far = s.setup->n_ranks > s.machine.ranks_per_host;
    const char *idle = sk_idle_plan(a, s.setup, idle_text(&s), far);
    if (!format) summary(&s, idle);
    else sk_idle_print("skein: warning: ", idle, stderr);
    return table(&s, format);
}

const sk_cmd sk_cmd_simulate = {
    .name = "simulate", .doc = "the predicted step of any layout on any machine", .run = run};
