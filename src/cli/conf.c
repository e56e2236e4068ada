/* conf.c - from a file and the words of the command line to a job. */
#include "cli/conf_key.h"
#include "cli/conf.h"
#include "cli/setting.h"
#include "data/data_files.h"
#include "layout/word.h"
#include "train/batch_schedule.h"
#include "train/manifest.h"

#include <stdio.h>
#include <string.h>

const char *sk_setting_where(sk_arena *a, const sk_setting *s, bool value)
{
    sk_spot at = value ? s->value_at : s->key_at;
    if (!s->file) return "command line";
    return *s->file ? sk_print(a, "%s:%d:%d", s->file, at.line, at.column) : "default";
}

const sk_setting *sk_setting_find(const sk_settings *s, const char *name)
{
    for (int i = s->n; i-- > 0;)
        if (!strcmp(s->v[i].key, name)) return &s->v[i];
    return NULL;
}

/* train.steps and train.time are two ways to give the length: steps of the command line win over a
 * time of the file, and the command line may have only one of them.  A file may have both, as
 * config.yaml has: then the time counts. */
static sk_status how_long(const sk_settings *s, sk_job *job)
{
    const sk_setting *steps = sk_setting_find(s, "train.steps");
    const sk_setting *time = sk_setting_find(s, "train.time");
    if (!steps || steps->file || !time || job->time_limit <= 0) return SK_OK;
    if (!time->file)
        return sk_fail(sk_setting_code(time),
                       "train.steps is %s and train.time is %s; leave one of them out",
                       steps->value, time->value);
    job->time_limit = 0;
    return SK_OK;
}

/* A schedule that begins at step 0 says the batch too. */
static sk_status first_batch(const sk_settings *s, sk_job *job)
{
    const sk_setting *said = sk_setting_find(s, "train.batch");
    int64_t batch = job->batch;
    SK_TRY(sk_batch_schedule_begin(job));
    if (!said || said->file || batch == job->batch) return SK_OK;
    return sk_fail(sk_setting_code(said),
                   "train.batch is %s, and train.batch_schedule begins with %lld; leave one of "
                   "them out",
                   said->value, (long long)job->batch);
}

/* Defaults that depend on other keys. */
static sk_status complete(sk_arena *a, const sk_settings *s, sk_job *job)
{
    int64_t places = job->hyper.max_position_embeddings, window = job->hyper.sliding_window;
    if (window && (!places || window < places)) places = window;
    SK_TRY(sk_conf_knobs(a, s, job));
    SK_TRY(sk_conf_effects(a, s, job));
    SK_TRY(sk_conf_groups(a, s, job));
    SK_TRY(how_long(s, job));
    SK_TRY(first_batch(s, job));
    if (!sk_setting_find(s, "train.seq")) {
        if (places && places < job->seq) job->seq = places;
        if (job->hyper.input_size) job->seq = 1; /* images: a sample is a row */
    }
    if (!sk_setting_find(s, "data.tokenizer") && *job->model_dir) {
        bool own = sk_data_has(job->model_dir, "tokenizer.json");
        snprintf(job->data_tokenizer, sizeof job->data_tokenizer, "%s",
                 own ? job->model_dir : "none");
    }
    job->layout_unsaid = !*job->layout;
    if (!*job->layout && job->ranks > 1)
        snprintf(job->layout, sizeof job->layout, "dp=%lld", (long long)job->ranks);
    if (places && job->hyper.rope_theta == 0 && job->seq > places)
        return sk_fail(SK_ECONF,
                       "train.seq is %lld, but the model has %lld positions; lower train.seq or "
                       "raise model.max_position_embeddings",
                       (long long)job->seq, (long long)places);
    if (job->micro_batch > job->batch)
        return sk_fail(SK_ECONF, "train.micro_batch is %lld, more than train.batch, which is %lld",
                       (long long)job->micro_batch, (long long)job->batch);
    if (job->min_lr > job->lr)
        return sk_fail(SK_ECONF, "optim.min_lr is %g, more than optim.lr, which is %g", job->min_lr,
                       job->lr);
    if (!*job->data_train)
        return sk_fail(SK_ECONF, "data.train is empty; a file or name is needed");
    return SK_OK;
}

/* All settings, and every key that needs no model. */
static sk_status read_keys(sk_arena *a, int argc, char **argv, sk_job *job, sk_conf_rest *rest,
                           sk_settings *all)
{
    sk_settings words = {0};
    const char *file = NULL;
    memset(job, 0, sizeof *job); /* padding too: jobs are compared and hashed whole */
    SK_TRY(sk_conf_args(a, argc, argv, &words, rest, &file));
    if (rest && rest->help) return SK_OK;
    if (file) {
        if (strlen(file) >= sizeof job->source) return sk_fail(SK_EUSAGE, "a too long file name");
        snprintf(job->source, sizeof job->source, "%s", file);
        SK_TRY(sk_conf_yaml(a, file, all));
    }
    for (int i = 0; i < words.n; i++) *sk_push(a, all) = words.v[i];
    for (int i = 0; i < sk_n_conf_keys; i++)
        SK_TRY(sk_conf_set(
            a, &sk_conf_table[i],
            (sk_setting){sk_conf_table[i].name, sk_conf_table[i].default_text, .file = ""}, job));
    for (int i = 0; i < all->n; i++) {
        const sk_conf_key *k = sk_conf_find(all->v[i].key);
        if (k) SK_TRY(sk_conf_set(a, k, all->v[i], job));
    }
    return SK_OK;
}

sk_status sk_conf_keys(sk_arena *a, int argc, char **argv, sk_job *job, sk_conf_rest *rest)
{
    sk_settings all = {0};
    return read_keys(a, argc, argv, job, rest, &all);
}

/* The caller brings a graph. */
static sk_status no_model(sk_arena *a, const sk_settings *all)
{
    for (int i = 0; i < all->n; i++) {
        const sk_setting *s = &all->v[i];
        if (!strcmp(s->key, "model") || !strncmp(s->key, "model.", 6))
            return sk_fail(sk_setting_code(s),
                           "%s: %s is given beside a graph, which is the model; leave it out",
                           sk_setting_where(a, s, false), s->key);
    }
    return SK_OK;
}

sk_status sk_conf_load(sk_arena *a, int argc, char **argv, sk_job *job, sk_conf_rest *rest)
{
    sk_settings all = {0};
    SK_TRY(read_keys(a, argc, argv, job, rest, &all));
    if (rest && rest->help) return SK_OK;
    SK_TRY(rest && rest->own_graph ? no_model(a, &all) : sk_conf_model(a, &all, job));
    return complete(a, &all, job);
}

sk_status sk_conf_saved(sk_arena *a, const char *checkpoint, sk_job *out)
{
    char *word = sk_print(a, "%s/" SK_MANIFEST_FILE, checkpoint);
    return sk_conf_load(a, 1, &word, out, NULL);
}

const char *sk_conf_option(const sk_conf_rest *rest, const char *name)
{
    for (int i = rest->n_given; i-- > 0;)
        if (!strcmp(rest->given[i].name, name)) return rest->given[i].value;
    return NULL;
}
