/* adasum.c - gradients joined by Adasum: laws of the kernel, and whole programs.
 *
 * A step of plain SGD tells the gradient.  The gradients of parts of a batch, each from a run on
 * one rank, are joined in double by the formula of the paper, tensor by tensor; a run with
 * reduce=adasum must make the step of that, whatever else its layout shards. */
#include "lib/check.h"
#include "lib/ranks.h"

#include "coll/adasum_kernel.h"

#include <math.h>

/* --- the kernel --- */

enum { LONG = 1031, MOST = 9 };
static double vectors[MOST * LONG], want[LONG], got[LONG];

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* to = Adasum(to, b) */
static void join_two(double *to, const double *b, int64_t n)
{
    double aa = dot(to, to, n), bb = dot(b, b, n), ab = dot(to, b, n);
    double p = aa > 0 ? 1 - ab / (2 * aa) : 1, q = bb > 0 ? 1 - ab / (2 * bb) : 1;
    for (int64_t i = 0; i < n; i++) to[i] = p * to[i] + q * b[i];
}

/* The definition: the first 2r by twos, r too many for a power of two; then neighbours.  In v[0].
 */
static void join_all(double **v, int k, int64_t n)
{
    int power = 1, left = 0;
    while (2 * power <= k) power *= 2;
    for (int i = 0; i < k; i++) {
        if (i < 2 * (k - power) && i % 2) join_two(v[left - 1], v[i], n);
        else v[left++] = v[i];
    }
    for (; left > 1; left /= 2)
        for (int i = 0; i < left / 2; i++) {
            join_two(v[2 * i], v[2 * i + 1], n);
            v[i] = v[2 * i];
        }
}

static void by_products(int k, double *weight)
{
    double products[MOST * (MOST + 1) / 2];
    for (int i = 0; i < k; i++)
        for (int j = 0; j <= i; j++)
            products[sk_adasum_pair(i, j)] =
                sk_adasum_product(SK_F64, vectors + i * LONG, vectors + j * LONG, LONG);
    sk_adasum_weights(products, k, weight);
    sk_adasum_join(SK_F64, vectors, k, LONG, weight, got, 0, LONG);
}

static double far_from_want(void)
{
    double off = 0, size = sqrt(dot(want, want, LONG) / LONG);
    for (int i = 0; i < LONG; i++) off = fmax(off, fabs(got[i] - want[i]));
    return off / fmax(size, 1e-300);
}

static void random_vectors(int k, double common)
{
    for (int v = 0; v < k; v++)
        for (int i = 0; i < LONG; i++)
            vectors[v * LONG + i] =
                sk_rng_uniform(3, (uint64_t)v, (uint64_t)i) - 0.5 + common * sin((double)i);
}

static void formula(void)
{
    static double copy[MOST * LONG];
    double weight[MOST], *v[MOST];
    for (int k = 1; k <= MOST; k++)
        for (int c = 0; c < 3; c++) {
            random_vectors(k, c * 2.0);
            memcpy(copy, vectors, sizeof copy);
            for (int i = 0; i < k; i++) v[i] = copy + i * LONG;
            join_all(v, k, LONG);
            memcpy(want, v[0], sizeof want);
            by_products(k, weight);
            check(far_from_want() < 1e-12);
        }
}

static void laws(void)
{
    double weight[MOST], scaled[MOST];
    for (int k = 1; k <= MOST; k++) {
        memset(vectors, 0, sizeof vectors); /* at right angles: the sum */
        for (int v = 0; v < k; v++) vectors[v * LONG + v] = v + 1;
        by_products(k, weight);
        for (int v = 0; v < k; v++) check(weight[v] == 1);
        for (int v = 0; v < k; v++) memcpy(vectors + v * LONG, want, sizeof want);
        by_products(k, weight); /* equal: the vector */
        check(far_from_want() < 1e-12);
        random_vectors(k, 1);
        by_products(k, weight);
        for (int i = 0; i < k * LONG; i++) vectors[i] *= 1024;
        by_products(k, scaled);
        check(!memcmp(weight, scaled, sizeof *weight * (size_t)k));
    }
}

/* Of three, the first two cancel: the third remains, not a rounding times a large number. */
static void cancels(void)
{
    double weight[3];
    random_vectors(3, 0);
    for (int i = 0; i < LONG; i++) vectors[LONG + i] = -vectors[i];
    memcpy(want, vectors + 2 * LONG, sizeof want);
    by_products(3, weight);
    check(far_from_want() < 1e-12);
    vectors[5] = NAN; /* and what is no number stays none */
    by_products(3, weight);
    check(isnan(got[5]));
}

/* --- programs --- */

enum { TENSORS = 96, STEP = 1000 };

typedef struct weights { /* of a run, whole tensors */
    struct {
        char name[64];
        double *v;
        int64_t n;
    } of[TENSORS];
    int n;
} weights;

static void keep(void *ctx, const sk_tensor_shard *b)
{
    weights *w = ctx;
    int at = 0;
    int64_t all = 1, mine = 1;
    if (strstr(b->name, ".sgd.")) return; /* its state */
    for (int d = 0; d < b->n; d++) all *= b->full[d], mine *= b->size[d];
    while (at < w->n && strcmp(w->of[at].name, b->name)) at++;
    if (at == w->n) {
        sk_assert(w->n++ < TENSORS);
        snprintf(w->of[at].name, sizeof w->of[at].name, "%s", b->name);
        w->of[at].n = all;
        w->of[at].v = calloc((size_t)all, sizeof(double));
    }
    for (int64_t i = 0; i < mine; i++) {
        int64_t place = 0, step = 1, rest = i;
        for (int d = b->n - 1; d >= 0; d--) {
            place += (b->at[d] + rest % b->size[d]) * step;
            rest /= b->size[d];
            step *= b->full[d];
        }
        w->of[at].v[place] = (double)((const float *)b->data)[i];
    }
}

static void drop(weights *w)
{
    for (int i = 0; i < w->n; i++) free(w->of[i].v);
    w->n = 0;
}

static int find(const weights *w, const char *name)
{
    int at = 0;
    while (at < w->n && strcmp(w->of[at].name, name)) at++;
    sk_assert(at < w->n);
    return at;
}

static void run(const char *model, const char *layout, int64_t first, int64_t rows, double lr,
                weights *to)
{
    sk_trial t = sk_trial_small(model, layout);
    t.hyper.embd_pdrop = t.hyper.resid_pdrop = 0;
    t.optim = "sgd";
    t.knobs[0] = (struct sk_trial_knob){"momentum", 0};
    t.knobs[1] = (struct sk_trial_knob){"decay", 0};
    t.batch = rows;
    t.first_row = first;
    t.steps = 1;
    t.lr = lr;
    t.bucket_bytes = 3000;
    t.look = keep;
    t.look_ctx = to;
    sk_status st = sk_trial_run(&t);
    if (st) printf("%s, \"%s\": %s\n", model, layout, sk_error());
    check(!st);
}

/* Tokens of some rows, each by its weight. */
static double tokens(const char *model, int64_t first, int64_t rows)
{
    sk_trial t = sk_trial_small(model, "dp=1");
    float w[4096];
    double sum = 0;
    sk_extent box = {.n = 2, .size = {rows, t.seq}, .full = {rows, t.seq}};
    if (!strcmp(model, "mlp")) box.n = 1;
    t.first_row = first;
    check(!sk_trial_fill(&t, "weights", SK_F32, &box, 0, false, w));
    for (int64_t i = 0; i < rows * (box.n > 1 ? t.seq : 1); i++) sum += (double)w[i];
    return sum;
}

/* What one step of n ranks, each with `rows` of the batch, must change: the join of
 * n g / tokens of all. */
static void expect(const char *model, int n, int64_t rows, const weights *start, weights *step)
{
    weights part[4] = {0};
    double all = tokens(model, 0, n * rows);
    for (int k = 0; k < n; k++) run(model, "dp=1", k * rows, rows, STEP, &part[k]);
    for (int i = 0; i < start->n; i++) {
        double *v[4];
        for (int k = 0; k < n; k++) {
            double *x = v[k] = part[k].of[find(&part[k], start->of[i].name)].v;
            double factor = n * tokens(model, k * rows, rows) / all;
            for (int64_t e = 0; e < start->of[i].n; e++) x[e] = factor * (x[e] - start->of[i].v[e]);
        }
        join_all(v, n, start->of[i].n);
        sk_assert(find(step, start->of[i].name) == i);
        memcpy(step->of[i].v, v[0], sizeof(double) * (size_t)start->of[i].n);
    }
    for (int k = 0; k < n; k++) drop(&part[k]);
}

/* The largest difference of a step, as a part of the largest change of its tensor. */
static double difference(const weights *now, const weights *start, const weights *step)
{
    double worst = 0;
    for (int i = 0; i < start->n; i++) {
        const double *v = now->of[find(now, start->of[i].name)].v;
        double size = 0, off = 0;
        for (int64_t e = 0; e < start->of[i].n; e++) {
            size = fmax(size, fabs(step->of[i].v[e]));
            off = fmax(off, fabs(v[e] - start->of[i].v[e] - step->of[i].v[e]));
        }
        if (size > 0) worst = fmax(worst, off / size);
    }
    return worst;
}

static void steps_of(const char *model, int n, const char *const *layouts)
{
    weights start = {0}, step = {0};
    run(model, "dp=1", 0, 2 * n, 1e-30, &start);
    run(model, "dp=1", 0, 2 * n, 1e-30, &step);
    expect(model, n, 2, &start, &step);
    for (; *layouts; layouts++) {
        weights now = {0};
        run(model, *layouts, 0, 2 * n, STEP, &now);
        double off = difference(&now, &start, &step);
        if (!(off < 2e-4)) printf("%s, \"%s\": %.2g apart\n", model, *layouts, off);
        check(off < 2e-4);
        drop(&now);
    }
    weights plain = {0};
    run(model, "dp=1", 0, 2 * n, STEP, &plain); /* a sum is something else */
    check(difference(&plain, &start, &step) > 1e-2);
    drop(&plain);
    drop(&start);
    drop(&step);
}

static void programs(void)
{
    static const char *const two[] = {"dp=2 reduce=adasum",
                                      "dp=2 tp=2 reduce=adasum",
                                      "dp=2 zero=1 reduce=adasum",
                                      "tp=2 dp=2 zero=1 reduce=adasum order: tp dp",
                                      "pp=2 dp=2 reduce=adasum",
                                      "dp=2 cp=2 reduce=adasum",
                                      "mesh dp=2 hosts=2; split b over hosts; split b over dp; "
                                      "reduce gradients over hosts by adasum",
                                      "mesh dp=2 hosts=2; split b over hosts; split b over dp; "
                                      "shard state over dp; reduce gradients over hosts by adasum",
                                      NULL};
    static const char *const three[] = {"dp=3 reduce=adasum", "dp=3 tp=2 zero=1 reduce=adasum",
                                        NULL};
    static const char *const plain[] = {"dp=2 reduce=adasum", "dp=2 tp=3 reduce=adasum", NULL};
    steps_of("gpt2", 2, two);
    steps_of("llama", 3, three);
    steps_of("mlp", 2, plain);
}

/* --- refusals --- */

static void refusals(void)
{
    static const struct {
        const char *layout, *words;
    } no[] = {
        {"dp=2 zero=2 reduce=adasum", "zero=1 goes with it"},
        {"dp=2 grads=int8 reduce=adasum", "the codec would change them"},
        {"dp=2 reduce=adasum; canonical order", "the same bits on any layout"},
        {"dp=2 sync=local:2 reduce=adasum", "update alone"},
        {"dp=65 reduce=adasum", "64 is the most"},
        {"mesh z=2; split b h over z; reduce gradients over z by adasum", "splits \"bh\""},
        {"dp=2 reduce=adasun", "did you mean 'adasum'"},
    };
    sk_layout l;
    for (int i = 0; i < (int)(sizeof no / sizeof *no); i++)
        fails(sk_layout_read(no[i].layout, 0, &l), SK_ECONF, no[i].words);
    sk_trial t = sk_trial_small("llama", "pp=2 dp=2 micro=4 schedule=pipedream reduce=adasum");
    fails(sk_trial_run(&t), SK_ECONF, "updates within a step");
    t = sk_trial_small("llama", "dp=2 reduce=adasum");
    t.gpu = true;
    fails(sk_trial_run(&t), SK_ECONF, "no GPU half");
    t.gpu = false;
    t.noise = true;
    fails(sk_trial_run(&t), SK_ECONF, "train.noise: with reduce=adasum");
    check(!sk_layout_read("dp=2 reduce=sum", 0, &l) && sk_layout_adasum(&l) < 0);
}

int main(void)
{
    formula();
    laws();
    cancels();
    programs();
    refusals();
    printf("adasum: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
