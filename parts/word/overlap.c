/* overlap.c - products run in chunks, beside the collectives that they wait for
 * (src/program/overlap_chunks.c, doc/parallelism.md). */
#include "layout/word.h"

#include <stdio.h>

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    snprintf(phrase, SK_WORD_TEXT, "overlap=%d", sk_dice_pick(d, 1, 5));
    return sk_words_repeated(l) && sk_dice_one_in(d, 2);
}

/* Uneven pieces wait for each other, and a few rows cannot be cut. */
static bool claims(const sk_word_ask *ask)
{
    const sk_layout *l = ask->layout;
    const int64_t *size = ask->graph->size;
    int n = sk_axis_size(l, sk_mesh_axis(&l->mesh, "tp"));
    int64_t rows = size[(int)ask->graph->batch & 127] / (l->n_micro ? l->n_micro : 1);
    return sk_axis_claims(ask, "tp") && size['f'] % n == 0 && size['h'] % n == 0 &&
           rows >= l->overlap && l->slices < 2 && !l->canonical && !sk_layout_offloads(l);
}

static void idle(const sk_layout *l, sk_out *o)
{
    if (sk_words_repeats(l) < 2)
        sk_out_add(o,
                   "overlap has nothing to do: products wait for no other rank, tp=N makes some");
}

const sk_word sk_word_overlap = {
    .name = "overlap",
    .doc = "products run in N chunks of the batch or of its only row, beside their collectives",
    .value = "N",
    .sentence = {"overlap in N chunks", "overlap in N turns"},
    .example = "tp=2 overlap=4",
    .kind = SK_WORD_INT,
    .least = 1,
    .most = 4096,
    .off = 1,
    .at = offsetof(sk_layout, overlap),
    .place = 120,
    .works = sk_words_repeated,
    .about = "products that wait for other ranks, and no letter is split that makes them wait",
    .cure = "tp=2 (split h f v over AXIS)",
    .idle = idle,
    .lowers = SK_LOWERS_WAITING,
    .claims = claims,
    .draw = draw,
    .tries = "2 4 8",
};
