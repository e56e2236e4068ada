/* gpu.c - programs of several ranks on fake GPUs (lib/fake_gpu.h), against the same programs on
 * CPUs.
 *
 * Codecs with and without error feedback, a second copy of weights, a step that is skipped (which
 * resets the error feedback), 16 bits with a loss scale; pipelines with weight prediction.  Kernels
 * are those of the CPU.  With two ranks, where a sum has one order, weights, state and error
 * feedback are the same to the bit; with more, losses are near. */
#include "lib/check.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"
#include "lib/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int runs;

static sk_trial trial(const char *model, const char *layout)
{
    sk_trial t = sk_trial_small(model, layout);
    t.hyper.hidden_size = 48;
    t.hyper.intermediate_size = 72;
    t.hyper.vocab_size = 40;
    t.hyper.input_size = 20;
    t.hyper.num_hidden_layers = 2;
    t.steps = 5;
    return t;
}

static bool run(sk_trial *t)
{
    sk_status st = sk_trial_run(t);
    if (st)
        printf("%s: %s on %s: %s\n", t->model->name, t->layout, t->gpu ? "cuda" : "cpu",
               sk_error());
    check(!st);
    runs++;
    return !st;
}

/* by 0: the same bits. */
static void same(sk_trial t, double by)
{
    sk_trial u = t;
    u.gpu = true;
    if (!run(&t) || !run(&u)) return;
    double off = 0;
    for (int s = 0; s < t.steps; s++) {
        check(!isfinite(t.loss[s]) == !isfinite(u.loss[s]));
        if (isfinite(t.loss[s])) off = fmax(off, fabs(u.loss[s] / t.loss[s] - 1));
    }
    bool good = by > 0 ? off <= by : t.digest == u.digest && t.elements == u.elements && off == 0;
    if (!good)
        printf("%s: %s: losses %.1e apart, digests %llx %llx\n", t.model->name, t.layout, off,
               (unsigned long long)t.digest, (unsigned long long)u.digest);
    check(good);
}

static void codecs(void)
{
    static const char *const two[] = {
        "dp=2",
        "dp=2 zero=3",
        "dp=2 zero=3 weights=int8",
        "dp=2 zero=3 weights=fp8 grads=int8",
        "dp=2 zero=3 weights=bf16 grads=f16",
        "dp=2 zero=3 weights=int8 grads=int4 feedback copy=2",
        "dp=2 zero=2 micro=2 grads=int4 feedback",
        "dp=2 zero=1 grads=int4 feedback",
        "dp=2 grads=int4 feedback",
        "dp=2 grads=f16 feedback",
        "dp=2 grads=topk:0.2 feedback",
        "dp=2 grads=threshold:2 feedback",
        "dp=2 zero=2 micro=2 grads=chunks:0.4 feedback",
        "dp=2 zero=2 micro=2 grads=topk:0.2 feedback",
        "dp=2 grads=randk:0.4",
        "dp=2 zero=3 grads=randk:0.4 feedback",
        "dp=2 grads=sign feedback",
        "dp=2 zero=2 micro=2 grads=q2",
        "dp=2 grads=q4",
        "dp=2 zero=3 weights=int8 grads=q8 feedback",
        "dp=2 zero=3 prefetch=2 micro=2 weights=int4 grads=fp8 feedback",
    };
    for (size_t k = 0; k < sizeof two / sizeof *two; k++) {
        same(trial("llama", two[k]), 0);
        sk_trial t = trial("gpt2", two[k]);
        t.dtype = SK_F16;
        t.loss_scale = 256;
        same(t, 0);
        t = trial("llama", two[k]);
        t.poison = 2;
        if (strstr(two[k], "feedback")) same(t, 0);
    }
    same(trial("llama", "dp=4 zero=3 weights=int8 grads=int4 feedback copy=2"), 1e-3);
    same(trial("mixtral", "dp=3 grads=int8 feedback"), 1e-3);
    same(trial("llama", "dp=2 tp=2 zero=3 micro=2 weights=int8 grads=int4 feedback"), 1e-3);
}

static void pipelines(void)
{
    static const char *const layouts[] = {"pp=2 schedule=pb micro=4",
                                          "pp=2 schedule=pipedream micro=4",
                                          "pp=2 schedule=1f1b micro=4"};
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++)
        for (int how = 0; how < 4; how++) {
            sk_trial t = trial("llama", layouts[k]);
            t.optim = "sgd-pb";
            t.knobs[0] = (struct sk_trial_knob){"compensate", how & 1};
            t.knobs[1] = (struct sk_trial_knob){"predict", how >> 1};
            t.lr = 0.05;
            same(t, 0);
        }
    sk_trial t = trial("llama", "pp=2 dp=2 zero=1 schedule=pb micro=4");
    t.optim = "sgd-pb";
    t.knobs[0] = (struct sk_trial_knob){"compensate", 1};
    t.knobs[1] = (struct sk_trial_knob){"predict", 1};
    same(t, 0);
}

int main(void)
{
    sk_fake_gpu(100);
    sk_fake_nccl();
    codecs();
    pipelines();
    printf("gpu: %d runs, %d checks, %d bad\n", runs, checks, bad);
    return bad > 0;
}
