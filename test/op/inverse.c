/* Damped inverses against their definition, y (A + d I) = I with d of the mean eigenvalue, by both
 * factorisations; matrices that are zero, rank-deficient, indefinite, tiny, not finite; the same
 * bits with 1 and many threads. */
#include "kernel/cholesky.h"
#include "lib/square_matrices.h"

static float *invert(const float *x, int64_t n, double eps, double eps_abs, bool canonical)
{
    return run((call){"inverse", 1, n, {eps, eps_abs}, canonical, 1}, x);
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
    float *x = what == TINY ? product(n, n, 1e-30) : matrix(what, n);
    for (int64_t i = 0; i < n * n; i++) /* the upper triangle is not read */
        if (i % n > i / n) x[i] = 1e30f;
    double d = what == ZERO ? 1 : eps * mean_of(x, n);
    double worst = off(x, invert(x, n, eps, 0, canonical), n, d);
    if (!(worst < 1e-6 * (double)n / eps)) printf("kind %d, %d rows: %g\n", what, (int)n, worst);
    check(worst < 1e-6 * (double)n / eps);
    sk_arena_back(&arena, mark);
}

/* What the two factorisations make differs by roundings of f32. */
static void agree(int64_t n)
{
    float *x = matrix(FULL, n);
    float *own = invert(x, n, 0.01, 0, true);
    float *fast = invert(x, n, 0.01, 0, false);
    for (int64_t i = 0; i < n * n; i++)
        check(fabs((double)(own[i] - fast[i])) <= 1e-6 * fabs((double)own[0]));
}

/* Damping is raised until there is an inverse, which is positive definite: y' x y over 0. */
static void indefinite(bool canonical)
{
    const int64_t n = 19;
    float *x = sk_many(&arena, float, n *n), *few = matrix(DEFICIENT, n);
    check(all(invert(few, n, 0, 0, canonical), n * n, false));
    for (int what = 0; what < 3; what++) {
        for (int64_t i = 0; i < n * n; i++)
            x[i] = (float)(what == 0   ? 2 * draw(i / n, i % n) - 1
                           : what == 1 ? -(i % (n + 1) == 0) /* minus the identity */
                                       : 1e38 * (i % (n + 1) != 0));
        float *y = invert(x, n, 1e-3, 0, canonical);
        check(all(y, n * n, false));
        for (int64_t i = 0; i < n; i++) check(y[i * n + i] > 0);
    }
}

static void zero(bool canonical)
{
    const int64_t n = 17;
    float *x = matrix(ZERO, n), *y = invert(x, n, 0.1, 0, canonical);
    for (int64_t i = 0; i < n * n; i++) check(y[i] == (float)(i % (n + 1) == 0));
    y = invert(x, n, 0.1, 0.25, canonical);
    check(fabs((double)y[0] - 4) < 1e-6 && y[1] == 0);
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
            not_finite((call){"inverse", .attr = {0.01}, .canonical = canonical}, k == 0 ? NAN
                                                                                  : k == 1
                                                                                      ? INFINITY
                                                                                      : -INFINITY);
    }
    threads((call){"inverse", .attr = {0.01, 33}});
    refusals();
    sk_arena_end(&arena);
    printf("inverse: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
