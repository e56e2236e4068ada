/* Damped inverses against their definition, y (A + d I) = I with d of the mean eigenvalue, by both
 * factorisations; matrices that are zero, rank-deficient, indefinite, tiny, not finite; the same
 * bits with 1 and many threads. */
#include "base/rng.h"
#include "graph/graph.h"
#include "kernel/cholesky.h"
#include "lib/check.h"

static sk_arena arena;

typedef enum kind { FULL, DEFICIENT, ZERO, ONES, IDENTITY, TINY } kind;
enum { KINDS = TINY + 1 };

static double draw(int64_t i, int64_t j) { return sk_rng_uniform(5, (uint64_t)i, (uint64_t)j); }

/* B B' / n with B of n x rank: positive semi-definite.  The upper triangle is rubbish. */
static float *product(int64_t n, int64_t rank, double scale)
{
    float *x = sk_many(&arena, float, n *n);
    for (int64_t i = 0; i < n * n; i++) {
        double sum = 0;
        for (int64_t k = 0; k < rank; k++)
            sum += (2 * draw(i / n, k) - 1) * (2 * draw(i % n, k) - 1);
        x[i] = i % n > i / n ? 1e30f : (float)(scale * sum / (double)n);
    }
    return x;
}

static float *matrix(kind what, int64_t n)
{
    if (what == FULL) return product(n, 2 * n, 1);
    if (what == DEFICIENT) return product(n, n / 3 + 1, 1);
    if (what == TINY) return product(n, n, 1e-30);
    float *x = sk_many(&arena, float, n *n);
    for (int64_t i = 0; i < n * n; i++)
        x[i] = what == ONES || (what == IDENTITY && i % (n + 1) == 0);
    return x;
}

static double at(const float *x, int64_t n, int64_t i, int64_t j) /* of the lower triangle */
{
    return (double)(i >= j ? x[i * n + j] : x[j * n + i]);
}

static void view(sk_view *v, void *data, int64_t batch, int64_t n, bool canonical)
{
    *v = (sk_view){.data = data, .type = SK_F32, .n = 3, .size = {batch, n, n}};
    memcpy(v->full, v->size, sizeof v->full);
    for (int d = 0; d < 3; d++) v->cells[d] = canonical;
    sk_view_dense(v);
}

typedef struct call {
    int64_t batch, n;
    double attr[2];
    bool canonical;
    int threads;
} call;

static float *run(call c, const float *x)
{
    float *y = sk_many(&arena, float, c.batch *c.n *c.n + 1);
    const sk_op *op = sk_op_find("inverse");
    sk_args a = {.n_in = 1, .n_out = 1, .dims = "em!n!->emn", .of = c.threads};
    memcpy(a.attr, c.attr, sizeof c.attr);
    memset(y, 0xff, (size_t)(c.batch * c.n * c.n) * sizeof *y);
    view(&a.in[0], (void *)(uintptr_t)x, c.batch, c.n, c.canonical);
    view(&a.out[0], y, c.batch, c.n, c.canonical);
    a.scratch = sk_alloc(&arena, sk_op_scratch(op, &a));
    for (a.part = 0; a.part < a.of; a.part++) sk_op_run_cpu(op, &a);
    return y;
}

/* |y (A + d I) - I|, and is y symmetric? */
static double off(const float *x, const float *y, int64_t n, double d)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = -(double)(i == j) + d * (double)y[i * n + j];
            for (int64_t k = 0; k < n; k++) sum += (double)y[i * n + k] * at(x, n, k, j);
            most = fmax(most, fabs(sum));
            check(!memcmp(&y[i * n + j], &y[j * n + i], sizeof *y));
        }
    return most;
}

static double mean_of(const float *x, int64_t n)
{
    double trace = 0;
    for (int64_t i = 0; i < n; i++) trace += (double)x[i * n + i];
    return trace / (double)n;
}

static void inverses(kind what, int64_t n, double eps, bool canonical)
{
    sk_mark mark = sk_arena_mark(&arena);
    float *x = matrix(what, n);
    double d = what == ZERO ? 1 : eps * mean_of(x, n);
    double worst = off(x, run((call){1, n, {eps}, canonical, 1}, x), n, d);
    if (!(worst < 1e-6 * (double)n / eps)) printf("kind %d, %d rows: %g\n", what, (int)n, worst);
    check(worst < 1e-6 * (double)n / eps);
    sk_arena_back(&arena, mark);
}

/* What the two factorisations make differs by roundings of f32. */
static void agree(int64_t n)
{
    float *x = matrix(FULL, n);
    float *own = run((call){1, n, {0.01}, true, 1}, x);
    float *fast = run((call){1, n, {0.01}, false, 1}, x);
    for (int64_t i = 0; i < n * n; i++)
        check(fabs((double)(own[i] - fast[i])) <= 1e-6 * fabs((double)own[0]));
}

static bool all(const float *x, int64_t n, bool nan)
{
    for (int64_t i = 0; i < n; i++)
        if (nan ? !isnan(x[i]) : !isfinite(x[i])) return false;
    return true;
}

/* Damping is raised until there is an inverse, which is positive definite: y' x y over 0. */
static void indefinite(bool canonical)
{
    const int64_t n = 19;
    float *x = sk_many(&arena, float, n *n), *few = matrix(DEFICIENT, n);
    check(all(run((call){1, n, {0}, canonical, 1}, few), n * n, false));
    for (int what = 0; what < 3; what++) {
        for (int64_t i = 0; i < n * n; i++)
            x[i] = (float)(what == 0   ? 2 * draw(i / n, i % n) - 1
                           : what == 1 ? -(i % (n + 1) == 0) /* minus the identity */
                                       : 1e38 * (i % (n + 1) != 0));
        float *y = run((call){1, n, {1e-3}, canonical, 1}, x);
        check(all(y, n * n, false));
        for (int64_t i = 0; i < n; i++) check(y[i * n + i] > 0);
    }
}

static void zero(bool canonical)
{
    const int64_t n = 17;
    float *x = matrix(ZERO, n), *y = run((call){1, n, {0.1}, canonical, 1}, x);
    for (int64_t i = 0; i < n * n; i++) check(y[i] == (float)(i % (n + 1) == 0));
    y = run((call){1, n, {0.1, 0.25}, canonical, 1}, x);
    check(fabs((double)y[0] - 4) < 1e-6 && y[1] == 0);
}

/* A bad matrix spoils its own result and no other. */
static void not_finite(float what, bool canonical)
{
    enum { N = 9 };
    float *x = sk_many(&arena, float, 3 * N * N);
    for (int k = 0; k < 3; k++) memcpy(x + k * N * N, matrix(FULL, N), N * N * sizeof *x);
    x[N * N + 5 * N + 2] = what;
    float *y = run((call){3, N, {0.01}, canonical, 2}, x);
    check(all(y, N * N, false) && all(y + N * N, N * N, true) && all(y + 2 * N * N, N * N, false));
}

static void threads(void)
{
    enum { N = 33, BATCH = 7 };
    size_t bytes = sizeof(float) * N * N * BATCH;
    float *x = sk_many(&arena, float, N *N *BATCH);
    for (int64_t i = 0; i < N * N * BATCH; i++) x[i] = (float)draw(99, i);
    float *one = run((call){BATCH, N, {0.01, N}, true, 1}, x);
    for (int n = 2; n <= 9; n++)
        check(!memcmp(one, run((call){BATCH, N, {0.01, N}, true, n}, x), bytes));
}

static void refusals(void)
{
    sk_graph g;
    sk_graph_init(&g, &arena);
    sk_graph_size(&g, 'm', 3);
    sk_graph_size(&g, 'n', 3);
    sk_apply(&g, "inverse", .in = {sk_input(&g, "x", "mn", SK_F32)}, .dims = "m!n!->mn",
             .attr = {-1});
    fails(sk_graph_status(&g), SK_ECONF, "eps is -1");
}

int main(void)
{
    static const int64_t sizes[] = {1, 2, 3, 64, 151};
    for (int k = 0; k < 5; k++)
        for (int what = 0; what < KINDS; what++)
            for (int canonical = 0; canonical < 2; canonical++) {
                inverses((kind)what, sizes[k], 0.1, canonical);
                inverses((kind)what, sizes[k], 1e-3, canonical);
            }
    agree(120);
    for (int canonical = 0; canonical < 2; canonical++) {
        indefinite(canonical);
        zero(canonical);
        for (int k = 0; k < 3; k++)
            not_finite(k == 0 ? NAN : k == 1 ? INFINITY : -INFINITY, canonical);
    }
    threads();
    refusals();
    sk_arena_end(&arena);
    printf("inverse: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
