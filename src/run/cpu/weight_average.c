/* weight_average.c - the exponential moving average of the weights (program/averaged.c), and the
 * steps of synchronisations of replicas (program/replica_sync.c), on the host. */
#include "kernel/combine.h"
#include "kernel/weight_average.h"
#include "run/cpu/optimize.h"

#include <string.h>

typedef struct average_job {
    real *to;
    const real *from;
    int64_t n;
    real part; /* of the newest weights */
} average_job;

static void average_part(void *ctx, int part, int of)
{
    const average_job *j = ctx;
    int64_t at = j->n * part / of, end = j->n * (part + 1) / of;
    real *restrict to = j->to, now = j->part;
    const real *restrict from = j->from;
#pragma omp simd
    for (int64_t i = at; i < end; i++) to[i] = sk_ema_step(to[i], from[i], now);
}

/* A step that updated nothing leaves the average alone.  A delayed update is made in every step
 * behind one that left a gradient, skipped or not. */
void sk_do_average(sk_run *r, const sk_inst *in)
{
    const sk_program *p = r->p;
    int64_t updates = r->step * p->n_updates + r->shift + !in->background;
    average_job j = {sk_run_data(r, in->out[0]), sk_run_data(r, in->in[0]),
                     p->bufs.v[in->out[0]].bytes / (int64_t)sizeof(real),
                     (real)sk_ema_part(p->ema, (double)updates)};
    if (in->background ? !r->pending : sk_run_holds(r)) return;
    if (j.n < SK_SMALL_PIECE) average_part(&j, 0, 1);
    else sk_threads_run(r->team, average_part, &j);
}

/* --- combinations --- */

typedef struct combine_job {
    const sk_combine *by;
    const float *in[SK_COMBINE_IN];
    float *out[SK_COMBINE_OUT];
    int64_t n;
} combine_job;

enum { RUN = 256 }; /* elements that are combined at a time: an output may be one of the inputs */

static void combine_run(const combine_job *j, int64_t at, int n)
{
    const sk_combine *c = j->by;
    float sum[SK_COMBINE_OUT][RUN];
    for (int o = 0; o < c->n_out; o++) {
        float *restrict s = sum[o];
        for (int i = 0; i < n; i++) s[i] = 0;
        for (int k = 0; k < c->n_in; k++) {
            const float *restrict x = j->in[k] + at;
            float by = c->by[o][k];
            for (int i = 0; by != 0 && i < n; i++) s[i] = sk_combine_add(s[i], by, x[i]);
        }
    }
    for (int o = 0; o < c->n_out; o++) memcpy(j->out[o] + at, sum[o], (size_t)n * sizeof(float));
}

static void combine_part(void *ctx, int part, int of)
{
    const combine_job *j = ctx;
    int64_t end = j->n * (part + 1) / of;
    for (int64_t at = j->n * part / of; at < end; at += RUN)
        combine_run(j, at, end - at < RUN ? (int)(end - at) : RUN);
}

/* Steps are synchronised whoever skips them: a replica whose step was not finite has the weights of
 * before it. */
void sk_do_combine(sk_run *r, const sk_inst *in)
{
    combine_job j = {.by = in->combine,
                     .n = r->p->bufs.v[in->out[0]].bytes / (int64_t)sizeof(float)};
    for (int k = 0; k < j.by->n_in; k++) j.in[k] = sk_run_data(r, in->in[k]);
    for (int o = 0; o < j.by->n_out; o++) j.out[o] = sk_run_data(r, in->out[o]);
    if (j.n < SK_SMALL_PIECE) combine_part(&j, 0, 1);
    else sk_threads_run(r->team, combine_part, &j);
}
