/* rate.c - `skein rate`: a learning-rate range test of a job, its curve, and the rate to try. */
#include "base/shell_word.h"
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/cmd.h"
#include "cli/picture.h"
#include "cli/picture_rate.h"
#include "cli/rate_groups.h"
#include "run/run.h"
#include "train/fits.h"
#include "train/range_test.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 100, ROWS = 25, BAR = 40 };
#define FACTOR 1.5
#define SPAN   1000.0 /* from optim.lr down and up */

static const char usage[] =
    "usage: skein rate [FILE.yaml] [key=value ...] [-n RANKS] [--from LR] [--to LR] [--steps N]\n"
    "                  [--stop FACTOR] [--svg FILE] [-o csv|json|md]\n\n"
    "Learning-rate range test (Smith 2015): trains the job for N steps while the rate grows\n"
    "exponentially, shows the loss over the rate, and suggests optim.lr: two thirds of the rate "
    "at\n"
    "which the loss has done nine tenths of its fall, at most a third of the one where it is\n"
    "lowest; or, if it diverges, between that rate and a third of the one at which the loss rises\n"
    "again.  The test ends when the loss diverges.  It uses the job's data, layout and device, "
    "and writes\n"
    "nothing but the picture: schedule, warmup, run, ckpt.*, val.*, log.* and sample.* are not\n"
    "used; of train.batch_schedule and train.relayout the first batch and layout are.  Rates of\n"
    "optim.groups keep their ratio to optim.lr, and are suggested with it.\n"
    "    skein rate model=nano -n 2 --svg rate.svg\n";

static const sk_option options[] = {
    {"from", "rate of the first step (optim.lr / 1000)", true},
    {"to", "rate of the last step (optim.lr * 1000)", true},
    {"steps", "steps of the test (100)", true},
    {"stop", "end when the smoothed loss is so many times the first one (1.5)", true},
    {"svg", "write the curve as a picture", true},
    {"o", "csv, json or md instead of text: every step", true},
    {0},
};

/* --- what is asked --- */

static bool has_key(const char *word, const char *key)
{
    size_t n = strlen(key);
    word += strspn(word, "-");
    return !strncmp(word, key, n) && (word[n] == '=' || !word[n]);
}

static bool has_word(int argc, char **argv, const char *key)
{
    for (int i = 0; i < argc; i++)
        if (has_key(argv[i], key)) return true;
    return false;
}

static sk_status read_rate(const sk_conf_rest *rest, const char *name, double usual, double *out)
{
    const char *text = sk_conf_option(rest, name);
    *out = usual;
    if (text && (!sk_read_plain(text, out) || !(*out >= 1e-30 && *out <= 1e6)))
        return sk_fail(SK_EUSAGE,
                       "command line: --%s is \"%.80s\"; a rate from 1e-30 to 1000000 is needed",
                       name, text);
    return SK_OK;
}

static sk_status read_range(const sk_conf_rest *rest, const sk_job *job, sk_range *r)
{
    const char *steps = sk_conf_option(rest, "steps"), *stop = sk_conf_option(rest, "stop");
    int64_t n = STEPS;
    *r = (sk_range){.factor = FACTOR};
    if (job->lr <= 0 && !(sk_conf_option(rest, "from") && sk_conf_option(rest, "to")))
        return sk_fail(SK_EUSAGE, "optim.lr is 0: --from and --to are needed");
    SK_TRY(read_rate(rest, "from", job->lr / SPAN, &r->from));
    SK_TRY(read_rate(rest, "to", job->lr * SPAN, &r->to));
    if (!(r->to > r->from))
        return sk_fail(SK_EUSAGE,
                       "command line: the rate grows from %g to %g; --to must be over "
                       "--from",
                       r->from, r->to);
    if (steps && (!sk_read_int(steps, &n) || n < SK_RANGE_LEAST || n > SK_RANGE_STEPS))
        return sk_fail(SK_EUSAGE, "command line: --steps is \"%.80s\"; %d to %d are needed", steps,
                       SK_RANGE_LEAST, SK_RANGE_STEPS);
    if (stop && (!sk_read_plain(stop, &r->factor) || !(r->factor > 1 && r->factor <= 1e6)))
        return sk_fail(SK_EUSAGE,
                       "command line: --stop is \"%.80s\"; a number over 1, at most 1000000, is "
                       "needed",
                       stop);
    r->steps = (int)n;
    return SK_OK;
}

/* Keys that end a training end no range test; whoever said them may count on it. */
static void note_stops(const sk_job *job)
{
    const char *said = job->stop_loss > 0 ? "val.stop_loss" : "val.stop_accuracy";
    if (job->stop_loss > 0 || job->stop_accuracy > 0)
        fprintf(stderr,
                "skein: note: %s does not end a range test, which validates nothing; "
                "--stop and --steps do\n",
                said);
}

/* The test is of the first phase: optim.lr is the rate of its batch. */
static void note_phases(const sk_job *job)
{
    if (*job->batch_schedule)
        fprintf(stderr,
                "skein: note: train.batch_schedule is \"%s\": the range test has its first batch, "
                "%lld, in all steps\n",
                job->batch_schedule, (long long)job->batch);
    if (*job->relayout)
        fprintf(stderr,
                "skein: note: train.relayout is \"%s\": the range test has the first layout in all "
                "steps\n",
                job->relayout);
}

/* What a training has and this does not. */
static sk_status only_steps(sk_job *job, const sk_range *r, bool in_words)
{
    if (*job->resume)
        return sk_fail(in_words ? SK_EUSAGE : SK_ECONF,
                       "resume is \"%s\": a range test begins with the weights of step "
                       "0; model=DIR begins with those of a model directory",
                       job->resume);
    if (job->adascale)
        return sk_fail(SK_ECONF,
                       "optim.adascale is %lld: optim.lr is then the rate of a batch that is so "
                       "many times smaller than train.batch; test that one: train.batch=%lld "
                       "optim.adascale=0",
                       (long long)job->adascale, (long long)(job->batch / job->adascale));
    note_stops(job);
    note_phases(job);
    job->stop_loss = job->stop_accuracy = 0;
    job->relayout[0] = job->batch_schedule[0] = 0;
    job->val_every = job->sample_every = job->trace = 0;
    job->warmup = 0;
    job->all_told = true;
    job->steps = r->steps;
    job->time_limit = 0;
    return SK_OK;
}

static void progress(int step, int steps, const sk_range_point *p)
{
    fprintf(stderr, "\r%4d of %d steps  lr %-9.3g loss %-12.5g", step + 1, steps, p->lr, p->loss);
}

/* --- the curve --- */

static const char *mark_of(const sk_range_advice *d, int i)
{
    if (!d->falls) return "";
    return i == d->lowest ? "lowest" : i == d->steepest ? "steepest" : "";
}

static sk_status print_table(sk_arena *a, const sk_range_curve *c, const sk_range_advice *d,
                             const char *format)
{
    static const char *const columns[] = {"step", "lr", "loss", "smooth", "mark"};
    sk_table t = {.arena = a, .head = columns, .n_cols = 5};
    for (int i = 0; i < c->n; i++) {
        const char *cells[] = {sk_print(a, "%d", i + 1), sk_print(a, "%.9g", c->v[i].lr),
                               sk_print(a, "%.9g", c->v[i].loss), sk_print(a, "%.9g", d->smooth[i]),
                               mark_of(d, i)};
        sk_table_add(&t, cells);
    }
    return sk_table_print(&t, format, stdout);
}

/* A row for several points is that of the marked one among them. */
static int row_point(const sk_range_curve *c, const sk_range_advice *d, int from, int n)
{
    for (int i = from; i < from + n && i < c->n; i++)
        if (*mark_of(d, i)) return i;
    return from;
}

/* The longest bar is 1.2 times the first loss: what diverges is cut. */
static void print_curve(const sk_range_curve *c, const sk_range_advice *d)
{
    static const char bar[] = "########################################>";
    int each = (c->n + ROWS - 1) / ROWS;
    double low = d->smooth[d->lowest], high = d->smooth[0] + 0.2 * fabs(d->smooth[0]);
    for (int i = 0; i < c->n; i += each) {
        int k = row_point(c, d, i, each);
        double part = high > low ? (d->smooth[k] - low) / (high - low) : 0;
        int n = part > 1 ? BAR + 1 : 1 + (int)((BAR - 1) * (part > 0 ? part : 0));
        const char *mark = mark_of(d, k);
        printf("%9.2e %10.4f  %.*s%s%s\n", c->v[k].lr, d->smooth[k], n, bar, *mark ? "  " : "",
               mark);
    }
}

/* --- the advice --- */

/* Is this word an option of ours, or a key that the advice sets?  Its value may be the word after
 * it. */
static bool is_ours(const char *word, bool groups, bool *and_next)
{
    const char *name = word + strspn(word, "-"), *equals = strchr(word, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    bool form = word[0] == '-' && word[1] == 'o'; /* -o csv, -ocsv */
    *and_next = form ? !word[2] : !equals;
    if (form) return true;
    for (const sk_option *o = options; o->name && name > word; o++)
        if (strlen(o->name) == n && !strncmp(o->name, name, n)) return true;
    if (!equals && name == word) return false; /* FILE.yaml */
    if (has_key(word, "run"))
        return true; /* the test has no run directory, the training a new one */
    return has_key(word, "optim.lr") || (groups && has_key(word, "optim.groups"));
}

/* Have all parameters a rate of their group, so that nothing reads optim.lr? */
static bool all_said(const sk_job *job)
{
    bool rest = false;
    for (int i = 0; i < job->n_groups; i++) {
        if (!job->group[i].says_lr && job->group[i].rate == 1) return false;
        rest |= !strcmp(job->group[i].match, "rest");
    }
    return rest;
}

/* The test kept the ratios of all rates, so its advice is for all of them. */
static char *train_command(sk_arena *a, int argc, char **argv, const sk_job *job, double lr)
{
    sk_out o = {.arena = a};
    sk_read_plain(sk_print(a, "%.2g", lr), &lr);
    const char *groups = sk_rate_groups(a, job, lr);
    sk_out_add(&o, "skein train");
    for (int i = 0; i < argc; i++) {
        bool and_next;
        if (!is_ours(argv[i], groups != NULL, &and_next))
            sk_out_add(&o, " %s", sk_shell_word(o.arena, argv[i]));
        else i += and_next;
    }
    if (groups)
        sk_out_add(&o, " %s", sk_shell_word(o.arena, sk_print(a, "optim.groups=%s", groups)));
    if (job->min_lr > lr) sk_out_add(&o, " optim.min_lr=%.2g", job->min_lr * lr / job->lr);
    if (!groups || job->min_lr > 0 || !all_said(job)) sk_out_add(&o, " optim.lr=%.2g", lr);
    return o.s;
}

static void print_end(FILE *to, const sk_range_curve *c, const sk_range *r)
{
    double loss = c->last.loss;
    if (!c->diverged) return;
    fprintf(to, "diverged  at %.3g, after %d of %d steps: ", c->last.lr, c->n, r->steps);
    if (!isfinite(loss)) fprintf(to, "the loss is not finite\n");
    else if (loss > r->factor * c->v[0].loss)
        fprintf(to, "loss %.4g, over %g times the first, %.4g\n", loss, r->factor, c->v[0].loss);
    else fprintf(to, "gradients are not finite\n");
}

static void print_advice(FILE *to, const sk_range_curve *c, const sk_range_advice *d,
                         const sk_range *r, const char *command, bool groups, bool sequential)
{
    double low = d->smooth[d->lowest], at = c->v[d->lowest].lr;
    print_end(to, c, r);
    if (!d->falls) {
        fprintf(to,
                "no advice  the loss falls by %.3g, and losses scatter by %.3g: more --steps, "
                "a larger train.batch, or another --from and --to\n",
                d->smooth[0] - low, d->noise);
        return;
    }
    fprintf(to, "lowest    loss %.4g at %.3g\n", low, at);
    fprintf(to, "steepest  at %.3g\n", c->v[d->steepest].lr);
    fprintf(to, "settled   at %.3g: nine tenths of the fall are done\n", c->v[d->settled].lr);
    if (d->edge >= 0)
        fprintf(to, "edge      at %.3g: a tenth of the fall is lost again\n", c->v[d->edge].lr);
    if (d->lowest == c->n - 1 && !c->diverged)
        fprintf(to, "note      the loss is lowest at the last rate: a higher --to may show more\n");
    else if (d->edge < 0 && !c->diverged)
        fprintf(to, "note      the loss does not rise again: a higher --to may show more\n");
    if (sequential)
        fprintf(to,
                "note      data.order is sequential: losses also follow the text, so a fall may "
                "be its own; data.order=shuffle tells more\n");
    if (groups)
        fprintf(to, "note      rates are those of optim.lr; those of optim.groups keep their ratio "
                    "to it, and are scaled alike: where the ratio is wrong, so are rates of "
                    "groups\n");
    fprintf(to, "try       %s\n", command);
}

/* --- the command --- */

static sk_status test(sk_arena *a, const sk_job *job, const sk_range *r, sk_range_curve *c,
                      char **title)
{
    sk_setup *s = sk_new(a, sk_setup);
    SK_TRY(sk_setup_run(a, job, s));
    SK_TRY(sk_run_untimed(&s->layout));
    SK_TRY(sk_fits_host(s, false));
    SK_TRY(sk_setup_data(s));
    SK_TRY(sk_setup_check(s));
    *title = sk_print(a, "%s · %s · batch %lld · %s", job->model_name, job->optim_name,
                      (long long)job->batch, sk_layout_short(a, &s->layout));
    sk_status st = sk_range_test(a, s, r, c);
    if (r->tell) fprintf(stderr, "\r%60s\r", "");
    if (st) return sk_trail(st, SK_HERE);
    if (!c->n)
        return sk_fail(SK_ENUM, "the loss of the first step is not finite, before any rate was "
                                "used; skein verify checks model directories");
    return SK_OK;
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    sk_job *job = sk_new(a, sk_job);
    sk_range_curve *c = sk_new(a, sk_range_curve);
    sk_conf_rest rest = {.options = options};
    sk_range r;
    char *title = NULL;
    SK_TRY(sk_argv_job(a, argc, argv, usage, job, &rest));
    if (rest.help) return SK_OK;
    const char *format = sk_conf_option(&rest, "o"), *svg = sk_conf_option(&rest, "svg");
    if (format && strcmp(format, "csv") && strcmp(format, "json") && strcmp(format, "md"))
        return sk_fail(SK_EUSAGE, "command line: -o %.80s is unknown; there are csv, json and md",
                       format);
    if (svg) SK_TRY(sk_picture_place(svg));
    SK_TRY(read_range(&rest, job, &r));
    SK_TRY(only_steps(job, &r, has_word(argc, argv, "resume")));
    SK_TRY(sk_argv_alone(a, "rate", true));
    if (isatty(STDERR_FILENO)) r.tell = progress;
    SK_TRY(test(a, job, &r, c, &title));
    sk_range_advice d = sk_range_read(a, c);
    const char *command = d.falls ? train_command(a, argc, argv, job, d.lr) : "";
    if (format) SK_TRY(print_table(a, c, &d, format));
    else {
        printf("%s · %d steps from %.3g to %.3g\n", title, r.steps, r.from, r.to);
        print_curve(c, &d);
    }
    print_advice(format ? stderr : stdout, c, &d, &r, command, sk_rate_groups(a, job, d.lr) != NULL,
                 !strcmp(job->data_order, "sequential"));
    return svg ? sk_picture_rate(a, title, c, &d, svg) : SK_OK;
}

const sk_cmd sk_cmd_rate = {
    .name = "rate", .doc = "find a learning rate: range test, curve, suggestion", .run = run};
