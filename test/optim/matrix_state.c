/* matrix_state.c - optimizers that keep state of whole matrices: Shampoo, SOAP, Adafactor, K-FAC.
 *
 * After 20 steps the weights are those of a reference in double that is written here from the
 * papers, given the gradient of each step.  Bases of SOAP are those of the run, which are checked:
 * where a factor has less than full rank, its eigenvectors are not the only ones.  So are the
 * Kronecker factors of each step, which test/program/extras.c is for.  On other layouts
 * the bits are those of one rank in canonical order, also on a GPU.  State has the bytes of the
 * closed form, on one rank and on several in all.  A skipped step leaves it as it was. */
#include "graph/extra.h"
#include "lib/check.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"
#include "lib/ranks.h"
#include "program/param_groups.h"

#include <math.h>

enum { PARAMS = 64, STEPS = 20, INTERVAL = 3 };
#define DAMPING 1e-2

typedef struct history { /* of one parameter, in double */
    double *w, *m, *v, *l, *r, *pl, *pr;
} history;
static history past[PARAMS];

typedef struct matrix { /* one parameter: [rows][experts][cols] */
    const sk_run *run;
    const sk_program *p;
    const sk_param_plan *q;
    int64_t rows, experts, cols;
    int step;  /* from 1 on */
    double *g; /* of the mean loss */
    history *h;
} matrix;

static double *zeros(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }

static double *wide_copy(const sk_run *run, const sk_program *p, int buf)
{
    int64_t n = p->bufs.v[buf].bytes / (int64_t)sizeof(real);
    double *x = zeros(n);
    for (int64_t i = 0; i < n; i++) x[i] = (double)((const real *)sk_run_data(run, buf))[i];
    return x;
}

/* z[m][n] = x[m][k] y[k][n]; x' and y' are turned. */
static double *product(const double *x, bool x_turned, const double *y, bool y_turned, int64_t m,
                       int64_t k, int64_t n)
{
    double *z = zeros(m * n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t l = 0; l < k; l++)
                z[i * n + j] += (x_turned ? x[l * m + i] : x[i * k + l]) *
                                (y_turned ? y[j * k + l] : y[l * n + j]);
    return z;
}

/* Jacobi: a becomes diagonal, columns of q its eigenvectors. */
static void eigen(double *a, double *q, int64_t n)
{
    for (int64_t i = 0; i < n * n; i++) q[i] = i % (n + 1) == 0;
    for (int sweep = 0; sweep < 30; sweep++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i + 1; j < n; j++) {
                double b = a[i * n + j];
                if (fabs(b) < 1e-300) continue;
                double f = (a[j * n + j] - a[i * n + i]) / (2 * b);
                double t = (f < 0 ? -1 : 1) / (fabs(f) + sqrt(f * f + 1));
                double c = 1 / sqrt(t * t + 1), s = t * c;
                for (int64_t k = 0; k < n; k++) {
                    double x = a[k * n + i], y = a[k * n + j];
                    a[k * n + i] = c * x - s * y, a[k * n + j] = s * x + c * y;
                }
                for (int64_t k = 0; k < n; k++) {
                    double x = a[i * n + k], y = a[j * n + k];
                    a[i * n + k] = c * x - s * y, a[j * n + k] = s * x + c * y;
                    x = q[k * n + i], y = q[k * n + j];
                    q[k * n + i] = c * x - s * y, q[k * n + j] = s * x + c * y;
                }
            }
}

/* (a + eps e I)^power; e: the largest eigenvalue, or their mean. */
static double *root(const double *a, int64_t n, double eps, bool mean, double power)
{
    double *d = zeros(n * n), *q = zeros(n * n), most = 0;
    memcpy(d, a, sizeof *d * (size_t)(n * n));
    eigen(d, q, n);
    for (int64_t i = 0; i < n; i++)
        most = mean ? most + d[i * n + i] / (double)n : fmax(most, d[i * n + i]);
    double *qd = zeros(n * n);
    for (int64_t i = 0; i < n * n; i++) {
        double e = fmax(d[i % n * (n + 1)], 0) + eps * most;
        qd[i] = q[i] * pow(e, power);
    }
    double *z = product(qd, false, q, true, n, n, n);
    free(d), free(q), free(qd);
    return z;
}

/* --- one matrix of the parameter --- */

typedef struct one {
    int64_t m, n;
    double *g, *w, *mom, *v, *l, *r, *pl, *pr;
} one;

static double *cut(const matrix *x, const double *from, int64_t e)
{
    double *z = zeros(x->rows * x->cols);
    for (int64_t i = 0; from && i < x->rows; i++)
        for (int64_t j = 0; j < x->cols; j++)
            z[i * x->cols + j] = from[(i * x->experts + e) * x->cols + j];
    return z;
}

static void paste(const matrix *x, const double *from, double *to, int64_t e)
{
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->cols; j++)
            to[(i * x->experts + e) * x->cols + j] = from[i * x->cols + j];
}

/* An average that is corrected for its first terms, as the reference's own. */
static void average(double *old, const double *x, double beta, int t, int64_t n)
{
    double b = beta * (1 - pow(beta, t - 1)) / (1 - pow(beta, t));
    for (int64_t i = 0; i < n; i++) old[i] = b * old[i] + (1 - b) * x[i];
}

static void grams(one *o, double beta, int t, bool debiased)
{
    double *l = product(o->g, false, o->g, true, o->m, o->n, o->m);
    double *r = product(o->g, true, o->g, false, o->n, o->m, o->n);
    int at = debiased ? t : 1 << 20;
    average(o->l, l, beta, at, o->m * o->m);
    average(o->r, r, beta, at, o->n * o->n);
    free(l), free(r);
}

/* Shampoo with a power of -1/4, K-FAC with -1 and damping relative to the mean eigenvalue. */
static void two_sided(one *o, int t, bool mean, double power)
{
    double rms = 0, *u, *z, lr = 0.003;
    average(o->mom, o->g, 0.9, t, o->m * o->n);
    if (t % INTERVAL == 1) {
        free(o->pl), free(o->pr);
        o->pl = root(o->l, o->m, DAMPING, mean, power);
        o->pr = root(o->r, o->n, DAMPING, mean, power);
    }
    z = product(o->pl, false, o->mom, false, o->m, o->m, o->n);
    u = product(z, false, o->pr, false, o->m, o->n, o->n);
    for (int64_t i = 0; i < o->m * o->n; i++) rms += u[i] * u[i];
    rms = 0.2 * sqrt((double)(o->m * o->n)) / sqrt(rms);
    for (int64_t i = 0; i < o->m * o->n; i++) o->w[i] -= lr * (0.1 * o->w[i] + rms * u[i]);
    free(z), free(u);
}

static double *turned(const one *o, const double *x)
{
    double *a = product(o->pl, true, x, false, o->m, o->m, o->n);
    double *b = product(a, false, o->pr, false, o->m, o->n, o->n);
    free(a);
    return b;
}

static void soap(one *o, int t)
{
    double lr = 0.003, *g = turned(o, o->g), *u, *z;
    if (t > 1) {
        for (int64_t i = 0; i < o->m * o->n; i++) g[i] *= g[i];
        average(o->v, g, 0.95, t - 1, o->m * o->n);
        average(o->mom, o->g, 0.9, t - 1, o->m * o->n);
    }
    u = turned(o, o->mom);
    for (int64_t i = 0; i < o->m * o->n; i++) u[i] /= sqrt(o->v[i]) + 1e-6;
    z = product(o->pl, false, u, false, o->m, o->m, o->n);
    free(u);
    u = product(z, false, o->pr, true, o->m, o->n, o->n);
    for (int64_t i = 0; i < o->m * o->n; i++) o->w[i] -= lr * (0.1 * o->w[i] + u[i]);
    grams(o, 0.95, t, false);
    free(g), free(u), free(z);
}

/* rms: of the weights of the whole tensor. */
static void adafactor(one *o, int t, double rms)
{
    double part = pow(t, -0.8), lr = 0.003, mean = 0, square = 0, eps = ldexp(1, -23);
    double *u = zeros(o->m * o->n), alpha = fmax(1e-3, rms) * fmin(lr, 1 / sqrt(t));
    for (int64_t i = 0; i < o->m; i++) {
        double s = 0;
        for (int64_t j = 0; j < o->n; j++) s += o->g[i * o->n + j] * o->g[i * o->n + j];
        o->l[i] += part * (s / (double)o->n - o->l[i]);
        mean += o->l[i] / (double)o->m;
    }
    for (int64_t j = 0; j < o->n; j++) {
        double s = 0;
        for (int64_t i = 0; i < o->m; i++) s += o->g[i * o->n + j] * o->g[i * o->n + j];
        o->r[j] += part * (s / (double)o->m - o->r[j]);
    }
    for (int64_t i = 0; i < o->m * o->n; i++) {
        double v = o->l[i / o->n] * o->r[i % o->n] / fmax(mean, eps);
        u[i] = o->g[i] / sqrt(fmax(v, eps * eps));
        square += u[i] * u[i];
    }
    alpha /= fmax(1, sqrt(square / (double)(o->m * o->n)));
    for (int64_t i = 0; i < o->m * o->n; i++) o->w[i] = (1 - lr * 0.1) * o->w[i] - alpha * u[i];
    free(u);
}

/* --- a parameter --- */

static int state_of(const matrix *x, const char *name)
{
    for (int s = 0; s < x->q->n_matrix_state; s++) {
        const char *own = x->p->bufs.v[x->q->matrix_state[s]].name;
        if (!strcmp(strrchr(own, '.') + 1, name)) return x->q->matrix_state[s];
    }
    return -1;
}

/* The basis that the run made of the factor: orthonormal, and the factor is diagonal in it. */
static void see_basis(const matrix *x, const char *name, const double *factor, double *basis,
                      int64_t n)
{
    double *all = wide_copy(x->run, x->p, state_of(x, name)), most = 0, off = 0;
    for (int64_t e = 0; e < x->experts; e++) {
        const double *q = all + e * n * n, *f = factor + e * n * n;
        double *qq = product(q, true, q, false, n, n, n),
               *fq = product(f, false, q, false, n, n, n);
        double *d = product(q, true, fq, false, n, n, n);
        for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(d[i * n + i]));
        for (int64_t i = 0; i < n * n; i++) {
            off = fmax(off, fabs(qq[i] - (i % (n + 1) == 0)) / 10);
            if (i % (n + 1)) off = fmax(off, fabs(d[i]) / (most + 1e-30));
        }
        free(qq), free(fq), free(d);
    }
    if (off > 2e-6) printf("'%s': basis %s is off by %g\n", x->q->tensor->name, name, off);
    check(off <= 2e-6);
    memcpy(basis, all, sizeof *basis * (size_t)(x->experts * n * n));
    free(all);
}

static int factor_interval = 1;

/* Averages of the factors that the backward pass of this step left, if it did. */
static void see_factors(const matrix *x)
{
    int t = (x->step - 1) / factor_interval + 1;
    if ((x->step - 1) % factor_interval) return;
    for (int kind = SK_EXTRA_KRON_A; kind <= SK_EXTRA_KRON_G; kind++) {
        int i = sk_program_extra(x->p, x->q->tensor, kind);
        const sk_param_plan *f = &x->p->params.v[i];
        bool rows = strchr(f->tensor->letters, x->q->tensor->letters[0]) != NULL;
        int64_t n = rows ? x->rows : x->cols;
        double *now = wide_copy(x->run, x->p, f->grad_shard);
        average(rows ? x->h->l : x->h->r, now, 0.95, t, x->experts * n * n);
        free(now);
    }
}

static double rms_of(const matrix *x)
{
    double sum = 0;
    int64_t n = x->rows * x->experts * x->cols;
    for (int64_t i = 0; i < n; i++) sum += x->h->w[i] * x->h->w[i];
    return sqrt(sum / (double)n);
}

static void one_step(const matrix *x, int64_t e, double rms)
{
    int64_t mm = x->rows * x->rows, nn = x->cols * x->cols;
    history *h = x->h;
    one o = {.m = x->rows, .n = x->cols};
    o.g = cut(x, x->g, e), o.w = cut(x, h->w, e), o.mom = cut(x, h->m, e), o.v = cut(x, h->v, e);
    o.l = h->l + e * mm, o.r = h->r + e * nn;
    o.pl = memcpy(zeros(mm), h->pl + e * mm, sizeof(double) * (size_t)mm);
    o.pr = memcpy(zeros(nn), h->pr + e * nn, sizeof(double) * (size_t)nn);
    if (!strcmp(x->q->optim->name, "shampoo")) {
        grams(&o, 0.95, x->step, true);
        two_sided(&o, x->step, false, -0.25);
    } else if (!strcmp(x->q->optim->name, "kfac")) two_sided(&o, x->step, true, -1);
    else if (!strcmp(x->q->optim->name, "soap")) soap(&o, x->step);
    else adafactor(&o, x->step, rms);
    paste(x, o.w, h->w, e), paste(x, o.mom, h->m, e), paste(x, o.v, h->v, e);
    memcpy(h->pl + e * mm, o.pl, sizeof(double) * (size_t)mm);
    memcpy(h->pr + e * nn, o.pr, sizeof(double) * (size_t)nn);
    free(o.g), free(o.w), free(o.mom), free(o.v), free(o.pl), free(o.pr);
}

static void begin(matrix *x)
{
    int64_t n = x->rows * x->experts * x->cols;
    int64_t mm = x->experts * x->rows * x->rows, nn = x->experts * x->cols * x->cols;
    *x->h = (history){zeros(n), zeros(n), zeros(n), zeros(mm), zeros(nn), zeros(mm), zeros(nn)};
}

static void end(history *h)
{
    free(h->w), free(h->m), free(h->v), free(h->l), free(h->r), free(h->pl), free(h->pr);
}

static double initial[PARAMS][4096]; /* weights before step 1 */

static void compare_one(const sk_trial *t, matrix *x, int param)
{
    double worst = 0, *w = wide_copy(x->run, x->p, x->q->shard);
    int64_t n = x->rows * x->experts * x->cols;
    if (x->step == 1) {
        begin(x);
        for (int64_t i = 0; i < n; i++) x->h->w[i] = initial[param][i];
    }
    double rms = rms_of(x);
    if (x->q->optim->factors) see_factors(x);
    for (int64_t e = 0; e < x->experts; e++) one_step(x, e, rms);
    if (!strcmp(x->q->optim->name, "soap") && x->step % INTERVAL == 1) {
        see_basis(x, "p", x->h->l, x->h->pl, x->rows);
        see_basis(x, "q", x->h->r, x->h->pr, x->cols);
    }
    for (int64_t k = 0; k < n; k++) worst = fmax(worst, fabs(w[k] - x->h->w[k]));
    if (worst > 1e-5)
        printf("%s, %s: '%s' is off by %g after step %d\n", x->q->optim->name, t->model->name,
               x->q->tensor->name, worst, x->step);
    check(worst <= 1e-5);
    if (x->step == t->steps) end(x->h);
    free(w);
}

static void compare(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    double tokens = ((double *)sk_run_data(run, p->stats))[SK_STAT_SUMS + SK_SUM_WEIGHT];
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        const sk_extent *box = &p->bufs.v[q->shard].box;
        if (!sk_param_matrix_update(q)) continue;
        bool bank = strchr(q->tensor->letters, 'e') != NULL;
        matrix x = {run, p, q, box->size[0], bank ? box->size[1] : 1, 1, step + 1, NULL, &past[i]};
        for (int d = bank ? 2 : 1; d < box->n; d++) x.cols *= box->size[d];
        x.g = wide_copy(run, p, q->grad_shard);
        int64_t n = x.rows * x.experts * x.cols;
        for (int64_t k = 0; k < n; k++) x.g[k] /= tokens;
        compare_one(t, &x, i);
        free(x.g);
    }
}

/* The weights before the first step: those of a run of no rate. */
static void see_initial(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    (void)t;
    for (int i = 0; !step && i < p->params.n; i++) {
        double *w = wide_copy(run, p, p->params.v[i].shard);
        int64_t n = p->bufs.v[p->params.v[i].shard].bytes / (int64_t)sizeof(real);
        check(n <= 4096);
        for (int64_t k = 0; k < n; k++) initial[i][k] = w[k];
        free(w);
    }
}

/* --- trials --- */

static void set(sk_trial *t, const char *name, double value)
{
    int n = 0;
    if (sk_optim_knob(sk_optim_find(t->optim), name) < 0) return;
    while (t->knobs[n].name) n++;
    t->knobs[n].name = name, t->knobs[n].value = value;
}

static sk_trial trial(const char *optim, const char *model, const char *layout)
{
    sk_trial t = sk_trial_small(model, layout);
    t.hyper.num_hidden_layers = 2;
    t.hyper.embd_pdrop = t.hyper.resid_pdrop = 0;
    t.optim = optim;
    t.lr = 0.003;
    t.steps = 5;
    set(&t, "interval", INTERVAL);
    set(&t, "damping", DAMPING);
    set(&t, "factor_interval", factor_interval);
    set(&t, "decay", 0.1);
    set(&t, "eps", 1e-6);
    set(&t, "beta1", 0.9);
    set(&t, "beta2", 0.95);
    sk_trial_groups(&t);
    return t;
}

static void in_double(const char *optim, const char *model, const char *layout)
{
    sk_trial t = trial(optim, model, layout), none = trial(optim, model, "dp=1");
    none.steps = 1;
    none.lr = 1e-30;
    none.after = see_initial;
    check(!sk_trial_run(&none));
    t.steps = STEPS;
    t.after = compare;
    if (sk_trial_run(&t)) printf("%s\n", sk_error()), check(false);
}

static void same_bits(const char *optim, const char *model, bool gpu)
{
    static const char *const layouts[] = {
        "dp=2 zero=1; canonical order",         "dp=3 zero=2; canonical order",
        "dp=2 zero=3; canonical order",         "tp=2; canonical order",
        "tp=2 dp=2 zero=3 sp; canonical order", "pp=2 micro=2 dp=2 zero=1; canonical order",
        "ep=2 dp=2 zero=1; canonical order",    "cp=2; canonical order"};
    sk_trial base = trial(optim, model, "dp=1; canonical order");
    base.gpu = gpu;
    check(!sk_trial_run(&base));
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        sk_trial t = trial(optim, model, layouts[i]);
        t.gpu = gpu;
        if (sk_trial_run(&t)) printf("%s: %s\n", layouts[i], sk_error()), check(false);
        if (t.digest != base.digest) printf("%s: %s: %s: other bits\n", optim, model, layouts[i]);
        check(t.digest == base.digest && t.elements == base.elements);
    }
}

/* A step whose gradients are no numbers is skipped: the steps around it are as without it. */
static void skipped(const char *optim, bool gpu)
{
    sk_trial good = trial(optim, "gpt2", "dp=2 zero=1"), t = good;
    t.gpu = good.gpu = gpu;
    t.poison = 2; /* the third */
    check(!sk_trial_run(&t));
    for (int s = 0; s < t.steps; s++) check(s == 2 || isfinite(t.loss[s]));
    check(isfinite(t.valid));
}

/* --- bytes --- */

static int64_t want_bytes(const sk_program *p, const char *optim)
{
    int64_t bytes = 0;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        const sk_extent *box = &p->bufs.v[q->stored].box;
        int64_t n = 1, rows = box->full[0], several = 1;
        for (int d = 0; d < box->n; d++) n *= box->full[d];
        if (strchr(q->tensor->letters, 'e') && box->n > 2) several = box->full[1];
        int64_t cols = n / rows / several, each = 0;
        if (!sk_param_matrix_update(q))
            bytes += 4 * n * (*q->optim->name == 'a' && q->optim->n_state == 1 ? 1 : 2);
        else if (!strcmp(optim, "shampoo") || !strcmp(optim, "kfac"))
            each = rows * cols + 2 * rows * rows + 2 * cols * cols;
        else if (!strcmp(optim, "soap")) each = 2 * rows * cols + 2 * rows * rows + 2 * cols * cols;
        else each = rows + cols;
        bytes += 4 * several * each;
    }
    return bytes;
}

static void closed_form(const char *optim, const char *layout)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n = 0;
    int64_t bytes = 0;
    sk_trial t = trial(optim, "gpt2", layout);
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    for (int r = 0; r < n; r++)
        for (int b = 0; b < p[r]->bufs.n; b++)
            if (p[r]->bufs.v[b].kind == SK_OPTIM && p[r]->bufs.v[b].within < 0)
                bytes += p[r]->bufs.v[b].bytes;
    for (int i = 0; i < p[0]->params.n; i++) {
        const sk_param_plan *q = &p[0]->params.v[i];
        sk_param_class c = sk_param_class_of(&g, q->tensor);
        bool every = sk_optim_find(optim)->every_matrix; /* else those inside of the model */
        if (q->tensor->role == SK_PARAM)
            check(sk_param_matrix_update(q) ==
                  (every ? c != SK_PARAM_VECTOR : c == SK_PARAM_MATRIX));
    }
    if (bytes != want_bytes(p[0], optim))
        printf("%s, %s: %lld bytes of state, not %lld\n", optim, layout, (long long)bytes,
               (long long)want_bytes(p[0], optim));
    check(bytes == want_bytes(p[0], optim));
    sk_arena_end(&a);
}

int main(void)
{
    static const char *const optims[] = {"shampoo", "soap", "adafactor", "kfac"};
    sk_fake_gpu(20);
    sk_fake_nccl();
    for (int i = 0; i < 4; i++) {
        in_double(optims[i], "gpt2", "dp=1");
        in_double(optims[i], "gpt2", "dp=1; canonical order");
        in_double(optims[i], "switch", "dp=1");
        same_bits(optims[i], "gpt2", false);
        same_bits(optims[i], "switch", false);
        same_bits(optims[i], "llama", true);
        skipped(optims[i], false);
        skipped(optims[i], true);
        closed_form(optims[i], "dp=1");
        closed_form(optims[i], "dp=3 zero=1");
    }
    for (factor_interval = 2; factor_interval < 5; factor_interval += 2) {
        in_double("kfac", "gpt2", "dp=1");
        in_double("kfac", "switch", "dp=1; canonical order");
    }
    printf("matrix_state: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
