/* rearrange.c - instructions that move or change numbers within one rank, on the host: slices,
 * sums of two buffers, zeros, packed and encoded results, gradients joined by Adasum. */
#include "run/cpu/rearrange.h"
#include "run/cpu/adasum_insts.h"
#include "run/cpu/encode.h"
#include "run/cpu/pack_bits.h"

#include <string.h>

/* Where row i of a part begins in the whole, in elements. */
static int64_t row_at(const sk_view *part, const sk_view *whole, int64_t i)
{
    int64_t at = 0;
    for (int d = part->n - 1; d >= 0; d--) {
        int64_t k = d == part->n - 1 ? 0 : i % part->size[d];
        if (d < part->n - 1) i /= part->size[d];
        at += (part->at[d] - whole->at[d] + k) * whole->step[d];
    }
    return at;
}

static int64_t row_of(const sk_view *v) { return v->n ? v->size[v->n - 1] : 1; }
static int64_t rows_of(const sk_view *v) { return row_of(v) ? sk_count(v) / row_of(v) : 0; }

/* Copies the part of `from` that `to` is, row by row. */
static void slice(const sk_view *from, const sk_view *to)
{
    size_t size = sk_dtype_size(to->type), bytes = (size_t)row_of(to) * size;
    for (int64_t i = 0; i < rows_of(to); i++)
        memcpy((char *)to->data + (size_t)i * bytes,
               (const char *)from->data + (size_t)row_at(to, from, i) * size, bytes);
}

static void paste(const sk_view *from, const sk_view *to)
{
    size_t size = sk_dtype_size(to->type), bytes = (size_t)row_of(from) * size;
    for (int64_t i = 0; i < rows_of(from); i++)
        memcpy((char *)to->data + (size_t)row_at(from, to, i) * size,
               (const char *)from->data + (size_t)i * bytes, bytes);
}

typedef struct pair_job {
    void *to;
    const void *from;
    int64_t n;
    sk_dtype type;
} pair_job;

static void add_some(real *restrict to, const real *restrict from, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

static void add_part(void *ctx, int part, int of)
{
    pair_job *j = ctx;
    int64_t at = j->n * part / of, end = j->n * (part + 1) / of, m;
    size_t size = sk_dtype_size(j->type);
    real x[SK_BLOCK], y[SK_BLOCK];
    if (j->type == SK_F32) {
        add_some((real *)j->to + at, (const real *)j->from + at, end - at);
        return;
    }
    for (; at < end; at += m) {
        m = end - at < SK_BLOCK ? end - at : SK_BLOCK;
        char *to = (char *)j->to + (size_t)at * size;
        sk_convert(x, SK_F32, to, j->type, m);
        sk_convert(y, SK_F32, (const char *)j->from + (size_t)at * size, j->type, m);
        add_some(x, y, m);
        sk_convert(to, j->type, x, SK_F32, m);
    }
}

static void add(sk_run *r, const sk_inst *in)
{
    const sk_buffer *b = &r->p->bufs.v[in->out[0]];
    pair_job j = {sk_run_data(r, in->out[0]), sk_run_data(r, in->in[0]),
                  b->bytes / (int64_t)sk_dtype_size(b->type), b->type};
    sk_threads_run(r->team, add_part, &j);
}

/* State of a whole matrix, in f32; not in a skipped step. */
static void keep_part(void *ctx, int part, int of)
{
    pair_job *j = ctx;
    int64_t at = j->n * part / of, end = j->n * (part + 1) / of;
    sk_convert((real *)j->to + at, SK_F32,
               (const char *)j->from + (size_t)at * sk_dtype_size(j->type), j->type, end - at);
}

static void keep(sk_run *r, const sk_inst *in)
{
    const sk_buffer *b = &r->p->bufs.v[in->in[0]];
    pair_job j = {sk_run_data(r, in->out[0]), sk_run_data(r, in->in[0]),
                  b->bytes / (int64_t)sk_dtype_size(b->type), b->type};
    if (!sk_run_holds(r)) sk_threads_run(r->team, keep_part, &j);
}

static sk_pack_job pack_of(const sk_run *r, int wide, int packed, int64_t capacity)
{
    const sk_buffer *b = &r->p->bufs.v[wide];
    return (sk_pack_job){.data = sk_run_data(r, wide),
                         .packed = sk_run_data(r, packed),
                         .type = b->type,
                         .n = b->bytes / (int64_t)sk_dtype_size(b->type),
                         .capacity = capacity};
}

bool sk_do_rearrange(sk_run *r, const sk_inst *in)
{
    sk_view from, to;
    switch (in->act) {
    case SK_DO_SLICE:
    case SK_DO_PASTE:
        from = sk_buffer_view(r->p, in->in[0], r->base);
        to = sk_buffer_view(r->p, in->out[0], r->base);
        (in->act == SK_DO_SLICE ? slice : paste)(&from, &to);
        return true;
    case SK_DO_ADD:
        add(r, in);
        return true;
    case SK_DO_KEEP:
        keep(r, in);
        return true;
    case SK_DO_ZERO:
        memset(sk_run_data(r, in->out[0]), 0, (size_t)r->p->bufs.v[in->out[0]].bytes);
        return true;
    case SK_DO_PACK:
        r->full |= !sk_pack(r->team, pack_of(r, in->in[0], in->out[0], in->values));
        return true;
    case SK_DO_UNPACK:
        sk_unpack(r->team, pack_of(r, in->out[0], in->in[0], in->values));
        return true;
    case SK_DO_ENCODE:
        sk_run_encode(r, in);
        return true;
    case SK_DO_DECODE:
        sk_run_decode(r, in);
        return true;
    case SK_DO_PRODUCTS:
        sk_run_products(r->p, in, r->base, r->team);
        return true;
    case SK_DO_ADASUM:
        sk_run_adasum(r->p, in, r->base, r->team);
        return true;
    default:
        return false;
    }
}
