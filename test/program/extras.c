/* extras.c - what the backward pass tells besides gradients (graph/extra.h).
 *
 * The reference is a loop over single samples: programs of one rank and a batch of 1, whose
 * gradients are those of the samples.  Sums over their outer products, squares and norms are what
 * the extras of the whole batch must be; on other layouts too, and with the bits of one rank in
 * canonical order. */
#include "graph/extra.h"
#include "lib/check.h"
#include "lib/ranks.h"

#include <math.h>
#include <pthread.h>

enum { MOST = 512, ROWS = 8 };

typedef struct logical { /* a tensor, put together from the shards of all ranks */
    char name[64];
    int n, full[SK_MAX_DIM];
    int64_t count;
    float *v;
    char *seen; /* how often an element was written */
} logical;

typedef struct shelf {
    logical v[MOST];
    int n;
} shelf;

static shelf *into; /* of the trial at work */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static logical *find(shelf *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->v[i].name, name)) return &s->v[i];
    return NULL;
}

static logical *make(shelf *s, const char *name, const sk_extent *box)
{
    logical *x = find(s, name);
    if (x) return x;
    x = &s->v[s->n++];
    *x = (logical){.n = box->n, .count = 1};
    snprintf(x->name, sizeof x->name, "%s", name);
    for (int d = 0; d < box->n; d++) x->count *= x->full[d] = (int)box->full[d];
    x->v = calloc((size_t)x->count, sizeof *x->v);
    x->seen = calloc((size_t)x->count, 1);
    return x;
}

static void put(const sk_run *run, const sk_program *p, const sk_param_plan *q)
{
    const sk_buffer *b = &p->bufs.v[q->grad_shard];
    logical *x = make(into, q->tensor->name, &b->box);
    int64_t n = 1;
    for (int d = 0; d < b->box.n; d++) n *= b->box.size[d];
    for (int64_t i = 0; i < n; i++) {
        int64_t place = 0, step = 1, rest = i;
        for (int d = b->box.n - 1; d >= 0; d--) {
            place += (b->box.at[d] + rest % b->box.size[d]) * step;
            rest /= b->box.size[d];
            step *= b->box.full[d];
        }
        sk_convert(&x->v[place], SK_F32,
                   (const char *)sk_run_data(run, q->grad_shard) +
                       (size_t)i * sk_dtype_size(b->type),
                   b->type, 1);
        x->seen[place]++;
    }
}

static void after(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    (void)t, (void)step;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < sk_n_grads(p); i++)
        if (p->params.v[i].owner) put(run, p, &p->params.v[i]);
    pthread_mutex_unlock(&lock);
}

static void empty(shelf *s)
{
    for (int i = 0; i < s->n; i++) free(s->v[i].v), free(s->v[i].seen);
    s->n = 0;
}

/* One step without a change of weights that matters: gradients are those of the first weights. */
static bool run_into(shelf *s, sk_trial *t)
{
    empty(s);
    into = s;
    t->steps = 1;
    t->after = after;
    sk_status st = sk_trial_run(t);
    if (st) printf("%s: %s\n", t->layout, sk_error());
    for (int i = 0; i < s->n && !st; i++)
        for (int64_t k = 0; k < s->v[i].count; k++)
            if (s->v[i].seen[k] != 1) {
                printf("%s: %s[%lld] has %d owners\n", t->layout, s->v[i].name, (long long)k,
                       s->v[i].seen[k]);
                return false;
            }
    return st == SK_OK;
}

static sk_trial trial(const char *model, const char *layout)
{
    sk_trial t = sk_trial_small(model, layout);
    t.hyper.embd_pdrop = t.hyper.resid_pdrop = 0;
    t.hyper.num_hidden_layers = 2;
    t.batch = ROWS;
    t.extras = (1u << SK_N_EXTRAS) - 1;
    if (!strcmp(model, "mlp")) t.hyper.vocab_size = 11;
    else t.extras &= ~(1u << SK_EXTRA_GGN);
    return t;
}

/* --- the reference --- */

static shelf batch, one, sum;

static void add_to(shelf *s, const logical *x)
{
    sk_extent box = {.n = x->n};
    for (int d = 0; d < x->n; d++) box.full[d] = x->full[d];
    logical *y = make(s, x->name, &box);
    for (int64_t i = 0; i < x->count; i++) y->v[i] += x->v[i];
}

static double largest(const logical *x)
{
    double most = 1e-30;
    for (int64_t i = 0; i < x->count; i++) most = fmax(most, fabs((double)x->v[i]));
    return most;
}

static bool near(const logical *x, const logical *y, double tolerance)
{
    double most = largest(y);
    for (int64_t i = 0; x && i < x->count; i++)
        if (!(fabs((double)x->v[i] - (double)y->v[i]) <= tolerance * most)) {
            printf("%s[%lld] is %g, not %g (largest %g)\n", x->name, (long long)i, (double)x->v[i],
                   (double)y->v[i], most);
            return false;
        }
    return x != NULL;
}

/* With one row a W = a g', so that A G = W W' element by element: A_00 G_kl = W_0k W_0l. */
static void factors_of_one(const shelf *s, const char *weight, int in, int out)
{
    char name[80];
    shelf *x = (shelf *)s;
    snprintf(name, sizeof name, "%s.kron_a", weight);
    const logical *a = find(x, name), *w = find(x, weight);
    snprintf(name, sizeof name, "%s.kron_g", weight);
    const logical *g = find(x, name);
    check(a && g && w && a->count == in * in && g->count == out * out);
    if (!a || !g || !w) return;
    double most = largest(a) * largest(g);
    for (int i = 0; i < in; i++)
        for (int j = 0; j < in; j++)
            for (int k = 0; k < out; k++)
                for (int l = 0; l < out; l++) {
                    double x1 = (double)a->v[i * in + j] * (double)g->v[k * out + l];
                    double x2 = (double)w->v[i * out + k] * (double)w->v[j * out + l];
                    if (fabs(x1 - x2) > 1e-5 * most) {
                        check(false); /* A G is W W' */
                        return;
                    }
                }
}

static bool ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && !strcmp(name + n - m, end);
}

static bool is_extra(const char *name)
{
    for (int k = 0; k < SK_N_EXTRAS; k++) {
        char end[32];
        snprintf(end, sizeof end, ".%s", sk_extra_name((sk_extra_kind)k));
        if (ends(name, end) || !strcmp(name, end + 1)) return true;
    }
    return false;
}

/* Row r of what all parameters have together. */
static void add_total(const char *name, int r, double x)
{
    sk_extent rows = {.n = 1, .full = {ROWS}};
    make(&sum, name, &rows)->v[r] += (float)x;
}

/* What the gradient of sample r says about the parameter's extras. */
static void add_sample(const logical *x, int r)
{
    char name[96];
    sk_extent box = {.n = x->n, .full = {0}}, rows = {.n = x->n + 1, .full = {ROWS}};
    for (int d = 0; d < x->n; d++) box.full[d] = rows.full[d + 1] = x->full[d];
    snprintf(name, sizeof name, "%s.second_moment", x->name);
    logical *m = make(&sum, name, &box);
    snprintf(name, sizeof name, "%s.gradients", x->name);
    logical *g = make(&sum, name, &rows);
    rows.n = 1;
    snprintf(name, sizeof name, "%s.norms", x->name);
    logical *n = make(&sum, name, &rows);
    double square = 0;
    for (int64_t i = 0; i < x->count; i++) {
        square += (double)x->v[i] * (double)x->v[i];
        m->v[i] += x->v[i] * x->v[i];
        g->v[r * x->count + i] = x->v[i];
    }
    n->v[r] = (float)square;
    add_total("norms", r, square);
}

static bool of_rows(const char *name)
{
    return ends(name, ".norms") || ends(name, ".gradients") || ends(name, ".second_moment");
}

static bool is_total(const char *name) { return is_extra(name) && !strchr(name, '.'); }

static void single_samples(const char *model, bool tied)
{
    empty(&sum);
    for (int r = 0; r < ROWS; r++) {
        sk_trial t = trial(model, "dp=1");
        t.hyper.tie_word_embeddings = tied;
        t.batch = 1;
        t.first_row = r;
        check(run_into(&one, &t));
        if (!r && !strcmp(model, "mlp")) {
            factors_of_one(&one, "layers.0.w", 9, 16);
            factors_of_one(&one, "layers.1.w", 16, 16);
            factors_of_one(&one, "layers.2.w", 16, 11);
        }
        for (int i = 0; i < one.n; i++) {
            const logical *x = &one.v[i];
            double all = 0;
            for (int64_t k = 0; k < x->count; k++) all += (double)x->v[k];
            if (!is_extra(x->name)) add_sample(x, r);
            if (ends(x->name, ".diag_ggn")) add_total("diag_ggn", r, all);
            if (ends(x->name, ".diag_ggn_mc")) add_total("diag_ggn_mc", r, all);
            if (!of_rows(x->name) && !is_total(x->name)) add_to(&sum, x);
        }
    }
}

static void same_as(shelf *x, shelf *y, double tolerance, const char *what)
{
    bool same = true;
    int extras = 0;
    for (int i = 0; i < y->n; i++) {
        bool drawn = y == &sum && strstr(y->v[i].name, "diag_ggn_mc"); /* by the row's number */
        if (!drawn) same &= near(find(x, y->v[i].name), &y->v[i], tolerance);
        extras += is_extra(y->v[i].name);
    }
    if (!same || x->n != y->n) printf("%s: %d tensors, %d\n", what, x->n, y->n);
    check(same && x->n == y->n && extras > 0);
}

static void layouts(const char *model, bool tied, const char *const *layout, double tolerance)
{
    sk_trial t = trial(model, "dp=1");
    t.hyper.tie_word_embeddings = tied;
    check(run_into(&batch, &t));
    same_as(&batch, &sum, tolerance, "dp=1");
    for (; *layout; layout++) {
        t = trial(model, *layout);
        t.hyper.tie_word_embeddings = tied;
        check(run_into(&one, &t));
        same_as(&one, &batch, tolerance, *layout);
    }
}

/* Bits of one rank in canonical order. */
static void canonical(const char *model, const char *const *layout)
{
    sk_trial t = trial(model, "dp=1; canonical order");
    check(run_into(&batch, &t));
    for (; *layout; layout++) {
        char text[128];
        snprintf(text, sizeof text, "%s; canonical order", *layout);
        t = trial(model, text);
        check(run_into(&one, &t));
        same_as(&one, &batch, 0, text);
    }
}

/* Norms without other outputs, so that gradients of samples are not there for others: by Gram
 * matrices and from gradients, against the single samples and on other layouts. */
static bool norms_run(const char *model, bool tied, const char *layout, int by)
{
    sk_trial t = trial(model, layout);
    t.hyper.tie_word_embeddings = tied;
    t.extras = 1u << SK_EXTRA_NORMS | 1u << SK_EXTRA_TOTALS;
    t.norms_by = by;
    bool ran = run_into(&one, &t);
    check(ran);
    return ran;
}

static void norms_near(shelf *y, double tolerance, const char *what)
{
    bool same = true;
    int n = 0;
    for (int i = 0; i < one.n; i++) {
        const logical *x = &one.v[i];
        if (!ends(x->name, ".norms") && strcmp(x->name, "norms")) continue;
        const logical *z = find(y, x->name);
        same &= z && near(x, z, tolerance);
        n++;
    }
    if (!same) printf("%s\n", what);
    check(same && n > 1);
}

static shelf by_gram;

static void both_ways(const char *model, bool tied, const char *const *layout, double tolerance)
{
    for (int by = SK_NORMS_CHEAPER; by <= SK_NORMS_BY_SAMPLES; by++) {
        if (norms_run(model, tied, "dp=1", by)) norms_near(&sum, tolerance, "dp=1");
        for (int i = 0; layout[i]; i++)
            if (norms_run(model, tied, layout[i], by)) norms_near(&sum, tolerance, layout[i]);
    }
}

/* Bits of one rank, and others than those of the other way: it was taken. */
static void canonical_grams(const char *model, bool tied, const char *const *layout)
{
    char text[128];
    norms_run(model, tied, "dp=1; canonical order", SK_NORMS_BY_GRAM);
    empty(&by_gram);
    for (int i = 0; i < one.n; i++) add_to(&by_gram, &one.v[i]);
    for (; *layout; layout++) {
        snprintf(text, sizeof text, "%s; canonical order", *layout);
        if (norms_run(model, tied, text, SK_NORMS_BY_GRAM)) norms_near(&by_gram, 0, text);
    }
    norms_run(model, tied, "dp=1; canonical order", SK_NORMS_BY_SAMPLES);
    const logical *x = find(&one, "norms"), *y = find(&by_gram, "norms");
    check(x && y && memcmp(x->v, y->v, ROWS * sizeof *x->v));
}

int main(void)
{
    static const char *const mlp[] = {"dp=2",
                                      "dp=2 zero=1",
                                      "dp=4 zero=3",
                                      "tp=2",
                                      "micro=4",
                                      "pp=2 micro=4",
                                      "dp=2 tp=2 zero=2 micro=2",
                                      "dp=3 micro=2",
                                      NULL};
    static const char *const gpt[] = {"dp=2",
                                      "dp=2 zero=1",
                                      "dp=4 zero=3",
                                      "tp=2 sp",
                                      "pp=2 micro=4",
                                      "cp=2",
                                      "dp=2 tp=2 zero=2 micro=2",
                                      "pp=2 dp=2 micro=2 schedule=zb-h1",
                                      NULL};
    static const char *const moe[] = {"dp=2", "ep=2", "ep=2 zero=1 micro=2", "tp=2", NULL};
    single_samples("mlp", false);
    layouts("mlp", false, mlp, 2e-5);
    both_ways("mlp", false, mlp, 2e-5);
    canonical("mlp", mlp);
    single_samples("gpt2", false);
    layouts("gpt2", false, gpt, 2e-4);
    both_ways("gpt2", false, gpt, 2e-4);
    canonical("gpt2", gpt);
    canonical_grams("gpt2", false, gpt);
    single_samples("gpt2", true);
    layouts("gpt2", true, gpt, 2e-4);
    both_ways("gpt2", true, gpt, 2e-4);
    canonical_grams("gpt2", true, gpt);
    single_samples("mixtral", false);
    layouts("mixtral", false, moe, 2e-4);
    both_ways("mixtral", false, moe, 2e-4);
    canonical("mixtral", moe);
    canonical_grams("mixtral", false, moe);
    printf("extras: %d checks, %d failed\n", checks, bad);
    return bad != 0;
}
