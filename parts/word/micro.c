/* micro.c - micro-batches: a pipeline works on several at once, and without one their gradients are
 * accumulated. */
#include "layout/word.h"

#include <stdio.h>

static void print_brief(const sk_layout *l, sk_out *o)
{
    if (l->n_micro > 1) sk_out_add(o, "micro %d", l->n_micro);
}

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    if (l->stage_axis < 0 && !sk_dice_one_in(d, 2)) return false;
    snprintf(phrase, SK_WORD_TEXT, "micro=%d",
             sk_dice_pick(d, 1, sk_dice_one_in(d, 4) ? d->most : 6));
    return true;
}

static bool claims(const sk_word_ask *ask)
{
    const sk_layout *l = ask->layout;
    int64_t batch = ask->graph->size[(int)ask->graph->batch & 127];
    return sk_axis_size(l, l->stage_axis) == 1 && l->n_micro > 1 && batch > 1 &&
           !l->schedule_said && !l->home[SK_KEPT];
}

const sk_word sk_word_micro = {
    .name = "micro",
    .doc = "micro-batches of a step (gradient accumulation without pp)",
    .value = "N",
    .sentence = {"micro N"},
    .clause_of = "stages",
    .alone = true,
    .example = "dp=2 micro=4",
    .alias = {{"gradient_accumulation gradient_accumulation_steps accumulation "
               "accumulate_grad_batches num_microbatches microbatches n_microbatches grad_accum",
               "micro=N, as in \"dp=2 micro=8\""}},
    .kind = SK_WORD_INT,
    .least = 1,
    .at = offsetof(sk_layout, n_micro),
    .place = 90,
    .brief_place = 165,
    .print_brief = print_brief,
    .lowers = SK_LOWERS_SAVED,
    .claims = claims,
    .draw = draw,
    .tries = "1 2 4 8 16 32",
};
