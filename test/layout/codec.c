/* codec.c - compressed edges: weights and gradients encoded on their way, and a second copy
 * of weights near by (ZeRO++, Wang et al. 2023).
 *
 * Losses stay near those of the same layout without codecs, two runs have the same bits, ranks that
 * keep equal weights keep the same bits, and bytes on the wire are counted: in the simulator by
 * closed form, and in the run. */
#include "lib/check.h"
#include "lib/ranks.h"

#include "base/hash.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

static sk_trial trial(const char *model, const char *layout, sk_dtype type)
{
    sk_trial t = sk_trial_small(model, layout);
    t.hyper.hidden_size = 48;
    t.hyper.num_hidden_layers = 3;
    t.hyper.intermediate_size = 72;
    t.hyper.vocab_size = 40;
    t.hyper.input_size = 20;
    t.hyper.embd_pdrop = t.hyper.resid_pdrop = 0;
    t.hyper.tie_word_embeddings = t.model->usual.tie_word_embeddings;
    t.batch = 12;
    t.dtype = type;
    t.loss_scale = type == SK_F16 ? 256 : 0;
    t.steps = 8;
    t.clip = 1;
    return t;
}

/* --- bytes counted in the run, and weights that are equal --- */

static int64_t left[SK_TEST_RANKS], planned[SK_TEST_RANKS]; /* bytes of the last step */
static uint64_t kept[SK_TEST_RANKS];

static void after(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    int64_t gone = sk_comm_bytes_sent(sk_run_comm((sk_run *)run));
    left[p->rank] = step + 1 < t->steps ? gone : gone - left[p->rank];
    planned[p->rank] = 0;
    for (int i = 0; i < p->n_train; i++) planned[p->rank] += p->insts.v[i].wire;
    if (step + 1 < t->steps) return;
    kept[p->rank] = 0;
    for (int i = 0; i < p->params.n; i++) {
        const sk_buffer *b = &p->bufs.v[p->params.v[i].stored];
        kept[p->rank] =
            sk_hash(kept[p->rank], sk_run_data(run, p->params.v[i].stored), (size_t)b->bytes);
    }
}

static double farthest;

static double apart(const sk_trial *a, const sk_trial *b)
{
    double off = 0;
    for (int s = 0; s < a->steps; s++) off = fmax(off, fabs(a->loss[s] / b->loss[s] - 1));
    return off;
}

static void near_plain(const char *model, const char *plain, const char *words, double most,
                       sk_dtype type)
{
    char text[256];
    snprintf(text, sizeof text, "%s %s", plain, words);
    sk_trial a = trial(model, plain, type), b = trial(model, text, type), c = b;
    b.after = after;
    check(!sk_trial_run(&a) && !sk_trial_run(&b));
    double off = apart(&b, &a);
    farthest = fmax(farthest, off);
    bool good = off < most && off > 0;
    if (!good) printf("%s in %s on %s: losses %.1e apart\n", model, sk_dtype_name(type), text, off);
    check(good);
    if (!strcmp(model, "llama")) check(!sk_trial_run(&c) && b.digest == c.digest);
    int64_t gone = 0, want = 0;
    for (int r = 0; r < b.n_ranks; r++) gone += left[r], want += planned[r];
    if (gone != want)
        printf("%s on %s: %lld bytes left, %lld were planned\n", model, text, (long long)gone,
               (long long)want);
    check(gone == want);
    for (int r = 1; r < b.n_ranks && !strcmp(plain, "dp=3"); r++) check(kept[r] == kept[0]);
}

static const struct {
    const char *plain, *words;
} cases[] = {
    {"dp=2 zero=3", "weights=int8"},
    {"dp=4 zero=3", "weights=int8 grads=int4 feedback copy=2"},
    {"dp=2 zero=3", "weights=fp8 grads=int8"},
    {"dp=3 zero=2 micro=2", "grads=int4 feedback"},
    {"dp=2 zero=1", "grads=int4 feedback"},
    {"dp=3", "grads=int4 feedback"},
    {"dp=3", "grads=int8"},
    {"dp=2 tp=2 zero=3 micro=2", "weights=int8 grads=int4 feedback"},
    {"pp=2 dp=2 zero=3 micro=3", "weights=int8 grads=int4 feedback copy=2"},
    {"dp=4 zero=3 prefetch=2 micro=2", "weights=int8 grads=int4 feedback copy=4"},
    {"dp=2 zero=3 keep recompute=full", "weights=int8 grads=int4"},
    {"dp=2 cp=2 zero=2", "grads=int4 feedback"},
    {"dp=2 cp=2", "grads=int4 feedback"},
    {"dp=2 zero=1 replica", "grads=int8 feedback"},
    {"dp=3", "grads=topk:0.3 feedback"},
    {"dp=2 zero=2 micro=2", "grads=topk:0.3 feedback"},
    {"dp=3", "grads=topk:0.3 feedback union"},
    {"dp=2 micro=2", "grads=threshold:2 feedback union"},
    {"dp=2 cp=2", "grads=chunks:0.3 feedback union"},
    {"pp=2 dp=2 micro=3", "grads=randk:0.45 union"},
    {"dp=2 tp=2", "grads=topk:0.3 feedback union"},
    {"dp=3", "grads=threshold:2 feedback"},
    {"dp=2 zero=2 micro=2", "grads=threshold:2 feedback"},
    {"dp=3", "grads=chunks:0.3 feedback"},
    {"dp=2 zero=1", "grads=chunks:0.3 feedback"},
    {"dp=3", "grads=randk:0.45"},
    {"dp=2 tp=2 zero=1", "grads=randk:0.4 feedback"},
    {"dp=3", "grads=sign feedback"},
    {"pp=2 dp=2 zero=3 micro=3", "weights=int8 grads=q4 feedback"},
    {"dp=2 cp=2", "grads=q8"},
    {"dp=3 zero=2 micro=2", "grads=q4 feedback"},
    {"dp=3", "grads=powersgd:3 feedback"},
    {"dp=2 tp=2 zero=1 micro=2", "grads=powersgd:4 feedback"},
    {"pp=2 dp=2 micro=3", "grads=powersgd:4 feedback"},
};
enum { SOME = 4, CASES = sizeof cases / sizeof *cases };

static void narrow_wire(void)
{
    near_plain("llama", "dp=2 zero=3", "weights=bf16 grads=f16", 1e-2, SK_F32);
    near_plain("gpt2", "dp=3", "grads=bf16 feedback", 1e-2, SK_F32);
}

/* A copy is a copy: the bits do not change, whoever is asked. */
static void same_copy(const char *layout, const char *copy, sk_dtype type)
{
    char text[128];
    snprintf(text, sizeof text, "%s %s", layout, copy);
    sk_trial a = trial("gpt2", layout, type), b = trial("gpt2", text, type);
    a.steps = b.steps = 4;
    check(!sk_trial_run(&a) && !sk_trial_run(&b));
    if (a.digest != b.digest) printf("%s: other bits than without a copy\n", text);
    check(a.digest == b.digest && a.valid == b.valid);
}

/* --- nothing is lost for good --- */

/* By tensor and place: sums over all steps of gradients as the optimizer sees them, and at the end
 * what is still owed.  Weights stand still. */
enum { TENSORS = 128, PLACES = 8192 };
static double seen[TENSORS][PLACES];
static pthread_mutex_t seeing = PTHREAD_MUTEX_INITIALIZER;

static int64_t place(const sk_extent *e, int from, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = e->n - 1; d >= from; d--) {
        at += (e->at[d] + i % e->size[d]) * step;
        i /= e->size[d];
        step *= e->full[d];
    }
    return at;
}

static void see(const sk_run *run, const sk_program *p, int tensor, int buf, int from, double by)
{
    const sk_buffer *b = &p->bufs.v[buf];
    int64_t n = b->bytes / (int64_t)sk_dtype_size(b->type);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = place(&b->box, from, i);
        sk_assert(at < PLACES);
        seen[tensor][at] += by * (double)((const float *)sk_run_data(run, buf))[i];
    }
}

static void sum_up(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    double scale = t->loss_scale > 0 ? t->loss_scale : 1;
    pthread_mutex_lock(&seeing);
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        sk_assert(q->tensor->id < TENSORS);
        if (q->owner) see(run, p, q->tensor->id, q->grad_shard, 0, 1 / scale);
        if (q->error >= 0 && q->tells && step + 1 == t->steps)
            see(run, p, q->tensor->id, q->error, 1, 1);
    }
    pthread_mutex_unlock(&seeing);
}

static void see_weights(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    if (step + 1 < t->steps) return;
    pthread_mutex_lock(&seeing);
    for (int i = 0; i < p->params.n; i++)
        if (p->params.v[i].owner)
            see(run, p, p->params.v[i].tensor->id, p->params.v[i].shard, 0, 1);
    pthread_mutex_unlock(&seeing);
}

static void learn(const char *layout)
{
    sk_trial t = trial("llama", layout, SK_F32);
    t.optim = "sgd";
    t.lr = 0.05;
    t.steps = 16;
    t.after = see_weights;
    memset(seen, 0, sizeof seen);
    check(!sk_trial_run(&t));
}

static double distance(double (*other)[PLACES])
{
    double sum = 0;
    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < PLACES; i++) sum += pow(seen[t][i] - other[t][i], 2);
    return sqrt(sum);
}

/* Feedback earns its memory: weights end nearer to those without codecs. */
static void feedback_helps(void)
{
    static double plain[TENSORS][PLACES];
    learn("dp=4 zero=2");
    memcpy(plain, seen, sizeof seen);
    learn("dp=4 zero=2 grads=int4 feedback");
    double with = distance(plain);
    learn("dp=4 zero=2 grads=int4");
    double without = distance(plain);
    printf("weights learnt: %.1e from plain with feedback, %.1e without\n", with, without);
    check(with > 0 && with < 0.7 * without);
}

static void add_up(const char *layout, double loss_scale)
{
    sk_trial t = trial("llama", layout, SK_F32);
    t.steps = 6;
    t.lr = 1e-30;
    t.loss_scale = loss_scale;
    t.after = sum_up;
    memset(seen, 0, sizeof seen);
    check(!sk_trial_run(&t));
}

static void conserved(const char *layout, const char *words, double loss_scale)
{
    static double plain[TENSORS][PLACES];
    char text[128];
    snprintf(text, sizeof text, "%s %s feedback", layout, words);
    add_up(layout, 0);
    memcpy(plain, seen, sizeof seen);
    add_up(text, loss_scale);
    int wrong = 0;
    for (int t = 0; t < TENSORS; t++) {
        double top = 0;
        for (int i = 0; i < PLACES; i++) top = fmax(top, fabs(plain[t][i]));
        for (int i = 0; i < PLACES; i++) wrong += !(fabs(seen[t][i] - plain[t][i]) <= 1e-5 * top);
    }
    if (wrong) printf("%s: %d sums of gradients are not what they were\n", text, wrong);
    check(!wrong);
}

/* A share that would not shrink f32 goes as it is: the sums are those without a codec, to the bit.
 * (That all elements come back when all are encoded, test/parts/codec.c has.) */
static void everything_sent(void)
{
    sk_trial a = trial("llama", "dp=2 zero=2", SK_F32);
    static const char *const words[] = {"topk:1 feedback", "randk:1", "threshold:1 feedback",
                                        "chunks:1 feedback"};
    check(!sk_trial_run(&a));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char text[64];
        snprintf(text, sizeof text, "dp=2 zero=2 grads=%s", words[i]);
        sk_trial b = trial("llama", text, SK_F32);
        check(!sk_trial_run(&b) && a.digest == b.digest);
    }
}

/* --- closed forms --- */

typedef struct sums {
    int64_t weights, near, grads, all; /* over all ranks; all: elements of parameters */
} sums;

static int64_t coded(const char *name, int64_t rows, int64_t row, int64_t size)
{
    sk_codec c = {0};
    if (*name) check(!sk_codec_read(name, &c));
    int64_t bytes = *name && row > 1 ? sk_codec_bytes(&c, row) : row * size;
    return rows * (bytes < row * size ? bytes : row * size);
}

/* Per step: every weight is gathered for the forward pass, all but the table of words again for the
 * backward pass, and every gradient is reduced. */
static sums closed(const sk_graph *g, const sk_layout *l)
{
    sums s = {0};
    int64_t n = l->mesh.size[l->shard_axis], near = l->copy > 1 ? l->copy : n;
    for (int i = 0; i < g->tensors.n; i++) {
        const sk_tensor *t = g->tensors.v[i];
        int64_t row = 1, rows = g->size[(int)t->letters[0]], size = (int64_t)sk_dtype_size(t->type);
        if (t->role != SK_PARAM) continue;
        for (const char *p = t->letters + 1; *p; p++) row *= g->size[(int)*p];
        if (!t->letters[1]) row = 1;
        int64_t whole = coded(l->weights_as, rows, row, size);
        int64_t again = strcmp(t->name, "wte") ? whole : 0;
        s.all += rows * row;
        s.weights += (n - 1) * whole;
        if (near < n) s.near += n / near * (near - 1) * again;
        else s.weights += (n - 1) * again;
        s.grads += (n - 1) * coded(l->grads_as, rows, row, size);
    }
    return s;
}

static sums counted(sk_program *const *p, int n)
{
    sums s = {0};
    for (int r = 0; r < n; r++)
        for (int i = 0; i < p[r]->n_train; i++) {
            const sk_inst *in = &p[r]->insts.v[i];
            const sk_call_plan *c = in->call >= 0 ? &p[r]->calls.v[in->call] : NULL;
            if (!c || c->group == p[r]->world) continue;
            if (p[r]->near && c->group == p[r]->near) s.near += in->wire;
            else if (c->kind == SK_ALLGATHER) s.weights += in->wire;
            else s.grads += in->wire;
        }
    return s;
}

/* Bytes that leave a group of neighbours, in units of the parameters in 16 bits. */
static double volume(const char *words)
{
    enum { N = 8 };
    sk_arena a = {0};
    sk_graph g;
    sk_layout l;
    sk_program **p = NULL;
    int n = 0;
    char text[128];
    snprintf(text, sizeof text, "dp=%d zero=3 %s", N, words);
    sk_trial t = trial("llama", text, SK_BF16);
    t.hyper.hidden_size = 1024;
    t.hyper.intermediate_size = 2048;
    t.hyper.num_attention_heads = t.hyper.num_key_value_heads = 8;
    t.hyper.vocab_size = 64;
    t.batch = 8;
    check(!sk_layout_read(text, N, &l) && !sk_trial_compile(&a, &t, &g, &p, &n));
    sums want = closed(&g, &l), found = counted(p, n);
    check(found.weights == want.weights && found.near == want.near && found.grads == want.grads);
    if (found.weights != want.weights || found.near != want.near || found.grads != want.grads)
        printf("%s: weights %lld (%lld), near %lld (%lld), gradients %lld (%lld)\n", text,
               (long long)found.weights, (long long)want.weights, (long long)found.near,
               (long long)want.near, (long long)found.grads, (long long)want.grads);
    double units = (double)(found.weights + found.grads) / (double)(2 * want.all * (N - 1));
    sk_arena_end(&a);
    return units;
}

/* 3 units become 0.75, and what scales and norms take. */
static void zero_plus_plus(void)
{
    double plain = volume(""), weights = volume("weights=int8"), copy = volume("copy=4"),
           grads = volume("grads=int4"), all = volume("weights=int8 grads=int4 copy=4");
    printf("units on the wire: plain %.4f, weights=int8 %.4f, copy=4 %.4f, grads=int4 %.4f, all "
           "%.4f\n",
           plain, weights, copy, grads, all);
    check(plain > 2.98 && plain <= 3);
    check(weights > 2 && weights < 2.02 && copy > 2 - 1e-9 && copy < 2 + 1e-9);
    check(grads > 2.23 && grads < 2.27 && all > 0.75 && all < 0.765);
}

/* Rows of 1024 and 2048 in 16 bits: the sum is 1 unit, and becomes this. */
static void few_bytes(void)
{
    static const struct {
        const char *words;
        double units;
    } want[] = {{"grads=topk:0.01 feedback", 0.01 * 3},
                {"grads=randk:0.01", 0.01 * 2},
                {"grads=threshold:5 feedback", 0.04 * 3},
                {"grads=chunks:0.25 feedback", 0.25 * 130 / 64},
                {"grads=sign feedback", 34.0 / 512},
                {"grads=q2", 34.0 / 256},
                {"grads=q4", 66.0 / 256},
                {"grads=q8", 258.0 / 512}};
    double rest = volume("") - 1; /* what is not encoded: one dim */
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        double units = volume(want[i].words) - rest;
        printf("%s: %.4f\n", want[i].words, units);
        check(units > want[i].units * 0.99 && units < want[i].units * 1.08 + 1e-3);
    }
}

/* --- words that make no sense --- */

static sk_status try(const char *layout)
{
    sk_trial t = trial("llama", layout, SK_F32);
    t.steps = 1;
    return sk_trial_run(&t);
}

static void error_messages(void)
{
    fails(try("dp=2 zero=3 weights=in8"), SK_ECONF, "did you mean 'int8'");
    fails(try("dp=2 zero=2 weights=int8"), SK_ECONF, "use zero=3");
    fails(try("dp=2 feedback"), SK_ECONF, "use grads=int4");
    fails(try("dp=4 zero=3 copy=3"), SK_ECONF, "that divides 4");
    fails(try("dp=4 zero=2 copy=2"), SK_ECONF, "use zero=3");
    fails(try("dp=2 grads=int4; canonical order"), SK_ECONF, "rounds what ranks send");
    fails(try("pp=2 dp=2 zero=3 micro=4 schedule=pipedream copy=2"), SK_ECONF, "within a step");
    fails(try("dp=2 grads=topk:0.1"), SK_ECONF, "add 'feedback'");
    fails(try("dp=2 grads=sign"), SK_ECONF, "add 'feedback'");
    fails(try("dp=2 grads=chunks:0.1"), SK_ECONF, "add 'feedback'");
    fails(try("dp=2 grads=threshold feedback"), SK_ECONF, "for example threshold:3");
    fails(try("dp=2 grads=topk feedback"), SK_ECONF, "needs a RATIO over 0 and up to 1");
    fails(try("dp=2 grads=topk:0 feedback"), SK_ECONF, "needs a RATIO over 0 and up to 1");
    fails(try("dp=2 grads=topk:2 feedback"), SK_ECONF, "needs a RATIO over 0 and up to 1");
    fails(try("dp=2 grads=topk:abc feedback"), SK_ECONF, "needs a RATIO over 0 and up to 1");
    fails(try("dp=2 grads=int4:1"), SK_ECONF, "has no value");
    fails(try("dp=2 zero=3 weights=topk:0.1"), SK_ECONF, "is for gradients");
    fails(try("dp=2 zero=3 weights=q4"), SK_ECONF, "is for gradients");
    fails(try("dp=2 grads=int4 union"), SK_ECONF, "union is about gradients of which some");
    fails(try("dp=2 union"), SK_ECONF, "use grads=topk:0.01 feedback");
    check(!try("dp=2 zero=2 grads=topk:0.1 feedback union"));
    check(!try("dp=1 grads=int4 feedback"));
}

/* A step that is not taken leaves no weights changed, and no loss of its own. */
static double debt;
static void look(void *ctx, const sk_tensor_shard *b)
{
    (void)ctx;
    if (!b->parts) return;
    int64_t n = 1;
    for (int d = 0; d < b->n; d++) n *= b->size[d];
    for (int64_t i = 0; i < n; i++) debt += fabs((double)((const float *)b->data)[i]);
}

static void poisoned(const char *layout)
{
    sk_trial t = trial("llama", layout, SK_BF16);
    t.steps = 2;
    t.look = look;
    debt = 0;
    check(!sk_trial_run(&t) && debt > 0 && isfinite(debt));
    t.poison = 1;
    debt = 0;
    check(!sk_trial_run(&t));
    check(debt == 0);
}

int main(void)
{
    static const char *const models[] = {"gpt2", "llama", "mixtral", "mlp"};
    int runs = 0;
    for (int m = 0; m < 4; m++)
        for (int i = 0; i < (m < 2 ? CASES : SOME); i++, runs++) {
            near_plain(models[m], cases[i].plain, cases[i].words, 1e-2, m % 2 ? SK_F32 : SK_BF16);
        }
    near_plain("llama", "dp=2 zero=3", "weights=int8 grads=int4 feedback", 1e-2, SK_F16);
    narrow_wire();
    same_copy("dp=4 zero=3", "copy=2", SK_F32);
    same_copy("dp=4 zero=3 weights=int8 prefetch=2", "copy=4", SK_BF16);
    same_copy("dp=3 zero=3 micro=2 recompute=full", "copy=3", SK_BF16);
    same_copy("pp=2 dp=2 tp=2 zero=3 micro=3 weights=fp8 keep", "copy=2", SK_F32);
    feedback_helps();
    conserved("dp=3", "grads=int4", 0);
    conserved("dp=2 zero=1", "grads=int4", 0);
    conserved("dp=3 zero=2 micro=2", "grads=int4", 256);
    conserved("dp=2 tp=2 zero=3", "grads=fp8", 0);
    conserved("dp=2 cp=2", "grads=int8", 0);
    conserved("pp=2 dp=2 zero=3 micro=2", "grads=int4", 0);
    conserved("dp=3", "grads=topk:0.05", 0);
    conserved("dp=3 zero=2 micro=2", "grads=topk:0.05", 256);
    conserved("dp=3", "grads=topk:0.05 union", 0);
    conserved("dp=2 cp=2", "grads=topk:0.05 union", 0);
    conserved("pp=2 dp=2 micro=2", "grads=threshold:3 union", 256);
    conserved("dp=3", "grads=threshold:3", 0);
    conserved("dp=3 zero=2 micro=2", "grads=threshold:2", 256);
    conserved("dp=3", "grads=chunks:0.2", 0);
    conserved("dp=2 zero=3 micro=2", "grads=chunks:0.2", 256);
    conserved("dp=2 tp=2", "grads=randk:0.2", 0);
    conserved("dp=2 zero=3", "grads=randk:0.2", 256);
    conserved("dp=3", "grads=sign", 0);
    conserved("dp=2 cp=2", "grads=q4", 0);
    conserved("pp=2 dp=2 zero=3 micro=2", "grads=q4", 0);
    conserved("dp=3", "grads=powersgd:2", 0);
    conserved("dp=2 tp=2 zero=1", "grads=powersgd:1", 0);
    conserved("dp=2 cp=2 micro=2", "grads=powersgd:3", 0);
    conserved("pp=2 dp=2 micro=2", "grads=powersgd:2", 0);
    everything_sent();
    zero_plus_plus();
    few_bytes();
    error_messages();
    poisoned("dp=2 zero=2 grads=int4 feedback");
    poisoned("dp=3 grads=int4 feedback");
    poisoned("dp=2 grads=topk:0.1 feedback");
    poisoned("dp=2 grads=topk:0.1 feedback union");
    poisoned("dp=2 zero=2 grads=sign feedback");
    poisoned("dp=2 grads=threshold:3 feedback");
    poisoned("dp=2 zero=2 grads=chunks:0.1 feedback");
    poisoned("dp=2 zero=1 grads=powersgd:2 feedback");
    printf("compressed edges: %d runs, losses at most %.1e apart, %d checks, %d bad\n", runs,
           farthest, checks, bad);
    return bad > 0;
}
