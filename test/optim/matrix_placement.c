/* matrix_placement.c - where matrices are updated (program/matrix/matrix_placement.c): by all
 * ranks, by an owner, on the cut matrix.
 *
 * In f32 each form has the losses of one rank within 1e-5, in canonical order its bits.  Bytes and
 * work are those of closed forms; state of matrices exists once, on owners.  Left to choose,
 * the compiler takes what is cheaper. */
#include "lib/check.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"
#include "lib/ranks.h"
#include "program/matrix/matrix_placement.h"

#include <math.h>

static const char *const names[] = {"auto", "all", "owner", "cut"};

static sk_trial trial(const char *model, const char *optim, const char *layout)
{
    sk_trial t = sk_trial_small(model, layout);
    t.hyper.num_hidden_layers = 2;
    t.optim = optim;
    t.lr = 0.02;
    t.steps = 4;
    sk_trial_groups(&t);
    return t;
}

/* --- losses and bits --- */

static double worst_loss(const sk_trial *a, const sk_trial *b)
{
    double worst = fabs(a->valid - b->valid) / fabs(b->valid);
    for (int s = 0; s < a->steps; s++)
        worst = fmax(worst, fabs(a->loss[s] - b->loss[s]) / fabs(b->loss[s]));
    return worst;
}

static void same_losses(const char *model, bool gpu)
{
    static const char *const layouts[] = {"dp=2", "dp=4",      "cp=2",
                                          "tp=2", "tp=2 dp=2", "tp=2 dp=2 zero=1",
                                          "tp=4", "ep=2",      "pp=2 micro=2 tp=2 dp=2"};
    sk_trial one = trial(model, "muon", "dp=1");
    one.gpu = gpu;
    check(!sk_trial_run(&one));
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int work = SK_MATRIX_AUTO; work <= SK_MATRIX_CUT; work++) {
            sk_trial t = trial(model, "muon", layouts[i]);
            t.matrix_work = (sk_matrix_work)work;
            t.gpu = gpu;
            check(!sk_trial_run(&t));
            double worst = worst_loss(&t, &one);
            if (!(worst <= 1e-5))
                printf("%s, %s, %s: off by %g\n", model, layouts[i], names[work], worst);
            check(worst <= 1e-5 && t.elements == one.elements);
        }
}

static void same_bits(const char *model, const char *optim)
{
    static const char *const layouts[] = {
        "dp=2; canonical order",         "dp=3; canonical order",
        "cp=2; canonical order",         "tp=2; canonical order",
        "tp=2 dp=2 sp; canonical order", "pp=2 micro=2 dp=2; canonical order",
        "ep=2 dp=2; canonical order",    "dp=2 tp=2 zero=1; canonical order"};
    sk_trial one = trial(model, optim, "dp=1; canonical order");
    check(!sk_trial_run(&one));
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int work = SK_MATRIX_AUTO; work <= SK_MATRIX_BY_OWNER; work++) {
            sk_trial t = trial(model, optim, layouts[i]);
            t.matrix_work = (sk_matrix_work)work;
            check(!sk_trial_run(&t));
            if (t.digest != one.digest)
                printf("%s, %s, %s, %s: other bits\n", model, optim, layouts[i], names[work]);
            check(t.digest == one.digest && t.elements == one.elements);
        }
}

/* --- what programs do --- */

typedef struct totals {
    double steps;        /* bytes that leave ranks on the way from owners */
    double sums;         /* and for partial sums of operations of the optimizer */
    double most_flops;   /* of a rank, in these operations */
    int64_t most_state;  /* bytes of state of matrices on a rank */
    int64_t state;       /* and on all */
    sk_matrix_kind kind; /* of the first matrix of block 0; Adafactor has tables before it */
    int axis;
} totals;

static bool says(const sk_call_plan *c, const char *word) { return strstr(c->what, word) != NULL; }

static void count(const sk_program *p, totals *sum)
{
    double flops = 0;
    int64_t state = 0;
    for (int pc = 0; pc < p->n_train; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        if (in->act == SK_DO_OP && in->node->id == SK_NO_NODE) flops += in->flops;
        if (in->act != SK_DO_WAIT) continue;
        const sk_call_plan *c = &p->calls.v[in->call];
        if (says(c, "from owners")) sum->steps += (double)in->wire;
        if (c->kind == SK_ALLREDUCE && (says(c, ".contract") || says(c, ".dot")))
            sum->sums += (double)in->wire;
    }
    for (int i = 0; i < p->params.n; i++)
        for (int s = 0; s < p->params.v[i].n_matrix_state; s++)
            state += p->bufs.v[p->params.v[i].matrix_state[s]].bytes;
    sum->most_flops = fmax(sum->most_flops, flops);
    if (state > sum->most_state) sum->most_state = state;
    sum->state += state;
}

/* GPT-2 of eight layers, `wide` wide. */
static totals compiled_wide(const char *optim, const char *layout, sk_matrix_work work, int wide,
                            bool gpu)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n = 0;
    totals sum = {0};
    sk_trial t = trial("gpt2", optim, layout);
    t.batch = 64;
    t.hyper.num_hidden_layers = 8;
    t.hyper.num_attention_heads = t.hyper.num_key_value_heads = 4;
    t.hyper.hidden_size = wide;
    t.hyper.intermediate_size = (int64_t)4 * wide;
    t.matrix_work = work;
    t.gpu = gpu;
    t.dtype = gpu ? SK_BF16 : SK_F32;
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    for (int r = 0; r < n; r++) count(p[r], &sum);
    for (int i = 0; i < p[0]->matrices->n && !sum.kind.n; i++)
        if (strchr(p[0]->matrices->v[i].q.tensor->name, '0')) sum.kind = p[0]->matrices->v[i];
    sum.axis = p[0]->matrices->axis;
    sk_arena_end(&a);
    return sum;
}

static totals compiled(const char *optim, const char *layout, sk_matrix_work work)
{
    return compiled_wide(optim, layout, work, 64, false);
}

/* Eight of each: 64 x 192, 64 x 64, 64 x 256, 256 x 64.  Four owners have two of each, so the
 * blocks of the all-gather have no padding. */
enum { MATRICES = 8 * (64 * 192 + 64 * 64 + 2 * 64 * 256) };

static void owners(void)
{
    totals all = compiled("muon", "dp=4", SK_MATRIX_BY_ALL);
    totals owner = compiled("muon", "dp=4", SK_MATRIX_BY_OWNER);
    printf("dp=4: %.0f bytes from owners, %.4g of %.4g flop\n", owner.steps, owner.most_flops,
           all.most_flops);
    check(all.steps == 0 && owner.kind.distributed && !all.kind.distributed);
    check(owner.steps == 3.0 * 4 * MATRICES);
    check(owner.most_flops <= 0.26 * all.most_flops);
    all = compiled("shampoo", "dp=4", SK_MATRIX_BY_ALL);
    owner = compiled("shampoo", "dp=4", SK_MATRIX_BY_OWNER);
    totals one = compiled("shampoo", "dp=1", SK_MATRIX_AUTO);
    printf("dp=4, shampoo: %lld bytes of state on a rank, %lld with all\n",
           (long long)owner.most_state, (long long)all.most_state);
    check(one.state > 0 && owner.state == one.state && all.state == 4 * one.state);
    check(owner.most_state * 2 <= all.most_state);
}

/* Muon takes five Gram matrices of the smaller side, 64 x 64, and one number for each matrix; an
 * all-reduce of S bytes over two sends 2 S in all.  Of a square the side that is not cut counts. */
static void cut(void)
{
    totals all = compiled("muon", "tp=2", SK_MATRIX_BY_ALL);
    totals cut = compiled("muon", "tp=2", SK_MATRIX_CUT);
    totals soap = compiled("soap", "tp=2", SK_MATRIX_CUT);
    totals row = compiled("muon", "tp=2 dp=2 zero=1", SK_MATRIX_CUT);
    printf("tp=2: %.0f bytes of sums, %.4g of %.4g flop\n", cut.sums, cut.most_flops,
           all.most_flops);
    check(all.sums == 0 && all.kind.cut < 0 && cut.kind.cut >= 0);
    check(cut.sums == 2.0 * 4 * 8 * 4 * (5 * 64 * 64 + 1));
    check(cut.most_flops < 0.65 * all.most_flops);
    check(soap.kind.cut < 0 && soap.sums == 0);          /* it has state of both sides */
    check(row.kind.distributed && row.sums == cut.sums); /* each matrix in one row of ranks */
    totals canonical = compiled("muon", "tp=2; canonical order", SK_MATRIX_CUT);
    check(canonical.kind.cut < 0);
}

/* On GPUs in hosts of eight, bf16: many small kernels take longer than to send the step, also
 * between hosts; the few of Adafactor do not.  A sharded matrix of a wide model is cut over tp
 * beside. */
static void chosen(void)
{
    totals inside = compiled_wide("muon", "dp=8", SK_MATRIX_AUTO, 768, true);
    totals between = compiled_wide("muon", "dp=16", SK_MATRIX_AUTO, 768, true);
    totals roots = compiled_wide("shampoo", "dp=16", SK_MATRIX_AUTO, 768, true);
    totals few = compiled_wide("adafactor", "dp=16", SK_MATRIX_AUTO, 768, true);
    check(inside.kind.distributed && between.kind.distributed && roots.kind.distributed &&
          !few.kind.distributed);
    totals row = compiled_wide("muon", "dp=8 tp=2 zero=1", SK_MATRIX_AUTO, 4096, true);
    check(row.kind.distributed && row.kind.cut == 1);
    totals cheap = compiled("adafactor", "dp=4", SK_MATRIX_AUTO); /* few operations an element */
    totals cores = compiled("muon", "dp=2 tp=4; canonical order", SK_MATRIX_AUTO);
    check(!cheap.kind.distributed && cores.kind.distributed &&
          cores.axis == 1); /* over four, not two */
}

int main(void)
{
    sk_fake_gpu(20);
    sk_fake_nccl();
    owners();
    cut();
    chosen();
    same_losses("gpt2", false);
    same_losses("switch", false);
    same_losses("llama", true);
    same_bits("gpt2", "muon");
    same_bits("switch", "muon");
    same_bits("gpt2", "shampoo");
    same_bits("gpt2", "kfac");
    same_bits("llama", "soap");
    printf("work: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
