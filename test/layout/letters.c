/* letters.c - random letters over random axes: the losses of one rank.
 *
 * Where random.c draws products of the usual techniques, this draws
 * layouts that nobody would write: any letters over any axis, stages and shards
 * over any axis.  The compiler refuses none, and all give the losses of one rank.  Pairs of a
 * model and a layout that were wrong once come first, whatever the seed.
 *
 *     layout_letters [SEED [COUNT]]     default: seed 1, 40 layouts */
#include "lib/ranks.h"

#include "base/rng.h"
#include "base/strings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed, drawn;

static int pick(int from, int to) /* both included */
{
    return from + (int)(sk_rng(seed, 1, drawn++).a % (uint64_t)(to - from + 1));
}

static void usual_model(sk_trial *t, const char *name)
{
    t->model = sk_model_find(name);
    t->hyper = t->model->usual;
    t->hyper.num_attention_heads = 4;
    t->hyper.hidden_size = 16;
    t->hyper.max_position_embeddings = 8;
    t->hyper.input_size = 9;
    t->steps = 3;
    t->clip = 0.5;
}

static void random_model(sk_trial *t)
{
    static const char *const archs[] = {"gpt2", "llama", "mlp"};
    usual_model(t, archs[pick(0, 2)]);
    t->hyper.num_key_value_heads = pick(0, 1) ? 4 : 2;
    if (!strcmp(t->model->name, "gpt2")) t->hyper.num_key_value_heads = 4; /* as many as heads */
    t->hyper.num_hidden_layers = pick(1, 3);
    t->hyper.intermediate_size = pick(5, 19);
    t->hyper.vocab_size = pick(11, 29);
    t->hyper.tie_word_embeddings = pick(0, 1);
    t->hyper.input_size = pick(5, 13);
    t->batch = pick(1, 7);
    t->seq = pick(2, 6);
}

static char *random_layout(sk_arena *a)
{
    static const char letters[] = "btchfvdspxrg";
    static const char *const what[] = {"state", "grads", "params"};
    sk_out o = {.arena = a};
    int n = pick(1, 3), ranks = 1, stages = pick(0, 3) ? -1 : pick(0, n - 1);
    sk_out_add(&o, "mesh");
    for (int i = 0; i < n; i++) {
        int size = pick(1, ranks > 2 ? 2 : 4);
        ranks *= size;
        sk_out_add(&o, " %c=%d", "XYZ"[i], size);
    }
    for (int i = 0; i < n; i++)
        for (const char *p = letters; *p && i != stages; p++)
            if (!pick(0, 4)) sk_out_add(&o, "; split %c over %c", *p, "XYZ"[i]);
    int shard = pick(0, n - 1);
    if (pick(0, 1) && shard != stages)
        sk_out_add(&o, "; shard %s over %c", what[pick(0, 2)], "XYZ"[shard]);
    if (stages >= 0) sk_out_add(&o, "; stages over %c", "XYZ"[stages]);
    sk_out_add(&o, "; schedule %s; micro %d", pick(0, 1) ? "1f1b" : "gpipe", pick(1, 3));
    return o.s;
}

static bool same_program(const sk_program *a, const sk_program *b)
{
    if (a->insts.n != b->insts.n || a->heap_bytes != b->heap_bytes || a->bufs.n != b->bufs.n)
        return false;
    for (int i = 0; i < a->insts.n; i++)
        if (a->insts.v[i].act != b->insts.v[i].act || a->insts.v[i].flops != b->insts.v[i].flops)
            return false;
    for (int i = 0; i < a->bufs.n; i++)
        if (a->bufs.v[i].bytes != b->bufs.v[i].bytes ||
            (a->bufs.v[i].within < 0 && a->bufs.v[i].offset != b->bufs.v[i].offset))
            return false;
    return true;
}

/* Ranks of one class have the same program, found without compiling it. */
static bool classes_hold(const sk_trial *t)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0, class_of[SK_TEST_RANKS], shape_of[SK_TEST_RANKS];
    bool ok = !sk_trial_compile(&a, t, &g, &p, &n);
    ok = ok && sk_classes(p[0]->plan, class_of) > 0 && sk_shapes(p[0]->plan, shape_of) > 0;
    for (int r = 0; ok && r < n; r++)
        for (int q = 0; ok && q < r; q++) {
            ok = shape_of[r] != shape_of[q] || same_program(p[r], p[q]);
            for (int i = 0; ok && class_of[r] == class_of[q] && i < p[r]->params.n; i++)
                ok = p[r]->params.v[i].owner == p[q]->params.v[i].owner;
            if (!ok) printf("ranks %d and %d are said to be alike\n", q, r);
        }
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
    for (int s = 0; s < one->steps; s++) {
        ok &= near(one->loss[s], many->loss[s], 1e-5) && near(one->norm[s], many->norm[s], 1e-4);
        if (!ok)
            printf("step %d: loss %.9g on one rank, %.9g on %d; norm %.9g, %.9g\n", s, one->loss[s],
                   many->loss[s], many->n_ranks, one->norm[s], many->norm[s]);
    }
    return ok;
}

/* Does the layout give the losses of one rank?  If not, the pair is printed. */
static bool right(const sk_trial *model, const char *layout, int index)
{
    sk_trial one = *model, many = *model;
    one.layout = "dp=1";
    one.threads = 1;
    one.bucket_bytes = 0;
    many.layout = layout;
    bool runs = !sk_trial_run(&one) && !sk_trial_run(&many);
    if (!runs) printf("%s\n", sk_error());
    if (runs && same(&one, &many) && classes_hold(&many)) return true;
    printf("  ^ %d: %s layers=%lld keys=%lld tie=%d f=%lld v=%lld b=%lld t=%lld \"%s\"\n", index,
           one.model->name, (long long)one.hyper.num_hidden_layers,
           (long long)one.hyper.num_key_value_heads, one.hyper.tie_word_embeddings,
           (long long)one.hyper.intermediate_size, (long long)one.hyper.vocab_size,
           (long long)one.batch, (long long)one.seq, layout);
    return false;
}

/* What was wrong once, in the words of the line that is printed then. */
static const struct {
    const char *model;
    int layers, keys, tie, f, v, b, t;
    const char *layout;
} known[] = {
    /* Another axis than time's named a letter of attention first (seed 7, 64), and attention did
     * not hear that time is dealt in zigzag.  The rest are the same, as small as it goes. */
    {"gpt2", 1, 4, 1, 10, 13, 1, 6,
     "mesh X=4 Y=2 Z=2; split f over X; split p over X; split g over X; split r over Y; split t "
     "over Z; split c over Z; split h over Z; split s over Z; shard grads over X; schedule gpipe; "
     "micro 1"},
    {"gpt2", 1, 4, 1, 10, 13, 1, 6, "mesh Y=2 Z=2; split r over Y; split t over Z"},
    {"gpt2", 1, 4, 1, 10, 13, 1, 6, "mesh Y=2 Z=2; split s over Y; split t over Z by ring"},
    {"llama", 1, 2, 0, 10, 13, 1, 6, "mesh Y=2 Z=2; split d over Y; split t over Z"},
};
enum { N_KNOWN = sizeof known / sizeof *known };

static int known_wrong(void)
{
    int wrong = 0;
    for (int i = 0; i < N_KNOWN; i++) {
        sk_trial t = {.threads = 1};
        usual_model(&t, known[i].model);
        t.hyper.num_key_value_heads = known[i].keys;
        t.hyper.num_hidden_layers = known[i].layers;
        t.hyper.intermediate_size = known[i].f;
        t.hyper.vocab_size = known[i].v;
        t.hyper.tie_word_embeddings = known[i].tie;
        t.batch = known[i].b;
        t.seq = known[i].t;
        wrong += !right(&t, known[i].layout, i);
    }
    printf("layouts: %d that were wrong once, %d wrong or refused\n", N_KNOWN, wrong);
    return wrong;
}

/* Where a member stands in its group, its list of steps is another, and needs another workspace:
 * plans of a class hold for all of them nevertheless. */
static int pinned(void)
{
    static const char *const names[] = {"binary_blocks", "binomial",    "butterfly",
                                        "direct",        "double_tree", "hierarchical",
                                        "rabenseifner",  "sparse",      "sparse_doubling"};
    static const char *const plans[] = {"dp=3", "dp=5", "dp=6 micro=2", "dp=3 tp=2",
                                        "pp=2 dp=3 micro=2"};
    static const char *const axes[] = {"dp"};
    int wrong = 0, n = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t k = 0; k < sizeof plans / sizeof *plans; k++, n++) {
            sk_trial t = sk_trial_small("gpt2", plans[k]);
            t.batch = 30;
            t.seq = 6;
            bool ok = !sk_pins_read("comm.algorithm", names[i], axes, 1, &t.pins);
            ok = ok && classes_hold(&t);
            if (!ok) printf("  ^ %s with comm.algorithm=%s\n", plans[k], names[i]);
            wrong += !ok;
        }
    printf("layouts: %d with a pinned algorithm, %d wrong or refused\n", n, wrong);
    return wrong;
}

int main(int argc, char **argv)
{
    int count = argc > 2 ? atoi(argv[2]) : getenv("SKEIN_LONG") ? 1000 : 40;
    int again = known_wrong() + pinned(), wrong = 0;
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    for (int i = 0; i < count; i++) {
        sk_arena a = {0};
        sk_trial t = {0};
        random_model(&t);
        char *layout = random_layout(&a);
        t.threads = pick(1, 2);
        t.bucket_bytes = pick(0, 1) ? 0 : 1500;
        wrong += !right(&t, layout, i);
        sk_arena_end(&a);
    }
    printf("layouts: %d of random letters (seed %llu), %d wrong or refused\n", count,
           (unsigned long long)seed, wrong);
    return again || wrong;
}
