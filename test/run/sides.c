/* sides.c - comm streams: programs of several ranks on fake GPUs (lib/fake_gpu.h,
 * lib/fake_nccl.h).
 *
 * Collectives and messages are on streams beside the compute stream; the first step is issued, the
 * second captured, the others are replayed.  Copies and calls are delayed at random, so that a
 * missing order shows: losses must be those of the same layout on the CPU, and weights near. */
#include "base/clock.h"
#include "lib/check.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"
#include "lib/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *model, *layout;
} cases[] = {
    {"gpt2", "dp=2"},
    {"gpt2", "dp=2 zero=1 micro=2"},
    {"gpt2", "dp=2 zero=2 micro=2"},
    {"llama", "dp=2 zero=3 micro=2 prefetch=2"},
    {"llama", "dp=2 zero=3 keep recompute=full"},
    {"gpt2", "tp=2"},
    {"gpt2", "tp=2 sp overlap=2 recompute=full"},
    {"llama", "tp=2 sp overlap=2"},
    {"llama", "tp=2 recompute=full partition"},
    {"llama", "tp=2 slices=4"},
    {"gpt2", "pp=2 micro=4"},
    {"gpt2", "pp=2 micro=4 schedule=interleaved chunks=2"},
    {"llama", "pp=2 micro=4 schedule=zb-v"},
    {"gpt2", "pp=4 micro=4 schedule=zb-h1"},
    {"gpt2", "pp=2 dp=2 tp=2 sp zero=2 micro=2"},
    {"llama", "cp=2 by=ring"},
    {"llama", "cp=2 by=exchange dp=2"},
    {"gpt2", "cp=2"},
    {"mixtral", "ep=2 dp=2"},
    {"switch", "ep=2 tp=2"},
    {"switch", "dp=2 zero=3 gist"},
    {"llama", "dp=2 zero=3 offload=all micro=2"},
    {"gpt2", "pp=2 micro=2 offload=all tiles=2"},
    {"gpt2", "dp=2 zero=1 offload=all:file"},
    {"mlp", "dp=3 tp=2"},
    {"gpt2", "pp=2 micro=4 schedule=pipedream"},
    {"gpt2", "pp=2 micro=4 schedule=pipedream-2bw"},
    {"llama", "pp=2 dp=2 micro=4 schedule=pipedream zero=1 offload=all"},
    {"gpt2", "pp=2 micro=4 schedule=pb"},
    {"llama", "cp=2 dp=2 zero=3 keep"},
    {"mixtral", "ep=2 pp=2 micro=2 recompute=full"},
};
enum { CASES = sizeof cases / sizeof *cases };

static const struct {
    const char *model, *layout;
} ordered[] = {
    {"gpt2", "dp=1"},
    {"gpt2", "dp=4"},
    {"gpt2", "dp=3 zero=1"},
    {"llama", "dp=2 zero=3 micro=2"},
    {"gpt2", "tp=2 sp"},
    {"llama", "dp=2 tp=2"},
    {"gpt2", "pp=2 micro=4"},
    {"llama", "cp=2"},
    {"mixtral", "ep=2 dp=2"},
    {"mlp", "dp=3 tp=2"},
    {"llama", "dp=2 micro=2 offload=acts"},
};
enum { ORDERED = sizeof ordered / sizeof *ordered };

static int runs;

static bool run(sk_trial *t)
{
    sk_status st = sk_trial_run(t);
    if (st) printf("%s: %s: %s\n", t->model->name, t->layout, sk_error());
    check(!st);
    runs++;
    return !st;
}

static void same(const char *model, const char *layout, const char *optim)
{
    sk_trial t = sk_trial_small(model, layout), u;
    t.steps = 5;
    t.optim = optim;
    t.clip = strstr(layout, "schedule=p") ? 0 : 0.5; /* stages update apart */
    u = t;
    u.gpu = true;
    if (!run(&t) || !run(&u)) return;
    for (int s = 0; s < t.steps; s++) {
        bool near =
            fabs(u.loss[s] / t.loss[s] - 1) < 1e-5 && fabs(u.norm[s] / t.norm[s] - 1) < 1e-3;
        if (!near)
            printf("%s: %s: step %d: loss %.9g, %.9g; norm %.9g, %.9g\n", model, layout, s,
                   t.loss[s], u.loss[s], t.norm[s], u.norm[s]);
        check(near);
    }
    check(fabs(u.valid / t.valid - 1) < 1e-5 && u.elements == t.elements);
}

/* In canonical order the bits are those of one rank: with the CPU's kernels, those of the CPU. */
static void to_the_bit(const char *model, const char *layout, const char *optim)
{
    char text[128];
    snprintf(text, sizeof text, "%s; canonical order", layout);
    sk_trial one = sk_trial_small(model, "dp=1; canonical order"), t = sk_trial_small(model, text),
             *v[2];
    v[0] = &one, v[1] = &t;
    for (int i = 0; i < 2; i++) {
        v[i]->steps = 4;
        v[i]->optim = optim;
        v[i]->clip = 0.5;
        v[i]->gpu = i || optim; /* sums of an optimizer are taken in cells there */
        if (!run(v[i])) return;
    }
    for (int s = 0; s < t.steps; s++) {
        bool same = t.loss[s] == one.loss[s] && t.norm[s] == one.norm[s];
        if (!same)
            printf("%s: %s: step %d: loss %.17g, %.17g; norm %.17g, %.17g\n", model, text, s,
                   one.loss[s], t.loss[s], one.norm[s], t.norm[s]);
        check(same);
    }
    check(t.valid == one.valid && t.digest == one.digest);
}

/* The host's optimizer rounds otherwise than the GPU's. */
static void hosted(const char *layout)
{
    sk_trial t = sk_trial_small("gpt2", layout);
    t.gpu = true;
    check(sk_trial_run(&t) == SK_ECONF &&
          strstr(sk_error(), "the host would do what the GPU does"));
    runs++;
}

/* One rank cannot read its data while the others wait for it in a call: its message is told, and
 * soon. */
static void failing(const char *layout)
{
    for (int fail = 1; fail < 5; fail++) {
        if (!due(fail, 2)) continue;
        sk_trial t = sk_trial_small("gpt2", layout);
        t.gpu = true;
        t.steps = 6;
        t.fail = fail;
        t.timeout_s = 30;
        double before = sk_now();
        sk_status st = sk_trial_run(&t);
        bool told = st == SK_EIO && strstr(sk_error(), "cannot be read");
        if (!told || sk_now() - before > 10)
            printf("%s: %.3g s, %s\n", layout, sk_now() - before, sk_error());
        check(told && sk_now() - before < 10);
        runs++;
    }
}

int main(void)
{
    sk_fake_gpu(100);
    sk_fake_nccl();
    for (int i = 0; i < CASES; i++) {
        same(cases[i].model, cases[i].layout, NULL);
        if (i % 4 == 1 && i < 24 && due(i / 4, 2)) same(cases[i].model, cases[i].layout, "lamb");
    }
    for (int i = 0; i < ORDERED; i++) {
        to_the_bit(ordered[i].model, ordered[i].layout, NULL);
        if (i % 4 == 1) to_the_bit(ordered[i].model, ordered[i].layout, "lamb");
    }
    hosted("dp=1 offload=state; canonical order");
    hosted("dp=2 offload=grads; canonical order");
    failing("dp=2");
    failing("dp=4 zero=3 micro=2");
    failing("dp=2 tp=2 sp");
    failing("dp=2 zero=2 offload=all");
    printf("sides: %d runs, %d checks, %d bad\n", runs, checks, bad);
    return bad > 0;
}
