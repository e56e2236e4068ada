/* train.c - `skein train`: a run on this host, or one rank of a run that another launcher started.
 */
#include "base/file_io.h"
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/cmd.h"
#include "plan/machine.h"
#include "train/default_layout.h"
#include "train/launch.h"

#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: skein train [FILE.yaml] [key=value ...] [-n RANKS] [--resume] [--replay RUN]\n\n"
    "Trains, prints progress and samples, and leaves a run directory: config.yaml, metrics.jsonl,\n"
    "checkpoints, and final/, a Hugging Face directory.  Ctrl-C saves and exits with code 75;\n"
    "--resume continues, under the same layout or another.  Under mpirun, srun or a\n"
    "torchrun-style environment every process becomes one rank of theirs.\n"
    "    skein train example/demo.yaml -n 2 layout=\"dp=2 zero=1\"\n";

static const sk_option options[] = {
    {"restarts", "restarts without progress in between, when ranks are killed (0)", true},
    {"replay", "impose the choices that time made in this run: sync=backup, sync=ssp", true},
    {"launch", "what a rank is: process (default) or thread", true},
    {0},
};

enum { MEET_S = 60, LINGER_US = 1000000 }; /* for all ranks to come; for others to stay quiet */

static void tell_late(const char *text) { fprintf(stderr, "skein waits: %s\n", text); }

/* Started by something else, as one of many: join them.  One rank is no such case: it may fork. */
static sk_status join(sk_boot *b, sk_job *job, const sk_launch_opts *o)
{
    if (o->threads || o->restarts)
        return sk_fail(SK_EUSAGE,
                       "command line: --launch and --restarts are for ranks that skein "
                       "starts itself; %s started these",
                       b->by);
    if (job->ranks > 0 && job->ranks != b->n_ranks)
        return sk_fail(SK_EUSAGE, "command line: -n %lld, but %s started %d rank%s; leave -n away",
                       (long long)job->ranks, b->by, b->n_ranks, sk_plural(b->n_ranks));
    b->late = tell_late;
    SK_TRY(sk_boot_join(b, job->timeout > 0 ? job->timeout : MEET_S));
    job->ranks = b->n_ranks;
    if (b->n_hosts == 1) return SK_OK;
    sk_machine *m = sk_new(b->arena, sk_machine);
    const char *warning = "";
    SK_TRY(sk_machine_default(b->arena, NULL, m, &warning));
    SK_TRY(sk_boot_bcast(b, &m->costs, sizeof m->costs)); /* rank 0's, or ranks would disagree */
    job->host_of = b->host_of;
    job->costs = &m->costs;
    return SK_OK;
}

static sk_status read_opts(sk_conf_rest *rest, sk_launch_opts *o)
{
    const char *launch = sk_conf_option(rest, "launch"), *again = sk_conf_option(rest, "restarts");
    int64_t restarts = 0;
    if (again && (!sk_read_int(again, &restarts) || restarts < 0 || restarts > 1000000))
        return sk_fail(SK_EUSAGE, "command line: --restarts %s; a whole number is needed", again);
    if (launch && strcmp(launch, "thread") && strcmp(launch, "process"))
        return sk_fail(SK_EUSAGE, "command line: --launch %s; process or thread is needed", launch);
    *o = (sk_launch_opts){.threads = launch && !strcmp(launch, "thread"),
                          .restarts = (int)restarts,
                          .to = stdout,
                          .config = sk_conf_print,
                          .saved_job = sk_conf_saved};
    return SK_OK;
}

/* One of many ranks failed: one of them reports why, and those on other hosts must not wait. */
static sk_status fail_together(const sk_boot *b, sk_status st)
{
    if (st == SK_ESTOP) return st;
    if (!*sk_error_line()) usleep(LINGER_US); /* another rank reports: let it go first */
    else if (sk_boot_speaks(b)) {
        fprintf(stderr, "skein: %s\n", st == SK_EBUG ? sk_error() : sk_error_line());
        usleep(LINGER_US);
    }
    sk_error_set("");
    if (b->wire && b->host_of) b->wire->abort(b->wire, (int)st);
    return st;
}

/* The run that --replay names; NULL: none. */
static const char *replayed(int argc, char **argv)
{
    const char *option = "--replay";
    size_t n = strlen(option);
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], option, n) != 0) continue;
        if (argv[i][n] == '=') return argv[i] + n + 1;
        if (!argv[i][n] && i + 1 < argc) return argv[i + 1];
    }
    return NULL;
}

/* A file may. */
static bool says_run(int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        const char *dot = strrchr(argv[i], '.');
        if (dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml")) && !strchr(argv[i], '='))
            return true;
        const char *s = argv[i] + (strncmp(argv[i], "--", 2) ? 0 : 2);
        if (!strncmp(s, "run=", 4) || (s != argv[i] && !strcmp(s, "run"))) return true;
    }
    return false;
}

/* A replay has the config of its run, and words given now count over it; but it is a run of its
 * own. */
static sk_status load(sk_arena *a, int argc, char **argv, sk_job *job, sk_conf_rest *rest)
{
    const char *run = replayed(argc, argv);
    if (!run) return sk_argv_job(a, argc, argv, usage, job, rest);
    char **words = sk_many(a, char *, argc + 2);
    words[0] = sk_print(a, "%s/config.yaml", run);
    memcpy(words + 1, argv, (size_t)argc * sizeof *argv);
    if (!sk_is_file(words[0]))
        return sk_fail(SK_EDATA, "replay: %s is not there: name the directory of a run", words[0]);
    SK_TRY(sk_argv_job(a, argc + 1, words, usage, job, rest));
    if (rest->help) return SK_OK;
    sk_job *was = sk_new(a, sk_job);
    SK_TRY(sk_argv_job(a, 1, words, usage, was, &(sk_conf_rest){0}));
    SK_TRY(sk_conf_replayed(a, run, was, job));
    if (!says_run(argc, argv)) *job->run = 0;
    if (strlen(run) >= sizeof job->replay)
        return sk_fail(SK_EUSAGE, "replay: the name is too long");
    snprintf(job->replay, sizeof job->replay, "%s", run);
    return SK_OK;
}

static sk_status train(sk_arena *a, int argc, char **argv, sk_boot *boot)
{
    sk_job *job = sk_new(a, sk_job);
    sk_conf_rest rest = {.options = options};
    sk_launch_opts o;
    SK_TRY(load(a, argc, argv, job, &rest));
    if (rest.help) return SK_OK;
    SK_TRY(read_opts(&rest, &o));
    if (boot->n_ranks > 1) {
        SK_TRY(join(boot, job, &o));
        o.boot = boot;
    }
    SK_TRY(sk_default_layout(a, job, o.boot, &o.layout_line));
    sk_status st = sk_launch(a, job, &o);
    /* All stop alike, and rank 0 has the job's code: a launcher that saw it from another first
     * would end rank 0 before it has spoken. */
    if (o.boot && (!st || st == SK_ESTOP)) sk_boot_leave(boot);
    return st == SK_ESTOP && o.boot && boot->rank ? SK_OK : st;
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    sk_boot boot = {0};
    sk_status st = sk_boot_detect(a, &boot);
    bool many =
        st || boot.n_ranks >
                  1; /* a launcher that cannot tell how many ranks there are has more than one */
    if (!st) st = train(a, argc, argv, &boot);
    return st && many ? fail_together(&boot, st) : st;
}

const sk_cmd sk_cmd_train = {
    .name = "train", .doc = "train a model", .run = run, .options = options};
