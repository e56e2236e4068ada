/* formulas.c - bytes kept for the backward pass, against Korthikanti et al. 2022.
 *
 * Per layer, 16 bits, with dropout, attention written out; s time, b micro-batch, h width, a heads,
 * t ranks of tensor parallelism:
 *
 *     none                       sbh (34 + 5as/h)
 *     tensor                     sbh (10 + 24/t + 5as/(ht))
 *     tensor + sequence          sbh/t (34 + 5as/h)
 *     the same, selective        sbh/t 34
 *     full                       2sbh, and in pieces 2sbh/t
 *
 * The layer is built here, planned at its real size for one rank (nothing is run at that size), and
 * counted from the program, term by term.  Two things differ from the paper, both to the byte:
 * skein draws dropout again by place and keeps no masks, one byte an element, which are counted
 * from the draws in the program; and it keeps mean and deviation of the norms, 16sb a layer, which
 * the paper leaves out as small.  "keep=cheap" keeps what norms and gelu make, as the paper does;
 * "partition" gives up what was gathered along time, as its authors do. */
#include "lib/check.h"
#include "lib/ranks.h"

#include "model/blocks.h"

#include <math.h>
#include <stdio.h>

/* --- the layer --- */

static sk_tensor *norm(sk_graph *g, sk_tensor *x, int i, const char *name)
{
    sk_tensor *w = sk_param_f(g, "c", SK_ONES, "h.%d.%s.w", i, name);
    sk_tensor *b = sk_param_f(g, "c", SK_ZEROS, "h.%d.%s.b", i, name);
    return sk_apply(g, "layernorm", .in = {x, w, b}, .attr = {1e-5})->out[0];
}

static sk_tensor *heads(sk_graph *g, sk_tensor *x, int i, const char *name)
{
    sk_tensor *w = sk_param_f(g, "chd", 0.02, "h.%d.%s.w", i, name);
    sk_tensor *b = sk_param_f(g, "hd", SK_ZEROS, "h.%d.%s.b", i, name);
    x = sk_contract(g, "btc,chd->bthd", x, w);
    return sk_apply(g, "bias", .dims = "bthd,hd->bthd", .in = {x, b})->out[0];
}

static sk_tensor *join(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *y, int i,
                       const char *name)
{
    sk_tensor *b = sk_param_f(g, "c", SK_ZEROS, "h.%d.%s.b", i, name);
    return sk_apply(g, "residual", .in = {x, sk_dropout(g, y, h->resid_pdrop), b})->out[0];
}

static sk_tensor *attend(sk_graph *g, const sk_hyper *h, sk_tensor *x, int i)
{
    sk_tensor *q = heads(g, x, i, "q"), *k = heads(g, x, i, "k"), *v = heads(g, x, i, "v");
    k = sk_apply(g, "rename", .dims = "bt!hd->bs!hd", .in = {k})->out[0];
    v = sk_apply(g, "rename", .dims = "bt!hd->bs!hd", .in = {v})->out[0];
    sk_tensor *p = sk_contract(g, "bthd,bshd->bhts", q, k);
    double scale = 1 / sqrt((double)g->size['d']);
    p = sk_apply(g, "softmax", .in = {p}, .attr = {scale, 1})->out[0];
    p = sk_dropout(g, p, h->resid_pdrop);
    sk_tensor *y = sk_contract(g, "bhts,bshd->bthd", p, v);
    return sk_contract(g, "bthd,chd->btc", y, sk_param_f(g, "chd", 0.02, "h.%d.proj.w", i));
}

static sk_tensor *block(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, int i,
                        sk_mode mode)
{
    (void)pos, (void)mode;
    x = join(g, h, x, attend(g, h, norm(g, x, i, "ln1"), i), i, "proj");
    sk_tensor *y = norm(g, x, i, "ln2");
    y = sk_contract(g, "btc,cf->btf", y, sk_param_f(g, "cf", 0.02, "h.%d.fc.w", i));
    sk_tensor *b = sk_param_f(g, "f", SK_ZEROS, "h.%d.fc.b", i);
    y = sk_apply(g, "bias_gelu", .in = {y, b})->out[0];
    y = sk_contract(g, "btf,fc->btc", y, sk_param_f(g, "fc", 0.02, "h.%d.out.w", i));
    return join(g, h, x, y, i, "out");
}

static void build(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    sk_graph_size(g, 'c', h->hidden_size);
    sk_graph_size(g, 'h', h->num_attention_heads);
    sk_graph_size(g, 'd', h->hidden_size / h->num_attention_heads);
    sk_graph_size(g, 'f', 4 * h->hidden_size);
    sk_graph_size(g, 'v', h->vocab_size);
    sk_tensor *tokens = sk_input(g, "tokens", "bt", SK_I32);
    sk_tensor *words = sk_param(g, "wte", "vc", 0.02);
    sk_tensor *x = sk_apply(g, "embedding", .in = {words, tokens})->out[0];
    x = sk_blocks(g, h, x, NULL, mode, block);
    sk_head(g, norm(g, x, 0, "ln_f"), sk_param(g, "head", "vc", 0.02), mode);
}

static const sk_model textbook = {.name = "textbook", .build = build};

typedef struct sizes {
    int layers, width, heads, time, micro_batch;
} sizes;

static sk_trial trial(sizes z, const char *layout, int n_micro, sk_dtype type)
{
    sk_trial t = {.model = &textbook, .layout = layout, .seq = z.time, .dtype = type, .steps = 3};
    t.batch = (int64_t)z.micro_batch * n_micro;
    t.hyper = (sk_hyper){.hidden_size = z.width,
                         .num_hidden_layers = z.layers,
                         .num_attention_heads = z.heads,
                         .vocab_size = 64,
                         .resid_pdrop = 0.1};
    return t;
}

/* --- it is a model: the losses are those of one rank, in every way it is planned below; and the
 * bits are those of the same layout without words about memory --- */

static const struct {
    const char *layout, *words;
} ways[] = {
    {"tp=4", "keep=cheap"},
    {"tp=4 sp", "keep=cheap partition"},
    {"tp=4 sp", "keep=cheap partition recompute=selective"},
    {"tp=4", "recompute=full partition"},
    {"tp=4", "recompute=selective"},
    {"pp=2 tp=2 sp micro=4 schedule=interleaved chunks=2",
     "keep=cheap partition recompute=selective"},
};

static void one_way(sizes small, const char *layout, const char *words, const sk_trial *one)
{
    char text[160];
    snprintf(text, sizeof text, "%s %s", layout, words);
    sk_trial plain = trial(small, layout, 2, SK_F32), many = trial(small, text, 2, SK_F32);
    check(!sk_trial_run(&plain) && !sk_trial_run(&many));
    check(many.digest == plain.digest && many.elements == plain.elements);
    for (int s = 0; s < one->steps; s++) {
        bool near = fabs(many.loss[s] / one->loss[s] - 1) < 1e-5;
        if (!near) printf("%s: loss %.8g, %.8g\n", text, many.loss[s], one->loss[s]);
        check(near && many.loss[s] == plain.loss[s]);
    }
}

static void runs(void)
{
    sizes small = {4, 16, 4, 12, 4};
    sk_trial one = trial(small, "dp=1", 2, SK_F32);
    check(!sk_trial_run(&one));
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        one_way(small, ways[w].layout, ways[w].words, &one);
}

/* --- counting --- */

/* The program of the first rank, planned and not run. */
static sk_program *plan(sk_arena *a, const sk_trial *t)
{
    sk_graph *g = sk_new(a, sk_graph);
    sk_layout l;
    sk_program *p = NULL;
    sk_compile_opts o = {.optim = sk_optim_find("adamw"), .threads = 1};
    check(!sk_layout_read(t->layout, 0, &l) && !sk_trial_graph(a, t, g));
    check(!sk_compile(a, g, &l, &o, 0, &p));
    check(p && !sk_verify_one(p));
    return p;
}

/* Made in a forward task and read in a backward task of a layer that is no embedding or head. */
static bool is_kept(const sk_program *p, const sk_buffer *b)
{
    if (b->kind != SK_ACTS || !b->tensor || b->tensor->role != SK_VALUE || b->within >= 0)
        return false;
    if (b->first < 0 || b->last >= p->n_train) return false;
    const sk_inst *first = &p->insts.v[b->first], *last = &p->insts.v[b->last];
    return first->phase == SK_FORWARD && last->phase == SK_BACKWARD && last->act != SK_DO_SENT &&
           last->layer >= 1 && last->layer < p->graph->n_layers - 1;
}

/* The backward draw of what a dropout drew forward: a mask would live until then.  -1: where the
 * result or the whole block is made again, so is the mask. */
static int drawn_again(const sk_program *p, int pc)
{
    const sk_inst *f = &p->insts.v[pc];
    int at = -1;
    if (f->act != SK_DO_OP || strcmp(f->node->op->name, "dropout")) return -1;
    if (!strcmp(p->layout.recompute, "full")) return -1;
    if (f->phase != SK_FORWARD || f->layer < 1 || pc >= p->n_train) return -1;
    for (int i = pc + 1; i < p->n_train && at < 0; i++) {
        const sk_inst *b = &p->insts.v[i];
        bool same = b->act == SK_DO_OP && b->node->op == f->node->op && b->micro == f->micro &&
                    b->node->attr[1] == f->node->attr[1];
        if (same) at = sk_node_is_clone(p, b->node) ? p->n_train : i;
    }
    return at < p->n_train ? at : -1;
}

static int64_t elements(const sk_extent *b)
{
    int64_t n = 1;
    for (int d = 0; d < b->n; d++) n *= b->size[d];
    return n;
}

/* Bytes of one layer by what made them: results of an op with these letters, or masks. */
static int64_t bytes_of(const sk_program *p, int layer, const char *op, const char *letters,
                        bool masks)
{
    int64_t sum = 0;
    for (int i = 0; i < p->bufs.n && !masks; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        if (is_kept(p, b) && p->insts.v[b->last].layer == layer &&
            !strcmp(b->tensor->from->op->name, op) && !strcmp(b->tensor->letters, letters))
            sum += b->bytes;
    }
    for (int pc = 0; pc < p->n_train && masks; pc++)
        if (p->insts.v[pc].layer == layer && drawn_again(p, pc) >= 0 &&
            !strcmp(p->bufs.v[p->insts.v[pc].out[0]].tensor->letters, letters))
            sum += elements(&p->bufs.v[p->insts.v[pc].out[0]].box);
    return sum;
}

/* --- one layer, term by term --- */

enum { WHOLE = 1, CORE = 2, CHEAP = 4, BLOCK = 8, MASK = 16, STATS = 32 };
static const struct term {
    const char *what, *op, *letters;
    int sbh, as2b; /* bytes: so many times s b h, and a s s b; of STATS: s b */
    unsigned is;   /* WHOLE: between the products of tensor parallelism */
} terms[] = {
    {"input of the block", "residual", "btc", 2, 0, WHOLE | BLOCK},
    {"input of its second norm", "residual", "btc", 2, 0, WHOLE},
    {"results of the norms", "layernorm", "btc", 4, 0, WHOLE | CHEAP},
    {"queries", "bias", "bthd", 2, 0, 0},
    {"keys and values", "rename", "bshd", 4, 0, 0},
    {"softmax", "softmax", "bhts", 0, 2, CORE},
    {"mask of its dropout", "dropout", "bhts", 0, 1, CORE | MASK},
    {"and what is left", "dropout", "bhts", 0, 2, CORE},
    {"input of the projection", "contract", "bthd", 2, 0, 0},
    {"mask behind it", "dropout", "btc", 1, 0, WHOLE | MASK},
    {"input of gelu", "contract", "btf", 8, 0, 0},
    {"gelu", "bias_gelu", "btf", 8, 0, CHEAP},
    {"mask behind the MLP", "dropout", "btc", 1, 0, WHOLE | MASK},
    {"means and deviations", "layernorm", "bt", 16, 0, WHOLE | STATS},
};
enum { TERMS = sizeof terms / sizeof *terms };

typedef struct rules { /* of a layout */
    const char *layout;
    int t;
    bool sp, selective, full, partition, keep_cheap;
} rules;

static int64_t term_bytes(sizes z, const rules *r, const struct term *x)
{
    int64_t sb = (int64_t)z.time * z.micro_batch, h = x->is & STATS ? 1 : z.width;
    int64_t n = x->sbh * sb * h + x->as2b * sb * z.heads * z.time;
    if ((r->full && !(x->is & BLOCK)) || (r->selective && x->is & CORE)) return 0;
    if (x->is & CHEAP && !r->keep_cheap) return 0;
    return x->is & WHOLE && !r->sp && !r->partition ? n : n / r->t;
}

/* Two terms may have op and letters alike: they are counted together. */
static void one_term(const sk_program *p, sizes z, const rules *r, int k)
{
    int64_t want = 0;
    for (int i = 0; i < TERMS; i++) {
        bool alike = !strcmp(terms[i].op, terms[k].op) &&
                     !strcmp(terms[i].letters, terms[k].letters) &&
                     (terms[i].is & MASK) == (terms[k].is & MASK);
        if (alike) want += term_bytes(z, r, &terms[i]);
    }
    int64_t got = bytes_of(p, 2, terms[k].op, terms[k].letters, terms[k].is & MASK);
    if (got != want)
        printf("%s: %s: %lld bytes, not %lld\n", r->layout, terms[k].what, (long long)got,
               (long long)want);
    check(got == want);
}

static int64_t layer_bytes(const sk_program *p, int layer)
{
    int64_t sum = 0;
    for (int i = 0; i < p->bufs.n; i++)
        if (is_kept(p, &p->bufs.v[i]) && p->insts.v[p->bufs.v[i].last].layer == layer)
            sum += p->bufs.v[i].bytes;
    return sum;
}

static int64_t formula(sizes z, const rules *r)
{
    int64_t sbh = (int64_t)z.time * z.micro_batch * z.width;
    int64_t as2b = (int64_t)z.heads * z.time * z.time * z.micro_batch;
    if (r->full) return 2 * sbh / (r->partition ? r->t : 1);
    if (r->selective) return 34 * sbh / r->t;
    if (r->sp || r->t == 1) return (34 * sbh + 5 * as2b) / r->t;
    return 10 * sbh + (24 * sbh + 5 * as2b) / r->t;
}

/* The paper's bytes are the plan's, with masks, without statistics and with what is cheap. */
static void one_layer(sizes z, const rules *r)
{
    sk_arena a = {0};
    z.layers = 3;
    sk_trial t = trial(z, r->layout, 1, SK_BF16);
    sk_program *p = plan(&a, &t);
    int64_t differs = 0;
    for (int k = 0; k < TERMS && p; k++) {
        one_term(p, z, r, k);
        if (terms[k].is & (MASK | STATS))
            differs += term_bytes(z, r, &terms[k]) * (terms[k].is & MASK ? 1 : -1);
        rules cheap = *r;
        cheap.keep_cheap = true;
        if (terms[k].is & CHEAP && !r->keep_cheap) differs += term_bytes(z, &cheap, &terms[k]);
    }
    if (p) { /* nothing else is kept */
        int64_t kept = layer_bytes(p, 2);
        check(kept + differs == formula(z, r));
        printf("%-52s %12lld bytes kept + %12lld = %12lld\n", r->layout, (long long)kept,
               (long long)differs, (long long)formula(z, r));
    }
    sk_arena_end(&a);
}

/* --- the whole first stage --- */

typedef struct live {
    int64_t paper, stats; /* most at once: without statistics and with masks; statistics then */
} live;

static live most_at_once(const sk_program *p)
{
    sk_arena a = {0};
    int64_t *grows = sk_many(&a, int64_t, p->n_train + 2),
            *stats = sk_many(&a, int64_t, p->n_train + 2);
    live now = {0}, most = {0};
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        if (!is_kept(p, b)) continue;
        int64_t *to = b->type == SK_F32 ? stats : grows;
        to[b->first] += b->bytes;
        to[b->last + 1] -= b->bytes;
    }
    for (int pc = 0; pc < p->n_train; pc++) {
        int end = drawn_again(p, pc);
        if (end < 0) continue;
        grows[pc] += elements(&p->bufs.v[p->insts.v[pc].out[0]].box);
        grows[end + 1] -= elements(&p->bufs.v[p->insts.v[pc].out[0]].box);
    }
    for (int pc = 0; pc < p->n_train; pc++) {
        now.paper += grows[pc];
        now.stats += stats[pc];
        if (now.paper > most.paper) most = now;
    }
    sk_arena_end(&a);
    return most;
}

static const double GiB = 1 << 30;

static void whole(sizes z, const rules *r, int n_micro, int layers_in_flight, double gib)
{
    sk_arena a = {0};
    sk_trial t = trial(z, r->layout, n_micro, SK_BF16);
    sk_program *p = plan(&a, &t);
    live most = p ? most_at_once(p) : (live){0};
    int64_t sb = (int64_t)z.time * z.micro_batch;
    check(most.paper == layers_in_flight * formula(z, r));
    check((double)most.paper == gib * GiB);
    check(most.stats == layers_in_flight * 16 * sb / (r->sp ? r->t : 1));
    printf("%-66s %11.7f GiB of %d layers\n", r->layout, (double)most.paper / GiB,
           layers_in_flight);
    sk_arena_end(&a);
}

/* --- weights, gradients, state --- */

/* Bytes that are kept from step to step for the matrices of the layers, and their elements. */
static void states(sizes z, const char *layout, int n_micro, int ranks)
{
    sk_arena a = {0};
    sk_trial t = trial(z, layout, n_micro, SK_BF16);
    sk_program *p = plan(&a, &t);
    int64_t n = 0, bytes = 0;
    for (int i = 0; p && i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        const sk_buffer *v = p->bufs.v;
        bool matrix = strlen(q->tensor->letters) > 1 && q->tensor->layer >= 1 &&
                      q->tensor->layer < p->graph->n_layers - 1 && strcmp(q->tensor->letters, "hd");
        if (!matrix) continue;
        n += elements(&v[q->stored].box);
        bytes += v[q->stored].bytes + v[q->grad].bytes + v[q->master].bytes;
        for (int s = 0; s < q->n_state; s++) bytes += v[q->state[s]].bytes;
    }
    /* 2 weight + 2 gradient + 4 master + 4 and 4 of Adam; Megatron adds gradients up in 4. */
    check(n == (int64_t)12 * z.layers * z.width * z.width / ranks);
    check(bytes == 16 * n && (double)bytes == 40.5 * GiB);
    check((double)(bytes + 2 * n) == 45.5625 * GiB && bytes + 2 * n == 18 * n);
    printf("%-66s %lld parameters x 16 = %.4f GiB, x 18 = %.4f GiB\n", layout, (long long)n,
           16 * (double)n / GiB, 18 * (double)n / GiB);
    sk_arena_end(&a);
}

int main(void)
{
    static const rules all[] = {
        {.layout = "keep=cheap", .t = 1, .keep_cheap = true},
        {.layout = "dp=1", .t = 1},
        {.layout = "tp=8 keep=cheap", .t = 8, .keep_cheap = true},
        {.layout = "tp=8", .t = 8},
        {.layout = "tp=8 sp keep=cheap partition", .t = 8, .sp = true, .keep_cheap = true},
        {.layout = "tp=8 sp recompute=selective keep=cheap partition",
         .t = 8,
         .sp = true,
         .selective = true,
         .keep_cheap = true},
        {.layout = "tp=8 sp recompute=selective", .t = 8, .sp = true, .selective = true},
        {.layout = "tp=8 recompute=full", .t = 8, .full = true, .keep_cheap = true},
        {.layout = "tp=8 recompute=full partition",
         .t = 8,
         .full = true,
         .partition = true,
         .keep_cheap = true},
    };
    static const sizes gpt22 = {48, 6144, 64, 2048, 4}, gpt175 = {96, 12288, 96, 2048, 1};
    static const char pipe[] = "pp=8 tp=8 micro=16 schedule=interleaved chunks=3 keep=cheap";
    runs();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        one_layer(gpt22, &all[i]);
        one_layer(gpt175, &all[i]);
    }
    char text[160];
    rules staged = {.layout = pipe, .t = 8, .keep_cheap = true}, best = all[5];
    snprintf(text, sizeof text, "%s sp recompute=selective partition", pipe);
    best.layout = text;
    whole(gpt22, &all[2], 1, 48, 59.25);
    whole(gpt22, &all[5], 1, 48, 9.5625);
    /* 2(p-1) + (v-1)p + 1 = 31 chunks of 4 layers: p (1 + (p-1)/(pv)) times 96/p */
    whole(gpt175, &staged, 16, 124, 66.84375);
    whole(gpt175, &best, 16, 124, 12.3515625);
    states(gpt22, "tp=8", 1, 8);
    states(gpt175, "pp=8 tp=8 micro=16 schedule=interleaved chunks=3", 16, 64);
    printf("formulas: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
