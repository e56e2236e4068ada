/* train.c - `skein train`: a whole run on this host. */
#include "base/text.h"
#include "cli/ask.h"
#include "cli/cmd.h"
#include "train/launch.h"

#include <string.h>

static const char usage[] =
    "usage: skein train [FILE.yaml] [key=value ...] [-n RANKS] [--resume]\n\n"
    "Trains, prints progress and samples, and leaves a run directory: config.yaml, metrics.jsonl,\n"
    "checkpoints, and final/, a Hugging Face directory.  Ctrl-C saves and exits with code 75;\n"
    "--resume goes on where it was, on the same layout or another.\n"
    "    skein train example/demo.yaml -n 2 layout=\"dp=2 zero=1\"\n";

static const sk_option options[] = {
    {"restarts", "begin again this often, without progress in between, when a rank is killed (0)",
     true},
    {"launch", "process (usual) or thread: what a rank is", true},
    {0},
};

static sk_status run(sk_arena *a, int argc, char **argv)
{
    sk_job *job = sk_new(a, sk_job);
    sk_conf_rest rest = {.options = options};
    SK_TRY(sk_ask_job(a, argc, argv, usage, job, &rest));
    if (rest.help) return SK_OK;
    const char *launch = sk_conf_option(&rest, "launch"),
               *again = sk_conf_option(&rest, "restarts");
    int64_t restarts = 0;
    if (again && (!sk_read_int(again, &restarts) || restarts < 0 || restarts > 1000000))
        return sk_fail(SK_EUSAGE, "command line: --restarts %s; a whole number is needed", again);
    if (launch && strcmp(launch, "thread") && strcmp(launch, "process"))
        return sk_fail(SK_EUSAGE, "command line: --launch %s; process or thread is needed", launch);
    sk_launch_opts o = {.threads = launch && !strcmp(launch, "thread"),
                        .restarts = (int)restarts,
                        .to = stdout,
                        .config = sk_conf_print};
    return sk_launch(a, job, &o);
}

const sk_cmd sk_cmd_train = {.name = "train", .doc = "train a model on this host", .run = run};
