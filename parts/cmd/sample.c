/* sample.c - `skein sample`: generate text from a model directory or a run. */
#include "base/file_io.h"
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/cmd.h"
#include "train/model_export.h"
#include "train/rundir.h"
#include "train/sampler.h"

#include <stdlib.h>
#include <string.h>

static sk_status write_text(sk_sampler *s, const char *prompt, int64_t tokens)
{
    sk_arena a = {0};
    sk_utf8_filter clean = {0};
    fputs(prompt, stdout);
    for (int64_t i = 0; i < tokens; i++) {
        const char *bytes;
        size_t n;
        sk_out o = {.arena = &a};
        sk_mark m = sk_arena_mark(&a);
        sk_status st = sk_sampler_next(s, &bytes, &n);
        if (st) {
            sk_arena_end(&a);
            return st;
        }
        sk_utf8_filter_put(&clean, &o, bytes, n);
        if (!bytes) tokens = i + 1; /* the text has ended */
        if (i == tokens - 1) sk_utf8_filter_end(&clean, &o);
        if (o.s) fputs(o.s, stdout);
        fflush(stdout);
        sk_arena_back(&a, m);
    }
    putchar('\n');
    if (sk_sampler_cut(s))
        fprintf(stderr,
                "note: the text is longer than the model's %lld positions; only its end is seen\n",
                (long long)sk_sampler_cut(s));
    sk_arena_end(&a);
    return SK_OK;
}

/* A run that has not finished: export its newest checkpoint beside it. */
static sk_status model_of(sk_arena *a, const char *what, const char **dir)
{
    const char *path, *passed;
    sk_ckpt c;
    *dir = sk_rundir_model(a, what);
    if (*dir) return SK_OK;
    SK_TRY(sk_rundir_checkpoint(a, what, &path, &passed));
    if (*passed) fprintf(stderr, "skein: warning: %s: %s; %s is taken\n", what, passed, path);
    SK_TRY(sk_ckpt_read(a, path, &c));
    char *temp =
        sk_print(a, "%s/skein-sample-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(temp)) return sk_fail(SK_ECREATE, "cannot make a folder for the model: %s", temp);
    *dir = temp;
    return sk_export_checkpoint(a, &c, NULL, SK_F32, true, temp);
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    const char *what = NULL, *prompt = "", *tokens = "200", *temp = "0.8", *seed = "1";
    const char *threads = "1", *ignore_eos = NULL;
    const sk_argv_option options[] = {{"--prompt", &prompt, false},
                                      {"--tokens", &tokens, false},
                                      {"--temp", &temp, false},
                                      {"--seed", &seed, false},
                                      {"--threads", &threads, false},
                                      {"--ignore-eos", &ignore_eos, true},
                                      {0}};
    int n_words = 0;
    int64_t n = 0, s = 0, t = 0;
    double heat = 0;
    SK_TRY(sk_argv_words(a, argc, argv, options, &what, 1, &n_words));
    if (!n_words) return sk_fail(SK_EUSAGE, "sample: a model directory or a run is needed");
    if (!sk_read_int(tokens, &n) || n < 0)
        return sk_fail(SK_EUSAGE, "sample: --tokens is \"%s\"; a whole number is needed", tokens);
    if (!sk_read_int(seed, &s) || s < 0)
        return sk_fail(SK_EUSAGE, "sample: --seed is \"%s\"; a whole number is needed", seed);
    if (!sk_read_int(threads, &t) || t < 1 || t > 256)
        return sk_fail(SK_EUSAGE, "sample: --threads is \"%s\"; 1 to 256 are needed", threads);
    if (!sk_read_plain(temp, &heat) || !(heat >= 0))
        return sk_fail(SK_EUSAGE,
                       "sample: --temp is \"%s\"; a number from 0 on, without a unit, is needed",
                       temp);
    const char *dir = NULL;
    sk_sampler *sampler = NULL;
    sk_sampler_opts o = {.prompt = prompt,
                         .temp = heat,
                         .seed = (uint64_t)s,
                         .threads = (int)t,
                         .ignore_eos = ignore_eos != NULL};
    sk_status st = model_of(a, what, &dir);
    if (!st) st = sk_sampler_open(dir, &o, &sampler);
    if (!st) st = write_text(sampler, prompt, n);
    sk_sampler_close(sampler);
    if (dir && strstr(dir, "skein-sample-")) sk_rundir_remove(dir);
    return st;
}

const sk_cmd sk_cmd_sample = {
    .name = "sample",
    .doc = "generate text from a model directory or a run",
    .help =
        "usage: skein sample DIR [--prompt TEXT] [--tokens N] [--temp T] [--seed S] "
        "[--ignore-eos]\n\n"
        "DIR is a Hugging Face directory, a run (its final/ or else its newest checkpoint), or a\n"
        "checkpoint.  The same seed gives the same text; --temp 0 takes the likeliest token each\n"
        "time.  The text ends at a token of eos_token_id (config.json, generation_config.json), "
        "if\n"
        "they name one; --ignore-eos goes on.\n"
        "    skein sample runs/last --prompt \"In the\" --tokens 200 --temp 0.8\n",
    .run = run,
};
