/* feedback.c - error feedback (Seide et al. 2014) of encoded gradients. */
#include "layout/word.h"

static bool works(const sk_layout *l) { return *l->grads_as; }

const sk_word sk_word_feedback = {
    .name = "feedback",
    .doc = "what grads=CODEC lost is added to the next gradient",
    .sentence = {"with feedback"},
    .clause_of = "encode gradients",
    .example = "dp=2 grads=int4 feedback",
    .brief = "", /* grads says it */
    .kind = SK_WORD_FLAG,
    .at = offsetof(sk_layout, feedback),
    .place = 150,
    .works = works,
    .about = "gradients that are encoded, and they are not",
    .cure = "grads=int4 (encode gradients as CODEC)",
};
