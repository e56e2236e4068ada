/* made_up.c - tokens, targets and weights out of a counter. */
#include "train/made_up.h"
#include "base/rng.h"

#include <string.h>

sk_status sk_made_up_fill(void *ctx, const char *input, sk_dtype type, const sk_extent *box,
                          int64_t step, bool validation, void *to)
{
    const sk_job *job = ctx;
    int64_t cols = box->n > 1 ? box->size[1] : 1, n = 0;
    uint64_t words = (uint64_t)(job->hyper.vocab_size > 0 ? job->hyper.vocab_size : 1);
    (void)validation;
    for (int64_t r = 0; r < box->size[0]; r++)
        for (int64_t c = 0; c < cols; c++, n++) {
            int64_t row = box->at[0] + r, col = box->n > 1 ? box->at[1] + c : 0;
            int64_t place = row * (job->seq + 1) + col + !strcmp(input, "targets");
            uint64_t x = sk_rng(7, (uint64_t)step, (uint64_t)place).a;
            if (!strcmp(input, "pos")) ((int32_t *)to)[n] = (int32_t)col;
            else if (type == SK_I32) ((int32_t *)to)[n] = (int32_t)(x % words);
            else if (!strcmp(input, "weights")) ((real *)to)[n] = 1;
            else ((real *)to)[n] = (real)((double)(x % 256) / 255);
        }
    return SK_OK;
}
