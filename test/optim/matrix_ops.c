/* matrix_ops.c - optimizers that see whole matrices.
 *
 * Muon: after 20 steps the weights are those of a reference in double, which takes the gradient of
 * each step from the momentum that the step left.  On other layouts the bits are those of one rank
 * in canonical order, also on a GPU.  Bytes: distributed to owners, matrices of 64 ranks cost at
 * most a third of what it costs to gather them. */
#include "lib/check.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"
#include "lib/ranks.h"

#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PARAMS = 64, STEPS = 20 };

typedef struct history { /* of one parameter, in double */
    double *w, *m;
} history;
static history past[PARAMS];

static double *wide_copy(const sk_run *run, const sk_program *p, int buf)
{
    int64_t n = p->bufs.v[buf].bytes / (int64_t)sizeof(real);
    double *x = malloc((size_t)n * sizeof *x + 1);
    for (int64_t i = 0; i < n; i++) x[i] = (double)((const real *)sk_run_data(run, buf))[i];
    return x;
}

/* --- the reference --- */

/* z[m][n] = x[m][k] y[k][n] */
static void product(const double *x, const double *y, double *z, int64_t m, int64_t k, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            z[i * n + j] = 0;
            for (int64_t l = 0; l < k; l++) z[i * n + j] += x[i * k + l] * y[l * n + j];
        }
}

static void transpose(const double *x, double *y, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) y[j * m + i] = x[i * n + j];
}

/* Five steps of a (x) + b (x x') x + c (x x')^2 x; always on rows. */
static void newton_schulz(double *x, int64_t m, int64_t n)
{
    double norm = 0, *g = malloc((size_t)(m * m) * 8), *gg = malloc((size_t)(m * m) * 8);
    double *t = malloc((size_t)(m * n) * 8), *y = malloc((size_t)(m * n) * 8);
    for (int64_t i = 0; i < m * n; i++) norm += x[i] * x[i];
    for (int64_t i = 0; i < m * n; i++) x[i] /= sqrt(norm) + 1e-7;
    for (int k = 0; k < 5; k++) {
        transpose(x, t, m, n);
        product(x, t, g, m, n, m);
        product(g, g, gg, m, m, m);
        for (int64_t i = 0; i < m * m; i++) g[i] = -4.7750 * g[i] + 2.0315 * gg[i];
        product(g, x, y, m, m, n);
        for (int64_t i = 0; i < m * n; i++) x[i] = 3.4445 * x[i] + y[i];
    }
    free(g), free(gg), free(t), free(y);
}

/* The matrix number e of u[rows][experts][cols], made orthogonal and scaled. */
static void one_matrix(double *u, int64_t rows, int64_t experts, int64_t cols, int64_t e)
{
    double *x = malloc((size_t)(rows * cols) * 8),
           scale = 0.2 * sqrt((double)(rows > cols ? rows : cols));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) x[i * cols + j] = u[(i * experts + e) * cols + j];
    newton_schulz(x, rows, cols);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            u[(i * experts + e) * cols + j] = scale * x[i * cols + j];
    free(x);
}

static void reference(const sk_param_plan *q, const sk_extent *box, history *h, const double *m)
{
    bool bank = strchr(q->tensor->letters, 'e') != NULL;
    int64_t rows = box->size[0], experts = bank ? box->size[1] : 1, n = 1;
    for (int d = 0; d < box->n; d++) n *= box->size[d];
    double *u = malloc((size_t)n * sizeof *u), lr = 0.02, decay = 0.1;
    for (int64_t i = 0; i < n; i++) u[i] = (m[i] - 0.95 * h->m[i]) + 0.95 * m[i];
    for (int64_t e = 0; e < experts; e++) one_matrix(u, rows, experts, n / rows / experts, e);
    for (int64_t i = 0; i < n; i++) h->w[i] = (1 - lr * decay) * h->w[i] - lr * u[i];
    free(u);
}

static void compare(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        if (!sk_param_matrix_update(q)) continue;
        const sk_extent *box = &p->bufs.v[q->shard].box;
        double *m = wide_copy(run, p, q->state[0]), *w = wide_copy(run, p, q->shard), worst = 0;
        int64_t n = p->bufs.v[q->shard].bytes / (int64_t)sizeof(real);
        if (!step) past[i].w = w; /* the first step is taken as it is */
        else {
            reference(q, box, &past[i], m);
            for (int64_t k = 0; k < n; k++) worst = fmax(worst, fabs(w[k] - past[i].w[k]));
            if (step == t->steps - 1 && worst > 1e-5)
                printf("%s: '%s' is off by %g\n", t->model->name, q->tensor->name, worst);
            if (step == t->steps - 1) check(worst <= 1e-5);
            free(w);
            free(past[i].m);
        }
        past[i].m = m;
        if (step < t->steps - 1) continue;
        free(past[i].w);
        free(past[i].m);
    }
}

static sk_trial trial(const char *model, const char *layout)
{
    sk_trial t = sk_trial_small(model, layout);
    t.hyper.num_hidden_layers = 2;
    t.optim = "muon";
    t.lr = 0.02;
    t.steps = 4;
    sk_trial_groups(&t);
    return t;
}

static void in_double(const char *model)
{
    sk_trial t = trial(model, "dp=1");
    t.steps = STEPS + 1;
    t.after = compare;
    check(!sk_trial_run(&t));
}

/* --- layouts --- */

static void same_bits(const char *model, bool gpu)
{
    static const char *const layouts[] = {
        "dp=2 zero=1; canonical order",         "dp=3 zero=2; canonical order",
        "dp=2 zero=3; canonical order",         "tp=2; canonical order",
        "tp=2 dp=2 zero=3 sp; canonical order", "pp=2 micro=2 dp=2 zero=1; canonical order",
        "ep=2 dp=2 zero=1; canonical order",    "cp=2; canonical order"};
    sk_trial one = trial(model, "dp=1; canonical order");
    one.gpu = gpu;
    check(!sk_trial_run(&one));
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        sk_trial t = trial(model, layouts[i]);
        t.gpu = gpu;
        check(!sk_trial_run(&t));
        if (t.digest != one.digest) printf("%s: %s: other bits\n", model, layouts[i]);
        check(t.digest == one.digest);
    }
}

/* --- bytes --- */

static void dealt_bytes(void)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n = 0;
    double distributed = 0, gathered = 0;
    sk_trial t = trial("gpt2", "dp=64 zero=1");
    t.batch = 64;
    t.hyper.num_hidden_layers = 12;
    t.hyper.hidden_size = 128;
    t.hyper.intermediate_size = 512;
    check(!sk_trial_compile(&a, &t, &g, &p, &n) && n == 64);
    for (int r = 0; r < n; r++)
        for (int pc = 0; pc < p[r]->n_train; pc++) {
            const sk_inst *in = &p[r]->insts.v[pc];
            if (in->call >= 0 && p[r]->calls.v[in->call].kind == SK_ALLTOALL)
                distributed += (double)in->wire;
        }
    for (int i = 0; i < p[0]->params.n; i++) {
        double size = 4;
        const sk_param_plan *q = &p[0]->params.v[i];
        for (int d = 0; d < p[0]->bufs.v[q->stored].box.n; d++)
            size *= (double)p[0]->bufs.v[q->stored].box.full[d];
        if (sk_param_matrix_update(q)) gathered += size * (n - 1); /* each shard to all others */
    }
    printf("64 ranks, zero=1: %.0f bytes to owners and back, %.0f to gather: %.3f\n", distributed,
           gathered, distributed / gathered);
    check(distributed > 0 && distributed <= gathered / 3);
    sk_arena_end(&a);
}

/* --- mistakes of an author: told with the name of the optimizer --- */

static int unknown_op(sk_matrix *w) { return sk_matrix_op(w, "no_such_op", "rc->rc", .in = {0}); }
static int other_sizes(sk_matrix *w) { return sk_matrix_op(w, "unit", "r->r", .in = {0}); }
static int no_op(sk_matrix *w) { return w->rows ? 0 : 0; }

static void tells(int (*matrix)(sk_matrix *w), const char *words)
{
    int pipes[2];
    char said[512] = "";
    sk_optim wrong = *sk_optim_find("muon");
    wrong.name = "mine";
    wrong.matrix = matrix;
    sk_trial t = sk_trial_small("gpt2", "dp=1");
    t.optim = "adamw";
    t.matrix = "muon";
    sk_trial_groups(&t);
    t.groups[0].optim = &wrong;
    fflush(stdout);
    if (pipe(pipes)) return;
    pid_t pid = fork();
    if (!pid) {
        dup2(pipes[1], STDERR_FILENO);
        _exit(sk_trial_run(&t) == SK_OK);
    }
    close(pipes[1]);
    for (ssize_t n, at = 0; (n = read(pipes[0], said + at, sizeof said - 1 - (size_t)at)) > 0;)
        at += n;
    close(pipes[0]);
    waitpid(pid, NULL, 0);
    check(strstr(said, "bug at .matrix of the optimizer mine: that ") && strstr(said, words));
}

int main(void)
{
    sk_fake_gpu(20);
    sk_fake_nccl();
    in_double("gpt2");
    in_double("llama");
    in_double("switch");
    same_bits("gpt2", false);
    same_bits("switch", false);
    same_bits("llama", true);
    dealt_bytes();
    tells(unknown_op, "\"no_such_op\" is an op (skein list op) does not hold");
    tells(other_sizes, "operands have the sizes that \"r->r\" says");
    tells(no_op, "the result is made by an op");
    printf("whole: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
