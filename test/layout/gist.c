/* gist.c - kept results in fewer bits: the same bits learnt, and the bytes that the closed
 * forms say.
 *
 * Two models are made for it: in "signs" the backward pass reads of every relu only its sign, in
 * "zeros" a product reads it again.  Switch, of the stock, has experts of the second kind. */
#include "model/blocks.h"
#include "lib/check.h"
#include "lib/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 6, WIDE = 40, ROWS = 52 };

static sk_tensor *layer(sk_graph *g, sk_tensor *x, int i, bool signs)
{
    sk_tensor *y = sk_contract(g, "bf,fg->bg", x, sk_param_f(g, "fg", 0.3, "a.%d.w", i));
    if (!signs) y = sk_apply(g, "relu", .in = {y})->out[0];
    y = sk_contract(g, "bg,gf->bf", y, sk_param_f(g, "gf", 0.3, "b.%d.w", i));
    if (signs) y = sk_apply(g, "relu", .in = {y})->out[0]; /* only the sum reads it */
    return sk_apply(g, "add", .in = {x, y})->out[0];
}

static void build(sk_graph *g, const sk_hyper *h, bool signs)
{
    sk_graph_size(g, 'x', h->input_size);
    sk_graph_size(g, 'f', h->hidden_size);
    sk_graph_size(g, 'g', h->hidden_size);
    sk_graph_size(g, 'v', h->vocab_size);
    g->layer = 1;
    sk_tensor *y = sk_contract(g, "bx,xf->bf", sk_input(g, "pixels", "bx", SK_F32),
                               sk_param_f(g, "xf", 0.3, "in.w"));
    for (int i = 0; i < LAYERS; i++) {
        g->layer++;
        y = layer(g, y, i, signs);
    }
    g->layer++;
    y = sk_contract(g, "bf,fv->bv", y, sk_param_f(g, "fv", 0.3, "out.w"));
    sk_cross_entropy(g, y, sk_input(g, "targets", "b", SK_I32),
                     sk_input(g, "weights", "b", SK_F32));
}

static void build_signs(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    (void)mode;
    build(g, h, true);
}

static void build_zeros(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    (void)mode;
    build(g, h, false);
}

static const sk_model signs = {.name = "signs", .build = build_signs},
                      zeros = {.name = "zeros", .build = build_zeros};

static sk_trial trial(const sk_model *m, const char *layout, sk_dtype type)
{
    sk_trial t = {.model = m, .layout = layout, .batch = ROWS, .seq = 1, .steps = 4, .clip = 0.5};
    t.hyper = (sk_hyper){.input_size = 9, .hidden_size = WIDE, .vocab_size = 5};
    if (m == &signs || m == &zeros) {
        t.dtype = type;
        return t;
    }
    t.hyper = m->usual;
    t.hyper.hidden_size = 32;
    t.hyper.num_hidden_layers = 3;
    t.hyper.num_attention_heads = t.hyper.num_key_value_heads = 2;
    t.hyper.intermediate_size = 48;
    t.hyper.vocab_size = 40;
    t.hyper.max_position_embeddings = 12;
    t.hyper.num_local_experts = 4;
    t.batch = 6;
    t.seq = 12;
    t.dtype = type;
    return t;
}

/* --- the same bits --- */

static int count(const sk_program *p, sk_act act)
{
    int n = 0;
    for (int i = 0; i < p->insts.n; i++) n += p->insts.v[i].act == act;
    return n;
}

static int packs(const sk_trial *t)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0, sum = 0;
    check(!sk_trial_compile(&a, t, &g, &p, &n));
    for (int r = 0; r < n && p; r++) {
        sum += count(p[r], SK_DO_PACK);
        check(count(p[r], SK_DO_UNPACK) >= count(p[r], SK_DO_PACK));
    }
    sk_arena_end(&a);
    return sum;
}

static void same_bits(const sk_model *m, const char *layout, const char *gist, sk_dtype type,
                      int threads)
{
    char with[160];
    snprintf(with, sizeof with, "%s %s", gist, layout);
    sk_trial plain = trial(m, layout, type), t = trial(m, with, type);
    plain.threads = t.threads = threads;
    check(!sk_trial_run(&plain) && !sk_trial_run(&t));
    bool good = t.digest == plain.digest && t.elements == plain.elements;
    for (int s = 0; s < t.steps; s++) good &= t.loss[s] == plain.loss[s] && isfinite(t.norm[s]);
    if (!good) printf("%s on %s in %s: other bits\n", m->name, with, sk_dtype_name(type));
    check(good);
    check(packs(&t) > 0 && packs(&plain) == 0);
}

/* --- bytes --- */

static int64_t lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* What waits between the last forward and the first backward instruction. */
static int64_t waiting(const sk_program *p)
{
    int pc = 0;
    int64_t sum = 0;
    while (p->insts.v[pc].phase == SK_FORWARD) pc++;
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        bool waits = !b->keep && b->within < 0 && b->first >= 0 && b->first < pc && b->last >= pc;
        if (waits && b->kind == SK_ACTS) sum += lines(b->bytes);
    }
    return sum;
}

static void bytes_of(const sk_model *m, const char *layout, sk_dtype type, int64_t *wait,
                     int64_t *heap)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0;
    sk_trial t = trial(m, layout, type);
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    *wait = n ? waiting(p[0]) : 0;
    *heap = n ? p[0]->heap_bytes : 0;
    sk_arena_end(&a);
}

static void forms(const sk_model *m, int room, sk_dtype type)
{
    char gist[32] = "gist";
    int64_t n = ROWS * WIDE, size = (int64_t)sk_dtype_size(type), full, less, heap, smaller;
    if (room) snprintf(gist, sizeof gist, "gist=%d", room);
    int64_t packed = (n + 511) / 512 * 64 + (n * room + 99) / 100 * size;
    bytes_of(m, "dp=1", type, &full, &heap);
    bytes_of(m, gist, type, &less, &smaller);
    if (full - less != LAYERS * (lines(n * size) - lines(packed)))
        printf("%s, %s: %lld bytes less, not %lld\n", m->name, gist, (long long)(full - less),
               (long long)(LAYERS * (lines(n * size) - lines(packed))));
    check(full - less == LAYERS * (lines(n * size) - lines(packed)));
    check(smaller < heap);
}

/* --- no room --- */

/* Half of the elements are not 0, and there is room for a fifth: nothing is updated, on any rank.
 */
static void too_full(const char *layout)
{
    char with[96];
    snprintf(with, sizeof with, "gist=20 %s", layout);
    sk_trial before = trial(&zeros, layout, SK_F32), t = trial(&zeros, with, SK_F32);
    before.steps = 0;
    t.steps = 2;
    check(!sk_trial_run(&before) && !sk_trial_run(&t));
    check(isinf(t.norm[0]) || isnan(t.norm[0]));
    check(t.digest == before.digest && t.elements == before.elements);
}

int main(void)
{
    static const char *const layouts[] = {
        "dp=1",
        "dp=3 zero=3 micro=2",
        "tp=2",
        "tp=2 overlap=2",
        "pp=2 micro=3",
        "pp=2 dp=2 tp=2 zero=2 micro=4",
        "pp=2 micro=4 schedule=zb-h1",
        "pp=2 micro=4 schedule=interleaved chunks=2",
        "pp=2 micro=4 schedule=zb-v",
        "recompute=1",
    };
    enum { N = sizeof layouts / sizeof *layouts };
    int runs = 0;
    char text[128];
    for (int l = 0; l < N; l++) {
        snprintf(text, sizeof text, "%s; canonical order", layouts[l]);
        if (due(l / 2, 2)) {
            same_bits(&signs, l % 2 ? text : layouts[l], "gist", SK_F32, 3);
            same_bits(&zeros, layouts[l], "gist=80", l % 2 ? SK_F16 : SK_BF16, 1);
            runs += 4;
        }
        if (due(l / 2 + 1, 2)) {
            same_bits(&signs, layouts[l], "gist", l % 2 ? SK_BF16 : SK_F16, 1);
            same_bits(&zeros, l % 2 ? layouts[l] : text, "gist=75", SK_F32, 3);
            runs += 4;
        }
        if (l % 2 && due(l / 2, 2)) {
            same_bits(sk_model_find("switch"), layouts[l], "gist=70", SK_F32, 2);
            runs += 2;
        }
    }
    static const sk_dtype types[] = {SK_F32, SK_BF16};
    for (int k = 0; k < 2; k++) {
        forms(&signs, 0, types[k]);
        forms(&zeros, 60, types[k]);
        forms(&zeros, 37, types[k]);
    }
    too_full("dp=1");
    too_full("dp=2 zero=1");
    too_full("pp=2 micro=2; canonical order");
    sk_trial none = trial(&zeros, "gist", SK_F32); /* nobody reads only signs */
    check(packs(&none) == 0);
    printf("gist: %d runs, %d checks, %d bad\n", runs, checks, bad);
    return bad > 0;
}
