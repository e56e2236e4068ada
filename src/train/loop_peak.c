/* loop_peak.c - the GPUs and the peak flops of a run, for the console, memory.csv and MFU. */
#include "train/loop_state.h"
#include "base/clock.h"
#include "base/strings.h"
#include "run/run.h"
#include "run/slow_kernels.h"
#include "train/host_peak.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PEAK_S 0.3 /* seconds of measuring the peak where none is cached, after the first step */
#define POLL_S 3.0 /* seconds between two queries of the GPU */

typedef struct rank_gpu { /* a rank's sk_rank_report on its GPU */
    char uuid[48];
    double flops;
} rank_gpu;

/* Ranks that share a GPU share its peak.  Returns how many GPUs there are. */
static int add_peaks(sk_loop *l, const rank_gpu *all)
{
    int n = l->s->n_ranks, gpus = 0;
    l->channel->peak = 0;
    for (int r = 0; r < n; r++) {
        int same = 0, before = 0;
        for (int k = 0; k < n; k++) {
            bool is = !strcmp(all[k].uuid, all[r].uuid);
            same += is;
            before += is && k < r;
        }
        l->channel->peak += all[r].flops / same;
        gpus += !before;
    }
    return gpus;
}

static const char *device_line(sk_arena *a, const sk_gpu_usage *g, int ranks, int gpus)
{
    const sk_device_facts *f = &g->facts;
    sk_device_library tools[SK_MAX_LIBRARIES];
    sk_out o = {.arena = a};
    int n = sk_device_libraries("cuda", false, tools);
    sk_out_add(&o, "%s %s · %s · sm_%d · CUDA %d.%d, driver %d.%d", g->name, f->model,
               sk_bytes(a, f->bytes), f->capability, f->runtime / 1000, f->runtime / 10 % 100,
               f->driver / 1000, f->driver / 10 % 100);
    const char *gap = " · ";
    for (int i = 0; i < n; i++) {
        if (!tools[i].here) continue;
        sk_out_add(&o, "%s%s %s", gap, tools[i].name, tools[i].version);
        gap = ", ";
    }
    sk_out_add(&o, " · %d rank%s", ranks, sk_plural(ranks));
    if (ranks > 1) sk_out_add(&o, " on %d GPU%s", gpus, sk_plural(gpus));
    return o.s;
}

/* A warning for each op that runs on slower kernels than it should. */
static void warn_slow(sk_loop *l)
{
    for (const char *line = sk_run_slow_kernels(&l->arena, l->run); line && *line;) {
        int n = (int)strcspn(line, "\n");
        sk_loop_note(l, SK_REC_WARN, sk_print(&l->arena, "%.*s", n, line));
        line += n + (line[n] != 0);
    }
}

/* All ranks come here when their runs are open. */
sk_status sk_loop_detect_gpus(sk_loop *l)
{
    sk_gpu_usage g;
    rank_gpu mine = {0};
    l->on_gpu = sk_run_gpu_usage(l->run, &g);
    if (!sk_run_program(l->run)->gpu) return SK_OK;
    if (l->on_gpu) {
        snprintf(mine.uuid, sizeof mine.uuid, "%s", g.facts.uuid);
        mine.flops = g.facts.flops[l->s->job->dtype == SK_F32 ? SK_PEAK_F32 : SK_PEAK_NARROW];
    }
    rank_gpu *all = sk_loop_gather_buffer(l, sizeof *all);
    SK_TRY(sk_comm_small_gather(sk_run_comm(l->run), &mine, sizeof mine, all));
    if (l->rank || !l->on_gpu) return SK_OK;
    memcpy(l->uuid, mine.uuid, sizeof l->uuid);
    int gpus = add_peaks(l, all);
    sk_loop_note(l, SK_REC_DEVICE, device_line(&l->arena, &g, l->s->n_ranks, gpus));
    warn_slow(l);
    return SK_OK;
}

/* GPU memory that the first step took beyond the pool; for the console and memory.csv. */
void sk_loop_report_memory(sk_loop *l)
{
    sk_gpu_usage g;
    if (l->rank || !sk_run_gpu_usage(l->run, &g)) return;
    l->channel->gpu.before = g.before;
    l->channel->gpu.taken = g.taken;
    l->channel->gpu.since = g.since;
    atomic_store(&l->channel->gpu.pool, (long long)g.pool);
}

/* Rank 0: memory in use, utilisation and power of its GPU, every POLL_S seconds. */
void sk_loop_poll_gpu(sk_loop *l)
{
    double now = sk_now();
    if (!l->on_gpu || (l->gpu_polled > 0 && now - l->gpu_polled < POLL_S)) return;
    l->gpu_polled = now;
    if (!sk_nvml_find(l->uuid, &l->gpu)) l->gpu = (sk_nvml){0};
}

typedef struct rank_peak { /* flops per second */
    double kept;           /* of the host, where it is in the cache (host_peak.h) */
    double measured;       /* of this rank, where it is not */
} rank_peak;

/* Rank 0: hosts[h] is the peak of host h.  Some ranks of a host may have found a cached peak that
 * was not there when others looked. */
static void sum_hosts(const sk_loop *l, const rank_peak *all, double *hosts, int n_hosts)
{
    for (int h = 0; h < n_hosts; h++) {
        double kept = 0, measured = 0;
        for (int r = 0; r < l->s->n_ranks; r++) {
            if (sk_loop_host_of(l, r) != h) continue;
            kept = fmax(kept, all[r].kept);
            measured += all[r].measured;
        }
        hosts[h] = kept > 0 ? kept : measured;
    }
}

/* From rank 0 to all, in messages of at most SK_SMALL_BYTES bytes. */
static sk_status share_all(sk_comm *c, double *v, int n)
{
    for (int at = 0, some; at < n; at += some) {
        some = n - at < SK_SMALL_BYTES / 8 ? n - at : SK_SMALL_BYTES / 8;
        SK_TRY(sk_comm_small_bcast(c, v + at, (size_t)some * sizeof *v));
    }
    return SK_OK;
}

/* Only as many ranks of a host measure as its cores can serve at once. */
static sk_status measure_peak(sk_loop *l, int here, sk_kept_peak *kept, double *measured)
{
    const sk_setup *s = l->s;
    int fit = s->cores > s->threads ? s->cores / s->threads : 1, some = fit < here ? fit : here;
    sk_peak_rate rate;
    if (sk_loop_place_on_host(l) >= some) return SK_OK;
    *kept = sk_host_peak_find(&l->arena, sk_host_busy(here, s->threads, s->cores));
    if (kept->flops > 0) return SK_OK;
    SK_TRY(sk_host_peak(s->threads, PEAK_S, &rate));
    *measured = rate.flops * sk_host_share(some, s->threads, s->cores);
    return SK_OK;
}

/* From the cache of each host (host_peak.h); where it has none, ranks measure at the same time, and
 * the result is cached. */
sk_status sk_loop_find_peak(sk_loop *l)
{
    if (sk_run_program(l->run)->gpu) return SK_OK; /* known: sk_loop_detect_gpus */
    sk_mark mark = sk_arena_mark(&l->arena);
    int n_hosts = 1, here = sk_loop_ranks_on_host(l);
    for (int r = 0; r < l->s->n_ranks; r++)
        if (sk_loop_host_of(l, r) >= n_hosts) n_hosts = sk_loop_host_of(l, r) + 1;
    sk_kept_peak kept = {0};
    rank_peak mine = {0}, *all = sk_loop_gather_buffer(l, sizeof *all);
    double *hosts = sk_many(&l->arena, double, n_hosts);
    SK_TRY(measure_peak(l, here, &kept, &mine.measured));
    mine.kept = kept.flops;
    SK_TRY(sk_comm_small_gather(sk_run_comm(l->run), &mine, sizeof mine, all));
    if (!l->rank) sum_hosts(l, all, hosts, n_hosts);
    SK_TRY(share_all(sk_run_comm(l->run), hosts, n_hosts));
    const char *why = kept.why;
    if (!sk_loop_place_on_host(l) && !(mine.kept > 0)) {
        int busy = sk_host_busy(here, l->s->threads, l->s->cores);
        kept = sk_host_peak_keep(&l->arena, busy, hosts[sk_loop_host_of(l, l->rank)]);
        if (kept.why) why = kept.why;
    }
    if (!l->rank) {
        if (why) sk_loop_note(l, SK_REC_WARN, why);
        l->channel->peak = kept.flops;
        for (int h = 0; h < n_hosts; h++)
            if (h != sk_loop_host_of(l, 0)) l->channel->peak += hosts[h];
    }
    sk_arena_back(&l->arena, mark);
    return SK_OK;
}
