/* synthetic.c - inputs of every kind out of a counter. */
#include "train/synthetic.h"
#include "base/rng.h"
#include "data/data.h"

/* An input that a source fills itself: 0 is an id of any list, and 1 a weight. */
static double made_up(sk_input_kind kind, sk_dtype type, int64_t col, uint64_t x, uint64_t words)
{
    switch (kind) {
    case SK_INPUT_IDS:
    case SK_INPUT_NEXT:
    case SK_INPUT_LABELS:
        return (double)(x % words);
    case SK_INPUT_PLACES:
        return (double)col;
    case SK_INPUT_BYTES:
        return (double)(x % 256) / 255;
    case SK_INPUT_ONES:
    case SK_INPUT_OWN:
        break;
    }
    return type == SK_F32;
}

sk_status sk_synthetic_fill(void *ctx, const char *input, sk_dtype type, const sk_extent *box,
                            int64_t step, bool validation, void *to)
{
    const sk_job *job = ctx;
    const sk_feed_input *in = sk_source_input(input, type, box->n);
    int64_t cols = box->n > 1 ? box->size[1] : 1, n = 0;
    uint64_t words = (uint64_t)(job->hyper.vocab_size > 0 ? job->hyper.vocab_size : 1);
    (void)validation;
    if (!in) return sk_fail(SK_ECONF, "no source has an input \"%s\" (skein list source)", input);
    bool next = in->kind == SK_INPUT_NEXT || in->kind == SK_INPUT_LABELS;
    for (int64_t r = 0; r < box->size[0]; r++)
        for (int64_t c = 0; c < cols; c++, n++) {
            int64_t row = box->at[0] + r, col = box->n > 1 ? box->at[1] + c : 0;
            int64_t place = row * (job->seq + 1) + col + next;
            uint64_t x = sk_rng(7, (uint64_t)step, (uint64_t)place).a;
            double value = made_up(in->kind, type, col, x, words);
            if (type == SK_I32) ((int32_t *)to)[n] = (int32_t)value;
            else ((real *)to)[n] = (real)value;
        }
    return SK_OK;
}
