/* canonical.c - deterministic order of sums: the same bits on any layout (base/reduction_blocks.h).
 * The key order=canonical says the same. */
#include "layout/word.h"

#include <stdio.h>

static sk_status fits(const sk_word_ask *ask)
{
    if (!ask->layout->canonical) return SK_OK;
    if (ask->async)
        return sk_fail(SK_ECONF,
                       "layout: in canonical order all layouts give the same bits, and schedule %s "
                       "reads other weights than one rank would; order=fast is needed",
                       ask->layout->schedule);
    if (ask->dtype != SK_F32)
        return sk_fail(SK_ECONF,
                       "order=canonical gives the same bits on any layout in f32, and train.dtype "
                       "is %s, whose sums are rounded where ranks meet",
                       sk_dtype_name(ask->dtype));
    return SK_OK;
}

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    (void)l;
    snprintf(phrase, SK_WORD_TEXT, "canonical order");
    return sk_dice_one_in(d, 2);
}

const sk_word sk_word_canonical = {
    .name = "canonical",
    .doc = "deterministic order of sums: the same bits on any layout; also the key order=canonical",
    .sentence = {"canonical order"},
    .no_short = true,
    .example = "dp=2; canonical order",
    .brief = "canonical",
    .kind = SK_WORD_FLAG,
    .at = offsetof(sk_layout, canonical),
    .place = 240,
    .fits = fits,
    .excludes = {{"tiles", 0, "tiles sum in another order than order=canonical does"},
                 {"slices", 0,
                  "the sum over a batch is a tree, and slices would add it up slice by slice, as "
                  "with order=fast"},
                 {"weights", 0, "the codec rounds what ranks send each other"},
                 {"grads", 0, "the codec rounds what ranks send each other"}},
    .draw = draw,
};
