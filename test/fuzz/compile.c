/* libFuzzer target: the text of a layout for a tiny model on at most 8 ranks.  It is refused with a
 * sentence, or every rank has a program, and the programs are proved together (sk_verify). */
#include "cli/conf.h"
#include "layout/layout.h"
#include "lib/fuzz.h"
#include "train/setup.h"

#include <stdio.h>

enum { MOST_RANKS = 8, MOST_MICRO = 8 };

/* Experts in every second input, so that both kinds of blocks are compiled. */
static void tiny(sk_arena *a, bool experts, sk_job *job)
{
    static const char *const words[] = {"model.hidden_size=8",
                                        "model.num_hidden_layers=2",
                                        "model.num_attention_heads=2",
                                        "model.intermediate_size=12",
                                        "model.vocab_size=11",
                                        "train.seq=6",
                                        "train.batch=4"};
    enum { N = sizeof words / sizeof *words };
    char *argv[N + 2] = {sk_strdup(a, experts ? "model.arch=mixtral" : "model.arch=gpt2")};
    for (int i = 0; i < N; i++) argv[i + 1] = sk_strdup(a, words[i]);
    sk_assert(!sk_conf_load(a, N + 1, argv, job, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static sk_job job;
    sk_arena a = {0};
    sk_layout l;
    const char *text = fuzz_text(&a, data, n);
    if (n < sizeof job.layout && !sk_layout_read(text, 0, &l) &&
        sk_mesh_ranks(&l.mesh) <= MOST_RANKS && l.n_micro <= MOST_MICRO) {
        sk_setup s;
        tiny(&a, n % 2, &job);
        snprintf(job.layout, sizeof job.layout, "%s", text);
        job.ranks = sk_mesh_ranks(&l.mesh);
        fuzz_refused(sk_setup_program(&a, &job, true, &s), SK_EIO); /* schedule=./missing */
    }
    sk_arena_end(&a);
    return 0;
}
