/* loop_load.c - what a run begins from: init, a model directory or a checkpoint. */
#include "train/loop_state.h"
#include "base/shell_word.h"
#include "run/run.h"
#include "train/hf.h"
#include "train/loss_scale.h"
#include "train/metrics.h"
#include "train/relayout.h"

static int64_t most_bytes(const sk_loop *l)
{
    int64_t most = 0;
    for (int r = 0; r < l->s->n_ranks; r++)
        if (sk_device_bytes(l->s->programs[r]) > most) most = sk_device_bytes(l->s->programs[r]);
    return most;
}

static sk_status load_model(sk_loop *l)
{
    const sk_job *job = l->s->job;
    sk_tensor_shard *averages;
    int n = 0, n_averages = 0;
    const sk_hf_shape *shapes = sk_hf_shapes(&l->arena, &l->s->graph, &n);
    SK_TRY(sk_hf_check(job->model_dir, job->model, &job->hyper, shapes, n,
                       (sk_chunk_share){sk_loop_place_on_host(l), sk_loop_ranks_on_host(l)}));
    sk_tensor_shard *each = sk_many(&l->arena, sk_tensor_shard, l->n_model + 1);
    for (int i = 0; i < l->n_model; i++) each[i] = sk_shard_each(&l->boxes[i]);
    SK_TRY(sk_hf_load(job->model_dir, job->model, &job->hyper, shapes, n, each, l->n_model));
    sk_run_average_shards(l->run, &l->arena, &averages, &n_averages);
    SK_TRY(sk_hf_load(job->model_dir, job->model, &job->hyper, shapes, n, averages, n_averages));
    for (int i = 0; i < l->n_model; i++)
        if (!sk_loop_all_finite(&l->boxes[i]))
            return sk_fail(SK_ENUM,
                           "%s: '%s' has numbers that are not finite in %s; skein verify %s tells "
                           "whether they are in the file",
                           job->model_dir, l->boxes[i].name, sk_dtype_name(l->boxes[i].type),
                           sk_shell_word(&l->arena, job->model_dir));
    return SK_OK;
}

static const char *aside_text(sk_loop *l)
{
    const sk_metrics *m = &l->metrics;
    if (!l->done)
        return sk_print(&l->arena, "metrics.jsonl of an earlier start is now %s", m->aside);
    if (!m->n_again)
        return sk_print(&l->arena,
                        "the end of metrics.jsonl is no complete line of a step; it is now in %s",
                        m->aside);
    return sk_print(
        &l->arena,
        "the run had come %lld step%s (%.3g s) past the checkpoint of step %lld; what it "
        "did since is done again, and its lines are now in %s",
        (long long)m->n_again, sk_plural(m->n_again), m->again_s, (long long)l->done, m->aside);
}

static sk_status cut_log(sk_loop *l)
{
    sk_ckpt c = {0};
    sk_mark m = sk_arena_mark(&l->arena);
    sk_status st = *l->t->from ? sk_ckpt_read(&l->arena, l->t->from, &c) : SK_OK;
    const char *was = c.state.config ? c.state.config : "";
    if (!st) st = sk_commit_log_cut(l->t->dir, l->done, was, l->t->config);
    sk_arena_back(&l->arena, m);
    return st;
}

static sk_status open_metrics(sk_loop *l)
{
    if (l->rank) return SK_OK;
    const char *path = sk_print(&l->arena, "%s/metrics.jsonl", l->t->dir);
    sk_metrics_close(&l->metrics);
    SK_TRY(sk_metrics_open(&l->metrics, path, most_bytes(l), l->done));
    if (*l->metrics.aside) sk_loop_note(l, SK_REC_WARN, aside_text(l));
    return sk_loop_is_timed(l) ? cut_log(l) : SK_OK;
}

/* Everything a checkpoint has.  A loss scale that it does not have stays as it is. */
sk_status sk_loop_load_state(sk_loop *l, const sk_training *t)
{
    sk_assert(*t->from && t->step >= 0);
    SK_TRY(sk_ckpt_load(t->from, l->boxes, l->n_boxes));
    l->done = l->tried = l->saved = t->step;
    l->tokens = (double)t->tokens;
    l->noise = t->noise;
    l->progress = l->s->job->adascale && t->progress > 0 ? t->progress : (double)t->step;
    bool drops = t->pending && !l->s->job->late; /* that update was counted and is never made */
    l->updates = t->updates - drops;
    l->scale.skipped = t->skipped;
    l->scale.skips = 0;
    l->shift = t->next.samples < 0 ? 0 : t->next.samples - t->next.index * l->s->job->batch;
    l->changed = t->next.changed;
    l->val = (sk_validation){0};
    l->ended = sk_validation_ends(&t->val, l->s->job);
    l->want = sk_relayout_with(l->t->setup, t->step, t->next.batch);
    sk_run_set_pending(l->run, t->pending && l->s->job->late);
    if (l->scale.moves && t->scale > 0) l->scale.value = t->scale, l->scale.good = t->good;
    SK_TRY(sk_run_push(l->run));
    SK_TRY(open_metrics(l));
    return sk_run_barrier(l->run);
}

/* Weights are initialised and state is zero in any case; a checkpoint or a model directory then
 * overwrites what it holds. */
sk_status sk_loop_fresh_weights(sk_loop *l)
{
    const sk_job *job = l->s->job;
    SK_TRY(sk_run_init(l->run, job->seed));
    l->scale = sk_loss_scale_begin(job->dtype, sk_nonfinite_find(job->nonfinite),
                                   (double)(job->batch * job->seq));
    if (*l->t->from || !*job->model_dir) return SK_OK;
    SK_TRY(load_model(l));
    return sk_run_push(l->run);
}

sk_status sk_loop_first_weights(sk_loop *l)
{
    SK_TRY(sk_loop_fresh_weights(l));
    l->skipped_batches = l->t->skipped_batches;
    if (*l->t->from && l->t->pending && !l->s->job->late && !l->rank)
        sk_loop_note(l, SK_REC_WARN,
                     "the checkpoint holds a gradient that was not applied yet (optim.late=1); it "
                     "is dropped, optim.late=1 would apply it");
    if (*l->t->from) return sk_loop_load_state(l, l->t);
    SK_TRY(open_metrics(l));
    return sk_run_barrier(l->run);
}
