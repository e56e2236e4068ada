/* rundir_resume.c - what a run resumes from, and whether job and checkpoint go together. */
#include "train/rundir_resume.h"
#include "base/file_io.h"
#include "base/strings.h"
#include "tensor/strict.h"
#include "train/hf.h"
#include "train/model_export.h"

#include <dirent.h>
#include <string.h>

bool sk_resume_is_checkpoint(sk_arena *a, const char *path)
{
    return sk_is_file(sk_print(a, "%s/MANIFEST.json", path));
}

sk_status sk_resume_put_path(char *to, const char *from)
{
    if (strlen(from) >= PATH_MAX - 64) return sk_fail(SK_ECREATE, "%s: name too long", from);
    memmove(to, from, strlen(from) + 1);
    return SK_OK;
}

/* The key 0 would ignore tensors of the checkpoint; tensors that are missing there are found when
 * they are read. */
static sk_status same_bias(const sk_job *job, const sk_training *t, const sk_ckpt *c)
{
    double was = c->state.hyper.router_bias_update_speed;
    if (was == 0 || job->hyper.router_bias_update_speed != 0) return SK_OK;
    return sk_fail(SK_ECONF,
                   "%s has routers with a bias (model.router_bias_update_speed=%g), this run has "
                   "none: set the key; 1e-12 keeps a bias as it is",
                   t->from, was);
}

/* Fields that change how training goes on, or where it began, but not what the weights compute. */
static bool is_free(const sk_field *f, const sk_hyper *h)
{
    static const char *const names[] = {"embd_pdrop",           "resid_pdrop",
                                        "attn_pdrop",           "capacity_factor",
                                        "router_aux_loss_coef", "router_bias_update_speed",
                                        "initializer_range"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(f->name, names[i])) return true;
    return h->rope_theta > 0 && !strcmp(f->name, "max_position_embeddings"); /* it has no weights */
}

/* With every value that was left out, also by a checkpoint that is older than its field. */
static sk_hyper complete(const sk_model *m, const sk_hyper *from)
{
    sk_hyper h = *from;
    const sk_field *f;
    for (int i = 0; (f = sk_model_field(m, i)); i++) {
        if (f->own) continue; /* its default is its own */
        if (f->kind == SK_FIELD_BOOL || sk_field_given(f, from)) continue; /* false is a value */
        if (f->kind == SK_FIELD_TEXT) sk_field_set_text(f, &h, sk_field_print(f, &m->usual).s);
        else sk_field_set_number(f, &h, sk_field_number(f, &m->usual));
    }
    if (!from->num_key_value_heads) h.num_key_value_heads = sk_hyper_key_heads(from);
    if (!from->head_dim) h.head_dim = sk_hyper_head_dim(from);
    return h;
}

/* ---- tensors ---- */

static const sk_hf_shape *shape_of(const sk_hf_shape *v, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(v[i].name, name)) return &v[i];
    return NULL;
}

static const char *sizes_of(sk_arena *a, const sk_hf_shape *x)
{
    return sk_sizes_print(a, x->full, (int)strlen(x->letters));
}

/* The first parameter in which both models differ; NULL: none.  They are lists of the same kind:
 * the checkpoint's tensors are those that its sizes make (sk_hf_check_ckpt). */
static const char *other_tensor(sk_arena *a, const sk_hf_shape *was, int n_was,
                                const sk_hf_shape *is, int n_is)
{
    for (int i = 0; i < n_is; i++) {
        const sk_hf_shape *x = shape_of(was, n_was, is[i].name);
        if (!x)
            return sk_print(a, "it has no tensor '%s', needed with sizes %s", is[i].name,
                            sizes_of(a, &is[i]));
        if (strcmp(sizes_of(a, x), sizes_of(a, &is[i])))
            return sk_print(a, "'%s' has sizes %s, needed %s", is[i].name, sizes_of(a, x),
                            sizes_of(a, &is[i]));
    }
    for (int i = 0; i < n_was; i++)
        if (!shape_of(is, n_is, was[i].name))
            return sk_print(a, "it has a tensor '%s' of sizes %s, for which this run has no place",
                            was[i].name, sizes_of(a, &was[i]));
    return NULL;
}

/* Before state of optimizers is looked for, which is missing too where a parameter is. */
static sk_status same_tensors(sk_arena *a, const sk_job *job, const sk_training *t,
                              const sk_ckpt *c)
{
    sk_hf_shape *was, *is;
    int n_was = 0, n_is = 0;
    const sk_field *f;
    sk_out o = {.arena = a};
    SK_TRY(sk_hf_shapes_of(a, job->model, &c->state.hyper, &was, &n_was));
    SK_TRY(sk_hf_shapes_of(a, job->model, &job->hyper, &is, &n_is));
    const char *what = other_tensor(a, was, n_was, is, n_is);
    if (!what) return SK_OK;
    sk_hyper old = complete(job->model, &c->state.hyper), now = complete(job->model, &job->hyper);
    for (int i = 0; (f = sk_model_field(job->model, i)); i++) {
        sk_field_text x = sk_field_print(f, &old), y = sk_field_print(f, &now);
        if (strcmp(x.s, y.s)) sk_out_add(&o, "model.%s was %s and is %s; ", f->name, x.s, y.s);
    }
    return sk_fail(SK_EDATA,
                   "%s holds another model: %s; %sname the same model, or another run=DIR without "
                   "--resume",
                   t->from, what, o.n ? o.s : "");
}

/* Tensors of the same names and sizes do not make it the same model: another activation or base of
 * the rotation would go on with weights that were trained under the first. */
static sk_status same_model(sk_arena *a, const sk_job *job, const sk_training *t, const sk_ckpt *c,
                            const char **note)
{
    sk_out o = {.arena = a};
    if (strcmp(c->state.hyper.arch, job->model->name))
        return sk_fail(SK_EDATA,
                       "%s holds a model of arch '%s', this run's is '%s': name the same model, or "
                       "another run=DIR without --resume",
                       t->from, sk_strict_show(c->state.hyper.arch).s, job->model->name);
    sk_hyper was = complete(job->model, &c->state.hyper), is = complete(job->model, &job->hyper);
    const sk_field *f;
    for (int i = 0; (f = sk_model_field(job->model, i)); i++) {
        sk_field_text x = sk_field_print(f, &was), y = sk_field_print(f, &is);
        if (!is_free(f, &is) && strcmp(x.s, y.s))
            sk_out_add(&o,
                       "\nmodel.%s was %s and is %s: the weights continue in another model than "
                       "that of %s",
                       f->name, x.s, y.s, t->from);
    }
    if (o.n) *note = sk_print(a, "%s%s", *note, o.s);
    return SK_OK;
}

/* Windows are numbered: with other data under the same numbers some would silently be read twice
 * and some never. */
static sk_status same_data(const sk_job *job, const sk_training *t, const sk_extra *x)
{
    if (!*x->data || !*t->data || !strcmp(x->data, t->data) || job->data_changed) return SK_OK;
    return sk_fail(
        SK_EDATA,
        "data.train (%s) is not what %s was trained on: its tokens and their checksum are %s, they "
        "were %s; restore the data, or set data.changed=1 to continue with these",
        job->data_train, t->from, t->data, x->data);
}

/* Which windows a step reads follows from its number, batch, seed and order alone.  With another of
 * these the position changes: a note says what is repeated or skipped, key by key. */
static void same_order(sk_arena *a, const sk_job *job, const sk_training *t, const sk_ckpt *c,
                       const sk_extra *x, const char **note)
{
    static const char anew[] = "some samples of this epoch are read twice and some not at all";
    bool shuffled = !strcmp(job->data_order, "shuffle"), other = strcmp(x->data, t->data) != 0;
    uint64_t batch = (uint64_t)sk_batch_of_step(&x->skipped_batches, c->state.step);
    uint64_t was = batch * (uint64_t)x->batch, is = batch * (uint64_t)job->batch;
    sk_out o = {.arena = a};
    if (x->batch && x->batch != job->batch && t->next.samples < 0)
        sk_out_add(
            &o,
            "\ntrain.batch was %lld and is %lld: the run goes on at window %llu of the data, "
            "not %llu; %llu %s",
            (long long)x->batch, (long long)job->batch, (unsigned long long)is,
            (unsigned long long)was, (unsigned long long)(is > was ? is - was : was - is),
            is > was ? "are skipped" : "are read twice");
    if (x->seq && x->seq != job->seq)
        sk_out_add(&o, "\ntrain.seq was %lld and is %lld: windows are cut differently, so that %s",
                   (long long)x->seq, (long long)job->seq, anew);
    if (*x->order && strcmp(x->order, job->data_order))
        sk_out_add(&o, "\ndata.order was %s and is %s: %s", sk_strict_show(x->order).s,
                   job->data_order, anew);
    else if (shuffled && c->state.seed != job->seed)
        sk_out_add(&o,
                   "\ntrain.seed was %llu and is %llu: the order of samples is another, so that %s",
                   (unsigned long long)c->state.seed, (unsigned long long)job->seed, anew);
    if (x->windows && x->windows != t->windows && x->seq == job->seq && !other)
        sk_out_add(&o,
                   "\ndata.val or data.val_fraction was changed: there were %lld windows to train "
                   "on and are %lld; %s, and some that were trained on may be validated on",
                   (long long)x->windows, (long long)t->windows, anew);
    if (o.n) *note = sk_print(a, "%s%s", *note, o.s);
}

/* A run that is beyond its end would only have its config.yaml changed. */
static sk_status not_beyond(const sk_job *job, const sk_training *t)
{
    if (sk_job_validates_only(job) || !t->steps || t->step <= t->steps) return SK_OK;
    return sk_fail(SK_ECONF,
                   "train.steps is %lld, and %s is at step %lld already: take train.steps=%lld or "
                   "more, or resume an earlier checkpoint of it in another run=DIR",
                   (long long)t->steps, t->from, (long long)t->step, (long long)t->step);
}

/* What ended the run, whose steps are not all done; as long as the keys say so. */
static void say_end(sk_arena *a, const sk_job *job, const sk_training *t, const char **note)
{
    const sk_validation *v = &t->val;
    bool by_loss = job->stop_loss > 0 && v->loss <= job->stop_loss;
    if (sk_job_validates_only(job) || t->step == t->steps || !sk_validation_ends(v, job)) return;
    *note =
        sk_print(a,
                 "%s\nthe run ended at step %lld, where the %s was %.6g: to train on, set %s to "
                 "%s that, or to 0",
                 *note, (long long)v->step, by_loss ? "validation loss" : "accuracy",
                 by_loss ? v->loss : v->accuracy, by_loss ? "val.stop_loss" : "val.stop_accuracy",
                 by_loss ? "less than" : "more than");
}

sk_status sk_rundir_verify(sk_arena *a, const char *path, bool deep, sk_ckpt *c, sk_extra *x)
{
    SK_TRY(sk_ckpt_verify(path, deep));
    SK_TRY(sk_ckpt_read(a, path, c));
    SK_TRY(sk_hf_check_ckpt(c));
    return sk_extra_read(a, path, c->state.extra, c->state.step, x);
}

/* Steps, tokens, updates and the number of steps that an earlier part of the run chose.  job: to be
 * the same model; NULL: it is, the checkpoint is this run's own. */
sk_status sk_resume_read(sk_arena *a, const sk_job *job, sk_training *t, const char **note)
{
    sk_ckpt c;
    sk_extra x;
    SK_TRY(sk_rundir_verify(a, t->from, false, &c, &x));
    if (job) SK_TRY(same_model(a, job, t, &c, note));
    if (job) SK_TRY(same_bias(job, t, &c));
    if (job) SK_TRY(same_tensors(a, job, t, &c));
    if (job) SK_TRY(same_data(job, t, &x));
    int64_t index = sk_batch_of_step(&x.skipped_batches, c.state.step);
    bool even = x.next.samples < 0 || x.next.samples == index * x.batch; /* batches of one size */
    bool moves = job && *job->batch_schedule;
    t->next = x.next;
    t->next.index = index;
    t->next.batch = x.batch;
    if (job && even && !moves) t->next.samples = -1;
    if (x.next.samples < 0 && moves) t->next.samples = index * x.batch;
    if (job) same_order(a, job, t, &c, &x, note);
    t->step = c.state.step;
    t->tokens = c.state.tokens;
    t->updates = x.updates;
    if (!t->steps) t->steps = x.steps;
    t->scale = x.scale;
    t->good = x.good;
    t->noise = x.noise;
    t->progress = x.progress;
    t->skipped = x.skipped;
    t->skipped_batches = x.skipped_batches;
    t->pending = x.pending;
    t->owed = x.owed;
    t->val = job && job->data_changed ? (sk_validation){0} : x.val;
    if (!job) return SK_OK;
    say_end(a, job, t, note);
    return not_beyond(job, t);
}

sk_status sk_resume_newest(sk_arena *a, const char *dir, sk_training *t, const char **note)
{
    sk_ckpt_found f = {0};
    SK_TRY(sk_ckpt_find(a, dir, -1, false, &f));
    if (f.skipped) *note = sk_print(a, "resuming from step %lld; %s", (long long)f.step, f.why);
    return sk_resume_put_path(t->from, f.path);
}

static sk_status no_checkpoint(const char *run)
{
    return sk_fail(
        SK_EDATA,
        "resume: %s has no checkpoint to resume: it ended before the first (see ckpt.every); "
        "without --resume it starts again at step 1, and metrics.jsonl is kept as metrics.jsonl.1",
        run);
}

/* Where the state comes from: a checkpoint, the newest of a run, or nowhere. */
sk_status sk_resume_find(sk_arena *a, const sk_job *job, sk_training *t, const char **note)
{
    int64_t *steps;
    int n = 0;
    if (*job->resume && strcmp(job->resume, "auto")) {
        if (sk_resume_is_checkpoint(a, job->resume))
            return sk_resume_put_path(t->from, job->resume);
        if (!sk_is_dir(job->resume))
            return sk_fail(SK_EDATA, "resume=%s: there is no such run or checkpoint", job->resume);
        SK_TRY(sk_ckpt_list(a, sk_print(a, "%s/ckpt", job->resume), &steps, &n));
        if (!n) return no_checkpoint(job->resume);
        return sk_resume_newest(a, sk_print(a, "%s/ckpt", job->resume), t, note);
    }
    SK_TRY(sk_ckpt_list(a, t->ckpt, &steps, &n));
    if (!n && *job->resume) return no_checkpoint(t->dir);
    if (!n) return SK_OK;
    if (!*job->resume)
        return sk_fail(SK_ECREATE,
                       "run %s already has checkpoints, the newest of step %lld; continue it with "
                       "--resume, or name another run=DIR",
                       t->dir, (long long)steps[0]);
    return sk_resume_newest(a, t->ckpt, t, note);
}
