/* calibrate_jobs.c - the jobs, and from words to a program. */
#include "cli/calibrate_jobs.h"
#include "base/strings.h"
#include "cli/conf.h"
#include "train/synthetic.h"

#include <string.h>

/* A GPT of two layers: width, heads; a Llama: width, heads, key heads, hidden. */
#define GPT(width, heads)                                            \
    "model=tiny model.num_hidden_layers=2 model.hidden_size=" #width \
    " model.num_attention_heads=" #heads " "
#define LLAMA(preset, width, heads, keys, hidden)                            \
    "model=" preset " model.num_hidden_layers=2 model.hidden_size=" #width   \
    " model.num_attention_heads=" #heads " model.num_key_value_heads=" #keys \
    " model.intermediate_size=" #hidden " "
#define WORDS(words) "model.vocab_size=" #words " "
#define BATCH(sequences, length) \
    "train.batch=" #sequences " train.seq=" #length " model.max_position_embeddings=" #length " "
#define TYPE(type) "train.dtype=" type " "

const char *const sk_calibrate_on_cpu[] = {
    GPT(128, 4) BATCH(4, 64),
    GPT(256, 4) BATCH(4, 128),
    GPT(64, 2) BATCH(4, 32),
    GPT(384, 6) BATCH(2, 256),
    GPT(128, 4) BATCH(4, 64) TYPE("bf16"),
    GPT(256, 4) BATCH(4, 128) TYPE("bf16"),
    LLAMA("llama-tiny", 256, 4, 4, 704) BATCH(2, 256),
    LLAMA("llama-tiny", 128, 4, 2, 352) BATCH(8, 64),
    LLAMA("llama-tiny", 256, 4, 2, 704) BATCH(4, 64) TYPE("bf16"),
    GPT(512, 8) WORDS(2048) BATCH(2, 128),
    GPT(128, 2) BATCH(2, 512),
    GPT(128, 4) BATCH(1, 1024),
    LLAMA("mixtral-tiny", 128, 4, 2, 256) BATCH(4, 64),
    "model=switch-tiny model.hidden_size=128 model.intermediate_size=512 train.batch=4 "
    "train.seq=64",
    GPT(128, 4) BATCH(8, 64) "layout=micro=2 ",
    GPT(128, 4) BATCH(4, 64) "optim.name=sgd ",
    GPT(512, 8) BATCH(2, 128) TYPE("bf16"),
    NULL,
};

const char *const sk_calibrate_on_gpu[] = {
    GPT(768, 12) WORDS(50304) BATCH(8, 1024) TYPE("bf16"),
    LLAMA("llama-tiny", 2048, 16, 16, 5632) WORDS(32000) BATCH(4, 2048) TYPE("bf16"),
    GPT(64, 1) BATCH(2, 32) TYPE("bf16"),
    LLAMA("llama-tiny", 4096, 32, 8, 11008) WORDS(32000) BATCH(1, 4096) TYPE("bf16"),
    GPT(768, 12) WORDS(50304) BATCH(4, 4096) TYPE("bf16"),
    LLAMA("llama-tiny", 2048, 16, 16, 5632) WORDS(32000) BATCH(4, 2048)
        TYPE("bf16") "train.matmul=fp8 ",
    GPT(768, 12) WORDS(50304) BATCH(8, 1024) TYPE("f32"),
    LLAMA("mixtral-tiny", 1024, 16, 8, 2816)
        WORDS(32000) "model.num_local_experts=8 " BATCH(4, 1024) TYPE("bf16"),
    LLAMA("mixtral-tiny", 512, 8, 4, 1536) WORDS(4096) "model.num_local_experts=8 " BATCH(32, 1024)
        TYPE("bf16"),
    LLAMA("llama-tiny", 2048, 16, 16, 5632) WORDS(32000) BATCH(1, 16384) TYPE("bf16"),
    GPT(1600, 25) WORDS(50304) BATCH(8, 1024) TYPE("bf16"),
    GPT(768, 12) WORDS(50304) BATCH(64, 1024) TYPE("bf16") "layout=recompute=full ",
    LLAMA("llama-tiny", 4096, 32, 8, 11008) WORDS(32000) BATCH(1, 4096)
        TYPE("bf16") "train.matmul=fp8 ",
    GPT(256, 4) BATCH(4, 256) TYPE("bf16"),
    LLAMA("llama-tiny", 2048, 16, 16, 5632) WORDS(32000) BATCH(2, 2048) TYPE("f32"),
    GPT(768, 12) WORDS(50304) BATCH(16, 1024) TYPE("bf16") "layout=micro=2 ",
    NULL,
};

const char *const sk_calibrate_crowd[] = {
    "model=tiny model.num_hidden_layers=4 model.hidden_size=256 model.num_attention_heads=16 "
    "train.batch=16 train.seq=64 layout=dp=16",
    "model=tiny model.num_hidden_layers=4 model.hidden_size=256 model.num_attention_heads=16 "
    "train.batch=16 train.seq=64 layout=tp=16",
    "model=tiny model.num_hidden_layers=16 model.hidden_size=256 model.num_attention_heads=16 "
    "train.batch=16 train.seq=64 layout=pp=16,micro=8",
    NULL,
};

sk_status sk_calibrate_open(sk_arena *a, const char *words, const char *more, sk_calibrate_job *out)
{
    enum { MOST = 32 };
    char *list[MOST], *text = sk_print(a, "%s %s", words, more), *rest = NULL;
    int n = 0;
    for (char *w = strtok_r(text, " ", &rest); w && n < MOST; w = strtok_r(NULL, " ", &rest))
        list[n++] = w;
    out->words = words;
    SK_TRY(sk_conf_load(a, n, list, &out->job, NULL));
    out->job.val_every = 0;
    if (out->job.ranks == 1) out->job.ranks = 0; /* as many as the layout has */
    out->setup = sk_new(a, sk_setup);
    SK_TRY(sk_setup_program(a, &out->job, true, out->setup));
    out->opts = (sk_run_opts){.fill = sk_synthetic_fill,
                              .fill_ctx = &out->job,
                              .seed = out->job.seed,
                              .knobs = sk_setup_knobs(&out->job),
                              .scratch = *out->job.scratch ? out->job.scratch : NULL,
                              .device = out->job.device};
    return SK_OK;
}
