/* Eigenvectors and inverse roots against their definitions, by both solvers: residual,
 * orthogonality, order and sign; inv_root^p (A + d I) = I; matrices that are zero, rank-deficient,
 * diagonal, all of one number, tiny, huge, not finite; the same bits with 1 and 4 threads. */
#include "kernel/eigen.h"
#include "lib/square_matrices.h"

static double norm_of(const float *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n * n; i++) most = fmax(most, fabs((double)x[i]));
    return most * (double)n;
}

/* --- the solvers --- */

static double residual(const float *x, const sk_eigen *v, int64_t k)
{
    double most = 0;
    for (int64_t i = 0; i < v->n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < v->n; j++) sum += at(x, v->n, i, j) * v->vector[k * v->n + j];
        most = fmax(most, fabs(sum - v->value[k] * v->vector[k * v->n + i]));
    }
    return most;
}

static double skew(const sk_eigen *v, int64_t k) /* from orthonormal */
{
    double most = 0;
    for (int64_t l = 0; l <= k; l++) {
        double sum = 0;
        for (int64_t i = 0; i < v->n; i++) sum += v->vector[k * v->n + i] * v->vector[l * v->n + i];
        most = fmax(most, fabs(sum - (l == k)));
    }
    return most;
}

static bool sign_is_fixed(const double *row, int64_t n)
{
    double most = 0;
    int64_t i = 0;
    for (int64_t k = 0; k < n; k++) most = fmax(most, fabs(row[k]));
    while (fabs(row[i]) < (1 - 1e-5) * most) i++;
    return row[i] > 0;
}

static void judge(const float *x, const sk_eigen *v)
{
    double norm = norm_of(x, v->n), off = 0, turned = 0;
    bool ascending = true, signs = true;
    for (int64_t k = 0; k < v->n; k++) {
        off = fmax(off, residual(x, v, k));
        turned = fmax(turned, skew(v, k));
        if (k && v->value[k] < v->value[k - 1]) ascending = false;
        if (!sign_is_fixed(v->vector + k * v->n, v->n)) signs = false;
    }
    check(off <= 1e-13 * norm);
    check(turned <= 1e-12);
    check(ascending && signs);
}

static sk_eigen solve(const float *x, int64_t n, bool own)
{
    sk_eigen v;
    check(sk_eigen_of(x, n, own, sk_alloc(&arena, sk_eigen_scratch(n)), &v));
    return v;
}

static void solvers(kind what, int64_t n)
{
    sk_mark mark = sk_arena_mark(&arena);
    float *x = matrix(what, n);
    sk_eigen own = solve(x, n, true), fast = solve(x, n, false);
    double differ = 0;
    judge(x, &own);
    judge(x, &fast);
    for (int64_t k = 0; k < n; k++) differ = fmax(differ, fabs(own.value[k] - fast.value[k]));
    check(differ <= 1e-13 * norm_of(x, n));
    sk_arena_back(&arena, mark);
}

/* --- the ops --- */

/* |y^p (A + d I) - I|: y has f32's rounding, so the more the larger its powers are. */
static double off_root(const float *x, const float *y, int64_t n, int p, double d)
{
    double *power = sk_many(&arena, double, n *n), *next = sk_many(&arena, double, n *n);
    double most = 0;
    for (int64_t i = 0; i < n * n; i++)
        power[i] = at(x, n, i / n, i % n) + (i / n == i % n ? d : 0);
    for (int k = 0; k < p; k++) {
        memset(next, 0, (size_t)(n * n) * sizeof *next);
        for (int64_t i = 0; i < n; i++)
            for (int64_t l = 0; l < n; l++)
                for (int64_t j = 0; j < n; j++)
                    next[i * n + j] += (double)y[i * n + l] * power[l * n + j];
        memcpy(power, next, (size_t)(n * n) * sizeof *next);
    }
    for (int64_t i = 0; i < n * n; i++) most = fmax(most, fabs(power[i] - (i / n == i % n)));
    return most;
}

static void roots(kind what, int64_t n, int p, bool canonical)
{
    sk_mark mark = sk_arena_mark(&arena);
    double attr[3] = {p, 0.01, 0.001};
    float *x = matrix(what, n);
    double top = solve(x, n, true).value[n - 1], d = attr[1] * fmax(top, 0x1p-126) + attr[2];
    float *y = run((call){"inv_root", 1, n, {p, attr[1], attr[2]}, canonical, 1}, x);
    check(off_root(x, y, n, p, d) < 1e-4);
    sk_arena_back(&arena, mark);
}

/* Zero without any eps is the identity; a relative eps alone keeps singular matrices finite. */
static void singular(bool canonical)
{
    const int64_t n = 17;
    float *zero = matrix(ZERO, n), *few = matrix(DEFICIENT, n);
    for (int p = 1; p <= 4; p *= 2) {
        float *one = run((call){"inv_root", 1, n, {p}, canonical, 1}, zero);
        check(!memcmp(one, matrix(IDENTITY, n), (size_t)(n * n) * sizeof *one));
        one = run((call){"inv_root", 1, n, {p, 1e-6}, canonical, 1}, zero);
        check(!memcmp(one, matrix(IDENTITY, n), (size_t)(n * n) * sizeof *one));
        one = run((call){"inv_root", 1, n, {p, 0, 0.25}, canonical, 1}, zero);
        check(fabs((double)one[0] - pow(0.25, -1.0 / p)) < 1e-6);
        check(all(run((call){"inv_root", 1, n, {p, 1e-6}, canonical, 1}, few), n * n, false));
        check(all(run((call){"inv_root", 1, n, {p}, canonical, 1}, few), n * n, false));
    }
    check(all(run((call){"inv_root", 1, n, {0.25}, canonical, 1}, few), n * n, false));
}

/* Columns are eigenvectors; only the lower triangle is read. */
static void columns(void)
{
    const float x[4] = {2, 7, 1, 2}; /* eigenvalues 1 and 3 */
    const double r = sqrt(0.5), want[4] = {r, r, -r, r};
    for (int canonical = 0; canonical < 2; canonical++) {
        float *y = run((call){"eigvec", 1, 2, {0}, canonical, 1}, x);
        for (int i = 0; i < 4; i++) check(fabs((double)y[i] - want[i]) < 1e-6);
    }
}

static void refusals(void)
{
    sk_graph g;
    sk_graph_init(&g, &arena);
    sk_graph_size(&g, 'm', 3);
    sk_graph_size(&g, 'n', 4);
    sk_apply(&g, "eigvec", .in = {sk_input(&g, "x", "mn", SK_F32)}, .dims = "m!n!->mn");
    fails(sk_graph_status(&g), SK_ECONF, "3 rows and 4 columns");
    sk_graph_init(&g, &arena);
    sk_graph_size(&g, 'm', 3);
    sk_graph_size(&g, 'n', 3);
    sk_apply(&g, "inv_root", .in = {sk_input(&g, "x", "mn", SK_F32)}, .dims = "mn->mn",
             .attr = {2});
    fails(sk_graph_status(&g), SK_ECONF, "'!' is needed");
    sk_graph_init(&g, &arena);
    sk_graph_size(&g, 'm', 3);
    sk_graph_size(&g, 'n', 3);
    sk_apply(&g, "inv_root", .in = {sk_input(&g, "x", "mn", SK_F32)}, .dims = "m!n!->mn");
    fails(sk_graph_status(&g), SK_ECONF, "p is 0");
}

int main(void)
{
    static const int64_t sizes[] = {1, 2, 3, 64, 257};
    for (int k = 0; k < 5; k++)
        for (int what = 0; what < KINDS; what++) solvers((kind)what, sizes[k]);
    for (int k = 0; k < 4; k++)
        for (int p = 1; p <= 4; p *= 2)
            for (int what = FULL; what <= IDENTITY; what++)
                roots((kind)what, sizes[k], p, what % 2);
    for (int canonical = 0; canonical < 2; canonical++) {
        singular(canonical);
        for (int k = 0; k < 2; k++) {
            not_finite((call){.op = "eigvec", .canonical = canonical}, k ? NAN : INFINITY);
            not_finite((call){"inv_root", .attr = {2, 0.01}, .canonical = canonical},
                       k ? NAN : -INFINITY);
        }
    }
    threads((call){.op = "eigvec"});
    threads((call){"inv_root", .attr = {4, 0.01}});
    columns();
    refusals();
    sk_arena_end(&arena);
    printf("eigen: %d checks, %d bad, LAPACK %s\n", checks, bad,
           sk_eigen_lapack() ? "is there" : "is missing");
    return bad != 0;
}
