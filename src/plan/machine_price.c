/* machine_price.c - what work, copies, messages and collectives cost on a machine. */
#include "plan/machine.h"

#include <limits.h>
#include <math.h>

double sk_machine_peak(const sk_machine *m, int ranks, int threads)
{
    double one = m->peak > 0 ? m->peak : m->flops;
    return one * ranks * (m->per_thread ? threads : 1);
}

double sk_machine_work(const sk_machine *m, double flops, int64_t bytes, int threads)
{
    if (m->unit) return 0;
    double rate = m->per_thread ? m->flops * threads : m->flops;
    return fmax(flops / rate, (double)bytes / m->memory_rate) + m->overhead;
}

double sk_machine_copy(const sk_machine *m, int64_t bytes, bool file)
{
    double rate = m->copy_rate > 0 ? m->copy_rate : m->memory_rate / 2;
    if (file) rate = m->file_rate > 0 ? m->file_rate : 1e9;
    return m->unit ? 0 : (double)bytes / rate;
}

double sk_machine_host(const sk_machine *m, int64_t bytes)
{
    if (m->unit) return 0;
    return (double)bytes / (m->host_rate > 0 ? m->host_rate : m->memory_rate) + m->overhead;
}

double sk_machine_send(const sk_machine *m, int64_t bytes, bool one_host)
{
    const sk_link *l = one_host ? &m->costs.inside : &m->costs.between;
    return (m->unit ? 0 : m->call) + l->alpha + (double)bytes * l->beta;
}

static double ring(const sk_machine *m, double bytes, sk_reach r)
{
    double beta =
        r.hosts > 1 ? fmax(m->costs.inside.beta, m->costs.between.beta) : m->costs.inside.beta;
    int hops = r.hosts > 1 ? r.hosts - 1 : 0;
    double alpha = (r.n - 1 - hops) * m->costs.inside.alpha + hops * m->costs.between.alpha;
    return alpha + bytes * (r.n - 1) / r.n * beta;
}

static int steps(int n) /* of a tree over n: log2, rounded up */
{
    int k = 0;
    while (k < 31 && 1 << k < n) k++;
    return k;
}

static double tree(const sk_machine *m, double bytes, sk_reach r)
{
    const double filled = 0.92; /* of the link, by a pipelined double tree */
    double beta =
        r.hosts > 1 ? fmax(m->costs.inside.beta, m->costs.between.beta) : m->costs.inside.beta;
    double alpha = steps(r.most) * m->costs.inside.alpha + steps(r.hosts) * m->costs.between.alpha;
    return alpha + bytes * beta / filled;
}

static double two_level(const sk_machine *m, double bytes, sk_reach r)
{
    double in =
        (r.most - 1) * m->costs.inside.alpha + bytes * (r.most - 1) / r.most * m->costs.inside.beta;
    double out = (r.hosts - 1) * m->costs.between.alpha +
                 bytes / r.most * (r.hosts - 1) / r.hosts * m->costs.between.beta;
    return in + out;
}

/* Seconds for a byte of a rank's share of the network, of a collective over so many hosts: where it
 * was measured, the mean of logarithms, each by one over its squared distance in octaves. */
static double between(const sk_machine *m, int hosts, double bytes)
{
    double sum = 0, weights = 0;
    for (int i = 0; i < m->n_between; i++) {
        const sk_between_rate *b = &m->between[i];
        double h = log2(hosts / b->hosts), s = log2(fmax(bytes, 1) / b->bytes);
        double w = 1 / (4 * h * h + s * s + 1e-6);
        sum += w * log(b->rate);
        weights += w;
    }
    return weights > 0 ? exp(-sum / weights) : m->costs.between.beta;
}

/* Rings go through all network cards of the hosts at once, and so do trees, which only all-reduces
 * have. */
static double nccl(const sk_machine *m, sk_coll_kind kind, double bytes, sk_reach r)
{
    const double filled = 0.92; /* of the link, by a pipelined double tree */
    const sk_link *in = &m->costs.inside, *out = &m->costs.between;
    int hops = r.hosts > 1 ? r.hosts - 1 : 0;
    double beta = hops ? fmax(in->beta, between(m, r.hosts, bytes) / r.most) : in->beta;
    if (kind != SK_ALLREDUCE && m->engine.gathers > 0) beta /= m->engine.gathers;
    double ring = (r.n - 1 - hops) * in->alpha + hops * out->alpha + bytes * (r.n - 1) / r.n * beta;
    double up = steps(r.most) * in->alpha + steps(r.hosts) * out->alpha + bytes * beta / filled;
    return kind == SK_ALLREDUCE ? fmin(ring, up) : ring;
}

/* One way of the bytes (reduce-scatter or all-gather); an all-reduce is both. */
double sk_machine_coll(const sk_machine *m, sk_coll_kind kind, int64_t bytes, sk_reach r)
{
    if (m->unit || r.n < 2) return 0;
    if (m->chosen && m->costs.shm.tiny > 0 && r.hosts < 2)
        return sk_shm_price(&m->costs, kind, r.n, bytes);
    double s = (double)bytes, best = m->nccl ? nccl(m, kind, s, r) : ring(m, s, r);
    if (!m->ring && !m->nccl) {
        best = fmin(best, tree(m, s, r));
        if (r.hosts > 1 && r.most > 1 && r.n == r.hosts * r.most)
            best = fmin(best, two_level(m, s, r));
    }
    return m->call + (kind == SK_ALLREDUCE ? 2 * best : best);
}

sk_reach sk_machine_reach(const sk_machine *m, const int *ranks, int n)
{
    sk_reach r = {.n = n};
    int last = -1, here = 0;
    for (int i = 0; i < n; i++) {
        int host = ranks[i] / m->ranks_per_host;
        here = host == last ? here + 1 : 1;
        r.hosts += host != last;
        if (here > r.most) r.most = here;
        last = host;
    }
    return r;
}

const int *sk_machine_hosts(sk_arena *a, const sk_machine *m, const sk_layout *l, int n_ranks)
{
    bool asked = m->chosen || sk_layout_timed(l);
    if (!asked || n_ranks <= m->ranks_per_host) return NULL;
    int *host_of = sk_many(a, int, n_ranks);
    for (int r = 0; r < n_ranks; r++) host_of[r] = r / m->ranks_per_host;
    return host_of;
}
