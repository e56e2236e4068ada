/* late.c - an optimizer that runs beside the next step (ZeRO-Offload's delayed update).
 *
 * After every step each rank's masters and state must be what the optimizer's own pass makes of
 * those before it and of the gradient that the step before left; what is left must be this step's
 * gradient, scaled; and the weights of the device must be the masters, rounded: all to the bit.
 * Losses must be near those of a run whose updates are in time.  A step whose numbers are not
 * finite leaves nothing: the next one changes neither masters nor state. */
#include "lib/check.h"
#include "lib/ranks.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMS = 128 };

typedef struct past { /* of one rank, as the step before left it */
    real *master[PARAMS], *state[PARAMS][SK_MAX_STATE];
} past;

static past pasts[SK_TEST_RANKS];
static int looked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int64_t count(const sk_program *p, int buf)
{
    return p->bufs.v[buf].bytes / (int64_t)sk_dtype_size(p->bufs.v[buf].type);
}

static real *copy_of(const sk_run *run, const sk_program *p, int buf)
{
    size_t bytes = (size_t)p->bufs.v[buf].bytes;
    real *x = malloc(bytes + 1);
    memcpy(x, sk_run_data(run, buf), bytes);
    return x;
}

/* One pass over what was, with the numbers of a trial (lib/ranks.c). */
static void make(const sk_program *p, const sk_param_plan *q, past *was, int i, int step)
{
    const sk_optim *o = p->optim;
    sk_piece x = {.n = count(p, q->master),
                  .param = was->master[i],
                  .grad = was->state[i][q->n_state - 1],
                  .scale = 1,
                  .step = step}; /* the first is that of step 1, from 0 */
    for (int s = 0; s < o->n_state; s++) x.state[s] = was->state[i][s];
    for (int k = 0; o->knobs[k].name; k++) {
        const char *name = o->knobs[k].name;
        x.knob[k] = !strcmp(name, "lr")      ? 1e-3F
                    : !strcmp(name, "beta1") ? 0.9F
                    : !strcmp(name, "beta2") ? 0.95F
                    : !strcmp(name, "eps")   ? 1e-8F
                    : !strcmp(name, "decay") ? (q->decay ? 0.1F : 0)
                                             : (float)o->knobs[k].usual;
    }
    o->pass[0](&x);
}

static bool same(const sk_run *run, const sk_program *p, int buf, const real *x)
{
    return !memcmp(sk_run_data(run, buf), x, (size_t)p->bufs.v[buf].bytes);
}

/* Weights are the master in their own type. */
static bool narrowed(const sk_run *run, const sk_program *p, const sk_param_plan *q)
{
    const sk_buffer *b = &p->bufs.v[q->shard];
    char *want = malloc((size_t)b->bytes + 1);
    sk_convert(want, b->type, sk_run_data(run, q->master), SK_F32, count(p, q->shard));
    bool good = !memcmp(want, sk_run_data(run, q->shard), (size_t)b->bytes);
    free(want);
    return good;
}

/* What is left is the gradient times one number for all. */
static bool scaled(const sk_run *run, const sk_program *p, const sk_param_plan *q, double *scale)
{
    const real *left = sk_run_data(run, q->state[q->n_state - 1]);
    const sk_buffer *b = &p->bufs.v[q->grad_shard];
    int64_t n = count(p, q->grad_shard);
    real *grad = malloc((size_t)n * sizeof *grad + 1);
    sk_convert(grad, SK_F32, sk_run_data(run, q->grad_shard), b->type, n);
    bool good = true;
    for (int64_t i = 0; i < n; i++) {
        if (fabs((double)grad[i]) < 1e-6) continue;
        double one = (double)(left[i] / grad[i]);
        if (*scale <= 0) *scale = one;
        good &= fabs(one / *scale - 1) < 1e-5;
    }
    free(grad);
    return good;
}

static void look(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    past *was = &pasts[p->rank];
    double scale = 0;
    bool good = true;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        bool skipped = t->poison && step == t->poison;
        if (step) {
            if (!t->poison || step != t->poison + 1) make(p, q, was, i, step);
            good &= same(run, p, q->master, was->master[i]);
            for (int s = 0; s < p->optim->n_state; s++)
                good &= same(run, p, q->state[s], was->state[i][s]);
        }
        good &= narrowed(run, p, q) && (skipped || scaled(run, p, q, &scale));
        if (step) free(was->master[i]);
        was->master[i] = copy_of(run, p, q->master);
        for (int s = 0; s < q->n_state; s++) {
            if (step) free(was->state[i][s]);
            was->state[i][s] = copy_of(run, p, q->state[s]);
        }
    }
    pthread_mutex_lock(&lock);
    if (!good) printf("%s: rank %d: another step %d\n", t->layout, p->rank, step);
    check(good);
    looked++;
    pthread_mutex_unlock(&lock);
}

static sk_trial trial(const char *layout, bool late)
{
    sk_trial t = sk_trial_small("llama", layout);
    t.hyper.num_hidden_layers = 3;
    t.steps = 6;
    t.clip = 1;
    t.late = late;
    if (late) t.after = look;
    return t;
}

static void forget(void)
{
    for (int r = 0; r < SK_TEST_RANKS; r++)
        for (int i = 0; i < PARAMS; i++) {
            free(pasts[r].master[i]);
            for (int k = 0; k < SK_MAX_STATE; k++) free(pasts[r].state[i][k]);
        }
    memset(pasts, 0, sizeof pasts);
}

static void one(const char *layout, sk_dtype dtype)
{
    sk_trial t = trial(layout, true), plain = trial(layout, false);
    t.dtype = plain.dtype = dtype;
    forget();
    check(!sk_trial_run(&t) && !sk_trial_run(&plain));
    int last = t.steps - 1;
    check(t.loss[0] == plain.loss[0]);
    bool near =
        fabs(t.loss[last] / plain.loss[last] - 1) < 0.02 && t.loss[last] != plain.loss[last];
    if (!near) printf("%s: loss %g, in time %g\n", layout, t.loss[last], plain.loss[last]);
    check(near);
}

/* One step of several has a gradient that is no number; the numbers of updates are those of a
 * caller that counts it, as the trial does. */
static void one_skipped(const char *layout)
{
    sk_trial t = trial(layout, true);
    t.poison = 3;
    forget();
    check(!sk_trial_run(&t));
    check(isnan(t.loss[3]) && isfinite(t.loss[4]) && isfinite(t.loss[5]));
}

int main(void)
{
    static const char *const layouts[] = {"offload=state",
                                          "dp=2 micro=2 offload=state",
                                          "dp=2 zero=1 offload=state",
                                          "dp=2 zero=3 offload=state",
                                          "tp=2 pp=2 micro=2 offload=state",
                                          "dp=2 zero=2; offload state to host; canonical order"};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        one(layouts[i], SK_F32);
        if (!strstr(layouts[i], "canonical")) one(layouts[i], SK_BF16);
    }
    one_skipped("offload=state");
    one_skipped("dp=2 zero=2 micro=2 offload=state");
    sk_trial t = trial("dp=2", true);
    fails(sk_trial_run(&t), SK_ECONF, "say offload=state");
    t = trial("dp=2 offload=state", true);
    t.optim = "lamb";
    fails(sk_trial_run(&t), SK_ECONF, "optimizers of one pass");
    t = trial("pp=2 micro=4 schedule=pipedream offload=state", true);
    fails(sk_trial_run(&t), SK_ECONF, "leave one of the two out");
    forget();
    printf("late: %d steps looked at, %d checks, %d bad\n", looked, checks, bad);
    return bad > 0;
}
