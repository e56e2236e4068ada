/* rundir.c - the directory of a run. */
#include "train/rundir.h"
#include "base/file_io.h"
#include "base/strings.h"
#include "tensor/strict.h"
#include "train/companions.h"
#include "train/model_export.h"
#include "train/folder.h"
#include "train/hf.h"
#include "train/checksums.h"

#include <dirent.h>
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bool is_checkpoint(sk_arena *a, const char *path)
{
    return sk_is_file(sk_print(a, "%s/MANIFEST.json", path));
}

static sk_status put_path(char *to, const char *from)
{
    if (strlen(from) >= PATH_MAX - 64) return sk_fail(SK_ECREATE, "%s: name too long", from);
    memmove(to, from, strlen(from) + 1);
    return SK_OK;
}

/* --- names --- */

/* runs/1115-0142-demo; -2, -3 ... if it is there. */
static const char *fresh_name(sk_arena *a, const sk_job *job)
{
    char stamp[32];
    time_t now = time(NULL);
    struct tm tm;
    strftime(stamp, sizeof stamp, "%m%d-%H%M", localtime_r(&now, &tm));
    char *stem = basename(sk_strdup(a, *job->source ? job->source : job->model_name));
    char *dot = strrchr(stem, '.');
    if (dot && dot != stem) *dot = 0;
    const char *path = sk_print(a, "runs/%s-%s", stamp, stem);
    for (int i = 2; !access(path, F_OK); i++) path = sk_print(a, "runs/%s-%s-%d", stamp, stem, i);
    return path;
}

bool sk_rundir_resumed(const sk_job *job, char *to)
{
    sk_arena a = {0};
    const char *path = NULL;
    if (*job->run) path = job->run;
    else if (!strcmp(job->resume, "auto")) path = "runs/last";
    else if (*job->resume && !is_checkpoint(&a, job->resume)) path = job->resume;
    bool there = path && sk_is_dir(path) && strlen(path) < PATH_MAX - 64;
    if (there) {
        char aim[PATH_MAX];
        ssize_t n = strcmp(path, "runs/last") ? -1 : readlink(path, aim, sizeof aim - 1);
        if (n > 0) aim[n] = 0; /* its own name tells more than "last" */
        if (n > 0 && n < PATH_MAX - 64) snprintf(to, PATH_MAX, "runs/%.*s", PATH_MAX - 64, aim);
        else snprintf(to, PATH_MAX, "%s", path);
    }
    sk_arena_end(&a);
    return there;
}

/* --- resuming --- */

/* The key 0 would leave tensors of the model behind; that other ones are missing is found out when
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
            sk_out_add(
                &o, "\nmodel.%s was %s and is %s: weights go on in another model than that of %s",
                f->name, x.s, y.s, t->from);
    }
    if (o.n) *note = sk_print(a, "%s%s", *note, o.s);
    return SK_OK;
}

/* Windows are numbered: other data under the same numbers would be trained on in silence, some
 * twice and some never. */
static sk_status same_data(const sk_job *job, const sk_training *t, const sk_extra *x)
{
    if (!*x->data || !*t->data || !strcmp(x->data, t->data) || job->data_changed) return SK_OK;
    return sk_fail(SK_EDATA,
                   "data.train (%s) is not what %s was trained on: its tokens and their sum are "
                   "%s, they were %s; bring the data back, or say data.changed=1 to go on with "
                   "these",
                   job->data_train, t->from, t->data, x->data);
}

/* A step reads windows by its number, batch, seed and order alone, so that with another of these
 * the position is another: what repeats or is left out is told, key by key. */
static void same_order(sk_arena *a, const sk_job *job, const sk_training *t, const sk_ckpt *c,
                       const sk_extra *x, const char **note)
{
    static const char anew[] = "some of this epoch come twice and some not at all";
    bool shuffled = !strcmp(job->data_order, "shuffle"), other = strcmp(x->data, t->data) != 0;
    uint64_t batch = (uint64_t)sk_batch_of_step(&x->left, c->state.step);
    uint64_t was = batch * (uint64_t)x->batch, is = batch * (uint64_t)job->batch;
    sk_out o = {.arena = a};
    if (x->batch && x->batch != job->batch)
        sk_out_add(
            &o,
            "\ntrain.batch was %lld and is %lld: the run goes on at window %llu of the data, "
            "not %llu; %llu %s",
            (long long)x->batch, (long long)job->batch, (unsigned long long)is,
            (unsigned long long)was, (unsigned long long)(is > was ? is - was : was - is),
            is > was ? "are left out" : "come twice");
    if (x->seq && x->seq != job->seq)
        sk_out_add(&o, "\ntrain.seq was %lld and is %lld: windows are cut anew, so that %s",
                   (long long)x->seq, (long long)job->seq, anew);
    if (*x->order && strcmp(x->order, job->data_order))
        sk_out_add(&o, "\ndata.order was %s and is %s: %s", sk_strict_show(x->order).s,
                   job->data_order, anew);
    else if (shuffled && c->state.seed != job->seed)
        sk_out_add(&o, "\ntrain.seed was %llu and is %llu: data are shuffled anew, so that %s",
                   (unsigned long long)c->state.seed, (unsigned long long)job->seed, anew);
    if (x->windows && x->windows != t->windows && x->seq == job->seq && !other)
        sk_out_add(
            &o,
            "\ndata.val or data.val_fraction is another: there were %lld windows to train on "
            "and are %lld; %s, and some that were trained on may be validated on",
            (long long)x->windows, (long long)t->windows, anew);
    if (o.n) *note = sk_print(a, "%s%s", *note, o.s);
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
static sk_status read_state(sk_arena *a, const sk_job *job, sk_training *t, const char **note)
{
    sk_ckpt c;
    sk_extra x;
    SK_TRY(sk_rundir_verify(a, t->from, false, &c, &x));
    if (job) SK_TRY(same_model(a, job, t, &c, note));
    if (job) SK_TRY(same_bias(job, t, &c));
    if (job) SK_TRY(same_data(job, t, &x));
    if (job) same_order(a, job, t, &c, &x, note);
    t->step = c.state.step;
    t->tokens = c.state.tokens;
    t->updates = x.updates;
    if (!t->steps) t->steps = x.steps;
    t->scale = x.scale;
    t->good = x.good;
    t->skipped = x.skipped;
    t->left = x.left;
    t->pending = x.pending;
    return SK_OK;
}

static sk_status newest(sk_arena *a, const char *dir, sk_training *t, const char **note)
{
    sk_ckpt_found f = {0};
    SK_TRY(sk_ckpt_find(a, dir, -1, false, &f));
    if (f.skipped) *note = sk_print(a, "resuming from step %lld; %s", (long long)f.step, f.why);
    return put_path(t->from, f.path);
}

static sk_status no_checkpoint(const char *run)
{
    return sk_fail(SK_EDATA,
                   "resume: %s has no checkpoint to go on from: it ended before the first (see "
                   "ckpt.every); without --resume it begins anew at step 1, and metrics.jsonl "
                   "stays as metrics.jsonl.1",
                   run);
}

/* Where the state comes from: a checkpoint, the newest of a run, or nowhere. */
static sk_status find_state(sk_arena *a, const sk_job *job, sk_training *t, const char **note)
{
    int64_t *steps;
    int n = 0;
    if (*job->resume && strcmp(job->resume, "auto")) {
        if (is_checkpoint(a, job->resume)) return put_path(t->from, job->resume);
        if (!sk_is_dir(job->resume))
            return sk_fail(SK_EDATA, "resume=%s: there is no such run or checkpoint", job->resume);
        SK_TRY(sk_ckpt_list(a, sk_print(a, "%s/ckpt", job->resume), &steps, &n));
        if (!n) return no_checkpoint(job->resume);
        return newest(a, sk_print(a, "%s/ckpt", job->resume), t, note);
    }
    SK_TRY(sk_ckpt_list(a, t->ckpt, &steps, &n));
    if (!n && *job->resume) return no_checkpoint(t->dir);
    if (!n) return SK_OK;
    if (!*job->resume)
        return sk_fail(SK_ECREATE,
                       "run %s already has checkpoints, the newest of step %lld; continue it with "
                       "--resume, or name another run=DIR",
                       t->dir, (long long)steps[0]);
    return newest(a, t->ckpt, t, note);
}

/* --- what is in the way --- */

static const char first_line[] = "# The job as it was run; written by skein.\n";

/* A folder becomes a run only if config.yaml, which is written over, is missing or skein's. */
static sk_status check_config(sk_arena *a, const sk_training *t)
{
    sk_text text;
    const char *path = sk_print(a, "%s/config.yaml", t->dir);
    if (!sk_is_file(path)) return SK_OK;
    SK_TRY(sk_file_read(a, path, &text));
    if (!strncmp(text.s, first_line, sizeof first_line - 1)) return SK_OK;
    return sk_fail(SK_ECREATE,
                   "%s was not written by skein, and run=%s would write over it; name another "
                   "run=DIR, or give the file another name",
                   path, t->dir);
}

/* What this run will put its own in place of: found out now, not when all steps are done. */
static sk_status check_places(sk_arena *a, const sk_job *job, const sk_training *t)
{
    struct stat x, y;
    const char *final = sk_print(a, "%s/final", t->dir);
    SK_TRY(sk_checksums_replaceable(final));
    if (!*t->from) SK_TRY(sk_checksums_replaceable(sk_print(a, "%s/tokenizer", t->dir)));
    if (!*job->model_dir || stat(job->model_dir, &x) || stat(final, &y) || x.st_dev != y.st_dev ||
        x.st_ino != y.st_ino)
        return SK_OK;
    return sk_fail(SK_ECREATE,
                   "model=%s is the final/ of run %s, which would put its own model in place of "
                   "it: name another run=DIR, or move final/ away",
                   job->model_dir, t->dir);
}

static bool all_hex(const char *s, size_t n) { return strspn(s, "0123456789abcdef") == n && !s[n]; }

/* Names that only a run that was killed leaves: NAME.tmp-PID of a file, final.tmp-NONCE and
 * sample-STEP of a model, trace.RANK.part. */
static bool is_ours(const char *s)
{
    static const char *const files[] = {"config.yaml", "memory.csv", "flight.txt", "trace.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t n = strlen(files[i]);
        if (strncmp(s, files[i], n) || strncmp(s + n, ".tmp-", 5)) continue;
        s += n + 5;
        return *s && !s[strspn(s, "0123456789")];
    }
    if (!strncmp(s, "trace.", 6)) {
        size_t n = strspn(s + 6, "0123456789");
        return n && !strcmp(s + 6 + n, ".part");
    }
    if (!strncmp(s, "final", 5)) s += 5;
    else if (!strncmp(s, "sample-", 7) && strspn(s + 7, "0123456789") == 10) s += 17;
    else return false;
    if (!*s) return s[-1] != 'l'; /* final itself stays */
    return !strncmp(s, ".tmp-", 5) && all_hex(s + 5, 16);
}

/* By the holder of the lock: nobody else is at work here. */
static void sweep(const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!is_ours(e->d_name)) continue;
        if (unlinkat(dirfd(d), e->d_name, 0)) sk_folder_sweep(dirfd(d), e->d_name);
    }
    if (d) closedir(d);
}

/* --- making --- */

/* Best effort: a convenience for people. */
static void link_last(const char *dir)
{
    if (strncmp(dir, "runs/", 5) || strchr(dir + 5, '/')) return;
    char tmp[64];
    snprintf(tmp, sizeof tmp, "runs/.last-%ld", (long)getpid());
    unlink(tmp);
    if (!symlink(dir + 5, tmp) && rename(tmp, "runs/last")) unlink(tmp);
}

/* What is there already: who uses it says so first. */
static sk_status enter_old(sk_arena *a, const sk_job *job, sk_training *t, bool resumes)
{
    int64_t *steps;
    int n = 0;
    if (!strcmp(job->resume, "auto") && !resumes)
        return sk_fail(SK_EDATA, "resume: there is no run %s; without --resume it is begun",
                       *job->run ? job->run : "runs/last");
    if (!*job->resume) SK_TRY(sk_dir_make(t->dir));
    if (sk_is_dir(t->ckpt)) SK_TRY(sk_ckpt_open(t->ckpt, &t->home));
    SK_TRY(sk_ckpt_list(a, t->ckpt, &steps, &n));
    if (n) return SK_OK;
    if (!*job->resume && sk_is_dir(sk_print(a, "%s/final", t->dir)))
        return sk_fail(
            SK_ECREATE,
            "run %s has a model in final/ and no checkpoint; a new run would put its own "
            "in place of it: name another run=DIR, or move final/ away",
            t->dir);
    return check_config(a, t);
}

sk_status sk_rundir_open(sk_arena *a, const sk_job *job, sk_training *t, const char **note)
{
    char old[PATH_MAX];
    bool resumes = *job->resume && sk_rundir_resumed(job, old);
    *note = "";
    t->steps = job->time_limit > 0 ? 0 : job->steps;
    SK_TRY(put_path(t->dir, resumes ? old : *job->run ? job->run : fresh_name(a, job)));
    snprintf(t->ckpt, sizeof t->ckpt, "%.*s/ckpt", PATH_MAX - 64, t->dir);
    SK_TRY(enter_old(a, job, t, resumes));
    SK_TRY(find_state(a, job, t, note));
    if (*t->from) SK_TRY(read_state(a, job, t, note));
    SK_TRY(check_places(a, job, t));
    SK_TRY(sk_dir_make(t->dir));
    if (!t->home) SK_TRY(sk_ckpt_open(t->ckpt, &t->home));
    sweep(t->dir);
    link_last(t->dir);
    return SK_OK;
}

sk_status sk_rundir_restart(sk_arena *a, sk_training *t)
{
    int64_t *steps;
    int n = 0;
    const char *note;
    sk_ckpt_close(t->home);
    t->home = NULL;
    SK_TRY(sk_ckpt_open(t->ckpt, &t->home)); /* sweeps what was being written */
    SK_TRY(sk_ckpt_list(a, t->ckpt, &steps, &n));
    if (!n) return SK_OK;
    SK_TRY(newest(a, t->ckpt, t, &note));
    return read_state(a, NULL, t, NULL);
}

sk_status sk_rundir_rollback(sk_arena *a, const sk_training *t, int64_t most, sk_training *out)
{
    int64_t *steps;
    int n = 0;
    *out = *t;
    if (*t->from && t->step > most) *out->from = 0;
    SK_TRY(sk_ckpt_list(a, t->ckpt, &steps, &n));
    for (int i = 0; i < n; i++) {
        const char *path = sk_print(a, "%s/step-%010lld", t->ckpt, (long long)steps[i]);
        if (steps[i] > most || sk_ckpt_verify(path, true)) continue;
        SK_TRY(put_path(out->from, path));
        break;
    }
    if (*out->from) return read_state(a, NULL, out, NULL);
    return sk_fail(SK_ENUM, "there is no checkpoint so far to go back to; ckpt.every=N makes one "
                            "every N steps");
}

sk_status sk_rundir_config(const sk_training *t, const char *text)
{
    sk_arena a = {0};
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/config.yaml", t->dir);
    char *whole = sk_print(&a, "%s%s", first_line, text);
    sk_status st = sk_file_replace(path, whole, strlen(whole));
    sk_arena_end(&a);
    return st;
}

/* --- what goes with the tokens --- */

static const char *if_dir(const char *path) { return sk_is_dir(path) ? path : NULL; }

const char *sk_rundir_tokenizer(sk_arena *a, const char *checkpoint) /* RUN/ckpt/step-N */
{
    return if_dir(sk_print(a, "%s/../../tokenizer", checkpoint));
}

const char *sk_rundir_resumed_tokenizer(sk_arena *a, const sk_job *job)
{
    char run[PATH_MAX];
    const char *found = NULL;
    if (!*job->resume) return NULL;
    if (sk_rundir_resumed(job, run)) found = if_dir(sk_print(a, "%s/tokenizer", run));
    if (found || !strcmp(job->resume, "auto")) return found;
    found = if_dir(sk_print(a, "%s/tokenizer", job->resume));
    return found || !is_checkpoint(a, job->resume) ? found : sk_rundir_tokenizer(a, job->resume);
}

/* Is it the tokenizer that was kept? */
static bool same_tokenizer(sk_arena *a, const char *kept, const char *json)
{
    sk_text text = {0};
    const char *path = sk_print(a, "%s/tokenizer.json", kept);
    if (!sk_is_file(path)) return !json;
    return json && !sk_file_read(a, path, &text) && !strcmp(text.s, json);
}

sk_status sk_rundir_keep_tokenizer(sk_arena *a, const sk_job *job, const sk_training *t,
                                   const sk_tokenizer *tokenizer)
{
    bool own = tokenizer && strcmp(job->data_tokenizer, "byte");
    const char *json = own ? sk_tokenizer_json(tokenizer, a) : NULL;
    const char *kept = sk_rundir_resumed_tokenizer(a, job);
    sk_companions c;
    if (kept && same_tokenizer(a, kept, json)) {
        if (!strcmp(kept, sk_print(a, "%s/tokenizer", t->dir))) return SK_OK;
        SK_TRY(sk_companions_read(a, kept, &c));
    } else SK_TRY(sk_companions_for(a, job->data_tokenizer, job->model_dir, &c));
    c.tokenizer_json = json;
    return sk_companions_keep(a, t->dir, &c);
}

void sk_rundir_remove(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(dir);
}

/* --- what others look for in it --- */

const char *sk_rundir_model(sk_arena *a, const char *what)
{
    const char *final = sk_print(a, "%s/final", what);
    if (sk_is_file(sk_print(a, "%s/config.json", what))) return what;
    return sk_is_file(sk_print(a, "%s/config.json", final)) ? final : NULL;
}

static bool is_preset(const char *name)
{
    if (!strncmp(name, "preset:", strlen("preset:"))) name += strlen("preset:");
    return sk_model_preset(name, &(sk_hyper){0}) != NULL;
}

sk_status sk_rundir_checkpoint(sk_arena *a, const char *what, const char **out)
{
    sk_ckpt_found f = {0};
    if (is_checkpoint(a, what)) {
        *out = what;
        return SK_OK;
    }
    const char *home = sk_print(a, "%s/ckpt", what);
    if (!sk_is_dir(what) && is_preset(what))
        return sk_fail(SK_EDATA,
                       "%s is a preset, sizes without weights; a model directory, a checkpoint or "
                       "a run is needed",
                       what);
    if (!sk_is_dir(home))
        return sk_fail(SK_EDATA,
                       "%s is neither a model directory (config.json), nor a checkpoint "
                       "(MANIFEST.json), nor a run (ckpt/)",
                       what);
    SK_TRY(sk_ckpt_find(a, home, -1, false, &f));
    *out = sk_strdup(a, f.path);
    return SK_OK;
}
