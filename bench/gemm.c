/* gemm.c - the floor of a training step: its matrix products and nothing else.
 *
 *   gemm MODEL CUT ATTENTION THREADS STEPS        MODEL gpt2 | nano
 *   gemm core                                     for which processor OpenBLAS works here
 *
 * Does all GEMMs of a step (forward, gradient of the input, gradient of the weight) in their order,
 * with OpenBLAS kept to one thread, and prints milliseconds, one line a step.  CUT tells who does
 * what: "rows": all threads share each product, each calling BLAS on its rows or columns, as a
 * rank of skein with threads does; "ranks": each thread has its part of the batch and its own
 * gradients, as ranks of one thread do.  ATTENTION is "full" (whole squares of scores) or "causal"
 * (blocks of 64 queries against the keys up to their own place).  Attention counts six products a
 * head, as if scores were kept for the backward.
 *
 * Operands are in different places for each layer, as in a real step, so that what caches keep is
 * what they would keep.  Results are not used: the numbers stay ordinary. */
#include "base/clock.h"
#include "base/threads.h"

#include <cblas.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 12, LINEARS = 4, GRAIN = 16, QUERIES = 64, MAX_THREADS = 64 };

typedef struct config {
    const char *name;
    int layers, heads, width, vocab, batch, seq;
} config;

static const config configs[] = {{"gpt2", 12, 12, 768, 50304, 4, 256},
                                 {"nano", 6, 6, 384, 256, 12, 256}};

typedef struct linear {
    float *w, *dw, *x; /* [in,out], the same, [rows,in] */
    int in, out;
} linear;

typedef struct step { /* the operands of one rank */
    const config *c;
    int batch, rows;
    bool causal;
    linear layer[LAYERS][LINEARS], head;
    float *qkv[LAYERS]; /* [rows,3 width] */
    float *dy, *out;    /* shared by all: as large as the largest */
    float *scores[MAX_THREADS];
} step;

typedef struct gemm { /* row-major c[m,n] = a[m,k] b[k,n]; ta, tb: stored the other way */
    bool ta, tb;
    int m, n, k;
    const float *a, *b;
    int lda, ldb;
    float *c;
    int ldc;
} gemm;

static void multiply(const gemm *g)
{
    if (g->m && g->n)
        cblas_sgemm(CblasRowMajor, g->ta ? CblasTrans : CblasNoTrans,
                    g->tb ? CblasTrans : CblasNoTrans, g->m, g->n, g->k, 1, g->a, g->lda, g->b,
                    g->ldb, 0, g->c, g->ldc);
}

/* Thread `part` takes its share of the longer side of the result, in grains of 16. */
static void multiply_part(void *ctx, int part, int of)
{
    gemm g = *(const gemm *)ctx;
    int *side = g.m >= g.n ? &g.m : &g.n, grains = (*side + GRAIN - 1) / GRAIN, all = *side;
    int from = grains * part / of * GRAIN, to = grains * (part + 1) / of * GRAIN;
    if (to > all) to = all;
    if (side == &g.m) g.a += g.ta ? from : (int64_t)from * g.lda, g.c += (int64_t)from * g.ldc;
    else g.b += g.tb ? (int64_t)from * g.ldb : from, g.c += from;
    *side = to - from;
    multiply(&g);
}

static void shared(sk_threads *team, gemm g) /* no team: alone */
{
    if (team) sk_threads_run(team, multiply_part, &g);
    else multiply(&g);
}

static void forward(sk_threads *t, const step *s, const linear *l, bool turned)
{
    shared(t, (gemm){.tb = turned,
                     .m = s->rows,
                     .n = l->out,
                     .k = l->in,
                     .a = l->x,
                     .lda = l->in,
                     .b = l->w,
                     .ldb = turned ? l->in : l->out,
                     .c = s->out,
                     .ldc = l->out});
}

static void backward(sk_threads *t, const step *s, const linear *l, bool turned)
{
    shared(t, (gemm){.tb = !turned,
                     .m = s->rows,
                     .n = l->in,
                     .k = l->out,
                     .a = s->dy,
                     .lda = l->out,
                     .b = l->w,
                     .ldb = turned ? l->in : l->out,
                     .c = s->out,
                     .ldc = l->in});
    gemm dw = {.ta = true,
               .m = l->in,
               .n = l->out,
               .k = s->rows,
               .a = l->x,
               .lda = l->in,
               .b = s->dy,
               .ldb = l->out,
               .c = l->dw,
               .ldc = l->out};
    if (turned) /* the tied head is [vocab,width] */
        dw = (gemm){.ta = true,
                    .m = l->out,
                    .n = l->in,
                    .k = s->rows,
                    .a = s->dy,
                    .lda = l->out,
                    .b = l->x,
                    .ldb = l->in,
                    .c = l->dw,
                    .ldc = l->in};
    shared(t, dw);
}

typedef struct heads { /* all heads of one layer */
    const step *s;
    int layer;
    bool back;
} heads;

static void attend(const step *s, const float *qkv, float *p, bool back)
{
    int d = s->c->width / s->c->heads, ld = 3 * s->c->width, seq = s->c->seq;
    int block = s->causal ? QUERIES : seq;
    for (int at = 0; at < seq; at += block) {
        int m = seq - at < block ? seq - at : block, n = s->causal ? at + m : seq;
        const float *q = qkv + (int64_t)at * ld, *k = qkv + d, *v = qkv + 2 * d;
        float *out = p + (int64_t)seq * seq; /* [seq,d] */
        gemm qk = {.tb = true,
                   .m = m,
                   .n = n,
                   .k = d,
                   .a = q,
                   .lda = ld,
                   .b = k,
                   .ldb = ld,
                   .c = p,
                   .ldc = n};
        gemm pv = {
            .m = m, .n = d, .k = n, .a = s->dy, .lda = n, .b = v, .ldb = ld, .c = out, .ldc = d};
        gemm pt = {.ta = true,
                   .m = n,
                   .n = d,
                   .k = m,
                   .a = s->dy,
                   .lda = n,
                   .b = q,
                   .ldb = ld,
                   .c = out,
                   .ldc = d};
        multiply(&qk); /* scores, or their gradient from that of the result: the same shape */
        multiply(&pv); /* result, or gradient of the queries */
        if (!back) continue;
        multiply(&pt); /* gradient of the values */
        multiply(&pt); /* gradient of the keys */
    }
}

static void attend_part(void *ctx, int part, int of)
{
    const heads *h = ctx;
    const step *s = h->s;
    int d = s->c->width / s->c->heads;
    for (int i = part; i < s->batch * s->c->heads; i += of) {
        int64_t row = (int64_t)(i / s->c->heads) * s->c->seq;
        const float *qkv = s->qkv[h->layer] + row * 3 * s->c->width + i % s->c->heads * 3 * d;
        attend(s, qkv, s->scores[part], h->back);
    }
}

static void attend_all(sk_threads *t, const step *s, int layer, bool back)
{
    heads h = {s, layer, back};
    if (t) sk_threads_run(t, attend_part, &h);
    else attend_part(&h, 0, 1);
}

static void run_step(sk_threads *t, const step *s)
{
    for (int l = 0; l < s->c->layers; l++) {
        forward(t, s, &s->layer[l][0], false);
        attend_all(t, s, l, false);
        for (int i = 1; i < LINEARS; i++) forward(t, s, &s->layer[l][i], false);
    }
    forward(t, s, &s->head, true);
    backward(t, s, &s->head, true);
    for (int l = s->c->layers - 1; l >= 0; l--) {
        for (int i = LINEARS - 1; i >= 1; i--) backward(t, s, &s->layer[l][i], false);
        attend_all(t, s, l, true);
        backward(t, s, &s->layer[l][0], false);
    }
}

static void run_rank(void *ctx, int part, int of)
{
    (void)of;
    run_step(NULL, (const step *)ctx + part);
}

/* ---- making operands */

static float *numbers(int64_t n) /* in [-0.5, 0.5); pages are touched here, not while timing */
{
    float *x = aligned_alloc(64, ((size_t)n * sizeof *x + 63) / 64 * 64);
    uint32_t r = 1;
    if (!x) {
        fprintf(stderr, "gemm: no memory for %lld numbers\n", (long long)n);
        exit(74);
    }
    for (int64_t i = 0; i < n; i++) {
        r = r * 1664525u + 1013904223u;
        x[i] = (float)(r >> 8) * 0x1p-24f - 0.5f;
    }
    return x;
}

static linear make_linear(int64_t rows, int in, int out)
{
    return (linear){numbers((int64_t)in * out), numbers((int64_t)in * out), numbers(rows * in), in,
                    out};
}

static void make_step(step *s, const config *c, int batch, bool causal, int threads)
{
    int w = c->width, sides[LINEARS][2] = {{w, 3 * w}, {w, w}, {w, 4 * w}, {4 * w, w}};
    int64_t rows = (int64_t)batch * c->seq, most = rows * (c->vocab > 4 * w ? c->vocab : 4 * w);
    *s = (step){.c = c, .batch = batch, .rows = (int)rows, .causal = causal};
    for (int l = 0; l < c->layers; l++) {
        for (int i = 0; i < LINEARS; i++)
            s->layer[l][i] = make_linear(rows, sides[i][0], sides[i][1]);
        s->qkv[l] = numbers(rows * 3 * w);
    }
    s->head = make_linear(rows, w, c->vocab);
    s->dy = numbers(most);
    s->out = numbers(most);
    for (int i = 0; i < threads; i++)
        s->scores[i] = numbers((int64_t)c->seq * (c->seq + w / c->heads));
}

static double flops(const config *c, bool causal) /* of a step, six products a head */
{
    double rows = (double)c->batch * c->seq, w = c->width, wide = 0;
    for (int at = 0; at < c->seq; at += QUERIES) wide += causal ? at + QUERIES : c->seq;
    wide /= (double)(c->seq / QUERIES); /* keys that a query meets, on average */
    return 6 * rows * w * (12 * w * c->layers + c->vocab) + 12 * rows * wide * w * c->layers;
}

int main(int argc, char **argv)
{
    const config *c = NULL;
    if (argc == 2 && !strcmp(argv[1], "core")) return puts(openblas_get_corename()) < 0;
    for (int i = 0; argc == 6 && i < 2; i++)
        if (!strcmp(argv[1], configs[i].name)) c = &configs[i];
    if (!c) {
        fprintf(stderr, "usage: gemm gpt2|nano rows|ranks full|causal THREADS STEPS\n");
        return 64;
    }
    bool ranks = !strcmp(argv[2], "ranks"), causal = !strcmp(argv[3], "causal");
    int threads = atoi(argv[4]), steps = atoi(argv[5]);
    if (threads < 1 || threads > MAX_THREADS || (ranks && c->batch % threads)) {
        fprintf(stderr, "gemm: %d threads do not divide a batch of %d\n", threads, c->batch);
        return 64;
    }
    static step all[MAX_THREADS];
    openblas_set_num_threads(1);
    for (int i = 0; i < (ranks ? threads : 1); i++)
        make_step(&all[i], c, ranks ? c->batch / threads : c->batch, causal, ranks ? 1 : threads);
    sk_threads *team = sk_threads_open(threads);
    for (int i = 0; i < steps; i++) {
        double start = sk_now();
        if (ranks) sk_threads_run(team, run_rank, all);
        else run_step(team, all);
        double ms = (sk_now() - start) * 1e3;
        printf("%d %.3f ms %.1f GFLOP/s\n", i, ms, flops(c, causal) / ms * 1e-6);
        fflush(stdout);
    }
    sk_threads_close(team);
    return 0;
}
