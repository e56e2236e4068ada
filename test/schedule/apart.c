/* apart.c - pipelines whose stages update on their own, against plain arithmetic.
 *
 * A small network of layers is trained here in float64, micro-batch by micro-batch, with the
 * whole history of each stage's weights at hand: which version a pass reads is said by a
 * formula for each schedule, not by the schedule's list.  Losses and final weights of real runs
 * must agree, over data-parallel and sharded stages too. */
#include "lib/check.h"
#include "lib/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 5, WIDE = 6, MICROS = 8, STEPS = 3, BATCH = 16, PIXELS = 7, CLASSES = 4 };
enum { VERSIONS = MICROS + 1 };

typedef struct weights {
    double w[WIDE + PIXELS][WIDE], b[WIDE];
} weights;

typedef enum plan { PIPEDREAM, TWO, PB, PB_SPIKE, PB_AHEAD, PB_BOTH, N_PLANS } plan;
static const char *const schedules[] = {"pipedream", "pipedream-2bw", "pb", "pb", "pb", "pb"};

typedef struct world {
    plan plan;
    int stages;
    int stage[LAYERS], from[LAYERS], to[LAYERS]; /* of a layer: where it sits; its sizes */
    weights now[LAYERS], speed[LAYERS], old[VERSIONS][LAYERS], old_speed[VERSIONS][LAYERS];
    weights grad[LAYERS];
    double loss[STEPS];
} world;

static const double lr = 0.05, mu = 0.9, decay = 0.1;

/* --- one micro-batch --- */

static double gelu(double z, double *slope)
{
    double c = sqrt(2 / M_PI), t = tanh(c * (z + 0.044715 * z * z * z));
    *slope = 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * c * (1 + 3 * 0.044715 * z * z);
    return 0.5 * z * (1 + t);
}

typedef struct pass {                                     /* of one row */
    double x[LAYERS + 1][WIDE + PIXELS], z[LAYERS][WIDE]; /* z without the bias */
} pass;

static void forward(const world *v, const weights *w, pass *p)
{
    for (int l = 0; l < LAYERS; l++)
        for (int j = 0; j < v->to[l]; j++) {
            double z = 0, slope;
            for (int i = 0; i < v->from[l]; i++) z += p->x[l][i] * w[l].w[i][j];
            p->z[l][j] = z;
            z += w[l].b[j];
            p->x[l + 1][j] = l + 1 < LAYERS ? gelu(z, &slope) : z;
        }
}

static double loss_of(const double *logits, int target, double weight, double *d)
{
    double top = logits[0], sum = 0;
    for (int j = 1; j < CLASSES; j++) top = fmax(top, logits[j]);
    for (int j = 0; j < CLASSES; j++) sum += exp(logits[j] - top);
    for (int j = 0; j < CLASSES; j++) d[j] = weight * (exp(logits[j] - top) / sum - (j == target));
    return weight * (log(sum) + top - logits[target]);
}

static void backward(world *v, const weights *w, const pass *p, double *d)
{
    for (int l = LAYERS - 1; l >= 0; l--) {
        double below[WIDE + PIXELS] = {0};
        for (int j = 0; j < v->to[l]; j++) {
            double slope = 1;
            if (l + 1 < LAYERS) gelu(p->z[l][j] + w[l].b[j], &slope); /* with the bias it reads */
            double dz = d[j] * slope;
            v->grad[l].b[j] += dz;
            for (int i = 0; i < v->from[l]; i++) {
                v->grad[l].w[i][j] += dz * p->x[l][i];
                below[i] += dz * w[l].w[i][j];
            }
        }
        memcpy(d, below, sizeof below);
    }
}

/* --- which weights --- */

static int most(int a, int b) { return a > b ? a : b; }

static int groups(const world *v) { return v->plan == TWO ? v->stages : 1; }

/* Updates that a pass over micro-batch i on stage s has seen. */
static int version(const world *v, int i, int s, bool back)
{
    int ahead = v->stages - 1 - s;
    if (v->plan == TWO) return most(i / v->stages - 1, 0);
    if (v->plan >= PB && back) return i;
    return most(i - ahead, 0);
}

static void choose(const world *v, int i, bool back, weights *out)
{
    for (int l = 0; l < LAYERS; l++) {
        int k = version(v, i, v->stage[l], back), late = i - k;
        out[l] = v->old[k][l];
        if (back || (v->plan != PB_AHEAD && v->plan != PB_BOTH)) continue;
        for (int a = 0; a < v->from[l]; a++)
            for (int b = 0; b < v->to[l]; b++)
                out[l].w[a][b] -= lr * late * v->old_speed[k][l].w[a][b];
        for (int b = 0; b < v->to[l]; b++) out[l].b[b] -= lr * late * v->old_speed[k][l].b[b];
    }
}

static void move(double *w, double *speed, double grad, double wd, double a, double b)
{
    double g = grad + wd * *w;
    *speed = mu * *speed + g;
    *w -= lr * (a * *speed + b * g);
}

static void update(world *v, int i, int rows)
{
    for (int l = 0; l < LAYERS; l++) {
        int late = i - version(v, i, v->stage[l], false);
        double a = 1, b = 0;
        if (v->plan == PB_SPIKE || v->plan == PB_BOTH)
            a = pow(mu, late), b = (1 - pow(mu, late)) / (1 - mu);
        weights *w = &v->now[l], *s = &v->speed[l], *g = &v->grad[l];
        for (int x = 0; x < v->from[l]; x++)
            for (int y = 0; y < v->to[l]; y++)
                move(&w->w[x][y], &s->w[x][y], g->w[x][y] / rows, decay, a, b);
        for (int y = 0; y < v->to[l]; y++) move(&w->b[y], &s->b[y], g->b[y] / rows, 0, a, b);
        v->grad[l] = (weights){0};
    }
}

static void remember(world *v, int k)
{
    memcpy(v->old[k], v->now, sizeof v->now);
    memcpy(v->old_speed[k], v->speed, sizeof v->speed);
}

static double row(world *v, sk_trial *t, int step, int at, const weights *f, const weights *b,
                  double *weight)
{
    pass p = {0};
    float pixels[PIXELS], w;
    int32_t target;
    double d[WIDE + PIXELS] = {0};
    sk_extent wide = {.n = 2, .size = {1, PIXELS}, .at = {at, 0}};
    sk_extent one = {.n = 1, .size = {1}, .at = {at}};
    sk_trial_fill(t, "pixels", SK_F32, &wide, step, false, pixels);
    sk_trial_fill(t, "targets", SK_I32, &one, step, false, &target);
    sk_trial_fill(t, "weights", SK_F32, &one, step, false, &w);
    for (int i = 0; i < PIXELS; i++) p.x[0][i] = (double)pixels[i];
    forward(v, f, &p);
    double loss = loss_of(p.x[LAYERS], target, (double)w, d);
    backward(v, b, &p, d);
    *weight += (double)w;
    return loss;
}

static void step(world *v, sk_trial *t, int s)
{
    static weights f[LAYERS], b[LAYERS];
    int each = BATCH / MICROS, made = 0, rows = 0;
    double weight = 0, loss = 0;
    remember(v, 0);
    for (int i = 0; i < MICROS; i++) {
        choose(v, i, false, f);
        choose(v, i, true, b);
        for (int r = 0; r < each; r++) loss += row(v, t, s, i * each + r, f, b, &weight);
        rows += each;
        if ((i + 1) % groups(v) && i + 1 < MICROS) continue;
        update(v, i, rows);
        remember(v, ++made);
        rows = 0;
    }
    v->loss[s] = loss / weight;
}

/* --- real runs --- */

typedef struct reader {
    world *v;
    bool compare;
    double worst;
    int elements;
} reader;

static void element(reader *r, double *mine, double theirs)
{
    if (r->compare) r->worst = fmax(r->worst, fabs(*mine - theirs) / (1e-3 + fabs(*mine)));
    else *mine = theirs;
    r->elements++;
}

/* "layers.2.w", [at, at + size) */
static void look(void *ctx, const sk_tensor_shard *box)
{
    reader *r = ctx;
    int layer;
    char kind;
    const float *x = box->data;
    if (sscanf(box->name, "layers.%d.%c", &layer, &kind) != 2 || strlen(box->name) != 10) return;
    weights *w = &r->v->now[layer];
    for (int64_t i = 0; i < box->size[0]; i++) {
        if (kind == 'b') element(r, &w->b[box->at[0] + i], (double)x[i]);
        for (int64_t j = 0; kind == 'w' && j < box->size[1]; j++)
            element(r, &w->w[box->at[0] + i][box->at[1] + j], (double)x[i * box->size[1] + j]);
    }
}

static const sk_model *mlp(void)
{
    const sk_model *const *m = sk_model_parts;
    while (strcmp((*m)->name, "mlp")) m++;
    return *m;
}

static void find_stages(world *v, const sk_trial *t)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0;
    check(!sk_trial_compile(&a, t, &g, &p, &n));
    for (int r = 0; r < n && p; r++)
        for (int i = 0; i < p[r]->params.n; i++) {
            int layer = 0;
            sscanf(p[r]->params.v[i].tensor->name, "layers.%d", &layer);
            v->stage[layer] = p[r]->stage;
        }
    sk_arena_end(&a);
}

/* The most copies of a weight that live at the same time. */
static int copies(const sk_program *p, const sk_tensor *t)
{
    int most_alive = 0;
    for (int pc = 0; pc < p->n_train; pc++) {
        int alive = 0;
        for (int b = 0; b < p->bufs.n; b++) {
            const sk_buffer *x = &p->bufs.v[b];
            alive += x->tensor == t && x->kind == SK_WIRE && !x->keep && x->first <= pc &&
                     x->last >= pc && x->first >= 0;
        }
        most_alive = most(most_alive, alive);
    }
    return most_alive;
}

static void memory(plan which, int stages)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0;
    char layout[96];
    snprintf(layout, sizeof layout, "pp=%d micro=16 schedule=%s", stages, schedules[which]);
    sk_trial t = {.model = mlp(), .hyper = mlp()->usual, .batch = 32, .seq = 1, .optim = "sgd"};
    t.hyper.num_hidden_layers = 7;
    t.layout = layout;
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    for (int s = 0; s < n; s++)
        for (int i = 0; i < p[s]->params.n; i++) {
            const sk_tensor *x = p[s]->params.v[i].tensor;
            if (x->letters[1] == 0 || !strcmp(x->name, "layers.0.w")) continue; /* read once */
            int want = which == PIPEDREAM ? stages - 1 - s : which == TWO ? 1 : 0;
            check(copies(p[s], x) == want);
        }
    sk_arena_end(&a);
}

static void one(plan which, int stages, const char *more)
{
    static world v;
    char layout[96];
    v = (world){.plan = which, .stages = stages};
    for (int l = 0; l < LAYERS; l++) {
        v.from[l] = l ? WIDE : PIXELS;
        v.to[l] = l + 1 < LAYERS ? WIDE : CLASSES;
    }
    snprintf(layout, sizeof layout, "%s pp=%d micro=%d schedule=%s", more, stages, MICROS,
             schedules[which]);
    reader r = {.v = &v};
    sk_trial t = {.model = mlp(),
                  .hyper = {.arch = "mlp",
                            .input_size = PIXELS,
                            .hidden_size = WIDE,
                            .num_hidden_layers = LAYERS - 1,
                            .vocab_size = CLASSES},
                  .batch = BATCH,
                  .seq = 1,
                  .layout = layout,
                  .optim = "sgd-pb",
                  .lr = lr,
                  .knobs = {{"compensate", which == PB_SPIKE || which == PB_BOTH},
                            {"predict", which == PB_AHEAD || which == PB_BOTH}},
                  .look = look,
                  .look_ctx = &r};
    find_stages(&v, &t);
    check(!sk_trial_run(&t)); /* no steps: the weights to begin with */
    int elements = r.elements;
    for (int s = 0; s < STEPS; s++) step(&v, &t, s);
    t.steps = STEPS;
    r = (reader){.v = &v, .compare = true};
    check(!sk_trial_run(&t));
    check(r.elements == elements && elements == WIDE * (PIXELS + 1) +
                                                    (LAYERS - 2) * WIDE * (WIDE + 1) +
                                                    CLASSES * (WIDE + 1));
    double off = 0;
    for (int s = 0; s < STEPS; s++) off = fmax(off, fabs(t.loss[s] - v.loss[s]) / v.loss[s]);
    if (off > 1e-5 || r.worst > 1e-3) printf("%s: loss %.1e, weights %.1e\n", layout, off, r.worst);
    check(off < 1e-5);
    check(r.worst < 1e-3);
}

/* Weights are foreseen from state of 16 bits too. */
static void narrow_state(void)
{
    sk_trial t = sk_trial_small("llama", "pp=2 micro=4 schedule=pb"), u;
    t.optim = "sgd-pb";
    t.knobs[0] = (struct sk_trial_knob){"compensate", 1};
    t.knobs[1] = (struct sk_trial_knob){"predict", 1};
    t.lr = lr;
    t.steps = 6;
    u = t;
    u.state_type = SK_BF16;
    check(!sk_trial_run(&t) && !sk_trial_run(&u) && t.digest != u.digest);
    for (int s = 0; s < t.steps; s++) check(fabs(u.loss[s] / t.loss[s] - 1) < 1e-3);
}

static void refusals(void)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n;
    sk_trial t = {.model = mlp(),
                  .hyper = mlp()->usual,
                  .batch = 8,
                  .seq = 1,
                  .optim = "lamb",
                  .layout = "pp=2 micro=4 schedule=pipedream"};
    fails(sk_trial_compile(&a, &t, &g, &p, &n), SK_ECONF, "optimizer lamb needs sums");
    t.optim = "sgd";
    t.layout = "pp=2 micro=4 schedule=pb; canonical order";
    fails(sk_trial_compile(&a, &t, &g, &p, &n), SK_ECONF, "order=fast is needed");
    t.layout = "pp=2 dp=2 zero=1 replica micro=4 schedule=pb";
    fails(sk_trial_compile(&a, &t, &g, &p, &n), SK_ECONF, "leave out replica");
    sk_arena_end(&a);
}

int main(void)
{
    static const char *const more[] = {"",
                                       "dp=2",
                                       "dp=2 zero=1",
                                       "dp=2 zero=2",
                                       "dp=2 zero=3",
                                       "dp=2 zero=3 keep",
                                       "dp=2 tp=2 zero=3"};
    int runs = 0;
    for (int k = 0; k < N_PLANS; k++) {
        for (int stages = 1; stages <= 4; stages++, runs++) one((plan)k, stages, "");
        for (size_t i = 1; i < sizeof more / sizeof *more; i++, runs++) one((plan)k, 3, more[i]);
    }
    for (int stages = 1; stages <= 4; stages++) {
        memory(PIPEDREAM, stages);
        memory(TWO, stages);
        memory(PB, stages);
    }
    narrow_state();
    refusals();
    printf("apart: %d runs, %d checks, %d bad\n", runs, checks, bad);
    return bad > 0;
}
