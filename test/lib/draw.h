/* draw.h - for tests: a model and a layout drawn at random, as two texts.
 *
 *     model   "llama layers=2 keys=1 queries=3 f=17 tie=1 b=5 dtype=bf16 device=cuda optim=lamb"
 *     layout  "mesh pp=2 dp=3; split b over dp; stages over pp schedule zb-v micro 4"
 *
 * A model's text has the name of a part, optim=NAME, dtype=f32|bf16|f16, device=cpu|cuda, and
 * numbers; what is not said is the least that makes a model.  Models, optimizers and schedules are
 * drawn from their tables, so that a new part is drawn as soon as its file is there.  A pair is
 * known by a seed and a number, and is the same on every machine. */
#ifndef SK_TEST_DRAW_H
#define SK_TEST_DRAW_H

#include "lib/ranks.h"

enum { SK_PAIR_TEXT = 512 };

typedef struct sk_pair {
    char model[SK_PAIR_TEXT], layout[SK_PAIR_TEXT];
} sk_pair;

/* The most of what is drawn; sizes near it are rare. */
typedef struct sk_pair_most {
    int ranks, stages, micro, layers, batch;
    bool piped; /* every layout has stages */
} sk_pair_most;

sk_pair sk_pair_draw(uint64_t seed, uint64_t number, const sk_pair_most *most);
/* The pair as a trial; its layout's text stays where it is. */
sk_status sk_pair_read(const sk_pair *p, sk_trial *t);
bool sk_model_routes(const sk_model *m); /* it has experts */
/* A sentence without its names and numbers: of which kind it is. */
void sk_sentence_kind(const char *sentence, char *out, size_t n);

#endif
