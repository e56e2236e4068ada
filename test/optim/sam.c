/* sam.c - two gradients of one batch in a step (sk_optim.perturb).
 *
 * Twenty steps of sam, with both base optimizers and clipping, are within 1e-5 of a reference that
 * takes each gradient with a step of its own, at weights that it moves itself, and updates in
 * double; losses and norms are those of the first gradient.  A step whose first or second gradient
 * is no number changes nothing, to the bit, on the CPU and on a GPU that is none. */
#include "lib/check.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"
#include "lib/ranks.h"
#include "run/run_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 20, MOST = 200000 };
static const double lr = 2e-3, radius = 0.3, clip = 0.2, eps = 1e-3, decay = 0.1;

typedef struct job { /* one rank */
    sk_arena a;
    sk_trial t;
    sk_graph g;
    sk_program **p;
    sk_heaps *heaps;
    sk_run *run;
    int poison,
        phase; /* of the step under way: the phase, from 1 on, whose gradient is no number */
} job;

static void poison(void *ctx, const sk_run *r, int64_t batch, int pc)
{
    job *j = ctx;
    const sk_program *p = j->p[0];
    float nan = NAN;
    (void)batch;
    if (pc >= p->n_train) return;
    j->phase += pc == 0;
    if (p->insts.v[pc].act == SK_DO_STATS && j->phase == j->poison)
        check(!sk_run_poke(r, p->params.v[0].grad_shard, &nan, sizeof nan));
}

static void open(job *j, const char *optim, bool sgd, bool gpu)
{
    int n = 0;
    *j = (job){.t = sk_trial_small("llama", "")};
    j->t.optim = optim;
    j->t.clip = clip;
    j->t.gpu = gpu;
    if (!strcmp(optim, "sam")) {
        j->t.knobs[0] = (struct sk_trial_knob){"radius", radius};
        j->t.knobs[1] = (struct sk_trial_knob){"base", sgd};
        j->t.knobs[2] = (struct sk_trial_knob){"eps", eps};
    }
    check(!sk_trial_compile(&j->a, &j->t, &j->g, &j->p, &n) && n == 1);
    check(!sk_heaps_open(1, &j->p[0]->heap_bytes, false, 64, &j->heaps));
    sk_run_opts o = {.fill = sk_trial_fill,
                     .fill_ctx = &j->t,
                     .knobs = sk_trial_knobs(&j->t, j->p[0]->optim),
                     .device = gpu ? "cuda" : NULL,
                     .before = poison,
                     .before_ctx = j};
    check(!sk_run_open(&j->a, j->p[0], j->heaps, &o, &j->run));
    check(!sk_run_init(j->run, 11));
}

static void close_job(job *j)
{
    sk_run_close(j->run);
    sk_heaps_close(j->heaps);
    sk_arena_end(&j->a);
}

static sk_step_out step(job *j, int s)
{
    sk_step_out out = {0};
    j->phase = 0;
    check(!sk_run_step(j->run, &(sk_step_in){.step = s, .lr = lr}, &out));
    return out;
}

/* All weights, one parameter after the other; or their gradients, or masters. */
static int buffer_of(const sk_param_plan *q, int what)
{
    return what == 0 ? q->shard : what == 1 ? q->grad_shard : q->master;
}

static int64_t take(const job *j, int what, float *to)
{
    const sk_program *p = j->p[0];
    int64_t n = 0;
    for (int i = 0; i < p->params.n; i++) {
        int b = buffer_of(&p->params.v[i], what);
        int64_t bytes = p->bufs.v[b].bytes;
        memcpy(to + n, sk_run_data(j->run, b), (size_t)bytes);
        n += bytes / 4;
    }
    sk_assert(n <= MOST);
    return n;
}

static void put(const job *j, const double *from)
{
    const sk_program *p = j->p[0];
    for (int i = 0; i < p->params.n; i++) {
        real *w = sk_run_data(j->run, p->params.v[i].shard);
        int64_t n = p->bufs.v[p->params.v[i].shard].bytes / 4;
        for (int64_t k = 0; k < n; k++) w[k] = (real)from[k];
        from += n;
    }
}

/* ---- the reference */

static double w[MOST], moved[MOST], m[MOST], v[MOST];
static float g[MOST], got[MOST];
static bool decays[MOST];

/* The gradient of the mean loss at x into g; its norm. */
static double gradient(job *j, int s, const double *x, sk_step_out *out)
{
    put(j, x);
    *out = step(j, s);
    int64_t n = take(j, 1, g);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        g[i] /= (float)out->tokens;
        sum += (double)g[i] * (double)g[i];
    }
    return sqrt(sum);
}

static void base_step(int64_t n, int t, bool sgd, double factor)
{
    double fix1 = 1 - pow((double)0.9F, t), fix2 = 1 - pow((double)0.95F, t);
    for (int64_t i = 0; i < n; i++) {
        double grad = factor * (double)g[i], keep = decays[i] ? decay : 0;
        if (sgd) {
            m[i] = 0.9 * m[i] + grad + keep * w[i];
            w[i] -= lr * m[i];
            continue;
        }
        m[i] = 0.9 * m[i] + 0.1 * grad;
        v[i] = 0.95 * v[i] + 0.05 * grad * grad;
        w[i] -= lr * (keep * w[i] + m[i] / fix1 / (sqrt(v[i] / fix2) + eps));
    }
}

static sk_step_out reference(job *j, int64_t n, int s, bool sgd)
{
    sk_step_out first, second;
    double far = radius / gradient(j, s, w, &first);
    for (int64_t i = 0; i < n; i++) moved[i] = w[i] + far * (double)g[i];
    double norm = gradient(j, s, moved, &second);
    check(norm > clip && fabs(second.loss - first.loss) > 1e-4); /* both are at work */
    base_step(n, s + 1, sgd, clip / (norm + 1e-6));
    return first;
}

static void begin(job *plain)
{
    const sk_program *p = plain->p[0];
    int64_t n = take(plain, 0, got);
    memset(m, 0, sizeof m);
    memset(v, 0, sizeof v);
    for (int64_t i = 0; i < n; i++) w[i] = (double)got[i];
    for (int i = 0, at = 0; i < p->params.n; i++)
        for (int64_t k = 0; k < p->bufs.v[p->params.v[i].shard].bytes / 4; k++)
            decays[at++] = p->params.v[i].decay;
}

static void near(bool sgd)
{
    job sam, plain;
    double off = 0, all = 0;
    open(&sam, "sam", sgd, false);
    open(&plain, "sgd", false, false); /* its own updates are overwritten */
    begin(&plain);
    int64_t n = take(&sam, 0, got);
    for (int s = 0; s < STEPS; s++) {
        sk_step_out want = reference(&plain, n, s, sgd), have = step(&sam, s);
        check(fabs(have.loss / want.loss - 1) < 1e-5 && have.tokens == want.tokens);
        check(fabs(have.grad_norm / want.grad_norm - 1) < 1e-4 && have.finite);
    }
    take(&sam, 0, got);
    for (int64_t i = 0; i < n; i++) {
        off = fmax(off, fabs((double)got[i] - w[i]));
        all += w[i] * w[i];
    }
    printf("sam, base %s: %.1e\n", sgd ? "sgd" : "adamw", off / sqrt(all / (double)n));
    check(off / sqrt(all / (double)n) <= 1e-5);
    take(&sam, 2, g);
    check(!memcmp(g, got, sizeof *g * (size_t)n)); /* between steps weights are the masters */
    close_job(&sam);
    close_job(&plain);
}

/* ---- steps that are skipped */

static void restored(bool gpu, int phase)
{
    job j;
    open(&j, "sam", false, gpu);
    check(step(&j, 0).finite);
    check(!sk_run_pull(j.run));
    int64_t n = take(&j, 0, got);
    j.poison = phase;
    check(!step(&j, 1).finite && j.phase == phase);
    check(!sk_run_pull(j.run));
    for (int what = 0; what <= 2; what += 2) {
        take(&j, what, g);
        check(!memcmp(g, got, sizeof *g * (size_t)n));
    }
    j.poison = 0;
    check(step(&j, 2).finite && j.phase == 2);
    check(!sk_run_pull(j.run));
    take(&j, 0, g);
    check(memcmp(g, got, sizeof *g * (size_t)n));
    close_job(&j);
}

int main(void)
{
    sk_fake_gpu(0);
    sk_fake_nccl();
    near(false);
    near(true);
    for (int gpu = 0; gpu < 2; gpu++)
        for (int phase = 1; phase <= 2; phase++) restored(gpu, phase);
    printf("sam: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
