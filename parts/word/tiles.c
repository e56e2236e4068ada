/* tiles.c - offloaded weights are fetched in tiles, and products are done by tiles. */
#include "layout/word.h"

#include <stdio.h>

static bool works(const sk_layout *l) { return l->home[SK_PARAMS] && l->home[SK_STATE]; }

static sk_status check(const sk_layout *l)
{
    if (works(l)) return SK_OK;
    return sk_fail(SK_ECONF, "layout: tiles are how weights outside of the device come there, and "
                             "they are updated where they live; say offload=weights+state too");
}

static sk_status fits(const sk_word_ask *ask)
{
    if (ask->layout->tiles < 2 || !ask->async) return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: schedule %s updates weights within a step, while their tiles are on "
                   "the way; leave out tiles, or take another schedule",
                   ask->layout->schedule);
}

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    snprintf(phrase, SK_WORD_TEXT, "tiles=%d", sk_dice_pick(d, 2, 6));
    return works(l) && sk_dice_one_in(d, 2);
}

/* Each chunk of overlap would fetch the tiles anew. */
static bool claims(const sk_word_ask *ask)
{
    return !ask->layout->shard && ask->layout->overlap < 2 && sk_words_letter(ask->graph, 't');
}

const sk_word sk_word_tiles = {
    .name = "tiles",
    .doc = "weights that are offloaded are fetched, and used, in N tiles",
    .value = "N",
    .sentence = {"weights in N tiles"},
    .example = "offload=weights+state tiles=4",
    .kind = SK_WORD_INT,
    .least = 1,
    .most = 4096,
    .off = 1,
    .at = offsetof(sk_layout, tiles),
    .place = 200,
    .brief = "N tiles",
    .check = check,
    .fits = fits,
    .excludes = {{"zero", 3,
                  "tiles are of weights that a rank keeps whole, and zero=3 gathers them for each "
                  "layer"}},
    .lowers = SK_LOWERS_DEVICE,
    .claims = claims,
    .draw = draw,
    .tries = "4",
};
