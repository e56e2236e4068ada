/* bench.c - `skein bench`: how long collectives and training steps take on this host.
 *
 * Ranks are processes, data are synthetic (train/synthetic.h), so nothing is
 * read and nothing is left behind.  Every layout of `bench step` starts from the
 * weights and sees the data of the one-rank run that it is compared with. */
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/bench_coll.h"
#include "cli/cmd.h"
#include "plan/op_times.h"
#include "plan/step_timing.h"
#include "train/fits.h"
#include "train/host_peak.h"
#include "train/idle.h"
#include "train/setup.h"
#include "train/synthetic.h"

#include <math.h>
#include <string.h>

enum { MAX_LAYOUTS = 256 };

static const char help[] =
    "usage: skein bench coll [--op NAME,...] [--sizes BYTES,...] [-n RANKS]\n"
    "                        [--algorithm A,...|all] [--seconds S] [--fresh]\n"
    "                        [--cluster NAME|FILE] [-o csv|json|md]\n"
    "       skein bench coll --choice [--any-order] [--op NAME,...] [--sizes BYTES,...] [-n "
    "RANKS]\n"
    "       skein bench coll --fit FILE [--op NAME,...] [--sizes BYTES,...] [--cluster NAME|FILE]\n"
    "       skein bench coll --calibrate [FILE] [-o csv|json|md]\n"
    "       skein bench step [FILE.yaml] [key=value ...] [-n RANKS] [--layout TEXT]...\n"
    "                        [--layouts all] [--steps N] [--ops|--shapes] [-o csv|json|md]\n\n"
    "coll times collectives between processes of this host: allreduce, reduce_scatter, allgather,\n"
    "broadcast (bcast), reduce, gather, scatter, alltoall, alltoallv, scan.  Sizes are bytes of\n"
    "the whole buffer of one rank (1k = 1000, 1Ki = 1024) of f32; 4..256Mi are the powers of\n"
    "four from the first to the last.  A time is the median over samples, for S seconds (default "
    "0.2),\n"
    "of calls one after the other; with --fresh all ranks rewrite their data before each call.\n"
    "busbw is algbw times 2(n-1)/n for allreduce, 1 for broadcast and reduce, (n-1)/n for the\n"
    "others; predicted_us is what skein simulate predicts (default machine: as calibrated, or\n"
    "cpu); wrong counts elements that differ from the known result.  Algorithms: skein list coll,\n"
    "with degrees where they take them (butterfly:4x2).\n"
    "--choice times all algorithms that fit, in turns, and prints for each size the one that\n"
    "would be chosen beside the best of those that may be chosen and the fastest of all; then it\n"
    "times the choice, the best and the choice again, in turns: ratio is pair_chosen_us over\n"
    "pair_best_us, the median of these turns, and noise twice the median difference of the two\n"
    "times of the choice.  --any-order also chooses among those that sum in an order of\n"
    "their own, as order=any does.\n"
    "--fit lays alpha-beta and LogGP through the times of a few algorithms on these links, says\n"
    "how far off each is, and writes the machine of --cluster to FILE, with LogGP's numbers of\n"
    "these links (collectives of up to 32 ranks are priced by it) and its error as a comment.\n"
    "--calibrate measures this host (for S seconds, default 20) and writes a machine for\n"
    "--cluster to FILE, or to the place where all commands look for it.\n\n"
    "step times training steps of a job under each layout; `--layouts all` takes every product of\n"
    "dp, tp, pp and zero for -n ranks.  ms is the median of N (10) steps; where steps differ, as\n"
    "with sync=local:8, a mean over whole intervals of N steps or more, as sent_bytes is.\n"
    "loss_delta is the largest relative difference of a loss from that of one rank; mfu is over\n"
    "the peak of all that is used: of GPUs by their data sheet\n"
    "for the type of the job, of cores as stored on this host (skein doctor).\n"
    "--ops prints instead where the time of a step goes, op by op, longest first; --shapes splits\n"
    "ops by the shapes of their operands.  Ops that a GPU does in one launch are one line; kernel\n"
    "names what does it there: cuBLASLt, cuDNN, flash (ours, through tensor cores), own.  Times\n"
    "are the mean of a rank, flops those of the job, bytes those of the operands as planned (of\n"
    "exchanges, those that leave the rank).  \"(between)\" is what is left of a traced step, and\n"
    "\"step, not traced\" is ms without clocks.\n"
    "    skein bench coll --op allreduce,alltoall --sizes 4..64Mi -n 2 -o csv\n"
    "    skein bench coll --algorithm all --sizes 1Mi -n 4\n"
    "    skein bench step model=demo -n 2 --layouts all -o csv\n"
    "    skein bench step model=demo --ops\n";

/* --- steps --- */

typedef struct bench {
    sk_job *job;
    const char *layouts[MAX_LAYOUTS];
    int n, steps;
    int64_t late; /* optim.late, which one rank without an offload cannot have */
    bool all;     /* layouts were not named one by one: those that do not fit the model are skipped
                   */
    bool ops, shapes;   /* a table of these instead */
    bool told;          /* why no peak is kept */
    sk_step_timing one; /* on one rank */
    sk_table *table;
} bench;

static const char *const step_columns[] = {"layout",  "ranks",     "tok_s",       "ms",
                                           "mfu",     "mem_bytes", "exposed_pct", "loss_delta",
                                           "core_ms", "sent_bytes"};
enum { STEP_COLS = sizeof step_columns / sizeof *step_columns };

static const char *const op_columns[] = {"layout",    "op",      "kernel", "launches", "ms",
                                         "share_pct", "us_each", "tflops", "gb_s"};
enum { OP_COLS = sizeof op_columns / sizeof *op_columns };

/* The peak of the cores that are used: cached, or measured now.  A problem with that is reported
 * once.
 */
static double host_peak(bench *b, const sk_setup *s)
{
    sk_arena *a = b->table->arena;
    sk_kept_peak kept = sk_host_peak_of(a, sk_host_busy(s->n_ranks, s->threads, s->cores));
    if (kept.why && !b->told) fprintf(stderr, "skein: %s\n", kept.why);
    b->told |= kept.why != NULL;
    return kept.flops;
}

static double loss_delta(const bench *b, const sk_step_timing *t)
{
    double most = 0;
    for (int s = 0; s < t->n && s < b->one.n; s++) {
        double d = fabs(t->loss[s] - b->one.loss[s]) / fmax(fabs(b->one.loss[s]), 1e-9);
        if (!(d <= most)) most = d; /* a NaN shows */
    }
    return most;
}

static sk_run_opts run_opts(const bench *b)
{
    return (sk_run_opts){.fill = sk_synthetic_fill,
                         .fill_ctx = b->job,
                         .seed = b->job->seed,
                         .knobs = sk_setup_knobs(b->job),
                         .scratch = *b->job->scratch ? b->job->scratch : NULL,
                         .device = b->job->device};
}

static sk_status time_job(bench *b, sk_setup *s, sk_step_timing *out)
{
    sk_run_opts o = run_opts(b);
    return sk_time_steps((const sk_program *const *)s->programs, &o, b->job->lr, b->steps, out);
}

static void add_op(bench *b, const char *layout, const sk_op_time *x, double step)
{
    sk_arena *a = b->table->arena;
    bool timed = x->seconds > 0;
    const char *cells[OP_COLS] = {
        sk_strdup(a, layout),
        sk_strdup(a, x->name),
        sk_strdup(a, x->kernel),
        x->launches > 0 ? sk_print(a, "%.6g", x->launches) : "",
        sk_print(a, "%.4f", 1e3 * x->seconds),
        sk_print(a, "%.1f", 100 * x->seconds / step),
        timed && x->launches > 0 ? sk_print(a, "%.2f", 1e6 * x->seconds / x->launches) : "",
        timed && x->flops > 0 ? sk_print(a, "%.3f", 1e-12 * x->flops / x->seconds) : "",
        timed && x->bytes > 0 ? sk_print(a, "%.1f", 1e-9 * x->bytes / x->seconds) : "",
    };
    sk_table_add(b->table, cells);
}

/* A traced step, op by op; then the rest of its time, and a step that is not traced. */
static sk_status time_ops(bench *b, sk_arena *tmp, const char *layout, const sk_setup *s,
                          const sk_step_timing *t)
{
    sk_op_times *ops = sk_new(tmp, sk_op_times);
    sk_run_opts o = run_opts(b);
    SK_TRY(sk_time_ops((const sk_program *const *)s->programs, &o, b->job->lr, b->steps, b->shapes,
                       ops));
    sk_op_time rest = {.name = "(between)", .seconds = ops->seconds};
    sk_op_time plain = {
        .name = "step, not traced", .seconds = t->seconds, .flops = s->flops / s->n_ranks};
    for (int i = 0; i < ops->n; i++) {
        add_op(b, layout, &ops->v[i], ops->seconds);
        rest.seconds -= ops->v[i].seconds;
    }
    add_op(b, layout, &rest, ops->seconds);
    add_op(b, layout, &plain, ops->seconds);
    return SK_OK;
}

static void add_row(bench *b, const char *layout, const sk_setup *s, const sk_step_timing *t,
                    double peak)
{
    sk_arena *a = b->table->arena;
    int64_t most = 0;
    bool works = !sk_idle(s->programs[0]); /* its clock is that of the step */
    for (int r = 0; r < s->n_ranks; r++)
        if (sk_device_bytes(s->programs[r]) > most) most = sk_device_bytes(s->programs[r]);
    const char *cells[STEP_COLS] = {
        sk_strdup(a, layout),
        sk_print(a, "%d", s->n_ranks),
        sk_print(a, "%.6g", t->tokens / t->seconds),
        sk_print(a, "%.4f", 1e3 * t->seconds),
        peak > 0 && works ? sk_print(a, "%.4g", s->flops / t->seconds / peak) : "",
        sk_print(a, "%lld", (long long)most),
        sk_print(a, "%.3g", 100 * t->waited),
        sk_print(a, "%.3g", loss_delta(b, t)),
        sk_print(a, "%.4f", 1e3 * t->cores),
        sk_print(a, "%lld", (long long)t->wire),
    };
    sk_table_add(b->table, cells);
}

/* Steps that send gradients, momentum in their place, or nothing: those that were timed, and their
 * shares in the long run. */
static bool timed_kinds(const sk_program *p, int steps, int n[SK_STEP_KINDS], double share[])
{
    if (!p->layout.own_grads) return false;
    for (int k = 0; k < SK_STEP_KINDS; k++)
        share[k] = p->kinds ? p->kinds->share[k] : k == SK_STEP_SENT;
    for (int s = SK_TIMED_WARM; s < steps; s++)
        n[p->kinds               ? sk_step_kind(p->kinds, s)
          : s < p->replicas_from ? SK_STEP_DENSE
                                 : SK_STEP_SENT]++;
    return true;
}

/* An optimizer that sends something in place of gradients, timed in other proportions. */
static void say_kinds(const char *layout, const sk_program *p, const sk_step_timing *t)
{
    int n[SK_STEP_KINDS] = {0}, timed = t->n - SK_TIMED_WARM;
    double share[SK_STEP_KINDS], off = 0;
    if (!timed_kinds(p, t->n, n, share)) return;
    for (int k = 0; k < SK_STEP_KINDS; k++) off = fmax(off, fabs(n[k] - share[k] * timed));
    if (off < 1) return;
    fprintf(stderr,
            "skein: %s: of steps %d to %d, which were timed, gradients are sent in %d, momentum in "
            "%d, and %d are local; in the long run these are %.3g, %.3g and %.3g %% of all: ms and "
            "sent_bytes are of the timed ones together\n",
            layout, SK_TIMED_WARM + 1, t->n, n[SK_STEP_DENSE], n[SK_STEP_SENT], n[SK_STEP_LOCAL],
            100 * share[SK_STEP_DENSE], 100 * share[SK_STEP_SENT], 100 * share[SK_STEP_LOCAL]);
}

/* Steps that are not among those that were timed. */
static void say_steps(sk_arena *a, const char *layout, const sk_setup *s, const sk_step_timing *t)
{
    int n = t->n - SK_TIMED_WARM;
    int64_t from = s->programs[0]->replicas_from;
    const char *sent = sk_idle_sent(a, s, "steps", t->n);
    if (n % t->interval)
        fprintf(stderr,
                "skein: %s: steps are alike again after %d, and %d were timed: ms and sent_bytes "
                "are of these alone; intervals of up to %d steps are timed whole\n",
                layout, t->interval, n, SK_TIMED_STEPS - SK_TIMED_WARM);
    if (sk_layout_replicas(&s->layout) > 1 && from > SK_TIMED_WARM)
        fprintf(stderr,
                "skein: %s: replicas synchronise from step %lld on, and steps %d to %d were "
                "timed\n",
                layout, (long long)from + 1, SK_TIMED_WARM + 1, t->n);
    if (sent) fprintf(stderr, "skein: %s: %s\n", layout, sent);
    else say_kinds(layout, s->programs[0], t);
}

static sk_status one_layout(bench *b, sk_arena *tmp, const char *layout, bool reference)
{
    sk_setup *s = sk_new(tmp, sk_setup);
    sk_step_timing t;
    double peak = 0;
    snprintf(b->job->layout, sizeof b->job->layout, "%s", layout);
    b->job->ranks = 0;
    b->job->late = reference ? 0 : b->late;
    sk_status st = sk_setup_program(tmp, b->job, true, s);
    if (st == SK_ECONF && b->all && !reference) {
        fprintf(stderr, "skein: skipped \"%s\": %s\n", layout, sk_error_line());
        return SK_OK;
    }
    if (st) return sk_trail(st, SK_HERE);
    SK_TRY(sk_fits_host(s, false));
    SK_TRY(time_job(b, s, &t));
    if (*t.slow) fprintf(stderr, "skein: %s: %s\n", layout, t.slow);
    if (reference) {
        b->one = t;
        return SK_OK;
    }
    say_steps(tmp, layout, s, &t);
    if (b->ops) return time_ops(b, tmp, layout, s, &t);
    peak = t.peak[b->job->dtype == SK_F32 ? SK_PEAK_F32 : SK_PEAK_NARROW];
    if (!s->programs[0]->gpu) peak = host_peak(b, s);
    add_row(b, layout, s, &t, peak);
    return SK_OK;
}

static sk_status run_layout(bench *b, const char *layout, bool reference)
{
    sk_arena tmp = {0};
    sk_status st = one_layout(b, &tmp, layout, reference);
    sk_arena_end(&tmp);
    return st;
}

/* Every product of dp, tp and pp, and every level of sharding where there is something to shard. */
static void every_layout(bench *b, sk_arena *a, int ranks)
{
    b->all = true;
    for (int dp = ranks; dp >= 1; dp--)
        for (int tp = 1; ranks % dp == 0 && tp <= ranks / dp; tp++)
            for (int zero = 0; ranks / dp % tp == 0 && zero <= (dp > 1 ? 3 : 0); zero++) {
                if (b->n == MAX_LAYOUTS) return;
                sk_out o = {.arena = a};
                sk_out_add(&o, "dp=%d tp=%d pp=%d", dp, tp, ranks / dp / tp);
                if (zero) sk_out_add(&o, " zero=%d", zero);
                b->layouts[b->n++] = o.s;
            }
}

/* Takes the layouts out of the words: here the key may come again and again. */
static sk_status take_layouts(bench *b, int *argc, char **argv)
{
    int kept = 0;
    for (int i = 0; i < *argc; i++) {
        const char *text = NULL;
        if (!strncmp(argv[i], "--layout=", 9)) text = argv[i] + 9;
        else if (!strncmp(argv[i], "layout=", 7)) text = argv[i] + 7;
        else if (!strcmp(argv[i], "--layout")) {
            if (i + 1 == *argc) return sk_fail(SK_EUSAGE, "command line: --layout needs a value");
            text = argv[++i];
        }
        if (!text) argv[kept++] = argv[i];
        else if (b->n == MAX_LAYOUTS)
            return sk_fail(SK_EUSAGE, "command line: more than %d layouts", MAX_LAYOUTS);
        else b->layouts[b->n++] = text;
    }
    *argc = kept;
    return SK_OK;
}

static sk_status read_step(bench *b, sk_arena *a, int argc, char **argv, const char **format)
{
    static const sk_option options[] = {
        {"layouts", "all: every product of dp, tp, pp and zero for -n ranks", true},
        {"steps", "measured steps (10), or more, to whole intervals of a sync", true},
        {"ops", "a table of the time by op instead", false},
        {"shapes", "the same by op and shapes", false},
        {"o", "csv, json or md instead of text", true},
        {0},
    };
    sk_conf_rest rest = {.options = options};
    int64_t steps = 10;
    SK_TRY(take_layouts(b, &argc, argv));
    SK_TRY(sk_argv_job(a, argc, argv, help, b->job, &rest));
    const char *text = sk_conf_option(&rest, "steps"), *which = sk_conf_option(&rest, "layouts");
    if (text && (!sk_read_int(text, &steps) || steps < 1 || steps > 200))
        return sk_fail(SK_EUSAGE, "command line: --steps is \"%s\"; 1 to 200 are needed", text);
    if (which && strcmp(which, "all"))
        return sk_fail(SK_EUSAGE, "command line: --layouts %s; all is needed", which);
    b->steps = (int)steps;
    b->shapes = sk_conf_option(&rest, "shapes") != NULL;
    b->ops = b->shapes || sk_conf_option(&rest, "ops");
    b->job->val_every = 0;
    *format = sk_conf_option(&rest, "o");
    int ranks = b->job->ranks > 0 ? (int)b->job->ranks : 1;
    if (!which && !b->n) SK_TRY(sk_argv_layout(a, b->job));
    if (which) every_layout(b, a, ranks);
    if (!b->n)
        b->layouts[b->n++] =
            *b->job->layout ? sk_strdup(a, b->job->layout) : sk_print(a, "dp=%d", ranks);
    return SK_OK;
}

static sk_status run_step(sk_arena *a, int argc, char **argv)
{
    bench *b = sk_new(a, bench);
    sk_table t = {.arena = a, .head = step_columns, .n_cols = STEP_COLS};
    const char *format = NULL;
    SK_TRY(sk_argv_alone(a, "bench step", true));
    b->job = sk_new(a, sk_job);
    b->table = &t;
    SK_TRY(read_step(b, a, argc, argv, &format));
    b->late = b->job->late;
    if (b->ops) t = (sk_table){.arena = a, .head = op_columns, .n_cols = OP_COLS};
    else SK_TRY(run_layout(b, "dp=1", true));
    for (int i = 0; i < b->n; i++) SK_TRY(run_layout(b, b->layouts[i], false));
    return sk_table_print(&t, format, stdout);
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    if (argc && !strcmp(argv[0], "coll")) return sk_bench_coll(a, argc - 1, argv + 1);
    if (argc && !strcmp(argv[0], "step")) return run_step(a, argc - 1, argv + 1);
    return sk_fail(SK_EUSAGE, "bench what? there are coll and step: skein bench --help");
}

const sk_cmd sk_cmd_bench = {.name = "bench",
                             .doc = "time collectives and training steps on this host",
                             .help = help,
                             .run = run};
