/* export.c - `skein export`: a run, checkpoint or model directory as a Hugging Face directory. */
#include "base/file_io.h"
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/cmd.h"
#include "train/hf.h"
#include "train/model_export.h"
#include "train/rundir.h"

/* A directory that others can read, and read as another model, says so. */
static void tell_extra(sk_arena *a, const sk_hyper *h)
{
    const sk_model *m = sk_model_find(h->arch);
    const char *extra = m && m->hf_extra ? m->hf_extra(a, h) : "";
    if (*extra) printf("note: other programs would leave out %s\n", extra);
}

/* The newest checkpoint of a run, or the model of a directory; *path is what was taken. */
static sk_status save(sk_arena *a, const char *what, const char *tokenizer, sk_dtype type,
                      const char *dir, const char **path, sk_hyper *hyper, bool *averages)
{
    sk_ckpt c;
    const char *passed, *model = sk_rundir_model(a, what);
    if (model && (model == what || !sk_is_dir(sk_print(a, "%s/ckpt", what)))) {
        if (!*averages)
            return sk_fail(SK_EUSAGE,
                           "export: --training-weights is for checkpoints, and %s is a model "
                           "directory, which has one kind of weights",
                           model);
        *path = model;
        *averages = false;
        return sk_export_model(a, model, tokenizer ? tokenizer : "", type, dir, hyper);
    }
    SK_TRY(sk_rundir_checkpoint(a, what, path, &passed));
    if (*passed) fprintf(stderr, "skein: warning: %s: %s; %s is taken\n", what, passed, *path);
    SK_TRY(sk_ckpt_read(a, *path, &c));
    *hyper = c.state.hyper;
    *averages &= sk_hf_ckpt_averages(&c);
    return sk_export_checkpoint(a, &c, tokenizer, type, *averages, dir);
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    const char *words[2], *type_name = "f32", *tokenizer = NULL, *weights = NULL, *path;
    const sk_argv_option options[] = {{"--dtype", &type_name, false},
                                      {"--tokenizer", &tokenizer, false},
                                      {"--training-weights", &weights, true},
                                      {0}};
    int n = 0;
    sk_dtype type;
    sk_hyper hyper;
    SK_TRY(sk_argv_words(a, argc, argv, options, words, 2, &n));
    if (n != 2)
        return sk_fail(SK_EUSAGE, "export: a run, checkpoint or model directory, and a directory "
                                  "to write are needed");
    if (!sk_dtype_find(type_name, &type) || (type != SK_F32 && type != SK_BF16 && type != SK_F16))
        return sk_fail(SK_EUSAGE, "export: --dtype %s; f32, bf16 or f16 is needed", type_name);
    bool averages = !weights;
    SK_TRY(save(a, words[0], tokenizer, type, words[1], &path, &hyper, &averages));
    printf("saved %s/ from %s\n", words[1], path);
    if (averages) printf("note: these are the averages of its weights (doc/optimizers.md)\n");
    tell_extra(a, &hyper);
    return SK_OK;
}

const sk_cmd sk_cmd_export = {
    .name = "export",
    .doc = "a run, checkpoint or model directory as a Hugging Face directory",
    .help = "usage: skein export RUN|CHECKPOINT|MODEL DIR [--dtype f32|bf16|f16] "
            "[--tokenizer WHAT] [--training-weights]\n\n"
            "Writes config.json, model.safetensors, tokenizer.json and generation_config.json, and "
            "what\nthe run kept of its tokenizer: special tokens, chat template.\n"
            "A checkpoint with averages of its weights (optim.ema, schedulefree) becomes these;\n"
            "--training-weights writes the weights themselves.\n"
            "MODEL is a Hugging Face directory: its shards become one file, of another type.\n"
            "    skein export runs/last my-model --dtype bf16\n",
    .run = run,
};
