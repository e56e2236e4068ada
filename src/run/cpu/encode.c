/* encode.c - encoding and decoding.
 *
 * Rows may be few and long (experts) or many and short, so threads share runs of SK_CODEC_RUN
 * elements: whole blocks of the codec, but for the last of a row.  Codecs that see a row as a whole
 * encode it on one thread.  Where a product and a sum are
 * rounded once the code says fmaf(), here and in codecs, so that a GPU (kernel/cuda/codec_rows.h)
 * computes the same bytes. */
#include "run/cpu/encode.h"

#include <math.h>

enum { RUN = SK_CODEC_RUN };

typedef struct code_job {
    const sk_codec *codec;
    char *x; /* rows of elements */
    uint8_t *code;
    float *error;    /* or NULL */
    bool adds, hold; /* hold: the error stays as it is */
    float scale;
    sk_dtype type;
    int64_t rows, row, bytes; /* bytes: of an encoded row */
    int64_t pieces;           /* encoded pieces that DECODE adds up */
    int64_t first, step;      /* the logical place of the first element; from a row to the next */
    uint64_t shared, own;     /* random streams */
} code_job;

typedef struct code_run { /* elements [from, from + n) of a row */
    int64_t row, from, n;
    int64_t at; /* where they are among all */
} code_run;

int64_t sk_code_place(const sk_extent *box, int64_t *step)
{
    int64_t first = 0;
    *step = 1;
    for (int d = box->n - 1; d > 0; d--) {
        first += box->at[d] * *step;
        *step *= box->full[d];
    }
    return first + box->at[0] * *step;
}

static code_job job_of(const sk_run *r, const sk_inst *in, int elements, int code)
{
    const sk_buffer *x = &r->p->bufs.v[elements], *c = &r->p->bufs.v[code];
    int64_t n = x->bytes / (int64_t)sk_dtype_size(x->type), rows = x->box.size[0];
    code_job j = {.codec = in->codec,
                  .x = r->base + x->offset,
                  .code = (uint8_t *)r->base + c->offset,
                  .type = x->type,
                  .rows = rows,
                  .row = rows ? n / rows : 0,
                  .bytes = c->box.size[1],
                  .pieces = in->pieces,
                  .shared = sk_code_shared(r->opts.seed, in->stream, (uint64_t)r->step)};
    j.first = sk_code_place(&x->box, &j.step);
    return j;
}

static int64_t runs_of(const code_job *j) { return (j->row + RUN - 1) / RUN; }

static code_run run_of(const code_job *j, int64_t row, int64_t from)
{
    return (code_run){.row = row,
                      .from = from,
                      .at = row * j->row + from,
                      .n = j->row - from < RUN ? j->row - from : RUN};
}

static code_run run_at(const code_job *j, int64_t i)
{
    return run_of(j, i / runs_of(j), i % runs_of(j) * RUN);
}

static char *element(const code_job *j, int64_t at)
{
    return j->x + at * (int64_t)sk_dtype_size(j->type);
}

typedef struct code_source { /* what a row of a codec is read from */
    const code_job *j;
    int64_t at;
} code_source;

/* Elements with what was lost of them before. */
static void read_elements(const void *of, int64_t at, int64_t n, float *to)
{
    const code_source *s = of;
    const code_job *j = s->j;
    sk_convert(to, SK_F32, element(j, s->at + at), j->type, n);
    if (!j->error || j->adds) return;
    const float *error = j->error + s->at + at;
    for (int64_t i = 0; i < n; i++) to[i] = fmaf(j->scale, error[i], to[i]);
}

static sk_code_row row_of(const code_job *j, int64_t row, const code_source *s)
{
    return (sk_code_row){.n = j->row,
                         .first = j->first + row * j->step,
                         .shared = j->shared,
                         .own = j->own,
                         .upscale = !j->error && !j->adds,
                         .read = read_elements,
                         .of = s};
}

/* The error feedback of a run: its values less what is decoded from its code. */
static void keep_error(const code_job *j, const sk_code_row *row, code_run r, const float *x)
{
    float y[RUN], *error = j->error + r.at, unscale = 1 / j->scale;
    sk_decode(j->codec, row, j->code + r.row * j->bytes, r.from, r.n, y);
    for (int64_t i = 0; i < r.n; i++) error[i] = fmaf(unscale, x[i] - y[i], j->adds ? error[i] : 0);
}

static void encode_run(const code_job *j, code_run r)
{
    float x[RUN];
    code_source s = {j, r.row * j->row};
    sk_code_row row = row_of(j, r.row, &s);
    read_elements(&s, r.from, r.n, x);
    sk_encode_run(j->codec, &row, r.from, x, r.n, j->code + r.row * j->bytes);
    if (j->error && !j->hold) keep_error(j, &row, r, x);
}

static void encode_row(const code_job *j, int64_t i)
{
    float x[RUN];
    code_source s = {j, i * j->row};
    sk_code_row row = row_of(j, i, &s);
    sk_encode(j->codec, &row, j->code + i * j->bytes);
    for (int64_t from = 0; j->error && !j->hold && from < j->row; from += RUN) {
        code_run r = run_of(j, i, from);
        read_elements(&s, from, r.n, x);
        keep_error(j, &row, r, x);
    }
}

static void encode_part(void *ctx, int part, int of)
{
    const code_job *j = ctx;
    bool whole = j->codec->encode_row || j->codec->unit;
    int64_t n = j->rows * (whole ? 1 : runs_of(j));
    for (int64_t i = n * part / of; i < n * (part + 1) / of; i++)
        if (whole) encode_row(j, i);
        else encode_run(j, run_at(j, i));
}

static void decode_run(const code_job *j, code_run r)
{
    float x[RUN], y[RUN];
    sk_code_row row = row_of(j, r.row, NULL);
    const uint8_t *code = j->code + r.row * j->bytes;
    sk_decode(j->codec, &row, code, r.from, r.n, x);
    for (int64_t k = 1; k < j->pieces; k++) {
        sk_decode(j->codec, &row, code + k * j->rows * j->bytes, r.from, r.n, y);
        for (int64_t i = 0; i < r.n; i++) x[i] += y[i];
    }
    sk_convert(element(j, r.at), j->type, x, SK_F32, r.n);
}

static void decode_part(void *ctx, int part, int of)
{
    const code_job *j = ctx;
    int64_t n = j->rows * runs_of(j);
    for (int64_t i = n * part / of; i < n * (part + 1) / of; i++) decode_run(j, run_at(j, i));
}

void sk_run_encode(const sk_run *r, const sk_inst *in)
{
    code_job j = job_of(r, in, in->in[0], in->out[0]);
    j.error = in->in[1] < 0 ? NULL : (float *)(void *)(r->base + r->p->bufs.v[in->in[1]].offset);
    j.adds = in->adds_error;
    j.scale = in->held ? 1 : (float)r->loss_scale;
    j.hold = in->held && sk_run_holds(r);
    j.own = sk_code_own(j.shared, in->term, in->micro);
    sk_threads_run(r->team, encode_part, &j);
}

void sk_run_decode(const sk_run *r, const sk_inst *in)
{
    code_job j = job_of(r, in, in->out[0], in->in[0]);
    sk_threads_run(r->team, decode_part, &j);
}
