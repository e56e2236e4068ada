/* What a GPU joins to one launch: that the parts find their neighbourhoods in real programs, and
 * that the engine refuses what it cannot prove.  Needs no GPU: only the plan is looked at. */
#include "program/fuse.h"
#include "lib/ranks.h"

#include <stdio.h>
#include <string.h>

static int n_checks, n_bad;

static void check(bool good, const char *what)
{
    n_checks++;
    if (!good) n_bad++, printf("wrong: %s\n", what);
}

typedef struct plan {
    sk_arena arena;
    sk_graph graph;
    sk_program *p;
    sk_args *args;
    const sk_launch_plan **fused; /* by instruction: the launch that stands there */
} plan;

static void lay(plan *q)
{
    sk_program *p = q->p;
    q->args = sk_many(&q->arena, sk_args, p->insts.n);
    p->launches.n = 0;
    memset(p->launch_of, 0, sizeof *p->launch_of * (size_t)p->insts.n);
    for (int i = 0; i < p->insts.n; i++)
        if (p->insts.v[i].act == SK_DO_OP)
            sk_inst_args(p, &p->insts.v[i], (void *)(uintptr_t)4096, &q->args[i]);
    sk_fuse_section(p, q->args, 0, p->n_train);
    sk_fuse_section(p, q->args, p->n_train, p->insts.n);
    q->fused = (const sk_launch_plan **)sk_many(&q->arena, sk_launch_plan *, p->insts.n);
    for (int i = 0; i < p->launches.n; i++) q->fused[p->launches.v[i].at] = &p->launches.v[i];
}

static void compile(plan *q, const char *arch, sk_hyper h, const char *layout)
{
    sk_trial t = {
        .model = sk_model_find(arch), .hyper = h, .batch = 4, .seq = 32, .dtype = SK_BF16};
    sk_layout l;
    sk_compile_opts o = {
        .optim = sk_optim_find("adamw"), .threads = 1, .validate = true, .gpu = true};
    t.layout = layout;
    *q = (plan){.p = NULL};
    sk_assert(!sk_layout_read(layout, 0, &l));
    sk_assert(!sk_trial_graph(&q->arena, &t, &q->graph));
    sk_assert(!sk_compile(&q->arena, &q->graph, &l, &o, 0, &q->p));
    lay(q);
}

static int count(const plan *q, const char *name)
{
    int n = 0;
    for (int pc = 0; pc < q->p->insts.n; pc++)
        n += q->fused[pc] && !strcmp(q->fused[pc]->by->name, name);
    return n;
}

/* Launches of a part that end with a sum. */
static int sums(const plan *q, const char *name)
{
    int n = 0;
    for (int pc = 0; pc < q->p->insts.n; pc++)
        n += q->fused[pc] && !strcmp(q->fused[pc]->by->name, name) &&
             !strcmp(q->p->insts.v[pc].node->op->name, "sum");
    return n;
}

static sk_hyper small(const char *arch, int layers)
{
    sk_hyper h = sk_model_find(arch)->usual;
    h.hidden_size = 64;
    h.num_hidden_layers = layers;
    h.num_attention_heads = h.num_key_value_heads = 2;
    h.intermediate_size = 128;
    h.vocab_size = 96;
    h.max_position_embeddings = 32;
    h.tie_word_embeddings = true;
    return h;
}

static void expect(const plan *q, const char *name, int n)
{
    char what[96];
    snprintf(what, sizeof what, "%s: %d launches, %d were expected", name, count(q, name), n);
    check(count(q, name) == n, what);
}

/* Of L layers: qkv, proj and out join their bias or residual, forward twice (training and
 * validation); fc its GELU; norms their gradients, and the sum that is the bias's before them. */
static void gpt(void)
{
    enum { L = 3 };
    plan q;
    compile(&q, "gpt2", small("gpt2", L), "dp=1");
    expect(&q, "linear", 2 * 3 * L);
    expect(&q, "linear_gelu", 2 * L);
    expect(&q, "linear_dgelu", L);
    expect(&q, "norm_grad", 2 * L + 1);
    check(sums(&q, "norm_grad") == 2 * L, "a norm's gradients and the bias before it are one");
    expect(&q, "xent", 1);
    sk_arena_end(&q.arena);
}

static void llama(void)
{
    enum { L = 3 };
    plan q;
    compile(&q, "llama", small("llama", L), "dp=1");
    expect(&q, "linear",
           2 * 2 * L + L);  /* proj and down; and the two gradients of an MLP's input */
    expect(&q, "twins", L); /* gate and up */
    expect(&q, "norm_grad", 2 * L + 1);
    expect(&q, "xent", 1);
    sk_arena_end(&q.arena);
}

/* Every instruction is done once: where it stands, or as part of one launch at or behind it. */
static void each_once(const char *arch, const char *layout)
{
    plan q;
    compile(&q, arch, small(arch, 2), layout);
    int *done = sk_many(&q.arena, int, q.p->insts.n);
    for (int pc = 0; pc < q.p->insts.n; pc++) {
        if (q.p->insts.v[pc].act != SK_DO_OP) continue;
        if (!q.p->launch_of[pc]) done[pc]++;
        for (int i = 0; q.fused[pc] && i < q.fused[pc]->n; i++) {
            done[q.fused[pc]->pcs[i]]++;
            check(q.fused[pc]->pcs[i] <= pc, "a launch stands at the last of what it does");
        }
    }
    for (int pc = 0; pc < q.p->insts.n; pc++)
        check(done[pc] == (q.p->insts.v[pc].act == SK_DO_OP), "each op is done once");
    sk_arena_end(&q.arena);
}

/* Move the memory of one buffer so that a joined launch would read what is overwritten. */
static void overlaps(void)
{
    plan q;
    compile(&q, "gpt2", small("gpt2", 2), "dp=1");
    int before = count(&q, "linear"), pc = 0;
    while (!q.fused[pc] || strcmp(q.fused[pc]->by->name, "linear")) pc++;
    const sk_inst *y = &q.p->insts.v[q.fused[pc]->pcs[0]], *z = &q.p->insts.v[pc];
    q.p->bufs.v[z->out[0]].offset = q.p->bufs.v[y->in[0]].offset; /* the bias over what is read */
    lay(&q);
    check(count(&q, "linear") == before - 1, "a result over an operand of the product is refused");
    sk_arena_end(&q.arena);
}

/* x + W x + b over x: the second may write over its own operand, but the product reads it too. */
static void over_itself(void)
{
    plan q;
    compile(&q, "gpt2", small("gpt2", 2), "dp=1");
    int before = count(&q, "linear"), pc = 0;
    while (!q.fused[pc] || q.args[pc].n_in != 3) pc++;
    const sk_inst *y = &q.p->insts.v[q.fused[pc]->pcs[0]];
    sk_inst *z = &q.p->insts.v[pc];
    z->in[0] = y->in[0];
    lay(&q);
    check(count(&q, "linear") == before, "x + W x is joined where its result lies elsewhere");
    q.p->bufs.v[z->out[0]].offset = q.p->bufs.v[z->in[0]].offset;
    lay(&q);
    check(count(&q, "linear") == before - 1, "x + W x over x is refused");
    sk_arena_end(&q.arena);
}

/* A sum that cannot join stays behind, and the others are one launch as before. */
static void without_the_last(void)
{
    plan q;
    compile(&q, "gpt2", small("gpt2", 2), "dp=1");
    int all = count(&q, "norm_grad"), with = sums(&q, "norm_grad"), pc = 0;
    while (!q.fused[pc] || strcmp(q.fused[pc]->by->name, "norm_grad")) pc++;
    const sk_inst *x = &q.p->insts.v[q.fused[pc]->pcs[0]], *z = &q.p->insts.v[pc];
    q.p->bufs.v[z->out[0]].offset = q.p->bufs.v[x->in[1]].offset; /* the sum over the weights */
    lay(&q);
    check(count(&q, "norm_grad") == all, "the others stay together");
    check(sums(&q, "norm_grad") == with - 1, "a sum over an operand is refused");
    sk_arena_end(&q.arena);
}

static int64_t *at(plan *q, int buf) { return &q->p->bufs.v[buf].offset; }

/* Two products are a batch only if steps of one sign, whole packs, lead from one to the other, and
 * the first has its operands still where the second stands. */
static void twins(void)
{
    plan q;
    compile(&q, "llama", small("llama", 2), "dp=1");
    int all = count(&q, "twins"), pc = 0;
    while (!q.fused[pc] || strcmp(q.fused[pc]->by->name, "twins")) pc++;
    const sk_inst *v = q.p->insts.v, *x = &v[q.fused[pc]->pcs[0]], *y = &v[pc];
    int64_t low = *at(&q, y->out[0]), high = *at(&q, x->out[0]), then;
    check(low < high && *at(&q, y->in[1]) < *at(&q, x->in[1]), "gate lies before up");
    *at(&q, x->out[0]) = low, *at(&q, y->out[0]) = high;
    lay(&q);
    check(count(&q, "twins") == all - 1, "results in the other order than operands are refused");
    *at(&q, y->out[0]) = low, *at(&q, x->out[0]) = high + 8;
    lay(&q);
    check(count(&q, "twins") == all - 1, "a result on half a pack is refused");
    *at(&q, x->out[0]) = high;
    sk_assert(x + 2 == y && x[1].act == SK_DO_OP);
    then = *at(&q, x[1].out[0]), *at(&q, x[1].out[0]) = *at(&q, x->in[0]);
    lay(&q);
    check(count(&q, "twins") == all - 1, "an operand that is written over between is refused");
    *at(&q, x[1].out[0]) = then;
    lay(&q);
    check(count(&q, "twins") == all, "as it was");
    sk_arena_end(&q.arena);
}

int main(void)
{
    static const char *const archs[] = {"gpt2", "llama", "mixtral", "switch"};
    gpt();
    llama();
    for (int i = 0; i < 4; i++) {
        each_once(archs[i], "dp=1");
        each_once(archs[i], "dp=2 tp=2");
    }
    overlaps();
    over_itself();
    without_the_last();
    twins();
    printf("fuse: %d checks, %d bad\n", n_checks, n_bad);
    return n_bad != 0;
}
