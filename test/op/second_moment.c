/* Ops of optimizers that keep second moments, against plain formulas in double: averages over many
 * updates against Adam's and Adafactor's, means of squares in every form, the ratio's zeros,
 * clipped matrices, and a factored second moment against the product of its factors. */
#include "base/rng.h"
#include "graph/graph.h"
#include "lib/check.h"

#include <math.h>

enum { E = 3, M = 5, N = 19, ALL = E * M * N };

static float x[ALL], y[ALL], z[ALL];

static double draw(uint64_t stream, int64_t i) { return sk_rng_uniform(5, stream, (uint64_t)i); }
static bool near(double a, double b) { return fabs(a - b) <= 2e-6 * (1e-30 + fabs(b)); }

static int64_t size_of(char letter) { return letter == 'e' ? E : letter == 'm' ? M : N; }

static sk_view view(float *data, const char *letters)
{
    sk_view v = {.data = data, .type = SK_F32, .n = (int)strlen(letters)};
    for (int d = 0; d < v.n; d++) v.size[d] = v.full[d] = size_of(letters[d]);
    sk_view_dense(&v);
    return v;
}

static void run(const char *op, sk_args a)
{
    a.of = 2;
    for (a.part = 0; a.part < 2; a.part++) sk_op_run_cpu(sk_op_find(op), &a);
}

static float ema(float old, float fresh, double beta, int mode, double first, int64_t updates)
{
    float out = -1;
    sk_args a = {.n_in = 2, .n_out = 1, .dims = ",->", .attr = {beta, mode, first}};
    a.in[0] = view(&old, ""), a.in[1] = view(&fresh, ""), a.out[0] = view(&out, "");
    a.updates = updates;
    run("ema", a);
    return out;
}

/* What Adam divides by 1 - beta^t; what Adafactor lerps by t^-beta; Adagrad's sum; all begun late.
 */
static void averages(void)
{
    float plain = 0, unbiased = 7, falling = 7, sum = 0, mean = 7;
    double adam = 0, factor = 0, total = 0, beta = 0.95;
    for (int t = 1; t <= 30; t++) {
        float g = (float)draw(1, t);
        adam = beta * adam + (1 - beta) * (double)g;
        factor += pow(t, -0.8) * ((double)g - factor);
        total += (double)g;
        plain = ema(plain, g, beta, 0, 2, t + 1);
        unbiased = ema(unbiased, g, beta, 1, 2, t + 1);
        falling = ema(falling, g, 0.8, 2, 2, t + 1);
        sum = ema(sum, g, 0, 3, 2, t + 1);
        mean = ema(mean, g, 1, 1, 2, t + 1);
        check(near((double)plain, adam));
        check(near((double)unbiased, adam / (1 - pow(beta, t))));
        check(near((double)falling, factor));
        check(near((double)sum, total));
        check(near((double)mean, total / t));
    }
    for (int mode = 0; mode < 4; mode++) check(ema(3, NAN, beta, mode, 2, 1) == 3);
    check(ema(NAN, 3, beta, 1, 2, 2) == 3);
}

static double mean_square(const char *in, const char *out, int64_t o)
{
    double sum = 0;
    int64_t at[128] = {0}, n = 0;
    for (int d = (int)strlen(out) - 1; d >= 0; d--) {
        at[(int)out[d]] = o % size_of(out[d]);
        o /= size_of(out[d]);
    }
    for (int64_t i = 0; i < ALL; i++) {
        int64_t rest = i;
        bool mine = true;
        for (int d = (int)strlen(in) - 1; d >= 0; d--) {
            if (strchr(out, in[d]) && rest % size_of(in[d]) != at[(int)in[d]]) mine = false;
            rest /= size_of(in[d]);
        }
        if (rest || !mine) continue; /* an operand of two letters is shorter */
        sum += (double)x[i] * (double)x[i];
        n++;
    }
    return sum / (double)n;
}

static void means(void)
{
    static const char *const dims[][3] = {
        {"m!n!->m", "mn", "m"},     {"m!n!->n", "mn", "n"},     {"m!n!->", "mn", ""},
        {"em!n!->em", "emn", "em"}, {"em!n!->en", "emn", "en"}, {"em!n!->e", "emn", "e"},
        {"m!en!->em", "men", "em"}, {"m!en!->en", "men", "en"}, {"m!en!->e", "men", "e"},
        {"e!m!n!->", "emn", ""},    {"mn->nm", "mn", "nm"},
    };
    for (size_t k = 0; k < sizeof dims / sizeof *dims; k++) {
        sk_args a = {.n_in = 1, .n_out = 1, .dims = dims[k][0]};
        a.in[0] = view(x, dims[k][1]), a.out[0] = view(y, dims[k][2]);
        run("mean_square", a);
        for (int64_t o = 0; o < sk_count(&a.out[0]); o++)
            check(near((double)y[o], mean_square(dims[k][1], dims[k][2], o)));
    }
}

static float ratio(float a, float b, double eps, double largest)
{
    float out = -1;
    sk_args g = {.n_in = 2, .n_out = 1, .dims = ",->", .attr = {eps, largest}};
    g.in[0] = view(&a, ""), g.in[1] = view(&b, ""), g.out[0] = view(&out, "");
    run("ratio", g);
    return out;
}

static void ratios(void)
{
    check(near((double)ratio(3, 4, 0.5, 0), 1.2));
    check(near((double)ratio(3, 4, 0.5, 1), 1.5));
    check(near((double)ratio(3, 4, 6, 1), 0.5));
    check(near((double)ratio(3, -1e-9f, 6, 0), 0.5));
    check(ratio(0, 0, 0, 1) == 0);
    check(isnan(ratio(NAN, 0, 1, 1)) && isnan(ratio(1, NAN, 1, 1)) && isnan(ratio(1, NAN, 1, 0)));
}

static void clips(const char *dims, const char *letters, double d)
{
    sk_args a = {.n_in = 1, .n_out = 1, .dims = dims, .attr = {d}};
    a.in[0] = view(x, letters), a.out[0] = view(y, letters);
    run("rms_clip", a);
    for (int64_t e = 0; e < E; e++) {
        double sum = 0;
        for (int64_t i = 0; i < ALL; i++) {
            int64_t of = letters[0] == 'e' ? i / (M * N) : i / N % E;
            if (of == e) sum += (double)x[i] * (double)x[i];
        }
        double by = fmax(1, sqrt(sum / (M * N)) / d);
        for (int64_t i = 0; i < ALL; i++) {
            int64_t of = letters[0] == 'e' ? i / (M * N) : i / N % E;
            if (of == e) check(near((double)y[i], (double)x[i] / by));
        }
    }
}

/* The formula of torch.optim.Adafactor; the last rows and columns have nothing. */
static void factored(const char *dims, const char *letters, double eps)
{
    float row[E * M], col[E * N];
    for (int64_t i = 0; i < E * M; i++) row[i] = i % M == M - 1 ? 0 : (float)draw(2, i);
    for (int64_t i = 0; i < E * N; i++) col[i] = i % N == N - 1 ? 0 : (float)draw(3, i);
    sk_args a = {.n_in = 3, .n_out = 1, .dims = dims, .attr = {eps}};
    a.in[0] = view(x, letters), a.in[1] = view(row, "em"), a.in[2] = view(col, "en");
    a.out[0] = view(z, letters);
    run("factored", a);
    for (int64_t i = 0; i < ALL; i++) {
        bool first = letters[0] == 'e';
        int64_t e = first ? i / (M * N) : i / N % E, m = first ? i / N % M : i / (N * E);
        double mean = 0;
        for (int64_t k = 0; k < M; k++) mean += (double)row[e * M + k] / M;
        double v = (double)row[e * M + m] * (double)col[e * N + i % N] / fmax(mean, eps);
        check(near((double)z[i], (double)x[i] / sqrt(fmax(v, eps * eps))));
    }
}

int main(void)
{
    for (int64_t i = 0; i < ALL; i++) x[i] = (float)(2 * draw(4, i) - 1);
    averages();
    means();
    ratios();
    clips("em!n!->emn", "emn", 0.57);
    clips("m!en!->men", "men", 0.57);
    factored("em!n,em!,en->emn", "emn", 1e-7);
    factored("m!en,em!,en->men", "men", 1e-7);
    factored("em!n,em!,en->emn", "emn", 0.7);
    printf("second_moment: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
