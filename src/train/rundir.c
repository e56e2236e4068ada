/* rundir.c - the directory of a run: its name, making it, what lies in it. */
#include "train/rundir.h"
#include "base/file_io.h"
#include "base/shell_word.h"
#include "train/checksums.h"
#include "train/companions.h"
#include "train/folder.h"
#include "train/rundir_resume.h"

#include <dirent.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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
    if (*job->replay) stem = sk_print(a, "replay-%s", basename(sk_strdup(a, job->replay)));
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
    else if (*job->resume && !sk_resume_is_checkpoint(&a, job->resume)) path = job->resume;
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

static const char first_line[] = "# The job as it was run; written by skein.\n";

bool sk_rundir_wrote(const char *config)
{
    return !strncmp(config, first_line, sizeof first_line - 1);
}

/* A folder becomes a run only if config.yaml, which is written over, is missing or skein's. */
static sk_status check_config(sk_arena *a, const sk_training *t)
{
    sk_text text;
    const char *path = sk_print(a, "%s/config.yaml", t->dir);
    if (!sk_is_file(path)) return SK_OK;
    SK_TRY(sk_file_read(a, path, &text));
    if (sk_rundir_wrote(text.s)) return SK_OK;
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
    static const char *const files[] = {"config.yaml", "memory.csv", "flight.txt", "trace.json",
                                        "commits.jsonl"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (sk_file_is_temporary(s, files[i])) return true;
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

/* Best effort: a convenience for people. */
static void link_last(const char *dir)
{
    if (strncmp(dir, "runs/", 5) || strchr(dir + 5, '/')) return;
    char tmp[64];
    snprintf(tmp, sizeof tmp, "runs/.last-%ld", (long)getpid());
    unlink(tmp);
    if (!symlink(dir + 5, tmp) && rename(tmp, "runs/last")) unlink(tmp);
}

static sk_status no_run(const sk_job *job)
{
    return sk_fail(SK_EDATA, "resume: there is no run %s; without --resume it is started",
                   *job->run ? job->run : "runs/last");
}

sk_status sk_rundir_resumable(sk_arena *a, const sk_job *job)
{
    char dir[PATH_MAX];
    if (!strcmp(job->resume, "auto")) return sk_rundir_resumed(job, dir) ? SK_OK : no_run(job);
    if (!*job->resume || sk_is_dir(job->resume) || sk_resume_is_checkpoint(a, job->resume))
        return SK_OK;
    return sk_fail(SK_EDATA, "resume=%s: there is no such run or checkpoint", job->resume);
}

/* A directory of a model, as export, average and import from elsewhere leave it. */
static sk_status not_a_model(sk_arena *a, const char *dir, const char *ckpt)
{
    if (!sk_is_file(sk_print(a, "%s/config.json", dir)) || sk_is_dir(ckpt) ||
        sk_is_file(sk_print(a, "%s/config.yaml", dir)))
        return SK_OK;
    return sk_fail(SK_ECREATE,
                   "run=%s is the directory of a model (it has config.json), not of a run: name "
                   "another run=DIR, and train from its weights with model=%s",
                   dir, sk_shell_word(a, dir));
}

/* What is there already: who uses it says so first. */
static sk_status enter_old(sk_arena *a, const sk_job *job, sk_training *t, bool resumes)
{
    int64_t *steps;
    int n = 0;
    SK_TRY(not_a_model(a, t->dir, t->ckpt));
    if (!strcmp(job->resume, "auto") && !resumes) return no_run(job);
    if (!*job->resume) SK_TRY(sk_dir_make(t->dir));
    if (sk_is_dir(t->ckpt)) SK_TRY(sk_ckpt_open(t->ckpt, &t->ckpt_dir));
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
    SK_TRY(sk_resume_put_path(t->dir, resumes ? old : *job->run ? job->run : fresh_name(a, job)));
    snprintf(t->ckpt, sizeof t->ckpt, "%.*s/ckpt", PATH_MAX - 64, t->dir);
    SK_TRY(enter_old(a, job, t, resumes));
    SK_TRY(sk_resume_find(a, job, t, note));
    if (*t->from) SK_TRY(sk_resume_read(a, job, t, note));
    SK_TRY(check_places(a, job, t));
    SK_TRY(sk_dir_make(t->dir));
    if (!t->ckpt_dir) SK_TRY(sk_ckpt_open(t->ckpt, &t->ckpt_dir));
    sweep(t->dir);
    link_last(t->dir);
    return SK_OK;
}

sk_status sk_rundir_restart(sk_arena *a, sk_training *t)
{
    int64_t *steps;
    int n = 0;
    const char *note;
    sk_ckpt_close(t->ckpt_dir);
    t->ckpt_dir = NULL;
    SK_TRY(sk_ckpt_open(t->ckpt, &t->ckpt_dir)); /* sweeps what was being written */
    SK_TRY(sk_ckpt_list(a, t->ckpt, &steps, &n));
    if (!n) return SK_OK;
    SK_TRY(sk_resume_newest(a, t->ckpt, t, &note));
    return sk_resume_read(a, NULL, t, NULL);
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
        SK_TRY(sk_resume_put_path(out->from, path));
        break;
    }
    if (*out->from) {
        SK_TRY(sk_resume_read(a, NULL, out, NULL));
        sk_assert(out->step <= most);
        return SK_OK;
    }
    return sk_fail(
        SK_ENUM,
        "there is no checkpoint yet to roll back to; ckpt.every=N makes one every N steps");
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
    return found || !sk_resume_is_checkpoint(a, job->resume) ? found
                                                             : sk_rundir_tokenizer(a, job->resume);
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

static bool is_run(sk_arena *a, const char *dir)
{
    const char *config = sk_print(a, "%s/config.yaml", dir);
    sk_text text;
    if (!sk_is_there(sk_print(a, "%s/metrics.jsonl", dir)) || !sk_is_file(config)) return false;
    if (!sk_file_read(a, config, &text)) return sk_rundir_wrote(text.s);
    sk_error_set("");
    return false;
}

const char *sk_rundir_around(sk_arena *a, const char *path)
{
    char *at = sk_strdup(a, path), *slash, real_path[PATH_MAX];
    while (!realpath(at, real_path)) { /* what is not there lies in what is */
        slash = strrchr(at, '/');
        if (slash == at || !strcmp(at, ".")) return NULL;
        if (slash) *slash = 0;
        else at = sk_strdup(a, ".");
    }
    at = sk_strdup(a, real_path);
    for (; (slash = strrchr(at, '/')); *slash = 0)
        if (*at && is_run(a, at)) return at;
    return NULL;
}

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

sk_status sk_rundir_checkpoint(sk_arena *a, const char *what, const char **out, const char **passed)
{
    sk_ckpt_found f = {0};
    *passed = "";
    if (sk_resume_is_checkpoint(a, what)) {
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
    *passed = sk_print(a, "%.*s", (int)strcspn(f.why, "\n"), f.why);
    return SK_OK;
}
