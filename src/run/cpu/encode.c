/* encode.c - encoding and decoding.
 *
 * Rows may be few and long (experts) or many and short, so threads share runs of SK_CODEC_RUN
 * elements: whole blocks of the codec, but for the last of a row.  Where a product and a sum are
 * rounded once the code says fmaf(), here and in codecs, so that a GPU (kernel/cuda/codec_rows.h)
 * computes the same bytes. */
#include "run/cpu/encode.h"

#include <math.h>

enum { RUN = SK_CODEC_RUN };

typedef struct code_job {
    const sk_codec *codec;
    char *x; /* rows of elements */
    uint8_t *code;
    float *error; /* or NULL */
    bool adds;
    float scale;
    sk_dtype type;
    int64_t rows, row, bytes; /* bytes: of an encoded row */
    int64_t pieces;           /* encoded pieces that DECODE adds up */
} code_job;

typedef struct code_run { /* elements [from, from + n) of a row */
    int64_t at, code, n;  /* where they are among all; their bytes */
} code_run;

static code_job job_of(const sk_program *p, const sk_inst *in, char *base, int elements, int code)
{
    const sk_buffer *x = &p->bufs.v[elements], *c = &p->bufs.v[code];
    int64_t n = x->bytes / (int64_t)sk_dtype_size(x->type), rows = x->box.size[0];
    return (code_job){.codec = in->codec,
                      .x = base + x->offset,
                      .code = (uint8_t *)base + c->offset,
                      .type = x->type,
                      .rows = rows,
                      .row = rows ? n / rows : 0,
                      .bytes = c->box.size[1],
                      .pieces = in->pieces};
}

static int64_t runs_of(const code_job *j) { return (j->row + RUN - 1) / RUN; }

static code_run run_at(const code_job *j, int64_t i)
{
    int64_t row = i / runs_of(j), from = i % runs_of(j) * RUN;
    return (code_run){.at = row * j->row + from,
                      .code = row * j->bytes + sk_codec_bytes(j->codec, from),
                      .n = j->row - from < RUN ? j->row - from : RUN};
}

static char *element(const code_job *j, int64_t at)
{
    return j->x + at * (int64_t)sk_dtype_size(j->type);
}

/* The error feedback of a run: its values less what is decoded from its code. */
static void encode_run(const code_job *j, code_run r)
{
    float x[RUN], y[RUN], *error = j->error ? j->error + r.at : NULL, unscale = 1 / j->scale;
    sk_convert(x, SK_F32, element(j, r.at), j->type, r.n);
    for (int64_t i = 0; error && !j->adds && i < r.n; i++) x[i] = fmaf(j->scale, error[i], x[i]);
    sk_encode(j->codec, x, r.n, j->code + r.code);
    if (!error) return;
    sk_decode(j->codec, j->code + r.code, r.n, y);
    for (int64_t i = 0; i < r.n; i++) error[i] = fmaf(unscale, x[i] - y[i], j->adds ? error[i] : 0);
}

static void encode_part(void *ctx, int part, int of)
{
    const code_job *j = ctx;
    int64_t n = j->rows * runs_of(j);
    for (int64_t i = n * part / of; i < n * (part + 1) / of; i++) encode_run(j, run_at(j, i));
}

static void decode_run(const code_job *j, code_run r)
{
    float x[RUN], y[RUN];
    sk_decode(j->codec, j->code + r.code, r.n, x);
    for (int64_t k = 1; k < j->pieces; k++) {
        sk_decode(j->codec, j->code + k * j->rows * j->bytes + r.code, r.n, y);
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

void sk_run_encode(const sk_program *p, const sk_inst *in, char *base, float loss_scale,
                   sk_threads *team)
{
    code_job j = job_of(p, in, base, in->in[0], in->out[0]);
    j.error = in->in[1] < 0 ? NULL : (float *)(void *)(base + p->bufs.v[in->in[1]].offset);
    j.adds = in->adds_error;
    j.scale = loss_scale;
    sk_threads_run(team, encode_part, &j);
}

void sk_run_decode(const sk_program *p, const sk_inst *in, char *base, sk_threads *team)
{
    code_job j = job_of(p, in, base, in->out[0], in->in[0]);
    sk_threads_run(team, decode_part, &j);
}
