/* build.c - building graphs: mistakes and their sentences, gradients, what is made again. */
#include "lib/check.h"
#include "lib/ranks.h"

#include "model/blocks.h"

#include <stdlib.h>

/* --- mistakes --- */

typedef struct desk { /* a graph with a few things to make mistakes with */
    sk_arena arena;
    sk_graph g;
    sk_tensor *x, *w, *ids;
} desk;

static void open_desk(desk *d)
{
    *d = (desk){0};
    sk_graph *g = &d->g;
    sk_graph_init(g, &d->arena);
    sk_graph_size(g, 'b', 2);
    sk_graph_size(g, 't', 3);
    sk_graph_size(g, 'c', 4);
    sk_graph_size(g, 'f', 5);
    d->x = sk_input(g, "x", "btc", SK_F32);
    d->w = sk_param(g, "w", "cf", 0.1);
    d->ids = sk_input(g, "ids", "bt", SK_I32);
}

/* The mistake has been made: is its message right, is it kept, and is the rest harmless? */
static void close_desk(desk *d, const char *where, const char *words)
{
    sk_graph *g = &d->g;
    int nodes = g->nodes.n;
    fails_at(where, sk_graph_status(g), SK_ECONF, words);
    sk_tensor *y = sk_contract(g, "btc,cf->btf", d->x, d->w);
    y = sk_apply(g, "no such op either", .in = {y})->out[0];
    y = sk_apply(g, "add", .in = {y, y})->out[0];
    sk_cross_entropy(g, y, d->ids, d->x);
    sk_graph_size(g, 'b', 99);
    sk_graph_grad(g);
    check_at(where, g->nodes.n == nodes && g->size['b'] == 2, "nothing happens after a mistake");
    fails_at(where, sk_graph_status(g), SK_ECONF, words);
    sk_arena_end(&d->arena);
}

#define mistake(words, call)              \
    do {                                  \
        desk d;                           \
        open_desk(&d);                    \
        sk_graph *g = &d.g;               \
        (void)(call);                     \
        close_desk(&d, SK_HERE, (words)); \
    } while (0)

static int sized(sk_graph *g, char letter, int64_t n)
{
    sk_graph_size(g, letter, n);
    return 0;
}

static void operands(void)
{
    mistake("no operation is called 'warp'", sk_apply(g, "warp", .in = {d.x}));
    mistake("graph/build.c:", sk_apply(g, "warp", .in = {d.x})); /* and where it was said */
    mistake("operand 1 is missing", sk_apply(g, "add", .in = {d.x}));
    mistake("'*' is \"cf\" in operand 1 'w' and \"btc\" before",
            sk_apply(g, "add", .in = {d.x, d.w}));
    mistake("operand 0 'ids' has the dims \"bt\"", sk_contract(g, "btc,cf->btf", d.ids, d.w));
    mistake("'c' is 'c' in one operand and 'b' in operand 1 'ids'",
            sk_contract(g, "btc,ct->bt", d.x, d.ids));
    mistake("names 1 operands and 1 results, the op has 2 and 1",
            sk_contract(g, "btc->bt", d.x, d.w));
    mistake("names 2 operands and 2 results", sk_contract(g, "btc,cf->bt,f", d.x, d.w));
    mistake("letter 'q' of its result has no size", sk_contract(g, "btc,cf->btq", d.x, d.w));
    mistake("letter 'b' twice", sk_contract(g, "btc,cf->btfb", d.x, d.w));
}

static void letters(void)
{
    mistake("letter 'z' of 'p' has no size yet", sk_param(g, "p", "zc", 1));
    mistake("'p' has the letter 'c' twice", sk_param(g, "p", "cc", 1));
    mistake("at most 6 are possible", sk_param(g, "p", "btcfbtc", 1));
    mistake("letter 'c' is 4 and would also be 6", sized(g, 'c', 6));
    mistake("letter 'q' would have the size 0", sized(g, 'q', 0));
    mistake("the size -3", sized(g, 'q', -3));
}

static void patterns(void)
{
    static const char *const broken[] = {
        "",           "btc,cf",    "!btc,cf->btf",  "btc!!,cf->btf", "b t c,cf->btf",
        "btc,cf-btf", "**,cf->*f", "btc,cf->btf->", "b2c,cf->btf",   "btc,c\xff->btf",
        "*!,cf->*f",  "btc,-cf->f"};
    char longest[200];
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        mistake("is no dims line", sk_contract(g, broken[i], d.x, d.w));
    memset(longest, '!', sizeof longest);
    memcpy(longest, "btc", 3);
    memcpy(longest + sizeof longest - 9, ",cf->btf", 9);
    mistake("is no dims line", sk_contract(g, longest, d.x, d.w));
}

static void no_loss(void)
{
    desk d;
    open_desk(&d);
    sk_graph_grad(&d.g);
    fails(sk_graph_status(&d.g), SK_EBUG, "without a loss");
    sk_arena_end(&d.arena);
}

/* --- gradients --- */

static int contributions(const sk_graph *g, const sk_tensor *t)
{
    int n = 0;
    for (int i = 0; i < g->nodes.n; i++)
        for (int o = 0; o < g->nodes.v[i]->n_out; o++) n += g->nodes.v[i]->into[o] == t;
    return n;
}

static int users(const sk_graph *g, const sk_tensor *t)
{
    int n = 0;
    for (int i = 0; i < g->nodes.n; i++)
        for (int k = 0; k < g->nodes.v[i]->n_in; k++) n += g->nodes.v[i]->in[k] == t;
    return n;
}

static int count(const sk_graph *g, const char *op, sk_phase phase)
{
    int n = 0;
    for (int i = 0; i < g->nodes.n; i++)
        n += g->nodes.v[i]->phase == phase && !strcmp(g->nodes.v[i]->op->name, op);
    return n;
}

/* Nodes are numbered in order, made before they are used, and backward ones come last. */
static void sound(const sk_graph *g)
{
    for (int i = 0; i < g->nodes.n; i++) {
        const sk_node *n = g->nodes.v[i];
        bool wanted = n->phase == SK_FORWARD;
        check(n->id == i);
        check(!i || n->phase >= g->nodes.v[i - 1]->phase);
        for (int k = 0; k < n->n_in; k++) check(!n->in[k]->from || n->in[k]->from->id < i);
        for (int o = 0; o < n->n_out; o++) wanted |= n->into[o] || users(g, n->out[o]);
        if (!wanted) printf("nobody wants %s\n", n->out[0]->name);
        check(wanted); /* dead ones are dropped */
    }
}

static void tied(void)
{
    sk_arena a = {0};
    sk_graph g;
    sk_graph_init(&g, &a);
    sk_graph_size(&g, 'b', 2);
    sk_graph_size(&g, 'v', 7);
    sk_graph_size(&g, 'c', 4);
    sk_tensor *ids = sk_input(&g, "ids", "b", SK_I32), *w = sk_param(&g, "w", "vc", 0.1);
    sk_tensor *gain = sk_input(&g, "gain", "b", SK_F32);
    sk_tensor *x = sk_apply(&g, "embedding", .in = {w, ids})->out[0];
    g.layer = 1;
    sk_tensor *y = sk_apply(&g, "add", .in = {x, x})->out[0]; /* two gradients meet in x */
    g.layer = 2;
    sk_cross_entropy(&g, sk_contract(&g, "bc,vc->bv", y, w), ids, gain);
    sk_graph_grad(&g);
    check(!sk_graph_status(&g));
    check(contributions(&g, w) == 2); /* as a table and as a head */
    check(contributions(&g, g.loss) == 1 && contributions(&g, g.weight) == 1);
    check(count(&g, "add", SK_BACKWARD) == 1);
    for (int i = 0; i < g.nodes.n; i++)
        if (g.nodes.v[i]->phase == SK_BACKWARD && !strcmp(g.nodes.v[i]->op->name, "add"))
            check(g.nodes.v[i]->layer == 1); /* joined where the second one arose */
    sound(&g);
    sk_arena_end(&a);
}

/* A parameter is read, and what is made of it never reaches the loss. */
static void lost(void)
{
    sk_arena a = {0};
    sk_graph g;
    sk_graph_init(&g, &a);
    sk_graph_size(&g, 'b', 2);
    sk_graph_size(&g, 'v', 7);
    sk_graph_size(&g, 'c', 4);
    sk_tensor *ids = sk_input(&g, "ids", "b", SK_I32), *w = sk_param(&g, "w", "vc", 0.1);
    sk_tensor *x = sk_apply(&g, "embedding", .in = {w, ids})->out[0];
    sk_apply(&g, "embedding", .in = {sk_param(&g, "unused", "vc", 0.1), ids});
    sk_cross_entropy(&g, sk_contract(&g, "bc,vc->bv", x, w), ids,
                     sk_input(&g, "gain", "b", SK_F32));
    sk_graph_grad(&g);
    check(sk_graph_status(&g) == SK_ECONF && strstr(sk_error(), "'unused' is read by embedding"));
    sk_arena_end(&a);
}

/* --- a model: what is kept, what is made again --- */

static sk_status small(sk_arena *a, const char *model, sk_graph *g, sk_program ***p)
{
    sk_trial t = {.batch = 2, .seq = 4, .layout = "dp=1"};
    int n;
    t.model = sk_model_find(model);
    t.hyper = t.model->usual;
    t.hyper.hidden_size = 8;
    t.hyper.num_hidden_layers = 2;
    t.hyper.num_attention_heads = t.hyper.num_key_value_heads = 2;
    t.hyper.intermediate_size = 12;
    t.hyper.vocab_size = 11;
    t.hyper.input_size = 9;
    return sk_trial_compile(a, &t, g, p, &n);
}

static bool is_cheap(const sk_tensor *t)
{
    return t && t->from && t->from->phase == SK_FORWARD && t->from->op->flags & SK_OP_CHEAP &&
           t == t->from->out[0];
}

/* The result of a cheap op dies before the backward half begins. */
static void recompute(const char *model, const char *op, int forward)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int dead = 0;
    check(!small(&a, model, &g, &p));
    sound(&g);
    check(count(&g, op, SK_FORWARD) == forward);
    check(count(&g, op, SK_BACKWARD) == forward); /* each is made once more, and only once */
    for (int i = 0; i < g.nodes.n; i++)
        for (int k = 0; k < g.nodes.v[i]->n_in && g.nodes.v[i]->phase == SK_BACKWARD; k++)
            check(!is_cheap(g.nodes.v[i]->in[k]));
    for (int b = 0; b < p[0]->bufs.n; b++) {
        const sk_buffer *x = &p[0]->bufs.v[b];
        if (!is_cheap(x->tensor) || x->last < 0 || x->first >= p[0]->n_train) continue;
        check(p[0]->insts.v[x->last].phase == SK_FORWARD);
        dead++;
    }
    check(dead >= forward);
    sk_arena_end(&a);
}

/* Nobody wants the gradient of an input. */
static void inputs(void)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    check(!small(&a, "mlp", &g, &p));
    sk_tensor *pixels = sk_graph_find(&g, "pixels");
    check(pixels && !sk_graph_find(&g, "voxels"));
    for (int i = 0; i < g.nodes.n; i++)
        if (g.nodes.v[i]->phase == SK_BACKWARD)
            for (int o = 0; o < g.nodes.v[i]->n_out; o++)
                check(strcmp(g.nodes.v[i]->out[o]->letters, "bx") != 0);
    sk_shape s = sk_tensor_shape(&g, pixels);
    check(s.n == 2 && s.d[0] == 2 && s.d[1] == 9);
    check(strstr(sk_graph_print(&g, &a), "input  pixels \"bx\" f32 b=2 x=9\n") != NULL);
    sk_arena_end(&a);
}

int main(void)
{
    operands();
    letters();
    patterns();
    no_loss();
    tied();
    lost();
    recompute("gpt2", "layernorm", 5);
    recompute("gpt2", "bias_gelu", 2);
    recompute("llama", "swiglu", 2);
    recompute("llama", "rmsnorm", 5);
    inputs();
    printf("graph: %d checks, %d failed\n", checks, bad);
    return bad != 0;
}
