/* launch_console.c - what the launcher makes of the records of its ranks: console, config.yaml,
 * samples. */
#include "train/launcher.h"
#include "base/file_io.h"
#include "base/strings.h"
#include "train/console.h"
#include "train/idle.h"
#include "train/relayout.h"
#include "train/rundir.h"
#include "train/sampler.h"

#include <string.h>

enum { SAMPLE_TOKENS = 72 };

void sk_launch_warn(sk_launcher *l, const char *text) { sk_console_warn(&l->console, text); }

void sk_launch_warn_lines(sk_launcher *l, const char *text)
{
    for (size_t n; text && *text; text += n + (text[n] != 0)) {
        n = strcspn(text, "\n");
        if (n) sk_launch_warn(l, sk_print(l->arena, "%.*s", (int)n, text));
    }
}

static void end_sample(sk_launcher *l)
{
    if (!l->sampler) return;
    sk_utf8_filter_end(&l->filter, &l->said);
    sk_console_sample(&l->console, l->job->sample_prompt, l->said.s ? l->said.s : "");
    sk_sampler_close(l->sampler);
    l->sampler = NULL;
    if (*l->sampling) sk_rundir_remove(l->sampling);
    sk_arena_end(&l->words);
}

/* A few tokens at a time, so that the launcher never stops watching for long. */
void sk_launch_sample(sk_launcher *l, int n)
{
    while (l->sampler && n--) {
        const char *bytes;
        size_t len;
        if (l->to_say-- <= 0 || sk_sampler_next(l->sampler, &bytes, &len)) {
            end_sample(l);
            return;
        }
        if (!bytes) l->to_say = 0; /* the text has ended */
        sk_utf8_filter_put(&l->filter, &l->said, bytes, len);
    }
}

static void begin_sample(sk_launcher *l, const char *dir, bool remove)
{
    sk_sampler_opts o = {.prompt = l->job->sample_prompt, .temp = 0.8, .seed = l->job->seed};
    sk_launch_sample(l, SAMPLE_TOKENS + 1); /* one that is not finished */
    l->words = (sk_arena){0};
    l->said = (sk_out){.arena = &l->words};
    l->filter = (sk_utf8_filter){.one_line = true};
    l->to_say = SAMPLE_TOKENS;
    snprintf(l->sampling, sizeof l->sampling, "%s", remove ? dir : "");
    if (sk_sampler_open(dir, &o, &l->sampler))
        sk_launch_warn(l, sk_print(l->arena, "no sample: %s", sk_error_line()));
}

void sk_launch_final_sample(sk_launcher *l)
{
    begin_sample(l, l->final, false);
    sk_launch_sample(l, SAMPLE_TOKENS + 1);
}

/* A sample that was not finished when the run ended. */
void sk_launch_end_sampler(sk_launcher *l)
{
    if (!l->sampler) return;
    sk_sampler_close(l->sampler);
    if (*l->sampling) sk_rundir_remove(l->sampling);
}

static sk_status write_steps(sk_launcher *l, int64_t steps)
{
    sk_launch_warn_lines(l, sk_idle_steps(l->arena, &l->setup, steps));
    sk_launch_make_config(l, steps);
    return sk_rundir_config(&l->t, l->t.config);
}

/* Before the row of the first step under a new layout, or with another batch. */
static void print_phase(sk_launcher *l, const sk_record *r)
{
    int phase = sk_relayout_with(&l->setup, r->step - 1, r->batch);
    if (phase == l->phase) return;
    l->phase = phase;
    sk_console_clear(&l->console);
    fprintf(l->o->to, "%-10s%s", r->batch ? "phase" : "layout",
            sk_relayout_line(l->arena, &l->setup, phase));
    if (l->setup.relayout->by_noise) fprintf(l->o->to, " · from step %lld", (long long)r->step - 1);
    fprintf(l->o->to, "\n");
    fflush(l->o->to);
}

/* The ranks have read the checkpoint that they resume: now config.yaml becomes that of this job.
 * Until then it stays as it was, so that a resume that is refused does not spoil the next one. */
void sk_launch_settle(sk_launcher *l)
{
    if (!l->config_due) return;
    l->config_due = false;
    if (sk_rundir_config(&l->t, l->t.config)) {
        sk_launch_warn(l, sk_print(l->arena, "config.yaml stays as it was: %s", sk_error_line()));
        return;
    }
    l->keeps_memory = true;
    if (sk_launch_write_memory(l)) sk_launch_warn(l, sk_error_line());
}

/* Records that ranks send only after they have their weights. */
static bool is_under_way(const sk_record *r)
{
    return r->kind != SK_REC_WARN && r->kind != SK_REC_DEVICE;
}

static void record_gpu(sk_launcher *l)
{
    if (!l->keeps_memory || l->told_gpu || !atomic_load(&l->t.channel->gpu.pool)) return;
    l->told_gpu = true;
    if (sk_launch_write_memory(l)) sk_launch_warn(l, sk_error_line());
}

void sk_launch_read_records(sk_launcher *l)
{
    sk_record r;
    while (sk_channel_take(l->t.channel, &r)) {
        if (is_under_way(&r)) sk_launch_settle(l);
        record_gpu(l);
        if (r.kind == SK_REC_STEP) print_phase(l, &r);
        sk_console_record(&l->console, &r);
        if (r.kind == SK_REC_STEPS && write_steps(l, r.step)) sk_launch_warn(l, sk_error_line());
        if (r.kind == SK_REC_SAMPLE) begin_sample(l, r.text, true);
        if (r.kind == SK_REC_FINAL) snprintf(l->final, sizeof l->final, "%s", r.text);
    }
}

/* config.yaml is gone and a checkpoint's own config was read (cli/argv.c). */
static bool lost_config(sk_launcher *l)
{
    const char *source = l->job->source, *slash = strrchr(source, '/');
    return slash && !strcmp(slash + 1, SK_MANIFEST_FILE) &&
           !sk_is_file(sk_print(l->arena, "%s/config.yaml", l->t.dir));
}

void sk_launch_head(sk_launcher *l, const char *note)
{
    sk_console_open(&l->console, l->o->to, &l->t);
    sk_console_head(&l->console);
    if (l->o->layout_line) fprintf(l->o->to, "%-10s%s\n", "layout", l->o->layout_line);
    fprintf(l->o->to, "%s", sk_relayout_print(l->arena, &l->setup));
    l->phase = sk_relayout_with(&l->setup, l->t.step, l->t.next.batch);
    const char *idle = sk_idle_setup(l->arena, &l->setup);
    int64_t places = l->job->hyper.max_position_embeddings;
    sk_launch_warn_lines(l, idle);
    sk_launch_warn_lines(l, sk_idle_comm(l->arena, &l->setup, l->job->host_of != NULL));
    int64_t steps = sk_job_validates_only(l->job) ? 0 : l->t.steps;
    sk_launch_warn_lines(l, sk_idle_steps(l->arena, &l->setup, steps));
    if (l->setup.val_note && l->job->val_every) sk_launch_warn(l, l->setup.val_note);
    if (places && l->job->seq > places)
        sk_launch_warn(
            l, sk_print(l->arena,
                        "train.seq is %lld, and the model has max_position_embeddings=%lld; "
                        "model.max_position_embeddings=%lld records the longer sequences",
                        (long long)l->job->seq, (long long)places, (long long)l->job->seq));
    if (lost_config(l))
        sk_launch_warn(l, sk_print(l->arena, "%s/config.yaml is gone: the job is that of %s",
                                   l->t.dir, l->job->source));
    sk_launch_warn_lines(l, note);
    if (steps && l->t.step >= steps)
        sk_launch_warn(l,
                       sk_print(l->arena, "the run is at step %lld already and train.steps is %lld",
                                (long long)l->t.step, (long long)steps));
}
