/* average.c - `skein average`: the mean of the weights of several models, as a model directory. */
#include "base/file_io.h"
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/cmd.h"
#include "train/checkpoint.h"
#include "train/model_average.h"
#include "train/rundir.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1024 };

typedef struct ask {
    const char *words[MOST + 1]; /* OUT, then models */
    int n;
    const char *weights, *last, *type, *training;
} ask;

/* The newest checkpoints of a run, the oldest of them first. */
static sk_status last_of(sk_arena *a, const ask *q, sk_average_of *v, int *n)
{
    const char *run = q->words[1], *home = sk_print(a, "%s/ckpt", run);
    int64_t most = 0, *steps;
    int have = 0;
    if (!sk_read_int(q->last, &most) || most < 1 || most > MOST)
        return sk_fail(SK_EUSAGE,
                       "average: --last is \"%.40s\"; a whole number from 1 to %d is "
                       "needed",
                       q->last, MOST);
    if (q->n != 2)
        return sk_fail(SK_EUSAGE, "average: --last takes checkpoints of one run; %d are given",
                       q->n - 1);
    if (!sk_is_dir(home))
        return sk_fail(SK_EDATA, "%s is no run: it has no ckpt/ to take the last %lld of", run,
                       (long long)most);
    SK_TRY(sk_ckpt_list(a, home, &steps, &have));
    if (have < most)
        return sk_fail(SK_EDATA,
                       "%s has %d checkpoint%s, --last asks for %lld; a run keeps them all with "
                       "ckpt.keep=0, one every ckpt.every steps",
                       run, have, sk_plural(have), (long long)most);
    *n = (int)most;
    for (int i = 0; i < *n; i++)
        v[i].what = sk_print(a, "%s/step-%010lld", home, (long long)steps[*n - 1 - i]);
    return SK_OK;
}

static sk_status read_weights(sk_arena *a, const char *text, sk_average_of *v, int n)
{
    char *rest = sk_strdup(a, text), *word;
    double sum = 0;
    int k = 0;
    while ((word = strsep(&rest, ","))) {
        double x = 0;
        if (!sk_read_plain(word, &x) || !isfinite(x) || x < 0)
            return sk_fail(SK_EUSAGE, "average: \"%.40s\" of --weights is no number from 0 on",
                           word);
        if (k < n) v[k].weight = x, sum += x;
        k++;
    }
    if (k != n)
        return sk_fail(SK_EUSAGE, "average: --weights has %d number%s for %d model%s", k,
                       sk_plural(k), n, sk_plural(n));
    if (!(sum > 0) || !isfinite(sum))
        return sk_fail(SK_EUSAGE, "average: the sum of --weights is %g; a number above 0 is needed",
                       sum);
    return SK_OK;
}

static sk_status read_words(sk_arena *a, int argc, char **argv, ask *q)
{
    const sk_argv_option options[] = {{"--weights", &q->weights, false},
                                      {"--last", &q->last, false},
                                      {"--dtype", &q->type, false},
                                      {"--training-weights", &q->training, true},
                                      {0}};
    SK_TRY(sk_argv_words(a, argc, argv, options, q->words, MOST + 1, &q->n));
    if (q->n < 2)
        return sk_fail(SK_EUSAGE, "average: a directory to write, and the runs, checkpoints or "
                                  "model directories to average are needed");
    return SK_OK;
}

static sk_status choose_type(const ask *q, const sk_average_of *v, int n, sk_dtype *type)
{
    if (!q->type) return sk_average_type(v, n, type);
    if (sk_dtype_find(q->type, type) && (*type == SK_F32 || *type == SK_BF16 || *type == SK_F16))
        return SK_OK;
    return sk_fail(SK_EUSAGE, "average: --dtype %.40s; f32, bf16 or f16 is needed", q->type);
}

/* A run writes its own directory: its `final/` is not an average to be replaced. */
static sk_status outside_runs(sk_arena *a, const char *out)
{
    const char *run = sk_rundir_around(a, out);
    char real_path[PATH_MAX];
    if (!run) return SK_OK;
    if (realpath(out, real_path) && !strcmp(real_path, run))
        return sk_fail(SK_EUSAGE,
                       "average: %s is a run; the first word is the directory to write, the models "
                       "follow it",
                       out);
    return sk_fail(SK_ECREATE,
                   "average: %s lies in the directory of a run, %s; name a directory outside", out,
                   run);
}

/* Which weights were taken, where a checkpoint has two kinds. */
static const char *kind_of(const sk_average_of *x)
{
    if (!x->is_ckpt || !sk_hf_ckpt_averages(&x->ckpt)) return "";
    return x->averages ? "  the averages of its weights" : "  its training weights";
}

/* The mean of one model is that model: no error, and not what the command is for. */
static void tell_saved(const char *out, const sk_average_of *v, int n, sk_dtype type)
{
    const char *name = sk_dtype_name(type);
    int counts = 0;
    for (int i = 0; i < n; i++) counts += v[i].weight > 0;
    if (n == 1) printf("saved %s/, a copy of one model in %s; nothing is averaged:\n", out, name);
    else if (counts == 1)
        printf("saved %s/, a copy in %s of the one model with a weight above 0; nothing is "
               "averaged:\n",
               out, name);
    else printf("saved %s/, the mean of %d models in %s:\n", out, n, name);
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    ask *q = sk_new(a, ask);
    sk_dtype type = SK_F32;
    SK_TRY(read_words(a, argc, argv, q));
    SK_TRY(outside_runs(a, q->words[0]));
    int n = q->n - 1;
    sk_average_of *v = sk_many(a, sk_average_of, MOST);
    for (int i = 0; i < n; i++) v[i].what = q->words[1 + i];
    if (q->last) SK_TRY(last_of(a, q, v, &n));
    for (int i = 0; i < n; i++) v[i].weight = 1, v[i].training = q->training != NULL;
    if (q->weights) SK_TRY(read_weights(a, q->weights, v, n));
    SK_TRY(sk_average_open(a, v, n));
    SK_TRY(choose_type(q, v, n, &type));
    SK_TRY(sk_average_save(v, n, type, q->words[0]));
    tell_saved(q->words[0], v, n, type);
    for (int i = 0; i < n; i++) printf("  %-6g %s%s\n", v[i].weight, v[i].path, kind_of(&v[i]));
    return SK_OK;
}

const sk_cmd sk_cmd_average = {
    .name = "average",
    .doc = "the mean of the weights of runs, checkpoints or models, as a model directory",
    .help =
        "usage: skein average OUT MODEL... [--weights 1,2,1] [--dtype f32|bf16|f16]\n"
        "                     [--training-weights]\n"
        "       skein average OUT RUN --last N\n\n"
        "MODEL is a run (its newest checkpoint), a checkpoint (RUN/ckpt/step-...) or a model\n"
        "directory (RUN/final).  All must have one architecture, the same sizes and the same\n"
        "tokenizer.  Sums are in float64, one tensor at a time; the type is that of the models.\n"
        "Of a checkpoint with averages of its weights (optim.ema, schedulefree) these are taken, "
        "as\n"
        "in final/; --training-weights takes the weights themselves.  The list that is printed "
        "says\n"
        "which.\n"
        "--last N averages the newest N checkpoints of a run.\n"
        "    skein average mean runs/a runs/b runs/c --weights 1,2,1\n"
        "    skein average lawa runs/last --last 5\n",
    .run = run,
};
