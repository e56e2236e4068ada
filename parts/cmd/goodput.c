/* goodput.c - `skein goodput`: what failures leave of a job, on one number of GPUs or on many: the
 * best interval between checkpoints, tokens a second that last, days, dollars and joules. */
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/cmd.h"
#include "cli/goodput_job.h"
#include "plan/goodput_model.h"
#include "train/save_interval.h"
#include "train/setup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 200, MOST_FAILURES = 100000 };
#define HOUR 3600.0
#define DAY  86400.0

static const char usage[] =
    "usage: skein goodput [FILE.yaml] [key=value ...] [-n RANKS] [--cluster NAME|FILE]\n"
    "                     [--gpus FROM..TO|N,N,...] [options] [-o csv|json|md]\n\n"
    "What failures leave of a job: the interval between checkpoints that loses the least, the "
    "part\n"
    "of the time that advances training, with and without elastic restarts, and what a token\n"
    "costs.  The step is that of skein simulate, the checkpoint what the job's program would\n"
    "write.  --gpus makes a table for a scheduler: what the job gains from more replicas.  Needs "
    "no\n"
    "data and no devices.\n"
    "    skein goodput model=llama-7b train.dtype=bf16 layout=\"dp=64 tp=8 zero=1\" \\\n"
    "        train.batch=512 train.seq=4096 --cluster h100-8 --repair 24 --spares 1 --price 2.5\n";

static const sk_option options[] = {
    {"cluster", "a machine that skein simulate knows, or its file: mtbf, watts, price ... too",
     true},
    {"gpus", "a table: 8..64 (each twice the one before), or 8,16,24", true},
    {"mtbf", "hours of one GPU between two failures", true},
    {"host-mtbf", "hours between failures of what the GPUs of a host share (never)", true},
    {"detect", "seconds until a failure is noticed (60)", true},
    {"restart", "seconds until all ranks train again (60, and reading the checkpoint)", true},
    {"checkpoint", "seconds that a checkpoint stops training (what it takes to write)", true},
    {"write-rate", "bytes per second of a storage that all ranks share (file_rate of each rank)",
     true},
    {"repair", "hours until a failed host is back, on average (0: replaced at once)", true},
    {"spares", "idle hosts that take the places of failed ones until then (0)", true},
    {"elastic", "yes: go on with fewer replicas until then; no: wait (both are shown)", true},
    {"price", "dollars for an hour of a GPU", true},
    {"preemptible-price", "the same where the owner may take hosts back", true},
    {"preemptible-mtbf", "hours until that happens to a host", true},
    {"watts", "of a GPU that trains", true},
    {"idle-watts", "of a GPU that does not (as many)", true},
    {"jobs", "that share the GPUs of --gpus, for rho (1)", true},
    {"o", "csv, json or md instead of text", true},
    {0},
};

/* Of options and machine; what is not known is 0, and below 0 where 0 means something. */
typedef struct terms {
    sk_upkeep upkeep;
    double detect, restart, checkpoint, write_rate, repair;
    int64_t spares, jobs;
    const char *elastic; /* "yes", "no"; NULL: both */
} terms;

typedef struct row {
    const sk_goodput_size *z;
    bool preemptible;
    sk_goodput_in in;
    sk_goodput g;
    int64_t every; /* steps between two checkpoints; 0: none are taken */
    double tok_s, gain, rho, dollars, joules;
    double days[3]; /* mean of simulated runs, and what 10 and 90 % of them take at most; NAN */
} row;

typedef struct plan {
    sk_arena *arena;
    sk_job *job;
    sk_machine machine;
    terms t;
    sk_goodput_size *sizes;
    int n_sizes;
    struct {
        row *v;
        int n, cap;
    } rows;
} plan;

/* ---- what is asked */

static sk_status number(const sk_conf_rest *rest, const char *name, double least, double *out)
{
    const char *text = sk_conf_option(rest, name);
    if (!text) return SK_OK;
    if (!sk_read_real(text, out) || !(*out >= least && *out <= 1e30))
        return sk_fail(SK_EUSAGE, "command line: --%s is \"%.40s\"; a number %s is needed", name,
                       text, least > 0 ? "above 0" : "of 0 or more");
    return SK_OK;
}

static sk_status count(const sk_conf_rest *rest, const char *name, int64_t least, int64_t *out)
{
    const char *text = sk_conf_option(rest, name);
    if (!text) return SK_OK;
    if (!sk_read_int(text, out) || *out < least || *out > 1 << 20)
        return sk_fail(SK_EUSAGE,
                       "command line: --%s is \"%.40s\"; a whole number from %lld to %d is needed",
                       name, text, (long long)least, 1 << 20);
    return SK_OK;
}

static sk_status read_numbers(const sk_conf_rest *rest, const sk_machine *m, terms *t)
{
    const double least = 1e-9;
    sk_upkeep *u = &t->upkeep;
    *t = (terms){.upkeep = m->upkeep, .detect = 60, .restart = -1, .checkpoint = -1, .jobs = 1};
    SK_TRY(number(rest, "mtbf", least, &u->mtbf));
    SK_TRY(number(rest, "host-mtbf", least, &u->host_mtbf));
    SK_TRY(number(rest, "detect", 0, &t->detect));
    SK_TRY(number(rest, "restart", 0, &t->restart));
    SK_TRY(number(rest, "checkpoint", 0, &t->checkpoint));
    SK_TRY(number(rest, "write-rate", least, &t->write_rate));
    SK_TRY(number(rest, "repair", 0, &t->repair));
    SK_TRY(count(rest, "spares", 0, &t->spares));
    SK_TRY(number(rest, "price", least, &u->price));
    SK_TRY(number(rest, "preemptible-price", least, &u->preemptible_price));
    SK_TRY(number(rest, "preemptible-mtbf", least, &u->preemptible_mtbf));
    SK_TRY(number(rest, "watts", least, &u->watts));
    SK_TRY(number(rest, "idle-watts", least, &u->idle_watts));
    SK_TRY(count(rest, "jobs", 1, &t->jobs));
    t->elastic = sk_conf_option(rest, "elastic");
    t->repair *= HOUR;
    return SK_OK;
}

/* What does not go together, or lacks what it is about. */
static sk_status consistent(const sk_conf_rest *rest, const sk_machine *m, const terms *t)
{
    const sk_upkeep *u = &t->upkeep;
    if (m->unit)
        return sk_fail(SK_EUSAGE, "machine unit counts blocks, and goodput needs seconds; name "
                                  "another one with --cluster");
    if (u->mtbf <= 0 && u->host_mtbf <= 0)
        return sk_fail(SK_EUSAGE,
                       "nothing says how often %s fails: --mtbf HOURS of one GPU is needed, or a "
                       "machine with a line mtbf (H100 of Llama 3: 50678)",
                       m->name);
    if (t->elastic && strcmp(t->elastic, "yes") && strcmp(t->elastic, "no"))
        return sk_fail(SK_EUSAGE, "command line: --elastic is \"%.40s\"; yes or no is needed",
                       t->elastic);
    if (t->repair <= 0 && (t->spares || (t->elastic && !strcmp(t->elastic, "yes"))))
        return sk_fail(SK_EUSAGE,
                       "command line: without --repair HOURS a failed host is replaced at once, "
                       "and %s has nothing to do",
                       t->spares ? "--spares" : "--elastic");
    if (t->checkpoint >= 0 && t->write_rate > 0 && t->restart >= 0)
        return sk_fail(SK_EUSAGE, "command line: --write-rate has nothing to do beside "
                                  "--checkpoint and --restart; leave it out");
    if ((u->preemptible_price > 0) != (u->preemptible_mtbf > 0))
        return sk_fail(SK_EUSAGE,
                       "preemptible hosts have a price and a time: --preemptible-%s is missing",
                       u->preemptible_price > 0 ? "mtbf" : "price");
    if (u->idle_watts > 0 && u->watts <= 0)
        return sk_fail(SK_EUSAGE, "--idle-watts without --watts says nothing about training");
    if (sk_conf_option(rest, "jobs") && !sk_conf_option(rest, "gpus"))
        return sk_fail(SK_EUSAGE, "command line: --jobs is for rho, which --gpus shows");
    return SK_OK;
}

/* ---- the job on each number of GPUs */

/* Refuses what train would. */
static sk_status stands(const plan *p)
{
    sk_setup *s = sk_new(p->arena, sk_setup);
    SK_TRY(sk_setup_layout(p->arena, p->job, s));
    return sk_argv_job_stands(s);
}

static sk_status one_size(plan *p)
{
    p->sizes = sk_many(p->arena, sk_goodput_size, 1);
    p->n_sizes = 1;
    return sk_goodput_size_of(p->arena, p->job, &p->machine, 0, p->sizes);
}

/* Numbers that the job cannot have are told and left out. */
static sk_status all_sizes(plan *p, const char *text)
{
    int gpus[SK_GOODPUT_SIZES], n = 0;
    const char *why[SK_GOODPUT_SIZES] = {0};
    sk_status st = SK_OK;
    SK_TRY(sk_goodput_sizes(p->arena, p->job, text, gpus, &n));
    p->sizes = sk_many(p->arena, sk_goodput_size, n);
    for (int i = 0; i < n; i++) {
        sk_goodput_size *z = &p->sizes[p->n_sizes];
        sk_status each = sk_goodput_size_of(p->arena, p->job, &p->machine, gpus[i], z);
        if (each) {
            st = each;
            why[i] = sk_strdup(p->arena, sk_error_line());
        } else p->n_sizes++;
    }
    if (!p->n_sizes) return sk_trail(st, SK_HERE); /* the last, as for all */
    for (int i = 0; i < n; i++)
        if (why[i])
            fprintf(stderr, "skein: note: not on %d GPU%s: %s\n", gpus[i], sk_plural(gpus[i]),
                    why[i]);
    return SK_OK;
}

/* ---- what failures leave of it */

static double failures_of(const sk_upkeep *u, const sk_goodput_size *z, bool preemptible)
{
    double hourly = 0;
    if (u->mtbf > 0) hourly += z->gpus / u->mtbf;
    if (u->host_mtbf > 0) hourly += z->hosts / u->host_mtbf;
    if (preemptible) hourly += z->hosts / u->preemptible_mtbf;
    return hourly / HOUR;
}

static double mtbf_of(const sk_goodput_in *in) { return in->host_mtbf / (double)in->hosts; }

/* From the checkpoint's bytes, where nobody said seconds. */
static double writing(const plan *p, const sk_goodput_size *z)
{
    if (p->t.checkpoint >= 0) return p->t.checkpoint;
    if (p->t.write_rate > 0) return (double)z->state / p->t.write_rate;
    return sk_machine_copy(&p->machine, z->written, true);
}

static double reading(const plan *p, const sk_goodput_size *z)
{
    if (p->t.write_rate > 0) return z->read_all / p->t.write_rate;
    return sk_machine_copy(&p->machine, z->read, true);
}

static sk_goodput_in asked(const plan *p, const sk_goodput_size *z, bool preemptible, bool elastic)
{
    const double begin = 60;
    return (sk_goodput_in){
        .hosts = z->hosts,
        .spares = p->t.spares,
        .replicas = z->replicas,
        .elastic = elastic,
        .host_mtbf = z->hosts / failures_of(&p->t.upkeep, z, preemptible),
        .checkpoint = writing(p, z),
        .detect = p->t.detect,
        .restart = p->t.restart >= 0 ? p->t.restart : begin + reading(p, z),
        .repair = p->t.repair,
    };
}

static int ascending(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* How long train.steps take, played many times. */
static sk_status play(const plan *p, row *r)
{
    double days[RUNS], work = (double)p->job->steps * r->z->step, sum = 0;
    r->days[0] = r->days[1] = r->days[2] = NAN;
    if (p->job->steps < 1 || p->job->time_limit > 0) return SK_OK;
    for (int i = 0; i < RUNS; i++) {
        sk_goodput_run run;
        SK_TRY(sk_goodput_simulate(&r->in, work, (uint64_t)i + 1, MOST_FAILURES, &run));
        if (!run.done) return SK_OK;
        days[i] = run.seconds / DAY;
        sum += days[i];
    }
    qsort(days, RUNS, sizeof *days, ascending);
    r->days[0] = sum / RUNS;
    r->days[1] = days[RUNS / 10];
    r->days[2] = days[RUNS - 1 - RUNS / 10];
    return SK_OK;
}

/* All hosts are paid for, spares too; broken ones take no power. */
static void bill(const plan *p, row *r)
{
    const sk_upkeep *u = &p->t.upkeep;
    double each = (double)r->z->gpus / r->z->hosts,
           idle = u->idle_watts > 0 ? u->idle_watts : u->watts;
    double price = r->preemptible ? u->preemptible_price : u->price;
    double paid = (double)(r->z->hosts + p->t.spares) * each * price / HOUR;
    r->dollars = price > 0 ? 1e6 * paid / r->tok_s : NAN;
    r->joules =
        u->watts > 0 ? 1e6 * each * (r->g.busy * u->watts + r->g.idle * idle) / r->tok_s : NAN;
}

static sk_status add_row(plan *p, const sk_goodput_size *z, bool preemptible, bool elastic)
{
    row *r = sk_push(p->arena, &p->rows);
    *r = (row){.z = z, .preemptible = preemptible};
    r->in = asked(p, z, preemptible, elastic);
    r->every = sk_goodput_steps(r->in.checkpoint, mtbf_of(&r->in), z->step);
    r->in.interval = r->every ? (double)r->every * z->step : INFINITY;
    SK_TRY(sk_goodput_expect(&r->in, &r->g));
    r->tok_s = r->g.goodput * z->tokens / z->step;
    bill(p, r);
    return play(p, r);
}

/* Among every kinds-th row: the fastest that fits, or of those that do not if none does. */
static const row *best_of(const plan *p, int first, int kinds)
{
    const row *best = &p->rows.v[first];
    for (int i = first; i < p->rows.n; i += kinds) {
        const row *r = &p->rows.v[i];
        if (r->z->fits > best->z->fits || (r->z->fits == best->z->fits && r->tok_s > best->tok_s))
            best = r;
    }
    return best;
}

/* Of the rows of one kind: what each GPU more brings, and how much longer the job takes than with
 * its share of the whole cluster.  For the latter Themis takes the time of the job alone, where it
 * has as many GPUs as it can use, times the jobs. */
static void compare(plan *p)
{
    int kinds = p->rows.n / p->n_sizes;
    for (int i = 0; i < p->rows.n; i++) {
        row *r = &p->rows.v[i];
        const row *less = i < kinds ? NULL : &p->rows.v[i - kinds];
        r->gain =
            less ? (r->tok_s - less->tok_s) / (r->z->gpus - less->z->gpus) : r->tok_s / r->z->gpus;
        r->rho = best_of(p, i % kinds, kinds)->tok_s / r->tok_s / (double)p->t.jobs;
    }
}

static sk_status fill(plan *p)
{
    const terms *t = &p->t;
    for (int i = 0; i < p->n_sizes; i++)
        for (int offer = 0; offer < 1 + (t->upkeep.preemptible_mtbf > 0); offer++) {
            bool rigid = !t->elastic || !strcmp(t->elastic, "no");
            bool elastic = t->elastic ? !rigid : t->repair > 0;
            if (rigid) SK_TRY(add_row(p, &p->sizes[i], offer, false));
            if (elastic) SK_TRY(add_row(p, &p->sizes[i], offer, true));
        }
    compare(p);
    return SK_OK;
}

/* ---- showing */

enum { ALWAYS, CSV, SIZES }; /* when a column is shown: to people, too; not; with --gpus */
static const struct {
    const char *name;
    int when;
} columns[] = {
    {"gpus", ALWAYS},      {"layout", CSV},      {"fits", SIZES},           {"offer", ALWAYS},
    {"elastic", ALWAYS},   {"step_s", SIZES},    {"checkpoint_bytes", CSV}, {"checkpoint_s", CSV},
    {"restart_s", CSV},    {"mtbf_s", CSV},      {"every", ALWAYS},         {"interval_s", CSV},
    {"goodput", ALWAYS},   {"tok_s", ALWAYS},    {"gain_tok_s", SIZES},     {"rho", SIZES},
    {"days", ALWAYS},      {"days_p10", ALWAYS}, {"days_p90", ALWAYS},      {"usd_mtok", ALWAYS},
    {"joule_mtok", ALWAYS}};
enum { COLS = sizeof columns / sizeof *columns };

/* What is not known is an empty cell. */
static const char *known(sk_arena *a, double x)
{
    return isfinite(x) ? sk_print(a, "%.4g", x) : "";
}

static const char *whole(sk_arena *a, int64_t x) { return sk_print(a, "%lld", (long long)x); }

static void cells_of(sk_arena *a, const row *r, const char **c)
{
    const sk_goodput_size *z = r->z;
    *c++ = whole(a, z->gpus);
    *c++ = z->layout;
    *c++ = z->fits ? "yes" : "no";
    *c++ = r->preemptible ? "preemptible" : "on-demand";
    *c++ = r->in.elastic ? "yes" : "no";
    *c++ = sk_print(a, "%.6g", z->step);
    *c++ = whole(a, z->state);
    *c++ = sk_print(a, "%.6g", r->in.checkpoint);
    *c++ = sk_print(a, "%.6g", r->in.restart);
    *c++ = sk_print(a, "%.6g", mtbf_of(&r->in));
    *c++ = whole(a, r->every);
    *c++ = sk_print(a, "%.6g", (double)r->every * z->step);
    *c++ = sk_print(a, "%.4f", r->g.goodput);
    *c++ = sk_print(a, "%.6g", r->tok_s);
    *c++ = sk_print(a, "%.5g", r->gain);
    *c++ = known(a, r->rho);
    for (int i = 0; i < 3; i++) *c++ = known(a, r->days[i]);
    *c++ = known(a, r->dollars);
    *c++ = known(a, r->joules);
}

static sk_status table(const plan *p, const char *format, bool many)
{
    const char *head[COLS], *cells[COLS], *shown[COLS];
    sk_table t = {.arena = p->arena, .head = head};
    bool keep[COLS];
    for (int c = 0; c < COLS; c++) {
        keep[c] = format || columns[c].when == ALWAYS || (many && columns[c].when == SIZES);
        if (keep[c]) head[t.n_cols++] = columns[c].name;
    }
    for (int i = 0; i < p->rows.n; i++) {
        cells_of(p->arena, &p->rows.v[i], cells);
        for (int c = 0, k = 0; c < COLS; c++)
            if (keep[c]) shown[k++] = cells[c];
        sk_table_add(&t, shown);
    }
    return sk_table_print(&t, format, stdout);
}

static const char *span(sk_arena *a, double seconds)
{
    if (seconds < 180) return sk_print(a, "%.3g s", seconds);
    if (seconds < 3 * HOUR) return sk_print(a, "%.3g min", seconds / 60);
    if (seconds < 3 * DAY) return sk_print(a, "%.3g h", seconds / HOUR);
    return sk_print(a, "%.4g days", seconds / DAY);
}

static void say_failures(const plan *p, const row *r)
{
    const sk_upkeep *u = &p->t.upkeep;
    sk_arena *a = p->arena;
    printf("failures  one in %s", span(a, mtbf_of(&r->in)));
    if (u->mtbf > 0) printf(" · of a GPU in %s", span(a, u->mtbf * HOUR));
    if (u->host_mtbf > 0) printf(" · of a host in %s", span(a, u->host_mtbf * HOUR));
    printf(" · noticed in %s · restart %s", span(a, r->in.detect), span(a, r->in.restart));
    if (r->in.repair > 0)
        printf(" · repair %s, %lld spare host%s\n", span(a, r->in.repair), (long long)r->in.spares,
               sk_plural(r->in.spares));
    else printf(" · a failed host is replaced at once\n");
}

/* What the job would do by its ckpt.every, which by the clock costs at most a part of the time. */
static sk_status say_present(const plan *p, const row *r)
{
    const sk_every *e = &p->job->ckpt_every;
    sk_goodput_in in = r->in;
    sk_goodput g;
    if (!e->steps && !(e->seconds > 0)) {
        printf("as it is  ckpt.every=0: a failure loses all of the run\n");
        return SK_OK;
    }
    in.interval = e->steps ? (double)e->steps * r->z->step : e->seconds;
    if (!e->steps)
        in.interval = fmax(in.interval, in.checkpoint / SK_SAVE_INTERVAL_COST - in.checkpoint);
    SK_TRY(sk_goodput_expect(&in, &g));
    printf("as it is  goodput %.2f %% with ckpt.every=", 100 * g.goodput);
    if (e->steps) printf("%lld\n", (long long)e->steps);
    else printf("%gs: a checkpoint every %s\n", e->seconds, span(p->arena, in.interval));
    return SK_OK;
}

static sk_status say_interval(const plan *p, const row *r)
{
    sk_arena *a = p->arena;
    sk_goodput_in first = r->in;
    first.interval = sk_goodput_young(first.checkpoint, mtbf_of(&first));
    printf("interval  %s: ckpt.every=%lld", span(a, r->in.interval), (long long)r->every);
    if (first.interval > 0)
        printf(" · to first order %s, goodput %.2f %%", span(a, first.interval),
               100 * sk_goodput_first_order(&first));
    printf("\n");
    return say_present(p, r);
}

static void say_time(const row *r)
{
    const sk_goodput *g = &r->g;
    printf("time      work that lasts %.2f %% · checkpoints %.2f %% · done again %.2f %% · "
           "detection and restart %.2f %%",
           100 * g->work, 100 * g->checkpoint, 100 * g->lost, 100 * g->down);
    if (r->in.repair > 0) printf(" · waiting for repairs %.2f %%", 100 * g->wait);
    printf("\n");
}

static sk_status summary(const plan *p, bool many)
{
    const row *r = best_of(p, 0, p->rows.n / p->n_sizes);
    const sk_goodput_size *z = r->z;
    sk_arena *a = p->arena;
    printf("machine   %s · %s\n", p->machine.name, p->machine.doc);
    printf("layout    %s%s\n", z->title, many ? ": the fastest, as all that follows" : "");
    printf("step      %.6g s · %.4g tok/s without failures\n", z->step, z->tokens / z->step);
    printf("state     %s in a checkpoint, written in %s\n", sk_bytes(a, z->state),
           span(a, r->in.checkpoint));
    say_failures(p, r);
    SK_TRY(say_interval(p, r));
    say_time(r);
    if (!z->fits)
        printf("warning   %s on the fullest rank do not fit in %s\n", sk_bytes(a, z->memory),
               sk_bytes(a, p->machine.memory));
    if (!isfinite(r->days[0]) && p->job->steps > 0 && !(p->job->time_limit > 0))
        printf("warning   %lld steps do not end within %d failures\n", (long long)p->job->steps,
               MOST_FAILURES);
    printf("\n");
    return SK_OK;
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    plan *p = sk_new(a, plan);
    sk_conf_rest rest = {.options = options};
    const char *warning = NULL;
    p->arena = a;
    p->job = sk_new(a, sk_job);
    SK_TRY(sk_argv_job(a, argc, argv, usage, p->job, &rest));
    if (rest.help) return SK_OK;
    const char *format = sk_conf_option(&rest, "o"), *gpus = sk_conf_option(&rest, "gpus");
    SK_TRY(sk_machine_default_on(a, sk_conf_option(&rest, "cluster"), sk_setup_on_gpu(p->job),
                                 &p->machine, &warning));
    if (warning) fprintf(stderr, "skein: %s\n", warning);
    SK_TRY(read_numbers(&rest, &p->machine, &p->t));
    SK_TRY(consistent(&rest, &p->machine, &p->t));
    SK_TRY(stands(p));
    if (gpus) SK_TRY(all_sizes(p, gpus));
    else SK_TRY(one_size(p));
    SK_TRY(fill(p));
    if (!format) SK_TRY(summary(p, gpus != NULL));
    return table(p, format, gpus != NULL);
}

const sk_cmd sk_cmd_goodput = {.name = "goodput",
                               .doc = "what failures leave of a job: intervals, spares, prices",
                               .run = run};
