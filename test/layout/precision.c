/* precision.c - weights and results of 16 bits, with master weights of 32.
 *
 * Every model under layouts of every family, in bf16 and f16: losses near those of f32 on one rank,
 * and nearer to those of the same type on one rank.  Bytes of weights, gradients and state are the
 * closed forms of Rajbhandari et al. 2020.  A step without finite numbers on one rank changes
 * nothing on any. */
#include "lib/check.h"
#include "lib/ranks.h"

#include <math.h>
#include <stdio.h>

static const char *const models[] = {"gpt2", "llama", "switch", "mixtral", "mlp"};
static const char *const layouts[] = {
    "dp=1",
    "dp=2",
    "dp=2 zero=1",
    "dp=2 zero=2 micro=2",
    "dp=3 zero=3",
    "tp=2",
    "tp=2 sp overlap=2",
    "pp=2 micro=3",
    "cp=2",
    "cp=2 by=ring",
    "dp=2 zero=1 replica",
    "pp=2 dp=2 tp=2 zero=3 micro=2",
    "ep=2",
    "recompute=full",
    "pp=2 micro=4 schedule=zb-h1",
};
enum { MODELS = sizeof models / sizeof *models, LAYOUTS = sizeof layouts / sizeof *layouts };

static sk_trial trial(const char *model, const char *layout, sk_dtype type)
{
    sk_trial t = {.model = sk_model_find(model), .layout = layout, .batch = 6, .seq = 12};
    t.hyper = t.model->usual;
    t.hyper.hidden_size = 32;
    t.hyper.num_hidden_layers = 3;
    t.hyper.num_attention_heads = t.hyper.num_key_value_heads = 2;
    t.hyper.intermediate_size = 48;
    t.hyper.vocab_size = 40;
    t.hyper.input_size = 20;
    t.hyper.max_position_embeddings = 12;
    t.hyper.num_local_experts = 4;
    t.hyper.num_experts_per_tok = 2;
    t.dtype = type;
    t.loss_scale = type == SK_F16 ? 256 : 0;
    t.steps = 6;
    t.clip = 1;
    return t;
}

static double apart(const sk_trial *a, const sk_trial *b)
{
    double off = 0;
    for (int s = 0; s < a->steps; s++) off = fmax(off, fabs(a->loss[s] / b->loss[s] - 1));
    return off;
}

static void one(const char *model, const char *layout, sk_dtype type, const sk_trial *wide,
                const sk_trial *alone)
{
    sk_trial t = trial(model, layout, type);
    check(!sk_trial_run(&t));
    double far = apart(&t, wide), near = apart(&t, alone);
    bool good = far < 1e-2 && near < 5e-3;
    if (!good)
        printf("%s in %s on %s: %.1e from f32, %.1e from one rank\n", model, sk_dtype_name(type),
               layout, far, near);
    check(good);
}

/* --- bytes --- */

static int64_t elements(const sk_graph *g, sk_dtype type)
{
    int64_t sum = 0;
    for (int i = 0; i < g->tensors.n; i++) {
        int64_t n = g->tensors.v[i]->role == SK_PARAM && g->tensors.v[i]->type == type;
        for (const char *p = g->tensors.v[i]->letters; *p; p++) n *= g->size[(int)*p];
        sum += n;
    }
    return sum;
}

/* Weights, gradients and state of a rank, without what lines of memory are rounded up to. */
static int64_t state_bytes(const sk_program *p)
{
    int64_t sum = 0;
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        bool counts = b->kind == SK_WEIGHTS || b->kind == SK_GRADS || b->kind == SK_OPTIM;
        if (counts && b->keep && b->within < 0) sum += b->bytes;
    }
    return sum;
}

static void forms(int level)
{
    enum { N = 4 };
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0;
    char layout[32];
    snprintf(layout, sizeof layout, "dp=%d zero=%d", N, level);
    sk_trial t = trial("llama", layout, SK_BF16);
    t.hyper.vocab_size = 64; /* so that every first dim divides */
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    int64_t all = elements(&g, SK_BF16), want = level == 0   ? 16 * all
                                                : level == 1 ? 4 * all + 12 * all / N
                                                : level == 2 ? 2 * all + 14 * all / N
                                                             : 16 * all / N;
    for (int r = 0; r < n && p; r++) {
        if (state_bytes(p[r]) != want)
            printf("zero=%d: %lld bytes of state, not %lld\n", level, (long long)state_bytes(p[r]),
                   (long long)want);
        check(state_bytes(p[r]) == want);
    }
    sk_arena_end(&a);
}

static int64_t heap(sk_dtype type, int threads)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0;
    sk_trial t = trial("llama", "dp=1", type);
    t.threads = threads;
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    int64_t bytes = n ? p[0]->heap_bytes : 0;
    sk_arena_end(&a);
    return bytes;
}

/* Where narrow operands are made wide, a team has once: threads cost what they cost in f32. */
static void teams(sk_dtype type)
{
    int64_t more = heap(type, 8) - heap(type, 1), want = heap(SK_F32, 8) - heap(SK_F32, 1);
    if (more != want)
        printf("%s: 7 threads more take %lld bytes, in f32 %lld\n", sk_dtype_name(type),
               (long long)more, (long long)want);
    check(more == want);
    sk_trial one = trial("mixtral", "dp=2 zero=2", type), three = one;
    three.threads = 3;
    check(!sk_trial_run(&one) && !sk_trial_run(&three));
    check(apart(&one, &three) < 1e-3);
}

/* State of bf16: 12 bytes a parameter; lots go by place, so in canonical order bits do not change.
 */
static void narrow_state(void)
{
    static const char *const spread[] = {"dp=2 zero=1", "dp=3 zero=3 micro=2", "tp=2 sp",
                                         "pp=2 dp=2 tp=2 zero=2 micro=2"};
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0;
    sk_trial t = trial("llama", "dp=4 zero=3", SK_BF16), wide = trial("llama", "dp=1", SK_F32);
    t.hyper.vocab_size = 64;
    t.state_type = SK_BF16;
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    for (int r = 0; r < n && p; r++) check(state_bytes(p[r]) == 12 * elements(&g, SK_BF16) / 4);
    sk_arena_end(&a);
    sk_trial one = trial("llama", "dp=1; canonical order", SK_F32);
    one.state_type = SK_BF16;
    check(!sk_trial_run(&wide) && !sk_trial_run(&one));
    check(apart(&one, &wide) < 1e-2 && apart(&one, &wide) > 0);
    for (size_t i = 0; i < sizeof spread / sizeof *spread; i++) {
        char text[96];
        snprintf(text, sizeof text, "%s; canonical order", spread[i]);
        sk_trial many = one;
        many.layout = text;
        check(!sk_trial_run(&many));
        if (many.digest != one.digest) printf("state of bf16 on %s: other bits\n", spread[i]);
        check(many.digest == one.digest);
    }
}

/* Rounded stochastically a number is itself on the average, and one that bf16 has always. */
static void lots(void)
{
    for (int k = 0; k < 8; k++) {
        float x = (float)(k + 1) * 0.7310585f * (k % 2 ? -1 : 1);
        double sum = 0;
        for (uint32_t bits = 0; bits < 65536; bits++)
            sum += sk_from_bf16(sk_to_bf16_stochastic(x, bits));
        check(fabs(sum / 65536 / (double)x - 1) < 1e-7);
        float has = sk_from_bf16(sk_to_bf16(x));
        for (uint32_t bits = 0; bits < 65536; bits += 4095)
            check(sk_from_bf16(sk_to_bf16_stochastic(has, bits)) == has);
    }
    check(isinf(sk_from_bf16(sk_to_bf16_stochastic(INFINITY, 65535))));
    check(isnan(sk_from_bf16(sk_to_bf16_stochastic(NAN, 65535))));
}

static void routers_are_wide(void)
{
    sk_arena a = {0};
    sk_graph g;
    sk_trial t = trial("mixtral", "dp=1", SK_BF16);
    check(!sk_trial_graph(&a, &t, &g));
    int wide = 0;
    for (int i = 0; i < g.tensors.n; i++) {
        const sk_tensor *x = g.tensors.v[i];
        if (x->role == SK_PARAM && x->type == SK_F32) wide += strstr(x->name, "router") != NULL;
        else if (x->role == SK_PARAM) check(!strstr(x->name, "router"));
    }
    check(wide == 3);
    for (int w = 0; w < SK_N_SUMS; w++) check(!g.sum[w] || g.sum[w]->type == SK_F32);
    sk_arena_end(&a);
}

/* --- numbers that are not finite --- */

static void poisoned(const char *layout, sk_dtype type)
{
    sk_trial good = trial("llama", layout, type), bad_one = good;
    good.steps = 1;
    bad_one.steps = 2;
    bad_one.poison = 1; /* the second step has a NaN in one row */
    check(!sk_trial_run(&good) && !sk_trial_run(&bad_one));
    check(!isfinite(bad_one.loss[1]));
    if (bad_one.digest != good.digest) printf("%s: a poisoned step left a trace\n", layout);
    check(bad_one.digest == good.digest && good.elements == bad_one.elements);
}

/* One element of one gradient of one rank alone: the norm is no number, and no rank updates. */
static void poisoned_grad(const char *layout, sk_dtype type, bool canonical, bool first)
{
    char text[96];
    snprintf(text, sizeof text, "%s%s", layout, canonical ? "; canonical order" : "");
    sk_trial good = trial("llama", text, type);
    good.steps = 1;
    check(!sk_trial_run(&good));
    for (int r = 0; r < good.n_ranks; r++) {
        sk_trial t = good;
        t.steps = 2;
        t.poison = 1;
        t.poison_grad = r + 1;
        t.poison_first = first;
        check(!sk_trial_run(&t));
        if (t.digest != good.digest) printf("%s: a gradient of rank %d left a trace\n", text, r);
        check(isfinite(t.loss[1]) && !isfinite(t.norm[1]));
        check(t.digest == good.digest && t.elements == good.elements);
    }
}

int main(void)
{
    static const sk_dtype types[] = {SK_BF16, SK_F16};
    int runs = 0;
    for (int m = 0; m < MODELS; m++) {
        sk_trial wide = trial(models[m], "dp=1", SK_F32);
        check(!sk_trial_run(&wide));
        for (int k = 0; k < 2; k++) {
            sk_trial alone = trial(models[m], "dp=1", types[k]);
            check(!sk_trial_run(&alone));
            for (int l = 0; l < LAYOUTS; l++)
                if (due(m + l + k, 2)) {
                    one(models[m], layouts[l], types[k], &wide, &alone);
                    runs++;
                }
        }
    }
    for (int level = 0; level <= 3; level++) forms(level);
    routers_are_wide();
    for (int k = 0; k < 2; k++) teams(types[k]);
    narrow_state();
    lots();
    for (int l = 0; l < LAYOUTS; l++)
        for (int k = 0; k < 2; k++) {
            if (!due(l + k, 2)) continue;
            poisoned(layouts[l], types[k]);
            poisoned_grad(layouts[l], k ? SK_F32 : SK_BF16, false, l % 2);
            poisoned_grad(layouts[l], SK_F32, true, k);
        }
    sk_trial order = trial("llama", "dp=1; canonical order", SK_BF16);
    fails(sk_trial_run(&order), SK_ECONF, "in f32");
    printf("precision: %d runs, %d checks, %d bad\n", runs, checks, bad);
    return bad > 0;
}
