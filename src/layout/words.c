/* words.c - the short words of a layout, each with its values, its meaning and an example.
 *
 * The reader (text.c) takes its names for hints from here, `skein help WORD` its lines. */
#include "layout/layout.h"

#include <string.h>

const sk_layout_word sk_layout_words[] = {
    {"dp", "dp=N", "data parallel: the batch is split over N ranks", "dp=2"},
    {"tp", "tp=N", "tensor parallel: heads, hidden units and vocabulary are split over N ranks",
     "tp=2"},
    {"sp", "sp", "sequence parallel: tp splits time where it splits nothing else", "tp=2 sp"},
    {"cp", "cp=N", "context parallel: time is split over N ranks", "cp=2"},
    {"by", "by=gather|exchange|ring", "how attention under cp comes to all keys (gather)",
     "cp=2 by=ring"},
    {"ep", "ep=N", "expert parallel: batch and experts are split over N ranks", "ep=2"},
    {"pp", "pp=N", "pipeline parallel: the layers are cut in N stages", "pp=2 micro=4"},
    {"micro", "micro=N", "micro-batches of a step (gradient accumulation without pp)",
     "dp=2 micro=4"},
    {"schedule", "schedule=NAME|./FILE", "of a pipeline: skein list schedule (1f1b)",
     "pp=2 micro=4 schedule=zb-v"},
    {"chunks", "chunks=N", "chunks of layers that each stage has (virtual stages)",
     "pp=2 micro=4 chunks=2 schedule=interleaved"},
    {"balance", "balance", "stages of equal cost instead of equal numbers of layers",
     "pp=2 micro=4 balance"},
    {"zero", "zero=0|1|2|3",
     "ZeRO over dp: 1 shards optimizer state, 2 also gradients, 3 also weights", "dp=2 zero=3"},
    {"replica", "replica", "ranks of a host along dp keep one copy of the weights (zero=1 or 2)",
     "dp=2 replica"},
    {"prefetch", "prefetch=N", "sharded weights are gathered N layers ahead",
     "dp=2 zero=3 prefetch=2"},
    {"keep", "keep[=cheap|=OP+OP]",
     "gathered weights serve the backward pass too; =cheap: norms and activations are kept",
     "dp=2 zero=3 keep"},
    {"recompute", "recompute=none|selective|full|N|OP",
     "results that are recomputed in the backward pass; N: in so many blocks of a stage",
     "dp=2 recompute=full"},
    {"offload", "offload=state|weights|grads|acts|all[:host|:file][+...]",
     "what lives outside of the device", "offload=state+grads"},
    {"tiles", "tiles=N", "weights that are offloaded come in N tiles",
     "offload=weights+state tiles=4"},
    {"overlap", "overlap=N", "products that wait for other ranks run in N chunks beside what moves",
     "tp=2 overlap=4"},
    {"slices", "slices=N", "logits and hidden layers are made and used in N slices", "slices=4"},
    {"partition", "partition", "saved results that are alike on ranks are split among them",
     "tp=2 partition"},
    {"gist", "gist[=N]", "saved results in fewer bits; N: per cent of room for those with zeros",
     "gist"},
    {"weights", "weights=CODEC", "gathered weights are encoded: skein list codec",
     "dp=2 zero=3 weights=int8"},
    {"grads", "grads=CODEC", "summed gradients are encoded: skein list codec", "dp=2 grads=int4"},
    {"feedback", "feedback", "what grads=CODEC lost is added to the next gradient",
     "dp=2 grads=int4 feedback"},
    {"copy", "copy=N", "N ranks keep a second copy of gathered weights for the rest of a step",
     "dp=4 zero=3 copy=2"},
    {"order:", "order: AXIS ...", "the axes, slowest first, at the end of the line",
     "dp=2 tp=2 order: tp dp"},
    {0},
};

const sk_layout_word *sk_layout_word_find(const char *name)
{
    const sk_layout_word *w = sk_layout_words;
    while (w->name && strcmp(w->name, name)) w++;
    return w->name ? w : NULL;
}
