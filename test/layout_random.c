/* layout_random.c - any product of {dp, tp, pp, zero, micro} gives the losses of one rank.
 *
 * Random small models with sizes that do not divide, random layouts on 1 to 8
 * ranks, ten steps each; every loss within 1e-5 of the one-rank run.  Where ranks keep
 * one copy of the weights (replica), every bit is that of the same ranks with copies of their own.
 *
 *     layout_random [SEED [COUNT]]      default: seed 1, 40 pairs
 *     layout_random 0 0 LAYOUT          one layout on the fixed small GPT */
#include "lib/ranks.h"

#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed, drawn;

static int pick(int from, int to) /* both included */
{
    return from + (int)(sk_rng(seed, 0, drawn++).a % (uint64_t)(to - from + 1));
}

static void random_model(sk_trial *t)
{
    static const char *const archs[] = {"gpt2", "llama", "mlp"};
    const char *arch = archs[pick(0, 2)];
    t->model = sk_model_find(arch);
    t->hyper = t->model->usual;
    int heads = pick(1, 5), keys = heads, wide = 2 * pick(2, 4);
    if (!strcmp(arch, "llama") && heads % 2 == 0) keys = heads / 2;
    t->hyper.num_attention_heads = heads;
    t->hyper.num_key_value_heads = keys;
    t->hyper.hidden_size = heads * wide;
    t->hyper.num_hidden_layers = pick(1, 5);
    t->hyper.intermediate_size = pick(7, 40);
    t->hyper.vocab_size = pick(11, 47);
    t->hyper.max_position_embeddings = 32;
    t->hyper.tie_word_embeddings = pick(0, 1);
    t->hyper.input_size = pick(5, 30);
    t->hyper.dropout = pick(0, 3) ? 0 : 0.1;
    if (!strcmp(arch, "mlp")) t->hyper.hidden_size = pick(5, 23);
    t->batch = pick(1, 9);
    t->seq = pick(2, 13);
}

static const char with[] = "replica ";

static void random_layout(sk_trial *t, char *text, size_t n)
{
    static const char *const orders[] = {"pp dp tp", "dp pp tp", "pp tp dp", "tp dp pp"};
    int dp, tp, pp;
    do dp = pick(1, 4), tp = pick(1, 4), pp = pick(1, 4);
    while (dp * tp * pp > 8 || dp * tp * pp == 1);
    int zero = pick(0, 3), order = pick(0, 3);
    bool replica = (zero == 1 || zero == 2) && pick(0, 2);
    t->n_micro = pick(1, 4);
    t->threads = pick(1, 2);
    t->bucket_bytes = pick(0, 1) ? 0 : 4096;
    snprintf(text, n, "%sdp=%d tp=%d pp=%d zero=%d micro=%d schedule=%s order: %s",
             replica ? with : "", dp, tp, pp, zero, t->n_micro, pick(0, 1) ? "1f1b" : "gpipe",
             orders[order]);
    t->layout = text;
}

static void describe(const sk_trial *t)
{
    printf("  model %s hidden=%lld layers=%lld heads=%lld keys=%lld f=%lld v=%lld tie=%d drop=%g "
           "b=%lld "
           "t=%lld threads=%d %s\n  layout %s\n",
           t->model->name, (long long)t->hyper.hidden_size, (long long)t->hyper.num_hidden_layers,
           (long long)t->hyper.num_attention_heads, (long long)t->hyper.num_key_value_heads,
           (long long)t->hyper.intermediate_size, (long long)t->hyper.vocab_size,
           t->hyper.tie_word_embeddings, t->hyper.dropout, (long long)t->batch, (long long)t->seq,
           t->threads, t->optim ? t->optim : "adamw", t->layout);
}

static double worst; /* relative difference of a loss, over all pairs */

static bool near(double a, double b, double tolerance)
{
    double apart = fabs(a - b) / fmax(1e-3, fmax(fabs(a), fabs(b)));
    if (tolerance < 1e-4 && apart > worst) worst = apart;
    return apart <= tolerance && isfinite(a);
}

static bool same(const sk_trial *one, const sk_trial *many)
{
    for (int s = 0; s < one->steps; s++)
        if (!near(one->loss[s], many->loss[s], 1e-5) || !near(one->norm[s], many->norm[s], 1e-3)) {
            printf("step %d: loss %.9g on one rank, %.9g on %d; norm %.9g, %.9g\n", s, one->loss[s],
                   many->loss[s], many->n_ranks, one->norm[s], many->norm[s]);
            return false;
        }
    if (near(one->valid, many->valid, 1e-5)) return true;
    printf("validation: loss %.9g on one rank, %.9g on %d\n", one->valid, many->valid,
           many->n_ranks);
    return false;
}

static int replicas;

/* The same ranks with weights of their own. */
static bool same_bits(const sk_trial *t)
{
    sk_trial own = *t;
    if (strncmp(t->layout, with, sizeof with - 1)) return true;
    own.layout = t->layout + sizeof with - 1;
    replicas++;
    if (sk_trial_run(&own)) {
        printf("%s\n", sk_error());
        return false;
    }
    if (!memcmp(own.loss, t->loss, sizeof own.loss) &&
        !memcmp(own.norm, t->norm, sizeof own.norm) &&
        !memcmp(&own.valid, &t->valid, sizeof own.valid))
        return true;
    printf("other bits than without replica\n");
    return false;
}

static bool pair(sk_trial *t)
{
    sk_trial one = *t;
    one.layout = "dp=1";
    one.n_micro = 1;
    one.threads = 1;
    bool ok = !sk_trial_run(&one);
    if (ok) ok = !sk_trial_run(t);
    if (!ok) printf("%s\n", sk_error());
    else ok = same(&one, t) && same_bits(t);
    if (!ok) describe(t);
    return ok;
}

static int fixed(const char *layout)
{
    sk_trial t = {.batch = 6, .seq = 8, .steps = 10, .layout = layout, .clip = 1};
    t.model = sk_model_preset("tiny", &t.hyper);
    if (!pair(&t)) return 1;
    for (int s = 0; s < t.steps; s++) printf("%d %.9g %.9g\n", s, t.loss[s], t.norm[s]);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const optims[] = {"adamw", "lamb", "sgd", "adamw"};
    int count = argc > 2 ? atoi(argv[2]) : getenv("SKEIN_LONG") ? 400 : 40, bad = 0;
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    if (argc > 3) return fixed(argv[3]);
    for (int i = 0; i < count; i++) {
        sk_trial t = {.steps = 10};
        char text[256];
        random_model(&t);
        random_layout(&t, text, sizeof text);
        t.optim = optims[pick(0, 5) % 4];
        t.clip = pick(0, 1) ? 1.0 : 0;
        bad += !pair(&t);
    }
    printf(
        "layouts: %d random pairs (seed %llu), worst difference of a loss %.1e, %d with one copy "
        "of weights, %d bad\n",
        count, (unsigned long long)seed, worst, replicas, bad);
    return bad != 0;
}
