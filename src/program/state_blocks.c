/* state_blocks.c - optimizer state in blocks of 8 bits (tensor/q8_format.h): of which parameters,
 * how many bytes, and where blocks may lie.
 *
 * Blocks are counted from the first element of a shard.  Layouts that cut a tensor elsewhere have
 * other blocks, whose scales differ, and so do the last bits of results.  Deterministic order needs
 * the same blocks on all layouts: there each shard must be a run of whole blocks of the logical
 * tensor. */
#include "program/lowering.h"

sk_dtype sk_lower_state_type(const sk_lowering *e, const sk_param_plan *q)
{
    sk_dtype t = e->opts->state_type == SK_STATE_AUTO ? q->optim->state_type : e->opts->state_type;
    int64_t n = sk_lower_logical(e, q->tensor) / (int64_t)sk_dtype_size(q->tensor->type);
    int64_t least = e->opts->q8_least ? e->opts->q8_least : SK_Q8_LEAST;
    return t == SK_U8 && n < least ? SK_F32 : t;
}

/* A direction lives from one pass to the next: it gains nothing by 8 bits. */
sk_dtype sk_lower_direction_type(const sk_lowering *e)
{
    return e->opts->state_type == SK_BF16 ? SK_BF16 : SK_F32;
}

/* Is the box one run of the logical tensor; which elements? */
static bool is_run(const sk_extent *b, int64_t *from, int64_t *to, int64_t *all)
{
    int cut = 0;
    *from = 0, *all = 1;
    while (cut < b->n && b->size[cut] == 1) cut++;
    for (int d = 0; d < b->n; d++) {
        if (d > cut && b->size[d] != b->full[d]) return false;
        *from = *from * b->full[d] + b->at[d];
        *all *= b->full[d];
    }
    *to = *from + sk_box_count(b, 0, b->n);
    return true;
}

static sk_status whole_blocks(const sk_lowering *e, const sk_param_plan *q, const sk_extent *b)
{
    int64_t from, to, all;
    bool run = is_run(b, &from, &to, &all);
    if (run && from % SK_Q8_BLOCK == 0 && (to % SK_Q8_BLOCK == 0 || to == all)) return SK_OK;
    if (!sk_box_count(b, 0, b->n)) return SK_OK;
    return sk_fail(SK_ECONF,
                   "optim.state is int8: with order=canonical no layout may cut a block of %d "
                   "elements, and rank %d has a part of '%s' \"%s\" that %s; take optim.state=f32 "
                   "or bf16, or order=fast",
                   SK_Q8_BLOCK, e->p->rank, q->tensor->name, q->tensor->letters,
                   run ? "begins or ends inside of one" : "is cut along an inner dim");
}

sk_status sk_lower_blocks(sk_lowering *e, const sk_param_plan *q, int s)
{
    sk_buffer *b = &e->p->bufs.v[q->state[s]];
    if (b->type != SK_U8) return SK_OK;
    b->q8 = q->optim->positive >> s & 1 ? SK_Q8_UNSIGNED : SK_Q8_SIGNED;
    b->bytes = sk_q8_bytes(sk_box_count(&b->box, 0, b->box.n));
    return e->l->canonical ? whole_blocks(e, q, &b->box) : SK_OK;
}
