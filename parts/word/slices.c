/* slices.c - wide results (logits, hidden layers) are computed and used slice by slice, and never
 * whole (src/program/regions.c, doc/memory.md). */
#include "layout/word.h"

static sk_status fits(const sk_word_ask *ask)
{
    if (!ask->stale || ask->layout->slices < 2) return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: schedule %s has other weights in the backward pass, so forward results "
                   "cannot be recomputed there; leave out slices, or take pipedream",
                   ask->layout->schedule);
}

static bool claims(const sk_word_ask *ask)
{
    return !ask->layout->schedule_said && !ask->layout->home[SK_KEPT];
}

const sk_word sk_word_slices = {
    .name = "slices",
    .doc =
        "logits and hidden layers are computed and used in N slices along the batch, never whole",
    .value = "N",
    .sentence = {"results in N slices"},
    .example = "slices=4",
    .kind = SK_WORD_INT,
    .least = 1,
    .most = 4096,
    .off = 1,
    .at = offsetof(sk_layout, slices),
    .place = 170,
    .brief = "slices N",
    .fits = fits,
    .lowers = SK_LOWERS_SAVED,
    .claims = claims,
    .tries = "2 4 8 16",
};
