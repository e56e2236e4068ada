/* sharded.c - every optimizer updates shards as it updates whole tensors.
 *
 * In canonical order each optimizer leaves the same bits of weights and state on one rank and on
 * eight layouts: replicas, every ZeRO stage, tensor, pipeline, context and expert parallelism and
 * mixes of them; on GPUs that are none (lib/fake_gpu.h) the bits of one such GPU, near to those of
 * the CPU.  Its state has the bytes of its declaration: n_state numbers of f32 a weight, on one
 * rank, and on several in all; its scalars, once a parameter on every rank; and the masters that
 * weights are moved beside. */
#include "lib/check.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"
#include "lib/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *model, *layout;
    bool gpu;
} cases[] = {
    {"llama", "dp=2", false},
    {"llama", "dp=3 zero=1 micro=2", false},
    {"llama", "dp=2 zero=2 cp=2", false},
    {"llama", "dp=2 tp=2 zero=3", false},
    {"llama", "tp=3 sp", false},
    {"llama", "pp=2 dp=2 zero=1 micro=2", false},
    {"mixtral", "ep=2 dp=2 zero=2", false},
    {"mixtral", "ep=2 tp=2 pp=2 micro=2", false},
    {"llama", "dp=2 tp=2 zero=2", true},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static sk_trial trial(const char *model, const char *optim, const char *layout, bool gpu)
{
    static char text[64][100];
    static int n;
    char *to = text[n++ % 64];
    snprintf(to, sizeof text[0], "%s%scanonical order", layout, *layout ? "; " : "");
    sk_trial t = sk_trial_small(model, to);
    t.hyper.num_hidden_layers = 2;
    t.optim = optim;
    t.clip = 1;
    t.gpu = gpu;
    return t;
}

static bool run(sk_trial *t)
{
    bool ran = !sk_trial_run(t);
    if (!ran) printf("%s, %s: %s\n", t->optim, t->layout, sk_error());
    check(ran);
    return ran;
}

static bool near(const sk_trial *a, const sk_trial *b)
{
    bool good = true;
    for (int s = 0; s < a->steps; s++) good &= fabs(a->loss[s] / b->loss[s] - 1) < 1e-5;
    return good;
}

static void same_bits(const char *optim)
{
    sk_trial llama = trial("llama", optim, "", false), mixtral = trial("mixtral", optim, "", false);
    sk_trial gpu = trial("llama", optim, "", true);
    if (!run(&llama) || !run(&mixtral) || !run(&gpu)) return;
    check(near(&gpu, &llama));
    check(isfinite(llama.loss[llama.steps - 1]));
    for (int i = 0; i < N_CASES; i++) {
        sk_trial t = trial(cases[i].model, optim, cases[i].layout, cases[i].gpu);
        const sk_trial *one = cases[i].gpu ? &gpu : *t.model->name == 'm' ? &mixtral : &llama;
        if (!run(&t)) continue;
        bool same = t.digest == one->digest && t.elements == one->elements;
        if (!same) printf("%s: other bits: %s, %s\n", optim, cases[i].model, t.layout);
        check(same && t.loss[t.steps - 1] == one->loss[t.steps - 1]);
    }
}

/* Of the state, on all ranks together. */
static int64_t state_bytes(const char *optim, const char *layout)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n = 0;
    int64_t bytes = 0, heap = 0;
    sk_trial t = trial("llama", optim, layout, false);
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    for (int r = 0; r < n; r++) {
        heap += p[r]->kind_bytes[SK_OPTIM];
        for (int b = 0; b < p[r]->bufs.n; b++)
            if (p[r]->bufs.v[b].kind == SK_OPTIM) bytes += p[r]->bufs.v[b].bytes;
    }
    check(heap >= bytes && heap < bytes + 128 * 64 * n); /* each begins at a cache line */
    sk_arena_end(&a);
    return bytes;
}

static void closed_form(const sk_optim *o)
{
    sk_arena a = {0};
    sk_graph g;
    int64_t params = 0, tensors = 0;
    sk_trial t = trial("llama", o->name, "", false);
    check(!sk_trial_graph(&a, &t, &g));
    for (int i = 0; i < g.tensors.n; i++) {
        sk_shape s = sk_tensor_shape(&g, g.tensors.v[i]);
        int64_t n = g.tensors.v[i]->role == SK_PARAM;
        for (int d = 0; d < s.n; d++) n *= s.d[d];
        params += n;
        tensors += g.tensors.v[i]->role == SK_PARAM;
    }
    int64_t scalars = 4 * (int64_t)sk_optim_scalars(o) * tensors;
    int64_t arrays = 4 * (o->n_state + (o->perturb != NULL)) * params;
    check(state_bytes(o->name, "") == arrays + scalars);
    check(state_bytes(o->name, "dp=3 zero=1") == arrays + 3 * scalars);
    sk_arena_end(&a);
}

int main(void)
{
    sk_fake_gpu(0);
    sk_fake_nccl();
    for (const sk_optim *const *o = sk_optim_parts; *o; o++) {
        if ((*o)->matrix) continue; /* test/optim/matrix_ops.c */
        if ((*o)->sends) continue;  /* test/layout/sent_state.c */
        same_bits((*o)->name);
        closed_form(*o);
    }
    printf("sharded: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
