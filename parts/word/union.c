/* union.c - sparse gradients are summed as what ranks sent (program/coded_union.c). */
#include "layout/word.h"
#include "coll/codec.h"

#include <string.h>

static bool sparse(const sk_layout *l)
{
    sk_codec c;
    return *l->grads_as && !sk_codec_read(l->grads_as, &c) && c.row_kept;
}

/* A codec that cannot be read is refused by itself. */
static bool works(const sk_layout *l)
{
    sk_codec c;
    return sparse(l) || (*l->grads_as && sk_codec_read(l->grads_as, &c));
}

static void idle(const sk_layout *l, sk_out *o)
{
    if (l->shard_axis >= 0)
        sk_out_add(o, "union has nothing to do: the owner of a shard adds what ranks sent as it "
                      "is");
}

/* Of codecs that send some elements; it is drawn behind grads. */
static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    strcpy(phrase, "union");
    return sparse(l) && sk_dice_one_in(d, 2);
}

const sk_word sk_word_union = {
    .name = "union",
    .doc = "every rank gets the sum of all that was sent of sparse gradients, not a choice of it",
    .sentence = {"as a union"},
    .clause_of = "encode gradients",
    .example = "dp=4 grads=topk:0.1 feedback union",
    .brief = "", /* grads says it */
    .kind = SK_WORD_FLAG,
    .at = offsetof(sk_layout, union_sums),
    .place = 151,
    .works = works,
    .about = "gradients of which some elements are sent, and all are",
    .cure = "grads=topk:0.01 feedback (encode gradients as CODEC with feedback)",
    .idle = idle,
    .draw = draw,
};
