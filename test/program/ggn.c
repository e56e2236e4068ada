/* ggn.c - extras of a small classifier against a reference in double: the Jacobian of its logits by
 * central differences, the dense generalised Gauss-Newton matrix J' H J, gradients of single
 * samples.  And the estimate with drawn labels against the exact diagonal, on average. */
#include "base/rng.h"
#include "graph/extra.h"
#include "lib/check.h"
#include "lib/ranks.h"

#include <math.h>

enum { IN = 5, HIDDEN = 4, OUT = 3, ROWS = 6, PARAMS = IN * HIDDEN + HIDDEN + HIDDEN * OUT + OUT };

static const struct {
    const char *name;
    int at, n;
} layout[] = {{"layers.0.w", 0, IN *HIDDEN},
              {"layers.0.b", IN *HIDDEN, HIDDEN},
              {"layers.1.w", IN *HIDDEN + HIDDEN, HIDDEN *OUT},
              {"layers.1.b", IN *HIDDEN + HIDDEN + HIDDEN *OUT, OUT}};

static double weight[PARAMS];
static double diag[PARAMS], grads[ROWS][PARAMS], moment[PARAMS], total[ROWS]; /* as measured */

static sk_trial trial(void)
{
    sk_trial t = sk_trial_small("mlp", "dp=1");
    t.hyper.num_hidden_layers = 1;
    t.hyper.hidden_size = HIDDEN;
    t.hyper.input_size = IN;
    t.hyper.vocab_size = OUT;
    t.batch = ROWS;
    t.steps = 1;
    t.lr = 1e-30; /* weights stay as they are */
    t.extras = 1u << SK_EXTRA_GGN | 1u << SK_EXTRA_TOTALS;
    return t;
}

/* --- the reference --- */

static uint64_t drawn(int row, int col) { return sk_rng(7, 0, (uint64_t)(row * 100000 + col)).a; }
static double pixel(int row, int col)
{
    return (double)(float)((double)(drawn(row, col) % 256) / 255);
}
static double weight_of(int row) { return 0.5 + (double)(drawn(row, 0) % 8) / 8; }
static int target(int row) { return (int)(drawn(row, 1) % OUT); }

static void logits(const double *w, int row, double *z)
{
    const double *b = w + layout[1].at, *v = w + layout[2].at, *c = w + layout[3].at;
    for (int k = 0; k < OUT; k++) z[k] = c[k];
    for (int h = 0; h < HIDDEN; h++) {
        double x = b[h];
        for (int i = 0; i < IN; i++) x += pixel(row, i) * w[i * HIDDEN + h];
        double y = 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
        for (int k = 0; k < OUT; k++) z[k] += y * v[h * OUT + k];
    }
}

static void softmax(const double *z, double *p)
{
    double sum = 0;
    for (int k = 0; k < OUT; k++) sum += p[k] = exp(z[k]);
    for (int k = 0; k < OUT; k++) p[k] /= sum;
}

/* J of a row, and its distribution. */
static void jacobian(int row, double J[OUT][PARAMS], double *p)
{
    double w[PARAMS], up[OUT], down[OUT], step = 1e-5, z[OUT];
    memcpy(w, weight, sizeof w);
    logits(w, row, z);
    softmax(z, p);
    for (int j = 0; j < PARAMS; j++) {
        w[j] = weight[j] + step;
        logits(w, row, up);
        w[j] = weight[j] - step;
        logits(w, row, down);
        w[j] = weight[j];
        for (int k = 0; k < OUT; k++) J[k][j] = (up[k] - down[k]) / (2 * step);
    }
}

static void against_reference(void)
{
    static double ggn[PARAMS][PARAMS], J[OUT][PARAMS], second[PARAMS];
    double p[OUT], worst = 0, off = 0;
    for (int row = 0; row < ROWS; row++) {
        double all = 0;
        jacobian(row, J, p);
        for (int i = 0; i < PARAMS; i++)
            for (int j = 0; j < PARAMS; j++)
                for (int k = 0; k < OUT; k++)
                    for (int l = 0; l < OUT; l++)
                        ggn[i][j] +=
                            weight_of(row) * J[k][i] * (p[k] * (k == l) - p[k] * p[l]) * J[l][j];
        for (int j = 0; j < PARAMS; j++) {
            double g = 0;
            for (int k = 0; k < OUT; k++)
                g += weight_of(row) * (p[k] - (k == target(row))) * J[k][j];
            off = fmax(off, fabs(g - grads[row][j]));
            second[j] += g * g;
            all += g * g;
        }
        off = fmax(off, fabs(all - total[row]));
    }
    for (int j = 0; j < PARAMS; j++) {
        worst = fmax(worst, fabs(ggn[j][j] - diag[j]));
        off = fmax(off, fabs(second[j] - moment[j]));
    }
    check(worst < 2e-5 && diag[0] > 0);
    check(off < 2e-5 && moment[0] > 0);
    if (getenv("SKEIN_SHOW")) printf("diagonal off by %.2g, gradients by %.2g\n", worst, off);
}

/* --- measuring --- */

static const float *extra(const sk_run *run, const sk_program *p, const char *name,
                          const char *kind)
{
    for (int i = p->params.n; i < sk_n_grads(p); i++) {
        char full[96];
        snprintf(full, sizeof full, "%s%s%s", name, *name ? "." : "", kind);
        if (!strcmp(p->params.v[i].tensor->name, full))
            return sk_run_data(run, p->params.v[i].grad_shard);
    }
    check(false); /* the extra is there */
    return NULL;
}

static void keep(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    (void)t, (void)step;
    for (int k = 0; k < 4; k++) {
        const float *d = extra(run, p, layout[k].name, "diag_ggn");
        const float *s = extra(run, p, layout[k].name, "gradients");
        const float *m = extra(run, p, layout[k].name, "second_moment");
        for (int i = 0; i < layout[k].n && d && s && m; i++) {
            diag[layout[k].at + i] = (double)d[i];
            moment[layout[k].at + i] = (double)m[i];
            for (int r = 0; r < ROWS; r++)
                grads[r][layout[k].at + i] = (double)s[r * layout[k].n + i];
        }
    }
    const float *n = extra(run, p, "", "norms");
    for (int r = 0; r < ROWS && n; r++) total[r] = (double)n[r];
}

static void look(void *ctx, const sk_tensor_shard *b)
{
    (void)ctx;
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < layout[k].n && !strcmp(b->name, layout[k].name); i++)
            weight[layout[k].at + i] = (double)((const float *)b->data)[i];
}

static double exact, estimate;

static void add_up(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    const float *a = extra(run, p, "", "diag_ggn"), *b = extra(run, p, "", "diag_ggn_mc");
    (void)step;
    for (int64_t r = 0; r < t->batch && a && b; r++)
        exact += (double)a[r], estimate += (double)b[r];
}

int main(void)
{
    sk_trial t = trial();
    t.extras |= 1u << SK_EXTRA_SAMPLES | 1u << SK_EXTRA_MOMENT;
    t.after = keep;
    t.look = look;
    check(!sk_trial_run(&t));
    against_reference();
    t = trial();
    t.extras |= 1u << SK_EXTRA_GGN_MC;
    t.batch = 64;
    t.steps = SK_TEST_STEPS;
    t.after = add_up;
    check(!sk_trial_run(&t));
    check(exact > 0 && fabs(estimate / exact - 1) < 0.1); /* 2048 draws */
    if (getenv("SKEIN_SHOW")) printf("estimate %.4g of %.4g\n", estimate, exact);
    printf("ggn: %d checks, %d failed\n", checks, bad);
    return bad != 0;
}
