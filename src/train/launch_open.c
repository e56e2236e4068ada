/* launch_open.c - everything that ranks inherit: setup, run directory, heaps; and memory.csv. */
#include "train/launcher.h"
#include "base/file_io.h"
#include "base/strings.h"
#include "comm/control_block.h"
#include "device/blas_setup.h"
#include "train/fault.h"
#include "train/fits.h"
#include "train/loop.h"
#include "train/rundir.h"

#include <poll.h>
#include <string.h>

/* The text of config.yaml, which checkpoints have as well.  steps: the number that was chosen from
 * train.time, which is part of the job from now on, also when it is resumed; 0: not chosen. */
void sk_launch_make_config(sk_launcher *l, int64_t steps)
{
    sk_job *job = sk_new(l->arena, sk_job);
    *job = *l->job;
    snprintf(job->run, sizeof job->run, "%s", l->t.dir);
    job->resume[0] = 0;
    job->data_changed = 0; /* holds for this start only */
    job->ranks = l->setup.n_ranks;
    if (steps) {
        job->steps = steps;
        job->time_limit = 0;
    }
    l->t.config = l->o->config ? l->o->config(l->arena, job) : "";
}

sk_status sk_launch_open_heaps(sk_launcher *l)
{
    int n = l->setup.n_ranks;
    int64_t *bytes = sk_many(l->arena, int64_t, n);
    /* shared memory beside the heaps */
    size_t stats = (sizeof(sk_channel) + 63) / 64 * 64;
    size_t extra = stats + sizeof(sk_fallback_stats) + (size_t)n * sizeof(atomic_int);
    sk_heap_aliases aliases =
        sk_program_shared(l->arena, (const sk_program *const *)l->setup.programs, n, bytes);
    if (l->boot) SK_TRY(sk_boot_heaps(l->boot, bytes, aliases, extra, &l->t.heaps));
    else SK_TRY(sk_heaps_open_aliased(n, bytes, aliases, !l->as_threads, extra, &l->t.heaps));
    sk_heaps_label(l->t.heaps, l->t.dir);
    char *at = sk_heaps_extra(l->t.heaps);
    l->t.channel = (sk_channel *)(void *)at;
    l->t.fallback_stats = (sk_fallback_stats *)(void *)(at + stats);
    return SK_OK;
}

/* Known after the first step: the pool, and memory that is not in the plan. */
static void memory_of_gpu(const sk_launcher *l, sk_out *o)
{
    const sk_channel *c = l->t.channel;
    if (!atomic_load(&c->gpu.pool)) return;
    sk_out_add(o, "0,gpu_pool,0,%lld\n0,gpu_before,0,%lld\n0,gpu_since,0,%lld\n",
               (long long)atomic_load(&c->gpu.pool), (long long)c->gpu.before,
               (long long)c->gpu.since);
}

/* memory.csv: where each kind lies in the heap of each rank, as it was mapped.  `skein plan` prints
 * the same numbers beforehand.  A rank that shares weights with another one of its host has them
 * in its lines, but not in `mapped`. */
sk_status sk_launch_write_memory(sk_launcher *l)
{
    sk_out o = {.arena = l->arena};
    sk_out_add(&o, "rank,kind,at,bytes\n");
    for (int r = 0; r < l->setup.n_ranks; r++) {
        const sk_program *p = l->setup.programs[r];
        for (int k = 0; k < SK_N_KINDS; k++)
            sk_out_add(&o, "%d,%s,%lld,%lld\n", r, sk_kind_names[k], (long long)p->kind_at[k],
                       (long long)p->kind_bytes[k]);
        sk_out_add(&o, "%d,file,0,%lld\n", r, (long long)p->file_bytes);
        int64_t own = sk_heap_own(l->t.heaps, r), at = sk_heap_bytes(l->t.heaps, r) - own;
        if (sk_heap_base(l->t.heaps, r)) /* on another host nobody here has seen it */
            sk_out_add(&o, "%d,mapped,%lld,%lld\n", r, (long long)at, (long long)own);
    }
    memory_of_gpu(l, &o);
    return sk_file_replace(sk_print(l->arena, "%s/memory.csv", l->t.dir), o.s, o.n);
}

/* The run directory and the checkpoint to resume: found by rank 0, broadcast to the others. */
typedef struct found {
    sk_status code;
    char report[SK_REPORT_BYTES];
    char dir[PATH_MAX], ckpt[PATH_MAX], from[PATH_MAX];
    int64_t step, tokens, updates, steps, good, skipped;
    bool pending, owed;
    double scale, progress;
    sk_validation val;
    sk_noise_scale noise;
    sk_skipped_batches skipped_batches;
    sk_batch_state next;
} found;

/* NULL: its text cannot be read as a job (a model that was moved since), so nothing is told of it.
 */
static const sk_job *saved_job(const sk_launcher *l)
{
    sk_job *job = sk_new(l->arena, sk_job);
    if (l->o->saved_job && !l->o->saved_job(l->arena, l->t.from, job)) return job;
    sk_error_set("");
    return NULL;
}

static sk_status open_dir(sk_launcher *l, const char **note)
{
    SK_TRY(sk_rundir_open(l->arena, l->job, &l->t, note));
    SK_TRY(sk_rundir_keep_tokenizer(l->arena, l->job, &l->t, l->setup.tokenizer));
    sk_launch_make_config(l, 0);
    if (*l->t.from) {
        SK_TRY(sk_resume_state(l->arena, &l->setup, &l->t));
        SK_TRY(sk_resume_sync(l->arena, &l->setup, &l->t, note));
        SK_TRY(sk_resume_rate(l->arena, &l->setup, &l->t, saved_job(l), note));
    }
    l->only_validates = sk_job_validates_only(l->job) && *l->t.from &&
                        sk_is_file(sk_print(l->arena, "%s/config.yaml", l->t.dir));
    l->config_due = *l->t.from && !l->only_validates;
    if (l->config_due || l->only_validates) return SK_OK;
    return sk_rundir_config(&l->t, l->t.config);
}

static sk_status share_dir(sk_launcher *l, sk_status st)
{
    found *f = sk_new(l->arena, found);
    sk_training *t = &l->t;
    *f = (found){.code = st,
                 .step = t->step,
                 .tokens = t->tokens,
                 .updates = t->updates,
                 .steps = t->steps,
                 .good = t->good,
                 .skipped = t->skipped,
                 .pending = t->pending,
                 .scale = t->scale,
                 .progress = t->progress,
                 .noise = t->noise,
                 .val = t->val,
                 .owed = t->owed,
                 .skipped_batches = t->skipped_batches,
                 .next = t->next};
    snprintf(f->report, sizeof f->report, "%s", st ? sk_error() : "");
    const char *own = sk_strdup(l->arena, f->report);
    memcpy(f->dir, t->dir, PATH_MAX);
    memcpy(f->ckpt, t->ckpt, PATH_MAX);
    memcpy(f->from, t->from, PATH_MAX);
    SK_TRY(sk_boot_bcast(l->boot, f, sizeof *f));
    if (sk_launcher_leads(l)) {
        if (f->code) sk_error_set(f->report);
        return f->code;
    }
    memcpy(t->dir, f->dir, PATH_MAX);
    memcpy(t->ckpt, f->ckpt, PATH_MAX);
    memcpy(t->from, f->from, PATH_MAX);
    t->step = f->step;
    t->tokens = f->tokens;
    t->updates = f->updates;
    t->steps = f->steps;
    t->good = f->good;
    t->skipped = f->skipped;
    t->pending = f->pending;
    t->scale = f->scale;
    t->progress = f->progress;
    t->noise = f->noise;
    t->val = f->val;
    t->owed = f->owed;
    t->skipped_batches = f->skipped_batches;
    t->next = f->next;
    if (st && !f->code) { /* only this rank failed: it prints why */
        sk_error_set(own);
        return st;
    }
    sk_error_set(""); /* rank 0 prints the report */
    return f->code;
}

static sk_status set_up(sk_launcher *l, const char **note)
{
    SK_TRY(sk_fault_check());
    SK_TRY(sk_setup_run(l->arena, l->job, &l->setup));
    SK_TRY(sk_fault_reaches(&l->setup));
    l->ranks = sk_many(l->arena, sk_launched_rank, l->setup.n_ranks);
    l->endings = sk_many(l->arena, struct pollfd, l->setup.n_ranks);
    if (l->boot && l->boot->n_ranks != l->setup.n_ranks)
        return sk_fail(SK_ECONF,
                       "the layout has %d rank%s, %s started %d; give layout= a product of %d, or "
                       "start %d",
                       l->setup.n_ranks, sk_plural(l->setup.n_ranks), l->boot->by, l->boot->n_ranks,
                       l->boot->n_ranks, l->setup.n_ranks);
    if (sk_launcher_leads(l)) SK_TRY(sk_fits_host(&l->setup, l->as_threads && !l->boot));
    if (!sk_launcher_leads(l))
        return SK_OK; /* its data are opened after rank 0 has prepared them */
    SK_TRY(sk_setup_data(&l->setup));
    SK_TRY(sk_setup_check(&l->setup));
    sk_store_digest(&l->setup.data, l->t.data);
    l->t.windows = l->setup.feed.n_windows;
    return open_dir(l, note);
}

sk_status sk_launch_prepare(sk_launcher *l)
{
    const char *note = "";
    sk_status st = set_up(l, &note);
    if (l->boot) st = share_dir(l, st);
    if (st) return sk_trail(st, SK_HERE);
    if (!sk_launcher_leads(l)) SK_TRY(sk_setup_data(&l->setup));
    l->t.setup = &l->setup;
    if (l->as_threads && !l->boot) SK_TRY(sk_blas_reserve(l->setup.n_ranks * l->setup.threads));
    SK_TRY(sk_launch_open_heaps(l));
    l->keeps_memory = sk_launcher_leads(l) && !l->config_due && !l->only_validates;
    if (l->keeps_memory) SK_TRY(sk_launch_write_memory(l));
    if (sk_launcher_leads(l)) sk_launch_head(l, note);
    return SK_OK;
}
