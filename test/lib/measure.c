/* measure.c - see measure.h. */
#include "lib/measure.h"

#include "program/acts.h"
#include "plan/simulator.h"

/* Kept buffers of two kinds; a common one counts where it lies. */
static double stored(const sk_program *p, sk_kind kind, sk_kind other)
{
    double bytes = 0;
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        bool elsewhere = b->common && p->shares_with != p->rank;
        if (b->keep && !elsewhere && (b->kind == kind || b->kind == other))
            bytes += (double)b->bytes;
    }
    return bytes;
}

typedef struct life { /* of a buffer, in instructions */
    int first, last;
    bool forward, backward; /* written by a forward task, read by a backward one */
} life;

typedef struct lives {
    life *v;
    int pc;
    bool forward;
} lives;

static void touch(void *ctx, int *buf, unsigned how)
{
    lives *l = ctx;
    life *x = &l->v[*buf];
    if (x->first < 0) x->first = l->pc;
    x->last = l->pc;
    if (how & SK_WRITES && l->forward) x->forward = true;
    if (how & SK_READS && !l->forward) x->backward = true;
}

/* The peak of activations on the device that a forward task leaves to a backward one. */
static double saved(sk_arena *a, const sk_program *p)
{
    lives l = {.v = sk_many(a, life, p->bufs.n + 1)};
    double now = 0, peak = 0, *change = sk_many(a, double, p->n_train + 2);
    for (int i = 0; i < p->bufs.n; i++) l.v[i] = (life){.first = -1};
    for (l.pc = 0; l.pc < p->n_train; l.pc++) {
        l.forward = p->insts.v[l.pc].work == SK_WORK_F;
        sk_operands(p, &p->insts.v[l.pc], touch, &l);
    }
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        if (b->keep || b->kind != SK_ACTS || !l.v[i].forward || !l.v[i].backward) continue;
        if (b->placement != SK_DEVICE) continue;
        change[l.v[i].first] += (double)b->bytes;
        change[l.v[i].last + 1] -= (double)b->bytes;
    }
    for (int i = 0; i <= p->n_train; i++) {
        now += change[i];
        if (now > peak) peak = now;
    }
    return peak;
}

static double flops(const sk_program *p)
{
    double n = 0;
    for (int i = 0; i < p->n_train; i++) n += p->insts.v[i].flops;
    return n;
}

sk_status sk_measure(sk_arena *a, sk_program **programs, int n_ranks, double out[SK_N_LOWERS])
{
    sk_machine m;
    sk_simulation simulated;
    sk_simulate_in in = {.machine = &m, .programs = (const sk_program *const *)programs};
    for (int i = 0; i < SK_N_LOWERS; i++) out[i] = 0;
    for (int r = 0; r < n_ranks; r++) {
        const sk_program *p = programs[r];
        out[SK_LOWERS_WEIGHTS] += stored(p, SK_WEIGHTS, SK_WEIGHTS);
        out[SK_LOWERS_STATE] += stored(p, SK_GRADS, SK_OPTIM);
        out[SK_LOWERS_SAVED] += saved(a, p);
        out[SK_LOWERS_DEVICE] += (double)sk_device_bytes(p);
        if (flops(p) > out[SK_LOWERS_FLOPS]) out[SK_LOWERS_FLOPS] = flops(p);
    }
    SK_TRY(sk_machine_read(a, "h100-8", &m));
    m.overhead = m.costs.inside.alpha = m.costs.inside.each = 0;
    m.costs.between.alpha = m.costs.between.each = m.call = 0;
    SK_TRY(sk_simulate(a, &in, &simulated));
    out[SK_LOWERS_WIRE] = (double)simulated.wire;
    out[SK_LOWERS_WAITING] = (simulated.exposed + simulated.bubble + simulated.uncovered) * n_ranks;
    return SK_OK;
}
