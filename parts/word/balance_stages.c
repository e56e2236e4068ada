/* balance_stages.c - the word `balance`: stages of equal cost instead of equal numbers of layers
 * (src/layout/stage_balance.c). */
#include "layout/word.h"

static bool works(const sk_layout *l) { return l->stage_axis >= 0; }

const sk_word sk_word_balance_stages = {
    .name = "balance",
    .doc = "stages of equal cost instead of equal numbers of layers",
    .sentence = {"balanced"},
    .clause_of = "stages",
    .example = "pp=2 micro=4 balance",
    .kind = SK_WORD_FLAG,
    .at = offsetof(sk_layout, balance),
    .place = 80,
    .works = works,
    .about = "the stages of a pipeline, and there are none",
    .cure = "pp=2 (stages over AXIS)",
    .lowers = SK_LOWERS_FLOPS,
};
