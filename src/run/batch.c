/* batch.c - what LOAD instructions read: the inputs of the graph. */
#include "run/batch.h"
#include "base/zigzag.h"

#include <string.h>

/* A sequence letter that is distributed in zigzag order: row by row, the runs of positions that are
 * contiguous in the whole.  The letter is the last one of every input that has it. */
static sk_status load_dealt(sk_run *r, const sk_buffer *b, char *to)
{
    sk_extent box = b->box;
    int d = box.n - 1;
    int64_t rows = d ? box.size[0] : 1, cols = box.size[d], row_at = box.at[0];
    sk_assert(b->tensor->letters[d] == r->p->graph->dealt && d <= 1);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0, n = 0; k < cols; k += n) {
            box.at[d] = sk_zigzag_run(b->box.at[d] + k, box.full[d], r->p->graph->zigzag, &n);
            if (n > cols - k) n = cols - k;
            box.size[d] = n;
            if (d) box.at[0] = row_at + i, box.size[0] = 1;
            SK_TRY(r->opts.fill(r->opts.fill_ctx, b->name, b->type, &box, r->batch, r->validation,
                                to + (size_t)(i * cols + k) * sk_dtype_size(b->type)));
        }
    return SK_OK;
}

bool sk_batch_is_data(const sk_run *r, const sk_inst *in)
{
    return strcmp(r->p->bufs.v[in->out[0]].name, "loss_scale") != 0;
}

sk_status sk_batch_load(sk_run *r, const sk_inst *in, void *to)
{
    const sk_buffer *b = &r->p->bufs.v[in->out[0]];
    if (!strcmp(b->name, "loss_scale")) {
        *(real *)to = (real)r->loss_scale;
        return SK_OK;
    }
    if (!b->bytes) return SK_OK;
    if (r->p->graph->dealt && strchr(b->tensor->letters, r->p->graph->dealt))
        return load_dealt(r, b, to);
    return r->opts.fill(r->opts.fill_ctx, b->name, b->type, &b->box, r->batch, r->validation, to);
}
