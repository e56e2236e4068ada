/* setup_data.c - the data of a job, held to its model. */
#include "train/setup.h"
#include "train/checksums.h"
#include "train/companions.h"
#include "train/relayout.h"
#include "train/rundir.h"

#include <string.h>

static sk_status fits_model(const sk_setup *s, sk_store *store)
{
    const sk_graph *g = &s->graph;
    const char *who = sk_print(s->arena, "model %s", s->job->model_name);
    for (int i = 0; i < g->tensors.n; i++) {
        const sk_tensor *t = g->tensors.v[i];
        if (!sk_tensor_is_data(t)) continue;
        char last = t->letters[0] ? t->letters[strlen(t->letters) - 1] : 0;
        SK_TRY(sk_store_offers(store, who, t->name, t->letters, t->type, g->size[(int)last]));
    }
    return sk_store_fit(store, s->job->hyper.vocab_size);
}

/* Where validation data are; "": the end of the training data. */
static const char *val_of(const sk_job *job)
{
    if (*job->data_val) return job->data_val;
    return sk_store_brings_val(job->data_train) ? job->data_train : "";
}

static sk_status open_stores(sk_setup *s)
{
    const sk_job *job = s->job;
    if (!*job->data_train)
        return sk_fail(SK_ECONF, "data.train is not given; a file, a folder or a known name such "
                                 "as kjv is needed");
    const char *d = job->data_dtype;
    sk_data_hint said = {.id_bytes = !strcmp(d, "uint16")   ? 2
                                     : !strcmp(d, "uint32") ? 4
                                                            : 0,
                         .text = !strcmp(job->data_format, "text")};
    SK_TRY(sk_store_open_as(s->arena, job->data_train, s->tokenizer, false, said, &s->train));
    SK_TRY(fits_model(s, &s->train));
    s->data = s->train;
    const char *val = val_of(job);
    if (*val) {
        SK_TRY(sk_store_open_as(s->arena, val, s->tokenizer, true, said, &s->val));
        SK_TRY(fits_model(s, &s->val));
        s->has_val = true;
    } else if (job->data_val_fraction > 0) {
        sk_store all = s->train;
        sk_store_cut(&all, job->data_val_fraction, &s->train, &s->val);
        s->has_val = true;
    }
    return SK_OK;
}

enum { VAL_BATCHES = 8 };

/* How many windows a validation reads, each once: as many in all phases of a run.  The last batch
 * is filled up with windows that do not count. */
static int64_t val_windows(const sk_job *job, int64_t all)
{
    int64_t n = job->val_batches;
    if (!n) return 0;
    if (n < 0 && sk_job_validates_only(job)) return all;
    if (n < 0) n = all / job->batch < VAL_BATCHES ? all / job->batch : VAL_BATCHES;
    if (n < 1) n = 1;
    return all / n < job->batch ? all : n * job->batch;
}

/* A cut too short to hold one window is no validation, not a mistake; a file of one's own is.
 * Either is told if validation is wanted, and so is a validation of less than was asked for. */
static sk_status open_val(sk_setup *s)
{
    const sk_job *job = s->job;
    const sk_store *v = &s->val;
    int64_t n = v->tokens ? v->n_tokens : v->n_rows, need = v->tokens ? job->seq + 1 : 1;
    const char *unit = v->tokens ? "tokens" : "rows";
    if (!*val_of(job) && n < need) {
        s->has_val = false;
        s->val_note = sk_print(s->arena,
                               "no validation: data.val_fraction=%g of the data are %lld %s, and "
                               "%lld are needed%s; give data.val or a larger data.val_fraction",
                               job->data_val_fraction, (long long)n, unit, (long long)need,
                               v->tokens ? " (train.seq and one)" : "");
        return SK_OK;
    }
    SK_TRY(sk_feed_open(&s->val_feed, v, job->seq, job->batch, job->seed, false));
    s->val_feed.end = val_windows(job, s->val_feed.n_windows);
    if (job->val_batches > 0 && s->val_feed.n_windows / job->val_batches < job->batch)
        s->val_note = sk_print(
            s->arena,
            "validation should take %lld batches of %lld sequences (val.batches), and the data "
            "have %lld sequences (%lld %s): it takes each once",
            (long long)job->val_batches, (long long)job->batch, (long long)s->val_feed.n_windows,
            (long long)n, unit);
    return SK_OK;
}

/* What is asked of validations, and none would be made. */
static sk_status check_stop(const sk_setup *s)
{
    const sk_job *job = s->job;
    const char *what = sk_job_validates_only(job) ? "train.steps=0, a validation alone"
                       : job->stop_loss > 0       ? "val.stop_loss"
                       : job->stop_accuracy > 0   ? "val.stop_accuracy"
                                                  : NULL;
    if (job->stop_accuracy > 0 && !s->graph.right)
        return sk_fail(SK_ECONF,
                       "val.stop_accuracy is %g, and the model has no classes to get right; "
                       "val.stop_loss is for all models",
                       job->stop_accuracy);
    if (what && (!s->has_val || !job->val_every || !job->val_batches))
        return sk_fail(SK_ECONF, "%s needs validations; %s", what,
                       !s->has_val       ? "there are no validation data: data.val"
                       : !job->val_every ? "val.every is 0"
                                         : "val.batches is 0");
    return SK_OK;
}

sk_status sk_setup_validations(const sk_setup *s)
{
    sk_setup told = *s; /* as if the data were there */
    told.has_val = *val_of(s->job) || s->job->data_val_fraction > 0;
    return check_stop(&told);
}

static sk_status open_data(sk_setup *s)
{
    const sk_job *job = s->job;
    if (sk_graph_is_sequences(&s->graph) && strcmp(job->data_tokenizer, "none")) {
        const char *kept = sk_rundir_resumed_tokenizer(s->arena, job);
        const char *what = sk_companions_tokenizer(s->arena, job->data_tokenizer, kept);
        SK_TRY(sk_checksums_check_texts(what)); /* a directory may have sums */
        SK_TRY(sk_tokenizer_open(s->arena, what, &s->tokenizer));
        int64_t words = sk_tokenizer_vocab(s->tokenizer);
        if (words > job->hyper.vocab_size)
            return sk_fail(SK_ECONF,
                           "tokenizer '%s' has %lld ids, the model's vocab_size is %lld; set "
                           "model.vocab_size=%lld or more",
                           job->data_tokenizer, (long long)words, (long long)job->hyper.vocab_size,
                           (long long)words);
    }
    SK_TRY(open_stores(s));
    bool shuffle = !strcmp(job->data_order, "shuffle");
    SK_TRY(sk_feed_open(&s->feed, &s->train, job->seq, job->batch, job->seed, shuffle));
    if (s->has_val) SK_TRY(open_val(s));
    return check_stop(s);
}

sk_status sk_setup_data(sk_setup *s)
{
    SK_TRY(open_data(s));
    sk_relayout_data(s);
    return SK_OK;
}

sk_status sk_setup_check(sk_setup *s)
{
    SK_TRY(sk_id_check_begin(&s->ids[0], &s->data));
    if (s->has_val && *val_of(s->job)) SK_TRY(sk_id_check_begin(&s->ids[1], &s->val));
    return SK_OK;
}

sk_status sk_setup_check_more(sk_setup *s, double seconds)
{
    for (int i = 0; i < 2; i++) SK_TRY(sk_id_check_more(&s->ids[i], seconds));
    return SK_OK;
}

sk_status sk_setup_fill(void *ctx, const char *input, sk_dtype type, const sk_extent *box,
                        int64_t step, bool validation, void *to)
{
    (void)type;
    return sk_setup_fill_shifted(ctx, 0, input, box, step, validation, to);
}

sk_status sk_setup_fill_shifted(const sk_setup *s, int64_t shift, const char *input,
                                const sk_extent *box, int64_t step, bool validation, void *to)
{
    sk_feed f = validation ? s->val_feed : s->feed;
    f.shift = validation ? 0 : shift;
    if (!strcmp(input, "loss_scale")) {
        *(float *)to = 1;
        return SK_OK;
    }
    sk_assert(box->n >= 1 && box->n <= 2);
    bool flat = box->n == 1;
    return sk_feed_fill(&f, input, step, box->at[0], box->size[0], flat ? 0 : box->at[1],
                        flat ? 1 : box->size[1], to);
}
