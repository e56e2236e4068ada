/* fits.c - is there memory for the plan, and what would fit if there is not? */
#include "train/fits.h"
#include "base/proc.h"
#include "base/strings.h"
#include "device/blas_setup.h"
#include "train/layout_cause.h"
#include "train/relayout.h"

#include <stdio.h>
#include <string.h>

enum { FILES = 64 }; /* open at once beside one for each rank */
/* Bytes that a rank shares beside its memory; as much for the job itself. */
#define CONTROL_BLOCK (20LL << 20)

/* A change of the job: what is not said stays. */
typedef struct change {
    bool full;     /* recompute everything */
    bool sharded;  /* shard weights, too */
    bool away;     /* offload the optimizer state */
    int n_micro;   /* 0: as it is */
    int64_t micro; /* sequences per micro-batch and rank, for n_micro */
} change;

/* What a rank takes of the memory in question. */
static int64_t need(const sk_program *p, bool device)
{
    if (device) return sk_device_bytes(p);
    return p->gpu ? p->kind_bytes[SK_HOSTED] : p->own_bytes;
}

/* The layout after a change. */
static sk_layout changed(const sk_setup *s, const change *c)
{
    sk_layout l = s->layout;
    if (c->full) snprintf(l.recompute, sizeof l.recompute, "full"), l.recompute_blocks = 0;
    if (c->sharded) {
        l.shard = SK_SHARD_PARAMS;
        if (l.shard_axis < 0) l.shard_axis = sk_mesh_axis(&l.mesh, "dp");
    }
    if (c->away) l.home[SK_STATE] = SK_HOST;
    if (c->n_micro && l.n_micro) l.n_micro = c->n_micro;
    return l;
}

/* The bytes of a rank after a change; false if the job cannot be changed so. */
static bool weigh(const sk_setup *s, const change *c, int rank, bool device, int64_t *bytes)
{
    sk_arena tmp = {0};
    sk_layout l = changed(s, c);
    sk_compile_opts o = sk_setup_opts(s);
    sk_program *p = NULL;
    if (c->n_micro) o.n_micro = c->n_micro;
    bool can = !sk_compile(&tmp, &s->graph, &l, &o, rank, &p);
    if (can) *bytes = need(p, device);
    sk_arena_end(&tmp);
    return can;
}

/* "recompute=full zero=3 in the layout and train.micro_batch=2" */
static const char *name_of(sk_arena *a, const sk_setup *s, const change *c)
{
    sk_layout l = changed(s, c);
    sk_out o = {.arena = a};
    const char *words = sk_layout_added(a, &s->layout, &l);
    if (*words) sk_out_add(&o, "%s in the layout", words);
    if (c->n_micro && !s->layout.n_micro)
        sk_out_add(&o, "%strain.micro_batch=%lld", o.n ? " and " : "", (long long)c->micro);
    return o.s;
}

enum { MOST_CHANGES = 40 };

/* From the mildest on: more micro-batches cost little, recomputation a third of the work, sharding
 * messages, and the state of the optimizer in the host's memory the way to it and back. */
static int list_changes(const sk_setup *s, bool device, change *out)
{
    int64_t ways = sk_batch_shards(&s->layout, s->graph.batch), batch = s->job->batch;
    int64_t now = (batch + ways * s->n_micro - 1) / (ways * s->n_micro);
    int axis =
        s->layout.shard_axis >= 0 ? s->layout.shard_axis : sk_mesh_axis(&s->layout.mesh, "dp");
    bool again = !s->layout.recompute_said;
    bool shard = axis >= 0 && s->layout.mesh.size[axis] > 1 && s->layout.shard < SK_SHARD_PARAMS &&
                 !s->layout.replica;
    int n = 0;
    change last = {0};
    for (int64_t m = now / 2; m >= 1; m /= 2) {
        int64_t n_micro = (batch + ways * m - 1) / (ways * m);
        if (n_micro > batch) n_micro = batch;
        last = (change){.n_micro = (int)n_micro, .micro = m};
        out[n++] = last;
    }
    if (again) out[n++] = (change){.full = true};
    if (shard) out[n++] = (change){.sharded = true};
    last.full = again;
    if (again && last.n_micro) out[n++] = last;
    last.sharded = shard;
    if (shard) out[n++] = last;
    last.away = device && !s->layout.home_said && !s->layout.replica;
    if (last.away) out[n++] = last;
    sk_assert(n <= MOST_CHANGES);
    return n;
}

/* What would fit into `have` bytes, or how much the last, which is all at once, still needs. */
static const char *advise(sk_arena *a, const sk_setup *s, int rank, bool device, int64_t have)
{
    change all[MOST_CHANGES];
    const char *least = "";
    bool plain = !sk_relayout_asked(s->job) && !s->fallback; /* others have a second program */
    int n = plain ? list_changes(s, device, all) : 0;
    for (int i = 0; i < n; i++) {
        int64_t bytes = 0;
        if (!weigh(s, &all[i], rank, device, &bytes)) continue;
        const char *name = name_of(a, s, &all[i]);
        if (bytes <= have)
            return sk_print(a, "%s needs %s per rank and fits", name, sk_bytes(a, bytes));
        least = sk_print(a, "%s still needs %s per rank; ", name, sk_bytes(a, bytes));
    }
    return sk_print(a, "%stake more ranks%s, or a smaller model", least,
                    device ? "" : " on more hosts");
}

/* "26.1 GiB = weights 3.1 GiB + ... : activations 19.2 GiB are the bulk" */
static char *by_kind(sk_arena *a, const sk_program *p, bool device)
{
    sk_out o = {.arena = a};
    int most = 0, kinds = device || !p->gpu ? SK_N_KINDS : 0;
    if (device) kinds = SK_HOSTED;
    sk_out_add(&o, "%s", sk_bytes(a, need(p, device)));
    for (int k = 0, said = 0; k < kinds; k++) {
        if (!p->kind_bytes[k]) continue;
        sk_out_add(&o, "%s%s %s", said++ ? " + " : " = ", sk_kind_names[k],
                   sk_bytes(a, p->kind_bytes[k]));
        if (p->kind_bytes[k] > p->kind_bytes[most]) most = k;
    }
    if (kinds) sk_out_add(&o, ", most of it %s", sk_kind_names[most]);
    return o.s;
}

char *sk_fits_kinds(sk_arena *a, const sk_program *p) { return by_kind(a, p, p->gpu); }

/* Is that rank on the host of this process?  It is the one of rank 0, or there is only one. */
static bool is_here(const sk_setup *s, int rank)
{
    const int *host_of = s->job->host_of;
    return !host_of || s->n_ranks != s->job->ranks || host_of[rank] == host_of[0];
}

/* A process looks after every rank of the job; threads write their files at the same time. */
static sk_status fits_files(const sk_setup *s)
{
    int64_t need = s->n_ranks + FILES, have = sk_proc_files(need);
    if (need <= have) return SK_OK;
    return sk_fail(SK_EIO,
                   "files: %d ranks need %lld open files, this process may have %lld; raise ulimit "
                   "-n, or take fewer ranks",
                   s->n_ranks, (long long)need, (long long)have);
}

sk_status sk_fits_host(const sk_setup *s, bool threads)
{
    int64_t all = 0, have = sk_proc_available();
    int here = 0, fullest = 0;
    SK_TRY(fits_files(s));
    for (int r = 0; r < s->n_ranks; r++) {
        if (!is_here(s, r)) continue;
        all += need(s->programs[r], false);
        if (need(s->programs[r], false) > need(s->programs[fullest], false)) fullest = r;
        here++;
    }
    if (all <= have) /* every process maps the memory of all */
        return sk_blas_fits(s->threads * (threads ? here : 1),
                            all + CONTROL_BLOCK * (1 + s->n_ranks));
    sk_arena *a = s->arena;
    const char *together =
        here > 1 ? sk_print(a, "%d ranks need %s, ", here, sk_bytes(a, all)) : "";
    return sk_fail(SK_EIO, "memory: %sthis host has %s free; rank %d needs %s; %s", together,
                   sk_bytes(a, have), fullest, by_kind(a, s->programs[fullest], false),
                   advise(a, s, fullest, false, have / here));
}

sk_status sk_fits_device(void *ctx, const sk_program *p, const char *device, int64_t free)
{
    sk_arena tmp = {0}, *a = &tmp; /* ranks may be threads */
    sk_status st =
        sk_fail(SK_EIO, "memory: %s has %s free; rank %d needs %s; %s", device, sk_bytes(a, free),
                p->rank, by_kind(a, p, true), advise(a, ctx, p->rank, true, free));
    sk_arena_end(&tmp);
    return st;
}
