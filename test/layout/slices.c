/* slices.c - wide results slice by slice: less memory, the same losses and weights.
 *
 * Every model under layouts of every family, with slices along the batch and along time, alone and
 * with every way of recomputation: losses, norms and the weights at the end are those of the same
 * layout without slices, to rounding.  No buffer may hold a whole wide result (logits, hidden
 * layers), and where the head decides the peak, it falls by what the closed form says. */
#include "lib/check.h"
#include "lib/ranks.h"

#include "model/blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct subject {
    const char *model;
    bool tied;
    const char *wide; /* letters of results that must be sliced */
} subject;

static const subject subjects[] = {
    {"gpt2", false, "fv"},   {"gpt2", true, "fv"},   {"llama", false, "fv"}, {"llama", true, "fv"},
    {"mixtral", false, "v"}, {"switch", false, "v"}, {"mlp", false, "v"},
};
static const char *const layouts[] = {
    "",
    "dp=2 micro=2",
    "dp=3",
    "dp=3 tp=3 micro=2",
    "dp=8",
    "dp=5 micro=2",
    "tp=2",
    "tp=2 sp",
    "tp=2 sp overlap=2",
    "pp=2 micro=3",
    "pp=2 micro=4 schedule=zb-h1",
    "pp=2 dp=2 micro=4 schedule=zb-v zero=3",
    "pp=2 micro=4 schedule=pipedream",
    "pp=2 schedule=interleaved chunks=2 micro=2",
    "dp=2 zero=1",
    "dp=2 zero=2 micro=2",
    "dp=2 zero=3 micro=2 prefetch=1",
    "dp=2 zero=3 keep",
    "cp=2 by=ring",
    "cp=2 by=exchange dp=2",
    "ep=2 dp=2",
    "pp=2 dp=2 tp=2 sp zero=2 micro=2",
};
static const char *const ways[] = {"", "recompute full", "recompute selective",
                                   "recompute 1 blocks", "recompute contract"};
static const int counts[] = {2, 3, 16};
enum {
    SUBJECTS = sizeof subjects / sizeof *subjects,
    LAYOUTS = sizeof layouts / sizeof *layouts,
    WAYS = sizeof ways / sizeof *ways,
    COUNTS = sizeof counts / sizeof *counts
};

static sk_trial trial(const subject *s, const char *layout)
{
    sk_trial t = sk_trial_small(s->model, layout);
    t.hyper.tie_word_embeddings = s->tied;
    t.optim = "sgd";
    t.lr = 0.1;
    return t;
}

/* --- weights at the end --- */

typedef struct weights {
    struct {
        char name[64];
        int64_t n;
        float *v;
    } of[256];
    int n;
} weights;

static int64_t count(const int64_t *size, int n)
{
    int64_t all = 1;
    for (int i = 0; i < n; i++) all *= size[i];
    return all;
}

static float *place_of(weights *w, const sk_tensor_shard *b)
{
    int i = 0;
    while (i < w->n && strcmp(w->of[i].name, b->name) != 0) i++;
    if (i == w->n) {
        w->n++;
        snprintf(w->of[i].name, sizeof w->of[i].name, "%s", b->name);
        w->of[i].n = count(b->full, b->n);
        w->of[i].v = calloc((size_t)w->of[i].n + 1, sizeof(float));
    }
    return w->of[i].v;
}

static void keep(void *ctx, const sk_tensor_shard *b)
{
    if (b->type != SK_F32) return;
    float *to = place_of(ctx, b);
    for (int64_t i = 0; i < count(b->size, b->n); i++) {
        int64_t rest = i, at = 0, step = 1;
        for (int d = b->n - 1; d >= 0; d--) {
            at += (b->at[d] + rest % b->size[d]) * step;
            rest /= b->size[d];
            step *= b->full[d];
        }
        to[at] = ((const float *)b->data)[i];
    }
}

static void drop(weights *w)
{
    for (int i = 0; i < w->n; i++) free(w->of[i].v);
    w->n = 0;
}

/* The largest difference, in parts of the tensor's largest element. */
static double apart(const weights *a, const weights *b)
{
    double worst = a->n == b->n ? 0 : INFINITY;
    for (int i = 0; i < a->n; i++) {
        int k = 0;
        while (k < b->n && strcmp(a->of[i].name, b->of[k].name) != 0) k++;
        if (k == b->n) return INFINITY;
        double most = 1e-3, diff = 0;
        for (int64_t j = 0; j < a->of[i].n; j++) {
            most = fmax(most, fabs((double)a->of[i].v[j]));
            diff = fmax(diff, fabs((double)a->of[i].v[j] - (double)b->of[k].v[j]));
        }
        worst = fmax(worst, diff / most);
    }
    return worst;
}

/* --- buffers --- */

static int64_t sliced; /* results of instructions that are a slice of a wide one */

/* Rows of the batch and places of time, of a box. */
static int64_t rows_of(const sk_extent *box)
{
    return box->size[0] * (box->n > 2 ? box->size[1] : 1);
}

/* Is it all that this rank has of a wide result, of a micro-batch? */
static bool is_whole(const sk_program *p, const sk_buffer *b, int micro, const char *wide)
{
    const sk_tensor *x = b->tensor;
    if (!x || x->role != SK_VALUE || x->letters[0] != 'b' || b->kind != SK_ACTS) return false;
    if (!strpbrk(x->letters, wide)) return false;
    sk_extent box = sk_shard_of(p->graph, &p->layout, x->letters, &p->spread.made[x->id], p->coord,
                                micro, p->n_micro);
    sliced += rows_of(&b->box) < rows_of(&box);
    return rows_of(&b->box) >= rows_of(&box) && rows_of(&box) > 1;
}

/* How many buffers hold a whole wide result of a micro-batch? */
static int whole_ones(const sk_trial *t, const subject *s)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0, whole = 0;
    check(!sk_trial_compile(&a, t, &g, &p, &n));
    for (int r = 0; r < n && p; r++)
        for (int i = 0; i < p[r]->insts.n; i++) {
            const sk_inst *in = &p[r]->insts.v[i];
            for (int o = 0; o < SK_MAX_OUT && in->micro >= 0; o++)
                if (in->out[o] >= 0)
                    whole += is_whole(p[r], &p[r]->bufs.v[in->out[o]], in->micro, s->wide);
        }
    sk_arena_end(&a);
    return whole;
}

/* --- one comparison --- */

static double far_off(double a, double b) { return fabs(a - b) / fmax(fabs(b), 1e-6); }

static void compare(const sk_trial *t, const sk_trial *plain, const weights *w, const weights *pw,
                    const subject *s, double most)
{
    double loss = far_off(t->valid, plain->valid), norm = 0, weight = apart(w, pw);
    for (int i = 0; i < t->steps; i++) {
        loss = fmax(loss, far_off(t->loss[i], plain->loss[i]));
        norm = fmax(norm, far_off(t->norm[i], plain->norm[i]));
    }
    bool good = loss <= most && norm <= 50 * most && weight <= 50 * most;
    if (!good)
        printf("%s: %s: losses %.2g apart, norms %.2g, weights %.2g\n", s->model, t->layout, loss,
               norm, weight);
    check(good);
}

static weights before, after;
static int runs;

static void one(const subject *s, const char *layout, const char *way, int slices,
                const sk_trial *plain, double most)
{
    char text[200];
    snprintf(text, sizeof text, "%s slices=%d%s%s", layout, slices, *way ? "; " : "", way);
    sk_trial t = trial(s, text);
    t.dtype = plain->dtype;
    t.loss_scale = plain->loss_scale;
    t.optim = plain->optim;
    t.lr = plain->lr;
    t.look = keep;
    t.look_ctx = &after;
    bool ran = !sk_trial_run(&t);
    if (!ran) printf("%s: %s: %s\n", s->model, text, sk_error_line());
    check(ran);
    if (ran) compare(&t, plain, &after, &before, s, most);
    int whole = ran ? whole_ones(&t, s) : 0;
    if (whole) printf("%s: %s: %d whole wide results\n", s->model, text, whole);
    check(!whole);
    drop(&after);
    runs++;
}

static void all_ways(const subject *s, const char *layout, int first)
{
    if (s->tied && strstr(layout, "pipedream")) return; /* needs every weight on one stage */
    sk_trial plain = trial(s, layout);
    plain.look = keep;
    plain.look_ctx = &before;
    check(!sk_trial_run(&plain));
    for (int w = 0; w < WAYS; w++)
        one(s, layout, ways[w], counts[(first + w) % COUNTS], &plain, 1e-6);
    drop(&before);
}

/* --- a model of its own --- */

/* A norm behind the MLP, not before it: its gradient reads what a region makes, which recomputation
 * gives up, so that the region is run again for it. */
static void build_post(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    sk_graph_size(g, 'c', h->hidden_size);
    sk_graph_size(g, 'f', h->intermediate_size);
    sk_graph_size(g, 'v', h->vocab_size);
    sk_tensor *wte = sk_param(g, "wte", "vc", 0.3);
    sk_tensor *x =
        sk_apply(g, "embedding", .in = {wte, sk_input(g, "tokens", "bt", SK_I32)})->out[0];
    for (int i = 0; i < h->num_hidden_layers; i++) {
        g->layer = i + 1;
        sk_tensor *y = sk_contract(g, "btc,cf->btf", x, sk_param_f(g, "cf", 0.3, "h.%d.in", i));
        y = sk_apply(g, "relu", .in = {y})->out[0];
        y = sk_contract(g, "btf,fc->btc", y, sk_param_f(g, "fc", 0.3, "h.%d.out", i));
        sk_tensor *w = sk_param_f(g, "c", SK_ONES, "h.%d.norm", i);
        y = sk_apply(g, "rmsnorm", .in = {y, w}, .attr = {1e-5})->out[0];
        x = sk_apply(g, "add", .in = {x, y})->out[0];
    }
    g->layer = (int)h->num_hidden_layers + 1;
    sk_head(g, x, sk_param(g, "head", "vc", 0.3), mode);
}

/* Instructions of a training step that make a result with this letter again, in turns. */
static int made_again(const sk_program *p, const char *letters)
{
    int n = 0;
    for (int i = 0; i < p->n_train; i++) {
        const sk_inst *in = &p->insts.v[i];
        n += in->node && sk_node_is_clone(p, in->node) && in->parts > 1 &&
             !strcmp(in->node->out[0]->letters, letters);
    }
    return n;
}

static void post_norm(void)
{
    static const sk_model model = {.name = "post", .build = build_post};
    const subject s = {"mlp", false, "fv"};
    static const char *const some[] = {"dp=2", "tp=2", "pp=2 micro=2 schedule=zb-h1",
                                       "dp=2 zero=3"};
    for (int i = 0; i < 4; i++)
        for (int w = 0; w < 2; w++) {
            char text[100];
            sk_trial plain = trial(&s, some[i]), t;
            plain.model = &model;
            t = plain;
            snprintf(text, sizeof text, "%s slices=4%s", some[i], w ? "; recompute full" : "");
            t.layout = text;
            plain.look = t.look = keep;
            plain.look_ctx = &before, t.look_ctx = &after;
            check(!sk_trial_run(&plain) && !sk_trial_run(&t));
            compare(&t, &plain, &after, &before, &s, 1e-6);
            check(!whole_ones(&t, &s));
            drop(&before), drop(&after);
            sk_arena a = {0};
            sk_graph g;
            sk_program **p = NULL;
            int n = 0;
            check(!sk_trial_compile(&a, &t, &g, &p, &n));
            if (p) check((made_again(p[0], "btc") > 0) == w); /* all of the region, for the norm */
            sk_arena_end(&a);
        }
}

/* --- two regions in one layer, the nodes of one among those of the other: the first is sliced ---
 */

static void build_crossed(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    sk_graph_size(g, 'c', h->hidden_size);
    sk_graph_size(g, 'f', h->intermediate_size);
    sk_graph_size(g, 'g', h->intermediate_size + 1);
    sk_graph_size(g, 'v', h->vocab_size);
    sk_tensor *wte = sk_param(g, "wte", "vc", 0.3);
    sk_tensor *x =
        sk_apply(g, "embedding", .in = {wte, sk_input(g, "tokens", "bt", SK_I32)})->out[0];
    for (int i = 0; i < h->num_hidden_layers; i++) {
        g->layer = i + 1;
        sk_tensor *f = sk_contract(g, "btc,cf->btf", x, sk_param_f(g, "cf", 0.3, "h.%d.f", i));
        sk_tensor *y = sk_contract(g, "btf,fc->btc", f, sk_param_f(g, "fc", 0.3, "h.%d.y", i));
        sk_tensor *p = sk_contract(g, "btc,cg->btg", y, sk_param_f(g, "cg", 0.3, "h.%d.p", i));
        sk_tensor *q = sk_contract(g, "btc,cg->btg", x, sk_param_f(g, "cg", 0.3, "h.%d.q", i));
        sk_tensor *z = sk_contract(g, "btf,fc->btc", f, sk_param_f(g, "fc", 0.3, "h.%d.z", i));
        p = sk_apply(g, "relu", .in = {sk_apply(g, "add", .in = {p, q})->out[0]})->out[0];
        p = sk_contract(g, "btg,gc->btc", p, sk_param_f(g, "gc", 0.3, "h.%d.o", i));
        x = sk_apply(g, "add", .in = {sk_apply(g, "add", .in = {x, z})->out[0], p})->out[0];
    }
    g->layer = (int)h->num_hidden_layers + 1;
    sk_head(g, x, sk_param(g, "head", "vc", 0.3), mode);
}

static void crossed(void)
{
    static const sk_model model = {.name = "crossed", .build = build_crossed};
    static const char *const some[] = {"dp=2", "tp=2", "pp=2 micro=2", "dp=2 zero=3"};
    const subject s = {"mlp", false, "fv"};
    for (int i = 0; i < 4; i++) {
        char text[100];
        sk_trial plain = trial(&s, some[i]), t;
        plain.model = &model;
        t = plain;
        snprintf(text, sizeof text, "%s slices=4", some[i]);
        t.layout = text;
        plain.look = t.look = keep;
        plain.look_ctx = &before, t.look_ctx = &after;
        check(!sk_trial_run(&plain) && !sk_trial_run(&t));
        compare(&t, &plain, &after, &before, &s, 1e-5);
        check(!whole_ones(&t, &s));
        drop(&before), drop(&after);
    }
}

/* --- the rest --- */

static int64_t sent_by(const char *layout)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0;
    int64_t bytes = 0;
    sk_trial t = trial(&subjects[2], layout);
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    for (int r = 0; r < n && p; r++)
        for (int i = 0; i < p[r]->insts.n; i++) bytes += p[r]->insts.v[i].wire;
    sk_arena_end(&a);
    return bytes;
}

/* Not a byte more is sent: what is summed slice by slice is not summed once more. */
static void same_bytes(void)
{
    check(sent_by("dp=2") == sent_by("dp=2 slices=4"));
    check(sent_by("tp=2") == sent_by("tp=2 slices=4"));
    check(sent_by("tp=2 sp") == sent_by("tp=2 sp slices=4"));
    check(sent_by("dp=2 zero=3") == sent_by("dp=2 zero=3 slices=4"));
}

/* Sixteen bits: sums over slices are rounded as those over micro-batches are. */
static void narrow(const char *layout, sk_dtype type)
{
    const subject *s = &subjects[2];
    sk_trial plain = trial(s, layout);
    plain.dtype = type;
    plain.loss_scale = type == SK_F16 ? 64 : 1;
    plain.look = keep;
    plain.look_ctx = &before;
    check(!sk_trial_run(&plain));
    for (int w = 0; w < WAYS; w++) one(s, layout, ways[w], 4, &plain, 2e-3);
    drop(&before);
}

static int64_t acts_of(const sk_trial *t)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0;
    check(!sk_trial_compile(&a, t, &g, &p, &n));
    int64_t bytes = p ? p[0]->kind_bytes[SK_ACTS] : 0;
    sk_arena_end(&a);
    return bytes;
}

/* One block under a head of many words: the peak is in the head, where B*T*V numbers become
 * B*T*V/N.  The rest may differ by what is B*T*C wide, a few times. */
static void closed_form(const char *model, int64_t seq, int n)
{
    char text[40];
    const subject s = {model, false, "fv"};
    sk_trial plain = trial(&s, ""), t;
    plain.hyper.num_hidden_layers = 1;
    plain.hyper.vocab_size = 5000;
    plain.hyper.max_position_embeddings = plain.seq = seq;
    t = plain;
    snprintf(text, sizeof text, "slices=%d", n);
    t.layout = text;
    int64_t rows = t.batch * t.seq, logits = rows * 5000 * 4, width = rows * 16 * 4;
    int64_t fell = acts_of(&plain) - acts_of(&t), want = logits - logits / n;
    bool near = llabs(fell - want) <= 4 * width;
    if (!near)
        printf("%s: %s: activations fall by %lld bytes, not %lld\n", model, text, (long long)fell,
               (long long)want);
    check(near);
}

static void refusals(void)
{
    sk_trial t = trial(&subjects[2], "dp=2 slices=2; canonical order");
    fails(sk_trial_run(&t), SK_ECONF, "slices would add it up slice by slice");
    t = trial(&subjects[2], "pp=2 micro=4 schedule=pb slices=2");
    fails(sk_trial_run(&t), SK_ECONF, "leave out slices");
}

int main(void)
{
    for (int m = 0; m < SUBJECTS; m++)
        for (int l = 0; l < LAYOUTS; l++)
            if (due(m + l, 4)) all_ways(&subjects[m], layouts[l], m + l);
    narrow("dp=2 micro=2", SK_BF16);
    narrow("tp=2 sp", SK_BF16);
    narrow("dp=2 zero=3", SK_F16);
    for (int n = 2; n <= 8; n *= 2) closed_form("llama", 16, n);
    for (int n = 2; n <= 8; n *= 4) closed_form("gpt2", 16, n);
    post_norm();
    crossed();
    same_bytes();
    refusals();
    printf("slices: %d runs, %lld slices of wide results, %d checks, %d bad\n", runs,
           (long long)sliced, checks, bad);
    return bad > 0;
}
