/* step_jitter.c - factors of ranks, and what many steps with them come to. */
#include "plan/step_jitter.h"
#include "base/rng.h"
#include "plan/sim_state.h"

#include <math.h>
#include <stdlib.h>

static double above(double z) { return 0.5 * erfc(z / sqrt(2)); }

/* The part of ranks whose factor is more than exp(sigma z). */
static double slower(const sk_jitter *j, double z)
{
    double tail = j->tail > 0 ? j->tail * above(z - log(j->factor) / j->sigma) : 0;
    return (1 - j->tail) * above(z) + tail;
}

double sk_jitter_slowest(const sk_jitter *j, uint64_t seed, int64_t step, int rank, int n)
{
    const int halvings = 60;
    double u = sk_rng_uniform(seed, (uint64_t)step + 1, (uint64_t)rank) + 0x1p-54;
    double part = -expm1(log(u) / n), low = -40, high = 40;
    if (j->sigma <= 0) return part < j->tail ? j->factor : 1;
    if (j->tail > 0) high += fmax(log(j->factor) / j->sigma, 0);
    for (int i = 0; i < halvings; i++) {
        double z = (low + high) / 2;
        *(slower(j, z) > part ? &low : &high) = z;
    }
    return exp(j->sigma * (low + high) / 2);
}

static int by_size(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* The least value that `part` of them do not exceed. */
static double quantile(const double *sorted, int n, double part)
{
    int i = (int)ceil(part * n) - 1;
    return sorted[i < 0 ? 0 : i];
}

static sk_status one_step(sk_sim *k, uint64_t seed, int64_t step, double *factors)
{
    const sk_jitter *j = &k->m->topology.jitter;
    int *first = sk_many(k->arena, int, k->n), *ranks = sk_many(k->arena, int, k->n);
    for (int r = k->n_ranks - 1; r >= 0; r--) ranks[k->at[r]]++, first[k->at[r]] = r;
    for (int i = 0; i < k->n; i++)
        factors[i] = sk_jitter_slowest(j, seed, step, first[i], ranks[i]);
    return sk_sim_step(k);
}

sk_status sk_jitter_steps(sk_arena *a, const sk_simulate_in *in, uint64_t seed,
                          sk_jitter_result *out)
{
    int n = in->machine->topology.jitter.draws;
    double *seconds = sk_many(a, double, n), *factors;
    sk_simulate_in untraced = *in;
    sk_simulation result;
    sk_arena tmp = {0};
    sk_status st = SK_OK;
    sk_sim k;
    untraced.trace = false;
    SK_TRY(sk_sim_place(a, &untraced, &result, &k));
    k.arena = &tmp;
    k.factors = factors = sk_many(a, double, k.n);
    for (int i = 0; i < n && !st; i++) {
        sk_mark mark = sk_arena_mark(&tmp);
        st = one_step(&k, seed, i, factors);
        seconds[i] = result.seconds;
        sk_arena_back(&tmp, mark);
    }
    sk_arena_end(&tmp);
    if (st) return sk_trail(st, SK_HERE);
    qsort(seconds, (size_t)n, sizeof *seconds, by_size);
    *out = (sk_jitter_result){.median = quantile(seconds, n, 0.5),
                              .p99 = quantile(seconds, n, 0.99),
                              .worst = seconds[n - 1]};
    return SK_OK;
}
