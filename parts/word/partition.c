/* partition.c - saved activations that are alike on several ranks are cut among them
 * (src/program/saved_pieces.c, doc/memory.md). */
#include "layout/word.h"

#include <stdio.h>
#include <string.h>

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    snprintf(phrase, SK_WORD_TEXT, "partition");
    return sk_words_repeated(l) && sk_dice_one_in(d, 2);
}

static bool claims(const sk_word_ask *ask)
{
    const sk_layout *l = ask->layout;
    return sk_axis_claims(ask, "tp") && sk_words_letter(ask->graph, 't') &&
           !strchr(l->split[sk_mesh_axis(&l->mesh, "tp")], 't') && !l->home[SK_KEPT];
}

static void idle(const sk_layout *l, sk_out *o)
{
    if (sk_words_repeats(l) < 2)
        sk_out_add(o, "partition has nothing to do: one rank keeps a result, tp=N makes more");
}

const sk_word sk_word_partition = {
    .name = "partition",
    .doc = "saved activations that are alike on ranks are split among them",
    .sentence = {"keep results in pieces"},
    .example = "tp=2 partition",
    .kind = SK_WORD_FLAG,
    .at = offsetof(sk_layout, partition),
    .place = 210,
    .brief = "partition",
    .works = sk_words_repeated,
    .about = "results that several ranks would keep alike, and no letter is split that leaves them "
             "so",
    .cure = "tp=2 (split h f v over AXIS)",
    .idle = idle,
    .lowers = SK_LOWERS_SAVED,
    .claims = claims,
    .draw = draw,
    .tries = "yes",
};
