/* export.c - `skein export`: a run or a checkpoint as a Hugging Face directory. */
#include "cli/ask.h"
#include "cli/cmd.h"
#include "train/export.h"
#include "train/rundir.h"

/* A directory that others can read, and read as another model, says so. */
static void tell_extra(sk_arena *a, const sk_hyper *h)
{
    const sk_model *m = sk_model_find(h->arch);
    const char *extra = m && m->hf_extra ? m->hf_extra(a, h) : "";
    if (*extra) printf("note: other programs would leave out %s\n", extra);
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    const char *words[2], *type_name = "f32", *tokenizer = NULL, *path;
    const sk_ask_option options[] = {
        {"--dtype", &type_name, false}, {"--tokenizer", &tokenizer, false}, {0}};
    int n = 0;
    sk_dtype type;
    sk_ckpt c;
    SK_TRY(sk_ask_words(a, argc, argv, options, words, 2, &n));
    if (n != 2)
        return sk_fail(SK_EUSAGE, "export: a run or checkpoint, and a directory are needed");
    if (!sk_dtype_find(type_name, &type) || (type != SK_F32 && type != SK_BF16 && type != SK_F16))
        return sk_fail(SK_EUSAGE, "export: --dtype %s; f32, bf16 or f16 is needed", type_name);
    SK_TRY(sk_rundir_checkpoint(a, words[0], &path));
    SK_TRY(sk_ckpt_read(a, path, &c));
    SK_TRY(sk_export_checkpoint(a, &c, tokenizer, type, words[1]));
    printf("saved %s/ from %s\n", words[1], path);
    tell_extra(a, &c.state.hyper);
    return SK_OK;
}

const sk_cmd sk_cmd_export = {
    .name = "export",
    .doc = "a run or checkpoint as a Hugging Face directory",
    .help = "usage: skein export RUN|CHECKPOINT DIR [--dtype f32|bf16|f16] [--tokenizer WHAT]\n\n"
            "Writes config.json, model.safetensors, tokenizer.json and generation_config.json, and "
            "what\nthe run kept of its tokenizer: special tokens, chat template.\n"
            "    skein export runs/last my-model --dtype bf16\n",
    .run = run,
};
