/* variants.c - a machine for each kind of host, and a factor for each rank. */
#include "plan/variants.h"

#include <stdio.h>
#include <string.h>

static bool is_about(const sk_unlike *u, const sk_machine *m, int rank)
{
    int at = u->ranks ? rank : rank / m->ranks_per_host;
    return at >= u->first && at <= u->last;
}

/* A factor, so that what was measured changes with the number. */
static sk_status set_number(sk_machine *m, const sk_unlike *u)
{
    bool whole;
    double now = 0;
    char text[40];
    sk_machine_number(m, u->number, &now, &whole);
    if (now > 0) return sk_machine_scale(m, u->number, u->value / now);
    snprintf(text, sizeof text, "%.17g", u->value);
    return sk_machine_set(m, u->number, text);
}

/* The machine with the numbers that bit i of `which` says of unlike[i]. */
static sk_status add_machine(sk_arena *a, const sk_machine *m, uint32_t which, sk_variants *v)
{
    sk_machine *copy = sk_push(a, &v->machines);
    *copy = *m;
    for (int i = 0; i < m->topology.n_unlike; i++)
        if (which >> i & 1) SK_TRY(set_number(copy, &m->topology.unlike[i]));
    return SK_OK;
}

static sk_status find_ranks(const sk_machine *m, int n_ranks)
{
    for (int i = 0; i < m->topology.n_unlike; i++) {
        const sk_unlike *u = &m->topology.unlike[i];
        int per = u->ranks ? 1 : m->ranks_per_host, n = n_ranks / per + (n_ranks % per != 0);
        if (u->said && u->last >= n)
            return sk_fail(SK_ECONF, "--slow: %s %d is not there; the job has %d, 0 to %d",
                           u->ranks ? "rank" : "host", u->last, n, n - 1);
    }
    return SK_OK;
}

sk_status sk_variants_make(sk_arena *a, const sk_machine *m, int n_ranks, sk_variants *out)
{
    const sk_topology *t = &m->topology;
    uint32_t known[1 + SK_MOST_UNLIKE * 2];
    *out = (sk_variants){.of = sk_many(a, int, n_ranks), .slow = sk_many(a, double, n_ranks)};
    SK_TRY(find_ranks(m, n_ranks));
    SK_TRY(add_machine(a, m, known[0] = 0, out));
    for (int r = 0; r < n_ranks; r++) {
        uint32_t which = 0;
        out->slow[r] = 1;
        for (int i = 0; i < t->n_unlike; i++) {
            if (!is_about(&t->unlike[i], m, r)) continue;
            if (*t->unlike[i].number) which |= 1U << i;
            else out->slow[r] *= t->unlike[i].value;
        }
        while (out->of[r] < out->machines.n && known[out->of[r]] != which) out->of[r]++;
        if (out->of[r] < out->machines.n) continue;
        known[out->of[r]] = which;
        SK_TRY(add_machine(a, m, which, out));
    }
    return SK_OK;
}
