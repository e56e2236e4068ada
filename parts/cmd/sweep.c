/* sweep.c - `skein sweep`: many training jobs over values of keys, and what they say together.
 */
#include "base/file_io.h"
#include "base/proc.h"
#include "base/strings.h"
#include "cli/cmd.h"
#include "cli/picture.h"
#include "cli/sweep.h"
#include "cli/sweep_words.h"

#include <math.h>
#include <string.h>

static const char usage[] =
    "usage: skein sweep [FILE.yaml] key=value,value... [--jobs K] [run=DIR] [-o csv|json|md]\n\n"
    "Trains once for each combination of the values of keys, each job in a run directory of its\n"
    "own below run=DIR, and prints a table, the lowest loss first.  Values of a key:\n"
    "    optim.lr=1e-3,3e-3                   a list\n"
    "    optim.lr=log:1e-4:1e-1:4             four values of equal ratio; lin: equal distance\n"
    "    train.seed=1..5                      whole numbers; the table has mean and spread of "
    "seeds\n"
    "    optim.betas=[0.9,0.95],[0.9,0.99]    brackets around values that hold commas: texts,\n"
    "                                         layouts and lists need them, one value alone too:\n"
    "    \"optim.groups=[matrix: muon, rest: adamw],[rest: lion]\"         two values\n"
    "    \"optim.groups=[matrix: muon, rest: adamw betas=[0.9,0.95]]\"     one value\n"
    "The same command, or skein sweep run=DIR alone, goes on with a sweep that was stopped or\n"
    "killed: finished jobs are skipped, others resumed.  A job that fails is a row of the table,\n"
    "and unless it diverged its exit code is that of the sweep.\n"
    "    skein sweep model=tiny optim.lr=log:1e-3:1e-1:5 train.batch=4,16 --jobs 2 run=runs/s1\n"
    "    skein sweep run=runs/s1 --table --target-loss 2.5\n";

static const sk_option options[] = {
    {"jobs", "jobs at once, which share the cores evenly (1)", true},
    {"dry", "print the jobs, and start none", false},
    {"table", "print the table of what is there, and start none", false},
    {"random", "draw N jobs from lists and ranges, each with every train.seed", true},
    {"seed", "of the draws (1)", true},
    {"target-loss", "steps, tokens and seconds to this loss; against train.batch, if it varies",
     true},
    {"fit", "scaling law of parameters, tokens or both over the jobs", false},
    {"predict", "loss of the best job with these keys changed, by the law: \"train.steps=400\"",
     true},
    {"predict-params", "loss of so many parameters, by the law", true},
    {"predict-tokens", "loss after so many tokens, by the law", true},
    {"predict-compute", "best parameters, tokens and loss for 6ND flop, by the law", true},
    {"svg", "write a picture of the losses to this file", true},
    {"o", "csv, json or md: print one table, of the fit, of the target or of the jobs", true},
    {0},
};

enum { MOST_AXES = 32, MOST_DRAWS = 10000 };

typedef struct ask {
    sk_arena *arena;
    sk_sweep_words w;
    const char *format, *svg;
    bool dry, table, fit;
    int64_t random, seed;
    double target;
    sk_sweep_predict predict;
} ask;

/* ---- the command line */

static sk_status read_size(const ask *q, const char *name, double *out)
{
    const char *text = sk_conf_option(&q->w.rest, name);
    if (!text) return SK_OK;
    if (!sk_read_real(text, out) || !(*out > 0) || !isfinite(*out))
        return sk_fail(SK_EUSAGE, "command line: --%s is \"%.40s\"; a number above 0 is needed",
                       name, text);
    return SK_OK;
}

static sk_status read_options(ask *q)
{
    const sk_conf_rest *r = &q->w.rest;
    q->seed = 1;
    q->format = q->w.format;
    q->svg = sk_conf_option(r, "svg");
    q->dry = sk_conf_option(r, "dry") != NULL;
    q->table = sk_conf_option(r, "table") != NULL;
    q->fit = sk_conf_option(r, "fit") != NULL;
    q->predict.words = sk_conf_option(r, "predict");
    SK_TRY(sk_sweep_count(&q->w, "random", 1, MOST_DRAWS, &q->random));
    SK_TRY(sk_sweep_count(&q->w, "seed", 0, INT64_MAX, &q->seed));
    SK_TRY(read_size(q, "target-loss", &q->target));
    SK_TRY(read_size(q, "predict-params", &q->predict.params));
    SK_TRY(read_size(q, "predict-tokens", &q->predict.tokens));
    SK_TRY(read_size(q, "predict-compute", &q->predict.compute));
    bool asks = q->predict.words || q->predict.params > 0 || q->predict.tokens > 0 ||
                q->predict.compute > 0;
    if (asks && !q->fit)
        return sk_fail(SK_EUSAGE, "command line: a prediction needs the law: --fit");
    if (q->format && q->fit && q->target > 0)
        return sk_fail(SK_EUSAGE, "command line: -o prints one table; leave out --fit or "
                                  "--target-loss");
    if (sk_conf_option(r, "seed") && !q->random)
        return sk_fail(SK_EUSAGE,
                       "command line: --seed is that of --random; of jobs it is train.seed");
    return SK_OK;
}

/* Nothing but the directory: the words that made it stand in front of these. */
static sk_status read_words(ask *q, int argc, char **argv)
{
    SK_TRY(sk_sweep_read(&q->w, argc, argv));
    if (q->w.rest.help) return SK_OK;
    SK_TRY(read_options(q));
    if (!sk_sweep_says_dir_alone(&q->w) || q->random) return SK_OK;
    if (!q->w.dir)
        return sk_fail(SK_EUSAGE, "sweep: which keys? give some with several values, as "
                                  "optim.lr=1e-3,3e-3, or run=DIR of a sweep: skein sweep --help");
    SK_TRY(sk_sweep_read_again(&q->w, argc, argv));
    return read_options(q);
}

/* ---- the sweep they mean */

/* A key with one value is a word of all jobs, a key with several an axis. */
static sk_status add_key(sk_sweep *s, const sk_setting *k)
{
    sk_axis x;
    SK_TRY(sk_conf_axis(s->arena, k->key, k->value, &x));
    s->said[s->n_said++] = sk_print(s->arena, "%s=%s", k->key, k->value);
    if (x.n == 1 && !x.range) {
        s->words[s->n_words++] = sk_print(s->arena, "%s=%s", k->key, x.values[0]);
        return SK_OK;
    }
    if (s->axes.n == MOST_AXES)
        return sk_fail(SK_EUSAGE, "command line: more than %d keys have several values", MOST_AXES);
    *(sk_axis *)sk_push(s->arena, &s->axes) = x;
    return SK_OK;
}

static sk_status make(const ask *q, sk_sweep *s)
{
    int n = q->w.said.n + 4;
    *s = (sk_sweep){.arena = q->arena,
                    .dir = sk_sweep_dir(&q->w),
                    .file = q->w.file,
                    .words = sk_many(q->arena, const char *, n),
                    .said = sk_many(q->arena, const char *, n),
                    .random = q->random,
                    .seed = (uint64_t)q->seed};
    if (s->file) s->said[s->n_said++] = s->file;
    if (q->random) {
        s->said[s->n_said++] = sk_print(q->arena, "--random=%lld", (long long)q->random);
        s->said[s->n_said++] = sk_print(q->arena, "--seed=%lld", (long long)q->seed);
    }
    for (int i = 0; i < q->w.said.n; i++) {
        const sk_setting *k;
        SK_TRY(sk_sweep_key(&q->w, i, &k));
        if (k) SK_TRY(add_key(s, k));
    }
    return sk_sweep_expand(s);
}

/* Lists have so many combinations; draws are never alike. */
static void tell_fewer(const sk_sweep *s)
{
    int seeds = sk_sweep_axis(s, "train.seed");
    int64_t n = s->jobs.n / (seeds < 0 ? 1 : s->axes.v[seeds].n);
    if (!s->random || n >= s->random) return;
    fprintf(stderr, "skein: note: --random %lld, and %lld combination%s of values %s found\n",
            (long long)s->random, (long long)n, sk_plural(n), n == 1 ? "was" : "were");
}

/* ---- what it shows */

static sk_status look(sk_sweep *s)
{
    for (int i = 0; i < s->jobs.n; i++) SK_TRY(sk_sweep_look(s, &s->jobs.v[i]));
    return SK_OK;
}

static sk_status none_done(const sk_sweep *s)
{
    const sk_sweep_job *j = &s->jobs.v[0];
    return sk_fail(j->ended && j->code ? j->code : SK_EDATA,
                   "none of the %d job%s of %s is done; the first, %s, is %s%s%s", s->jobs.n,
                   sk_plural(s->jobs.n), s->dir, j->name, sk_sweep_state(j), *j->why ? ": " : "",
                   j->why);
}

static sk_status show(const ask *q, sk_sweep *s)
{
    sk_sweep_groups g = sk_sweep_group_jobs(s);
    bool done = g.n && g.v[0].n_done;
    if (!q->format || (!q->fit && !(q->target > 0))) {
        sk_table t = sk_sweep_table(s, &g, q->format != NULL);
        if (!q->format) printf("\n");
        SK_TRY(sk_table_print(&t, q->format, stdout));
    }
    bool more = q->svg || q->fit || q->target > 0;
    if (!done) return q->table && !more ? SK_OK : none_done(s);
    if (!q->format) sk_sweep_draw(s, &g, stdout);
    if (q->svg) SK_TRY(sk_sweep_svg(s, &g, q->svg));
    if (q->target > 0) SK_TRY(sk_sweep_study(s, &g, q->target, q->format));
    if (q->fit) SK_TRY(sk_sweep_fit(s, &g, &q->predict, q->format));
    return SK_OK;
}

static sk_status dry(const ask *q, sk_sweep *s)
{
    sk_table t = sk_sweep_plan(s, q->format != NULL);
    SK_TRY(sk_table_print(&t, q->format, stdout));
    if (!q->format) printf("%d job%s in %s\n", s->jobs.n, sk_plural(s->jobs.n), s->dir);
    return SK_OK;
}

/* A grid may hold pairs that do not go together, and a job that diverges has told something; all
 * others that are not done make the exit code. */
static sk_status tell_undone(const sk_sweep *s)
{
    const sk_sweep_job *first = NULL;
    int n = 0;
    for (int i = 0; i < s->jobs.n; i++) {
        const sk_sweep_job *j = &s->jobs.v[i];
        if (!j->ended || !j->code || j->code == SK_ENUM) continue;
        if (!n++) first = j;
    }
    if (!n) return SK_OK;
    return sk_fail(first->code, "%d of the %d jobs of %s %s; %s%s, is %s: %s", n, s->jobs.n, s->dir,
                   n > 1 ? "are not done" : "is not done", n > 1 ? "the first, " : "it, ",
                   first->name, sk_sweep_state(first), first->why);
}

/* Jobs, the table, and what the jobs say together; a stop is told last. */
static sk_status train(const ask *q, sk_sweep *s)
{
    SK_TRY(sk_sweep_alone(s->arena, "sweep"));
    SK_TRY(sk_sweep_has_all(s));
    sk_status st = sk_sweep_run(s, (int)q->w.at_once, q->format ? stderr : stdout);
    if (st && st != SK_ESTOP) return sk_trail(st, SK_HERE);
    const char *stopped = sk_strdup(s->arena, sk_error());
    if (sk_is_dir(s->dir)) SK_TRY(sk_sweep_csv(s));
    sk_status shown = show(q, s);
    if (!st) return shown ? shown : tell_undone(s);
    sk_error_set(stopped);
    return st;
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    ask *q = sk_new(a, ask);
    sk_sweep *s = sk_new(a, sk_sweep);
    q->arena = a;
    q->w = (sk_sweep_words){.arena = a, .command = "sweep", .options = options};
    SK_TRY(read_words(q, argc, argv));
    if (q->w.rest.help) {
        printf("%s\n%s", usage, sk_conf_help(a, options));
        return SK_OK;
    }
    if (q->svg) SK_TRY(sk_picture_place(q->svg));
    SK_TRY(make(q, s));
    if (!q->format) tell_fewer(s);
    SK_TRY(look(s));
    if (q->fit && !q->table) SK_TRY(sk_sweep_may_fit(s, &q->predict));
    if (q->dry) return dry(q, s);
    return q->table ? show(q, s) : train(q, s);
}

const sk_cmd sk_cmd_sweep = {
    .name = "sweep", .doc = "train over many values of keys; tables, studies, laws", .run = run};
