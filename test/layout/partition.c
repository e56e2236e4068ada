/* partition.c - results kept as pieces ("partition"): the same bits, fewer bytes.
 *
 * Every model under layouts of every family: losses, norms, weights and state at the end are those
 * of the same layout without the word, to the last bit.  Then by counting: what is kept from the
 * forward to the backward pass and was whole over an axis is 1/n of it, to the byte, and the bytes
 * on the wire grow by one all-gather of each. */
#include "lib/check.h"
#include "lib/ranks.h"

#include <stdio.h>

static const char *const models[] = {"gpt2", "llama", "switch", "mixtral", "mlp"};
static const char *const layouts[] = {
    "tp=2",
    "tp=2 sp",
    "tp=3 micro=2",
    "tp=2 overlap=2",
    "tp=2 sp overlap=2 recompute=full",
    "tp=2 recompute=full",
    "tp=2 recompute=full offload=acts",
    "tp=2 recompute=selective keep=cheap",
    "dp=2 tp=2 zero=3 prefetch=1 micro=2 recompute=full",
    "pp=2 tp=2 micro=3 recompute=full",
    "pp=2 tp=2 micro=4 schedule=zb-v recompute=1",
    "pp=2 tp=2 micro=4 schedule=zb-h1",
    "pp=2 tp=2 micro=4 schedule=interleaved chunks=2 recompute=full",
    "cp=2 tp=2 by=ring recompute=full",
    "cp=2 tp=2 by=exchange",
    "ep=2 tp=2",
    "mesh a=2 b=2; split h f v over a; split c over b; recompute full",
    "tp=3; canonical order",
    "pp=2 dp=2 tp=2 zero=2 micro=2 recompute=full; canonical order",
};
enum { MODELS = sizeof models / sizeof *models, LAYOUTS = sizeof layouts / sizeof *layouts };

static sk_trial trial(const char *model, const char *layout)
{
    sk_trial t = sk_trial_small(model, layout);
    t.hyper.vocab_size = 24;
    t.hyper.input_size = 8;
    return t;
}

/* --- bits --- */

static void same_bits(const char *model, const char *layout, sk_dtype type, int64_t seq)
{
    char text[160];
    snprintf(text, sizeof text, "%s; keep results in pieces", layout);
    sk_trial t = trial(model, text), plain = trial(model, layout);
    t.dtype = plain.dtype = type;
    t.seq = plain.seq = seq;
    check(!sk_trial_run(&plain));
    check(!sk_trial_run(&t));
    bool same = t.digest == plain.digest && t.elements == plain.elements;
    for (int s = 0; s < t.steps; s++)
        same &= t.loss[s] == plain.loss[s] && t.norm[s] == plain.norm[s];
    if (!same) printf("%s: %s: other bits\n", model, text);
    check(same);
}

/* --- bytes --- */

typedef struct cost {
    int64_t whole, split; /* kept from forward to backward: alike on all ranks of tp, or not */
    int64_t wire, acts;
} cost;

/* A result that a forward task makes and a backward task reads (and not only waits until it has
 * arrived elsewhere). */
static bool is_kept(const sk_program *p, const sk_buffer *b)
{
    bool result = b->kind == SK_ACTS && b->tensor && b->tensor->role == SK_VALUE && b->within < 0;
    if (!result || b->first < 0 || b->last >= p->n_train) return false;
    const sk_inst *first = &p->insts.v[b->first], *last = &p->insts.v[b->last];
    return first->phase == SK_FORWARD && last->phase == SK_BACKWARD && last->act != SK_DO_SENT;
}

/* Is every dim but the batch there in full? */
static bool is_whole(const sk_program *p, const sk_buffer *b)
{
    bool whole = b->box.n > 1;
    for (int d = 0; d < b->box.n; d++)
        whole &= b->tensor->letters[d] == p->graph->batch || b->box.size[d] == b->box.full[d];
    return whole;
}

static cost cost_of(const sk_trial *t)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0;
    cost c = {0};
    check(!sk_trial_compile(&a, t, &g, &p, &n));
    for (int r = 0; r < n && p; r++) {
        for (int i = 0; i < p[r]->bufs.n; i++) {
            const sk_buffer *b = &p[r]->bufs.v[i];
            if (is_kept(p[r], b)) *(is_whole(p[r], b) ? &c.whole : &c.split) += b->bytes;
        }
        for (int i = 0; i < p[r]->n_train; i++) c.wire += p[r]->insts.v[i].wire;
        c.acts += p[r]->kind_bytes[SK_ACTS];
    }
    sk_arena_end(&a);
    return c;
}

/* All results are of [b, t, c] or [b, t], and tp divides t: whole bytes fall to 1/tp, and each is
 * gathered once, which sends (tp-1)/tp of the whole from every rank. */
static void bytes(const char *model, const char *layout, int tp, sk_dtype type)
{
    char text[160];
    snprintf(text, sizeof text, "%s partition", layout);
    sk_trial plain = trial(model, layout), t = trial(model, text);
    plain.dtype = t.dtype = type;
    cost before = cost_of(&plain), after = cost_of(&t);
    bool good =
        before.whole > 0 && after.whole == 0 && after.split == before.split + before.whole / tp &&
        after.wire == before.wire + before.whole / tp * (tp - 1) && after.acts < before.acts;
    if (!good)
        printf("%s: %s: kept %lld + %lld, then %lld + %lld; wire %lld, then %lld; activations "
               "%lld, then %lld\n",
               model, text, (long long)before.whole, (long long)before.split,
               (long long)after.whole, (long long)after.split, (long long)before.wire,
               (long long)after.wire, (long long)before.acts, (long long)after.acts);
    check(good);
}

/* With recompute=full, and nothing else whole, kept is one [b, t, c] a block. */
static void blocks(void)
{
    sk_trial plain = trial("gpt2", "tp=2 recompute=full");
    cost few, many;
    few = cost_of(&plain);
    plain.hyper.num_hidden_layers = 10;
    many = cost_of(&plain);
    int64_t x = plain.batch * plain.seq * plain.hyper.hidden_size * 4;
    check(many.whole - few.whole == 2 * 6 * x && many.split == few.split);
    plain.layout = "tp=2 recompute=full partition";
    many = cost_of(&plain);
    plain.hyper.num_hidden_layers = 4;
    few = cost_of(&plain);
    check(many.split - few.split == 6 * x && !many.whole);
}

/* Ranks of one shape, as simulate and plan know them, have buffers of the same sizes. */
static void shapes(const char *layout, int64_t seq)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0, shape[SK_TEST_RANKS], differ = 0;
    sk_trial t = trial("llama", layout);
    t.seq = seq;
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    check(n && sk_shapes(p[0]->plan, shape) > 0);
    for (int r = 0; r < n; r++)
        for (int s = 0; s < r; s++) {
            bool same = p[r]->bufs.n == p[s]->bufs.n;
            for (int i = 0; same && i < p[r]->bufs.n; i++)
                same = p[r]->bufs.v[i].bytes == p[s]->bufs.v[i].bytes;
            check(same || shape[r] != shape[s]);
            differ += !same;
        }
    check(differ);
    sk_arena_end(&a);
}

int main(void)
{
    int runs = 0;
    for (int m = 0; m < MODELS; m++)
        for (int l = 0; l < LAYOUTS; l++, runs++) same_bits(models[m], layouts[l], SK_F32, 12);
    for (int m = 0; m < MODELS; m++, runs += 2) {
        same_bits(models[m], "dp=2 tp=2 zero=1 micro=2 recompute=full", SK_BF16, 12);
        same_bits(models[m], "tp=3 recompute=full", SK_F32, 7); /* pieces of 2, 2 and 3 */
    }
    static const char *const counted[] = {"tp=2", "tp=2 recompute=full", "tp=4 recompute=full",
                                          "dp=2 tp=2 zero=3 micro=2 recompute=full",
                                          "pp=2 tp=2 micro=4 recompute=full"};
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
        for (int k = 0; k < 2; k++) {
            int tp = i == 2 ? 4 : 2;
            bytes("gpt2", counted[i], tp, k ? SK_BF16 : SK_F32);
            bytes("llama", counted[i], tp, k ? SK_BF16 : SK_F32);
        }
    blocks();
    shapes("tp=3 recompute=full partition", 7);
    shapes("dp=2 tp=3 recompute=full partition", 8);
    printf("partition: %d pairs of runs, %d checks, %d bad\n", runs, checks, bad);
    return bad > 0;
}
