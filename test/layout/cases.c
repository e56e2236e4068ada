/* cases.c - layouts that somebody might think of: each gives the losses of one rank, or an
 * error message.
 *
 * Beside the shelf's models there is one with what they lack (a parameter
 * without dims, one used three times on three layers), and an optimizer with
 * three passes and sums between them. */
#include "lib/ranks.h"

#include "base/strings.h"
#include "model/blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- a model with odd parameters --- */

static void odd_build(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    (void)mode;
    sk_graph_size(g, 'c', h->hidden_size);
    sk_graph_size(g, 'f', h->intermediate_size);
    sk_graph_size(g, 'v', h->vocab_size);
    sk_tensor *tokens = sk_input(g, "tokens", "bt", SK_I32);
    sk_tensor *wte = sk_param(g, "wte", "vc", 0.5), *lift = sk_param(g, "lift", "", 0.5);
    sk_tensor *x = sk_apply(g, "embedding", .in = {wte, tokens})->out[0];
    for (g->layer = 1; g->layer <= 2; g->layer++) {
        sk_tensor *up = sk_param_f(g, "cf", 0.3, "up.%d", g->layer);
        sk_tensor *down = sk_param_f(g, "fc", 0.3, "down.%d", g->layer);
        sk_tensor *y = sk_contract(g, "btc,cf->btf", x, up);
        y = sk_apply(g, "bias", .dims = "btf,->btf", .in = {y, lift})->out[0];
        y = sk_apply(g, "relu", .in = {y})->out[0];
        x = sk_apply(g, "add", .in = {x, sk_contract(g, "btf,fc->btc", y, down)})->out[0];
        sk_tensor *again = sk_apply(g, "embedding", .in = {wte, tokens})->out[0];
        x = sk_apply(g, "add", .in = {x, again})->out[0];
    }
    sk_cross_entropy(g, sk_contract(g, "btc,vc->btv", x, wte), sk_input(g, "targets", "bt", SK_I32),
                     sk_input(g, "weights", "bt", SK_F32));
}

static const sk_model odd = {.name = "odd", .build = odd_build};

/* --- an optimizer whose passes pass sums on --- */

enum { LR };

static double norm2(const real *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

static void measure(sk_piece *p) /* the norms of weight and gradient */
{
    p->sum[0] = norm2(p->param, p->n);
    p->sum[1] = norm2(p->grad, p->n) * (double)p->scale * (double)p->scale;
}

static void gather_up(sk_piece *p) /* momentum of a gradient scaled by their ratio; its norm */
{
    real trust = (real)((sqrt(p->sum[0]) + 0.1) / (sqrt(p->sum[1]) + 0.1));
    for (int64_t i = 0; i < p->n; i++)
        p->state[0][i] = (real)0.9 * p->state[0][i] + trust * p->scale * p->grad[i];
    p->sum[0] = norm2(p->state[0], p->n);
    p->sum[1] = 0;
}

static void apply(sk_piece *p) /* a step of bounded length */
{
    real rate = p->knob[LR] / (real)(1 + sqrt(p->sum[0]));
    for (int64_t i = 0; i < p->n; i++) p->param[i] -= rate * p->state[0][i];
}

static const sk_optim three = {.name = "three",
                               .n_state = 1,
                               .n_sums = 2,
                               .state = {"m"},
                               .knobs = {SK_LR(0.1)},
                               .pass = {measure, gather_up, apply}};

/* --- the table --- */

typedef enum what { GPT, LLAMA, MLP, ODD, THREE, N_WHAT } what;

static const struct layout_case {
    what model;
    const char *layout;
    const char *message; /* NULL: it runs */
} cases[] = {
    /* axes with the user's names */
    {GPT, "mesh a=2 z=2; split b over a; split h f over z", NULL},
    {GPT, "mesh a=2 z=2; split h f over a; split b over z", NULL},
    {LLAMA, "mesh left=3; split f over left", NULL},
    /* any letter alone */
    {GPT, "mesh x=2; split v over x", NULL},
    {GPT, "mesh x=2; split c over x", NULL},
    {GPT, "mesh x=3; split t over x", NULL},
    {GPT, "mesh x=2; split d over x", NULL},
    {GPT, "mesh x=2; split s over x", NULL},
    {GPT, "mesh x=2; split p over x", NULL},
    {GPT, "mesh x=2; split q over x", NULL}, /* compiled all the same; a job is told, see below */
    {LLAMA, "mesh x=2; split r over x", NULL},
    {MLP, "mesh x=3; split x f over x", NULL},
    /* a letter over two axes, two letters over one */
    {GPT, "mesh a=2 z=2; split b over a; split b over z", NULL},
    {GPT, "mesh a=2 z=2; split f v over a; split f v over z", NULL},
    {GPT, "mesh a=2 z=2; split c over a; split c over z", NULL},
    {GPT, "mesh a=2 z=3; split t over a; split t over z", NULL},
    {GPT, "mesh z=2 a=2; split h over a; split h b over z", NULL},
    {GPT, "mesh a=2 z=2; split h over a; split h b over z", NULL},
    {GPT, "mesh x=2; split b h f v over x", NULL},
    {GPT, "mesh x=2; split t h f v over x", NULL},
    {GPT, "mesh x=2; split v c over x", NULL},
    {LLAMA, "mesh a=2 z=2; split c over a; split h f v over z", NULL},
    {LLAMA, "mesh a=2 z=2 y=2; split v t over a; split v over z; split c over y", NULL},
    /* pieces that are empty: more ranks than things */
    {GPT, "dp=7 zero=1", NULL},
    /* found by random pairs and by review: a tied weight begun ahead, two rings, experts that share
     */
    {GPT, "dp=2 zero=3 prefetch=2", NULL},
    {LLAMA, "mesh x=2 y=2; split t over x by ring; split t over y by ring", NULL},
    {GPT, "cp=3 by=exchange", NULL},
    {GPT, "dp=3 zero=1 replica; canonical order", NULL},
    {GPT, "pp=2 schedule=zb-v micro=3; canonical order", NULL},
    {GPT, "pp=4 schedule=interleaved chunks=2 micro=6", NULL},
    {GPT, "tp=7", NULL},
    {LLAMA, "tp=5 zero=3", NULL},
    {GPT, "pp=6 micro=2", NULL},
    {GPT, "pp=8 micro=4", NULL},
    {LLAMA, "pp=7 micro=5 schedule=gpipe", NULL},
    {GPT, "dp=2 micro=9", NULL},
    {MLP, "dp=8 zero=3 micro=2", NULL},
    /* products in chunks: more chunks than rows, both kinds of sums, copies, gathers, tied, staged
     */
    {GPT, "tp=2 overlap=2", NULL},
    {LLAMA, "tp=2 overlap=9", NULL},
    {LLAMA, "tp=3 sp overlap=2", NULL},
    {GPT, "dp=2 tp=2 sp zero=3 prefetch=1 overlap=3", NULL},
    {LLAMA, "dp=2 tp=2 sp zero=2 micro=2 overlap=2 order: tp dp", NULL},
    {GPT, "pp=2 tp=2 sp micro=2 overlap=2", NULL},
    {LLAMA, "pp=2 tp=2 schedule=zb-v micro=2 overlap=2", NULL},
    {LLAMA, "cp=2 tp=2 sp by=ring overlap=2", NULL},
    {LLAMA, "mesh a=2 z=2; split c over a; split h f v over z; overlap in 2 turns", NULL},
    {GPT, "tp=2 sp overlap=2; canonical order", NULL},
    {LLAMA, "tp=3 overlap=4; canonical order", NULL},
    {MLP, "mesh x=3; split x f over x; overlap in 2 turns", NULL},
    /* everything at once, in any order */
    {GPT, "dp=2 tp=2 pp=2 zero=3 micro=2", NULL},
    {GPT, "dp=2 tp=2 pp=2 zero=3 micro=3 order: tp dp pp", NULL},
    {LLAMA, "dp=2 tp=2 pp=2 zero=2 order: dp pp tp", NULL},
    {LLAMA, "dp=2 tp=2 pp=2 zero=1 micro=2 order: tp pp dp", NULL},
    {GPT, "dp=3 tp=2 zero=3 order: tp dp", NULL},
    {GPT, "dp=3 tp=2 zero=1 order: tp dp", NULL},
    /* sharding over all sorts of axes */
    {GPT, "mesh dp=2 z=2; split b over dp; shard params over z; micro 2", NULL},
    {GPT, "mesh dp=2 z=2; split b over dp; shard grads over z", NULL},
    {GPT, "mesh dp=2 z=2; split b over dp; shard state over z", NULL},
    {GPT, "mesh r=2 dp=2; split b over r; split b over dp; shard params over dp", NULL},
    {GPT, "mesh r=2 dp=2; split b over r; split b over dp; shard params over r", NULL},
    {GPT, "mesh x=2; split t over x; shard params over x", NULL},
    {GPT,
     "mesh a=2 dp=2 z=2; split b over dp; split v h over a; split v f over z; "
     "shard params over dp",
     NULL},
    {GPT, "mesh x=2; split h over x; shard params over x", NULL},
    {GPT, "dp=1 zero=3", NULL},
    {GPT, "mesh dp=2; zero=2", NULL},
    /* parameters without dims, or on many stages */
    {ODD, "dp=2", NULL},
    {ODD, "dp=2 zero=1", NULL},
    {ODD, "dp=3 zero=2 micro=2", NULL},
    {ODD, "dp=2 zero=3 micro=2", NULL},
    {ODD, "tp=2 zero=3", NULL},
    {ODD, "pp=2 dp=2 zero=3 micro=2", NULL},
    {ODD, "pp=3 tp=2 micro=2", NULL},
    /* one copy of the weights: empty pieces, no dims, axes that repeat the pieces, three passes */
    {GPT, "dp=7 replica", NULL},
    {GPT, "tp=7 dp=1 replica", NULL},
    {LLAMA, "tp=5 dp=2 replica order: tp dp", NULL},
    {ODD, "dp=2 replica", NULL},
    {ODD, "dp=3 zero=2 micro=2 replica", NULL},
    {ODD, "pp=3 dp=2 micro=2 replica", NULL},
    {GPT, "mesh dp=2 z=2; split b over dp; shard state over z; replica", NULL},
    {GPT, "mesh r=2 dp=2; split b over r; split b over dp; shard grads over dp; replica", NULL},
    {THREE, "dp=3 replica", NULL},
    {THREE, "dp=2 tp=2 replica order: tp dp", NULL},
    {GPT, "dp=2 zero=3 replica", "nothing to share"},
    /* three passes */
    {THREE, "dp=2", NULL},
    {THREE, "tp=2", NULL},
    {THREE, "pp=2 micro=2", NULL},
    {THREE, "dp=2 tp=2 zero=1 order: tp dp", NULL},
    {THREE, "dp=2 pp=2 zero=3 micro=2", NULL},
    /* impossible */
    {GPT, "dp=2 schedule=zigzag", "no schedule is called"},
    {GPT, "pp=513", "at most 512"},
    {GPT, "micro=1000000", "at most 4096"},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static sk_trial trial(what w)
{
    static const char *const names[] = {"gpt2", "llama", "mlp", NULL, "gpt2"};
    sk_trial t = {.batch = 5, .seq = 6, .steps = 4, .clip = 0.5, .layout = "dp=1", .threads = 1};
    t.model = names[w] ? sk_model_find(names[w]) : &odd;
    t.hyper = t.model->usual;
    t.hyper.hidden_size = 12;
    t.hyper.num_hidden_layers = 2;
    t.hyper.num_attention_heads = w == LLAMA ? 6 : 3;
    t.hyper.num_key_value_heads = 3;
    t.hyper.intermediate_size = 17;
    t.hyper.vocab_size = 29;
    t.hyper.input_size = 11;
    t.hyper.max_position_embeddings = 8;
    t.hyper.tie_word_embeddings = true;
    t.own_optim = w == THREE ? &three : NULL;
    return t;
}

/* --- letters that the model lacks: what a job is told before anything is compiled --- */

static const struct layout_case letters[] = {
    {GPT, "tp=2 sp", NULL},
    {MLP, "dp=2 tp=2", NULL}, /* it has f of h f v */
    {MLP, "mesh x=2; split h f v over x", NULL},
    {GPT, "ep=2", NULL}, /* no experts, but a batch */
    {GPT, "mesh x=2; split b over x; shard state over x", NULL},
    {MLP, "mesh x=2; split t over x; shard state over x", NULL}, /* it shards */
    {MLP, "cp=1", NULL},
    {GPT, "mesh x=2; split Z over x", "'Z' is split over 'x', and no tensor"},
    {GPT, "mesh x=2; split b Z over x", "its letters are b c d f h"},
    {GPT, "mesh x=2; split F over x", "did you mean 'f'?"},
    {GPT, "mesh x=1; split Z over x", "no tensor"},
    {GPT, "mesh x=2; split e over x", "'e' is split over 'x'"},
    {GPT, "dp=2; mesh x=2; split g over x", "'g' is split over 'x'"},
    {MLP, "cp=2", "'t' is split over 'cp'"},
    {MLP, "dp=2 cp=2", "'t' is split over 'cp'"},
    {LLAMA, "mesh x=2; split p over x", "'p' is split over 'x'"},
};
enum { N_LETTERS = sizeof letters / sizeof *letters };

static bool told(const struct layout_case *c)
{
    sk_arena a = {0};
    sk_trial t = trial(c->model);
    sk_layout l;
    sk_graph g;
    t.layout = c->layout;
    sk_status st = sk_layout_read(c->layout, 0, &l);
    if (!st) st = sk_trial_graph(&a, &t, &g);
    if (!st) st = sk_layout_suits_model(&l, &g);
    bool ok = c->message ? st == SK_ECONF && strstr(sk_error_line(), c->message) : !st;
    if (!ok) printf("  \"%s\": status %d, %s\n", c->layout, (int)st, st ? sk_error() : "accepted");
    sk_arena_end(&a);
    return ok;
}

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * fmax(1e-3, fabs(a)) && isfinite(b);
}

static bool same(const sk_trial *one, const sk_trial *many)
{
    bool ok = near(one->valid, many->valid, 1e-5);
    for (int s = 0; s < one->steps; s++)
        ok &= near(one->loss[s], many->loss[s], 1e-5) && near(one->norm[s], many->norm[s], 1e-4);
    for (int s = 0; !ok && s < one->steps; s++)
        printf("  step %d: loss %.9g on one rank, %.9g on %d; norm %.9g, %.9g\n", s, one->loss[s],
               many->loss[s], many->n_ranks, one->norm[s], many->norm[s]);
    if (!ok) printf("  validation: %.9g, %.9g\n", one->valid, many->valid);
    return ok;
}

static bool as_expected(const struct layout_case *c, const sk_trial *one)
{
    sk_trial t = trial(c->model);
    t.layout = c->layout;
    t.bucket_bytes = 2000;
    sk_status st = sk_trial_run(&t);
    if (!st && !c->message) return same(one, &t);
    if (st == SK_ECONF && c->message && strstr(sk_error_line(), c->message)) return true;
    printf("  status %d%s%s: %s\n", (int)st, c->message ? ", expected: " : "",
           c->message ? c->message : "", st ? sk_error() : "it ran");
    return false;
}

/* Validation loses nothing to dropout: before the first step it is as without. */
static bool dropout_rests(void)
{
    sk_trial with = trial(GPT), without = trial(GPT);
    with.steps = without.steps = 0;
    with.hyper.embd_pdrop = with.hyper.resid_pdrop = 0.5;
    bool ok = !sk_trial_run(&with) && !sk_trial_run(&without) && with.valid == without.valid;
    if (!ok) printf("  validation with dropout %.9g, without %.9g\n", with.valid, without.valid);
    return ok;
}

int main(int argc, char **argv)
{
    sk_trial one[N_WHAT];
    int wrong = 0, only = argc > 1 ? atoi(argv[1]) : -1;
    for (int w = 0; w < N_WHAT; w++) {
        one[w] = trial((what)w);
        if (sk_trial_run(&one[w])) return printf("model %d on one rank: %s\n", w, sk_error()), 1;
    }
    for (int i = 0; i < N_CASES; i++) {
        if (only >= 0 && i != only) continue;
        if (as_expected(&cases[i], &one[cases[i].model])) continue;
        printf("  ^ case %d, %s: \"%s\"\n", i, one[cases[i].model].model->name, cases[i].layout);
        wrong++;
    }
    for (int i = 0; i < N_LETTERS; i++) wrong += !told(&letters[i]);
    wrong += !dropout_rests();
    printf("layouts: %d cases, %d wrong\n", N_CASES + N_LETTERS + 1, wrong);
    return wrong != 0;
}
