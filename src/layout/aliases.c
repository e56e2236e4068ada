/* aliases.c - words of other programs, and how a layout says the same.
 *
 * They are told, not taken: "fsdp" there and "zero=3" here do not promise the same in every
 * detail, and one thing has one name.  Case, dashes, leading dashes and a tail such as _size do
 * not matter: --tensor-model-parallel-size is tensor_model_parallel. */
#include "layout/inside.h"

#include <ctype.h>
#include <string.h>

enum { LONGEST = 64 };

static const struct alias {
    const char *words, *say;
} aliases[] = {
    {"fsdp fsdp2 full_shard fully_shard fully_sharded fully_sharded_data_parallel zero3 zero_3 "
     "stage3",
     "zero=3, as in \"dp=4 zero=3\""},
    {"shard_grad_op zero2 zero_2 stage2", "zero=2, as in \"dp=4 zero=2\""},
    {"zero1 zero_1 stage1 distributed_optimizer use_distributed_optimizer",
     "zero=1, as in \"dp=4 zero=1\""},
    {"ddp data data_parallel data_parallelism distributed_data_parallel no_shard replicate "
     "dp_replicate",
     "dp=N, as in \"dp=4\""},
    {"hsdp hybrid_shard",
     "two axes, as in \"mesh r=2 s=4; split b over r; split b over s; shard params over s\""},
    {"dp_shard data_parallel_shard", "dp=N with zero=3, as in \"dp=4 zero=3\""},
    {"tensor tensor_parallel tensor_parallelism tensor_model_parallel model_parallel mp megatron",
     "tp=N, as in \"tp=4\"; with the time dim split in norms too, \"tp=4 sp\""},
    {"sequence_parallel sequence_parallelism", "sp beside tp, as in \"tp=4 sp\""},
    {"pipeline pipeline_parallel pipeline_parallelism pipeline_model_parallel",
     "pp=N, as in \"pp=4 micro=8\""},
    {"virtual_pipeline virtual_pipeline_model_parallel num_layers_per_virtual_pipeline_stage vpp",
     "chunks=N, as in \"pp=4 micro=8 chunks=2 schedule=interleaved\""},
    {"context context_parallel context_parallelism ring_attention ring",
     "cp=N, as in \"cp=4 by=ring\""},
    {"ulysses", "cp=N by=exchange, as in \"cp=4 by=exchange\""},
    {"expert expert_parallel expert_parallelism expert_model_parallel", "ep=N, as in \"ep=4\""},
    {"gradient_accumulation gradient_accumulation_steps accumulation accumulate_grad_batches "
     "num_microbatches microbatches n_microbatches grad_accum",
     "micro=N, as in \"dp=2 micro=8\""},
    {"activation_checkpointing gradient_checkpointing activation_recomputation "
     "recompute_activations recompute_granularity checkpointing",
     "recompute=full or recompute=selective, as in \"dp=4 recompute=selective\""},
    {"cpu_offload offload_optimizer zero_offload", "offload=state, as in \"dp=4 offload=state\""},
    {"world num_gpus ngpus nproc_per_node", "-n N on the command line, or the product of the axes"},
};

/* Lower case, one kind of dash, without tails that only say that a number follows. */
static void plain(const char *word, char to[LONGEST])
{
    static const char *const tails[] = {"_size", "_degree"};
    size_t n = 0;
    word += strspn(word, "-");
    for (; word[n] && n < LONGEST - 1; n++)
        to[n] = (char)(word[n] == '-' ? '_' : tolower((unsigned char)word[n]));
    to[n] = 0;
    for (int i = 0; i < 2; i++) {
        size_t m = strlen(tails[i]);
        if (n > m && !strcmp(to + n - m, tails[i])) to[n -= m] = 0;
    }
}

static bool among(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = words; n && (p = strstr(p, word)); p += n)
        if ((p == words || p[-1] == ' ') && (!p[n] || p[n] == ' ')) return true;
    return false;
}

const char *sk_layout_alias(const char *word)
{
    char name[LONGEST];
    plain(word, name);
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (among(aliases[i].words, name)) return aliases[i].say;
    return NULL;
}
