/* grad_union.c - the test of src/program/coded_union.c: sparse gradients that are summed as what
 * ranks sent.
 *
 * By codes that are gathered and by streams, whatever the algorithm and its degrees, ranks learn
 * the same: of two and three ranks to the bit, since both add in the order of the tree.  What
 * leaves the ranks in streams is what the plan expects of ranks that choose independently, or less.
 * Which way is taken is a matter of price.  Output: what is wrong, then "grad_union: N checks, N
 * bad". */
#include "lib/check.h"
#include "lib/ranks.h"
#include "program/class_program.h"

#include <math.h>

static sk_trial trial(const char *layout, const char *algorithm)
{
    static const char *const axes[] = {"dp"};
    sk_trial t = sk_trial_small("llama", layout);
    t.hyper.hidden_size = 48;
    t.hyper.num_hidden_layers = 2;
    t.hyper.intermediate_size = 72;
    t.hyper.vocab_size = 40;
    t.hyper.tie_word_embeddings = t.model->usual.tie_word_embeddings;
    t.batch = 12;
    t.steps = 4;
    check(!sk_pins_read("comm.algorithm", algorithm, axes, 1, &t.pins));
    return t;
}

static int64_t left[SK_TEST_RANKS], planned[SK_TEST_RANKS]; /* of the last step */

static void after(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    int64_t gone = sk_comm_bytes_sent(sk_run_comm((sk_run *)run));
    left[p->rank] = step + 1 < t->steps ? gone : gone - left[p->rank];
    planned[p->rank] = 0;
    for (int i = 0; i < p->n_train; i++) planned[p->rank] += p->insts.v[i].wire;
}

static int64_t bytes_of(const int64_t *v, int n)
{
    int64_t sum = 0;
    for (int r = 0; r < n; r++) sum += v[r];
    return sum;
}

static uint64_t learnt(const char *layout, const char *algorithm, int64_t *gone, int64_t *want)
{
    sk_trial t = trial(layout, algorithm);
    t.after = after;
    check(!sk_trial_run(&t));
    *gone = bytes_of(left, t.n_ranks);
    *want = bytes_of(planned, t.n_ranks);
    return t.digest;
}

/* All algorithms that add in the order of the tree. */
static void same(const char *layout, const char *codec, const char *const *algorithms)
{
    char text[128];
    int64_t gathered, plan, gone, want;
    snprintf(text, sizeof text, "%s grads=%s union", layout, codec);
    uint64_t codes = learnt(text, "auto", &gathered, &plan);
    check(gathered == plan);
    for (int i = 0; algorithms[i]; i++) {
        uint64_t streams = learnt(text, algorithms[i], &gone, &want);
        if (streams != codes)
            printf("%s by %s: other weights than by codes\n", text, algorithms[i]);
        check(streams == codes);
        bool few = gone > 0 && (double)gone <= 1.02 * (double)want; /* heads, other calls pinned */
        if (!few)
            printf("%s by %s: %lld bytes left, %lld were expected, %lld of codes\n", text,
                   algorithms[i], (long long)gone, (long long)want, (long long)gathered);
        check(few);
    }
}

/* Only the order of sums differs. */
static void near(const char *layout, const char *a, const char *b)
{
    sk_trial x = trial(layout, a), y = trial(layout, b);
    check(!sk_trial_run(&x) && !sk_trial_run(&y));
    for (int s = 0; s < x.steps; s++) check(fabs(x.loss[s] / y.loss[s] - 1) < 1e-5);
}

static bool in_streams(const char *layout, int hosts, const char *algorithm)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n;
    bool found = false;
    sk_trial t = trial(layout, algorithm);
    t.hosts = hosts;
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    for (int i = 0; i < p[0]->calls.n; i++)
        found |= p[0]->calls.v[i].kind == SK_ALLREDUCE && p[0]->calls.v[i].fill > 0;
    sk_arena_end(&a);
    return found;
}

/* With few elements codes are few; with many, n - 1 times that of one is more than streams, which
 * become dense. */
static void ways(void)
{
    check(!in_streams("dp=4 grads=topk:0.01 feedback union", 64, "auto"));
    check(in_streams("dp=12 grads=topk:0.4 feedback union", 64, "auto"));
    check(in_streams("dp=2 grads=topk:0.1 feedback union", 1, "all-reduce: sparse"));
    check(!in_streams("dp=2 grads=topk:0.1 feedback", 1, "all-reduce: sparse"));
    check(!in_streams("mesh hosts=2 dp=2; split b over hosts; split b over dp; encode gradients as "
                      "topk:0.1 with feedback as a union",
                      1, "all-reduce: sparse"));
}

/* Which way is taken depends on costs, also on one host: ranks compare them, and as workspaces of
 * lists depend on the member, no rank's program stands for others. */
static uint64_t hash_by(const char *layout, double sum, bool *stands)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    sk_costs costs = sk_costs_preset;
    int n;
    sk_trial t = trial(layout, "auto");
    costs.shm.sum = sum;
    t.costs = &costs;
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    uint64_t hash = sk_program_hash(p[0]);
    *stands = sk_program_stands(p[0]);
    sk_arena_end(&a);
    return hash;
}

static void compared(void)
{
    const char *with = "dp=2 grads=topk:0.1 feedback union",
               *without = "dp=2 grads=topk:0.1 feedback";
    bool stands;
    uint64_t one = hash_by(with, 1e-9, &stands);
    check(!stands);
    check(one != hash_by(with, 2e-9, &stands) && one == hash_by(with, 1e-9, &stands));
    check(hash_by(without, 1e-9, &stands) == hash_by(without, 2e-9, &stands) && stands);
}

int main(void)
{
    static const char *const two[] = {"all-reduce: sparse", "all-reduce: sparse_doubling",
                                      "all-reduce: sparse:2", NULL};
    static const char *const three[] = {"all-reduce: sparse", "all-reduce: sparse:3",
                                        "all-reduce: sparse_doubling:3", NULL};
    static const char *const codecs[] = {"topk:0.1 feedback", "threshold:3 feedback",
                                         "chunks:0.1 feedback", "randk:0.2"};
    for (int i = 0; i < 4; i++) {
        same("dp=2", codecs[i], two);
        same("dp=3", codecs[i], three);
    }
    near("dp=4 grads=topk:0.1 feedback union", "auto", "all-reduce: sparse:2x2");
    near("dp=4 grads=topk:0.1 feedback union", "auto", "all-reduce: sparse_doubling:4");
    near("dp=4 grads=topk:0.1 feedback union", "auto", "all-reduce: butterfly:2x2");
    near("dp=6 grads=randk:0.2 union", "auto", "all-reduce: sparse_doubling:2x2");
    ways();
    compared();
    printf("grad_union: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
