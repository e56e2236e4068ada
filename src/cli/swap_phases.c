/* swap_phases.c - the three phases of a swap as sweeps. */
#include "cli/swap.h"
#include "base/file_io.h"
#include "base/shell_word.h"
#include "train/folder.h"
#include "train/model_average.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Phase 3 has the keys of phase 2, and all of data.val unless val.batches says otherwise. */
static const char *const validation[] = {"train.steps=0", "train.time=0", "val.every=-1",
                                         "train.noise=0", "optim.adascale=0"};
enum { MORE = sizeof validation / sizeof *validation };

/* A phase: words of all phases, its own, and more that follow from where it stands. */
static void begin(sk_swap *w, sk_sweep *s, const char *name, const char *const *own, int n_own,
                  const char *const *more, int n_more)
{
    int n = 0;
    *s = (sk_sweep){.arena = w->arena,
                    .dir = sk_print(w->arena, "%s/%s", w->dir, name),
                    .home = w->real,
                    .file = w->file,
                    .words = sk_many(w->arena, const char *, w->n_words + n_own + n_more + 1),
                    .said = sk_many(w->arena, const char *, w->n_words + n_own + n_more + 3)};
    for (int i = 0; i < w->n_words; i++) s->words[n++] = w->words[i];
    for (int i = 0; i < n_own; i++) s->words[n++] = own[i];
    for (int i = 0; i < n_more; i++) s->words[n++] = more[i];
    s->n_words = n;
    if (s->file) s->said[s->n_said++] = s->file;
    for (int i = 0; i < n; i++) s->said[s->n_said++] = s->words[i];
}

void sk_swap_phase(sk_swap *w, sk_sweep *s, int phase)
{
    if (phase == 1) begin(w, s, "large", w->large, w->n_large, NULL, 0);
    else if (phase == 2) begin(w, s, "small", w->small, w->n_small, NULL, 0);
    else begin(w, s, "val", w->small, w->n_small, validation, MORE);
}

/* The only key with several values; names: of the jobs, NULL: by the values. */
static void vary(sk_swap *w, sk_sweep *s, const char *key, const char **values, const char **names,
                 int n)
{
    sk_axis *x = sk_push(w->arena, &s->axes);
    sk_out all = {.arena = w->arena};
    for (int i = 0; i < n; i++) sk_out_add(&all, "%s[%s]", i ? "," : "", values[i]);
    *x = (sk_axis){.key = key, .values = values, .names = names, .n = n};
    s->said[s->n_said++] = sk_print(w->arena, "%s=%s", key, all.s);
}

static sk_status all_done(const sk_sweep *s, const char *what)
{
    for (int i = 0; i < s->jobs.n; i++) {
        const sk_sweep_job *j = &s->jobs.v[i];
        if (sk_sweep_done(j)) continue;
        return sk_fail(j->ended && j->code ? j->code : SK_EDATA,
                       "swap: %s, %s, is %s%s%s; it is needed for the average", what, j->dir,
                       sk_sweep_state(j), *j->why ? ": " : "", j->why);
    }
    return SK_OK;
}

/* All phases run, also those that are done: that compares their keys with those that they were
 * begun with. */
static sk_status run(sk_swap *w, sk_sweep *s, int phase, const char *what)
{
    SK_TRY(sk_sweep_expand(s));
    if (!sk_is_there(sk_print(w->arena, "%s/swap.json", w->dir))) SK_TRY(sk_swap_save(w, NULL));
    fprintf(w->progress, "phase %d: %s, %d job%s\n", phase, what, s->jobs.n, sk_plural(s->jobs.n));
    sk_status st = sk_sweep_run(s, w->at_once, w->progress);
    if (st == SK_ESTOP)
        return sk_fail(SK_ESTOP, "stopped in phase %d; skein swap run=%s goes on", phase,
                       sk_shell_word(w->arena, w->dir));
    SK_TRY(st);
    SK_TRY(all_done(s, what));
    return phase < 3 ? sk_swap_trained(w, s) : sk_swap_validated(w);
}

/* ---- 1 and 2 */

static sk_status run_large(sk_swap *w)
{
    sk_swap_phase(w, &w->one, 1);
    return run(w, &w->one, 1, "large batches");
}

/* By its real path. */
static const char *model_of(sk_swap *w, const sk_sweep_job *j)
{
    return sk_print(w->arena, "%s%s/final", w->real, j->dir + strlen(w->dir));
}

/* Seeds follow that of phase 1: no worker sees the batches in its order. */
static sk_status run_workers(sk_swap *w)
{
    const sk_sweep_job *first = &w->one.jobs.v[0];
    const char *model = sk_print(w->arena, "model=%s", model_of(w, first));
    SK_TRY(sk_swap_start(w));
    const char **seeds = sk_many(w->arena, const char *, w->workers);
    for (int i = 0; i < w->workers; i++)
        seeds[i] =
            sk_print(w->arena, "%llu", (unsigned long long)first->job->seed + 1 + (unsigned)i);
    begin(w, &w->two, "small", w->small, w->n_small, &model, 1);
    vary(w, &w->two, "train.seed", seeds, NULL, w->workers);
    return run(w, &w->two, 2, "workers with small batches");
}

/* ---- 3 */

/* The directory appears at once, so that one that is there is complete. */
static sk_status average(sk_swap *w)
{
    sk_average_of *v = sk_many(w->arena, sk_average_of, w->workers);
    sk_dtype type;
    w->average = sk_print(w->arena, "%s/average-%d", w->dir, w->workers);
    if (sk_is_dir(w->average)) return sk_swap_averaged(w);
    for (int i = 0; i < w->workers; i++)
        v[i] = (sk_average_of){.what = model_of(w, &w->two.jobs.v[i]), .weight = 1};
    fprintf(w->progress, "phase 3: the mean of %d worker%s\n", w->workers, sk_plural(w->workers));
    SK_TRY(sk_average_open(w->arena, v, w->workers));
    SK_TRY(sk_average_type(v, w->workers, &type));
    SK_TRY(sk_swap_note_average(w));
    return sk_average_save(v, w->workers, type, w->average);
}

static sk_status validate(sk_swap *w)
{
    int n = w->workers + 2;
    const char **models = sk_many(w->arena, const char *, n);
    const char **names = sk_many(w->arena, const char *, n);
    models[0] = model_of(w, &w->one.jobs.v[0]);
    names[0] = "large";
    for (int i = 0; i < w->workers; i++) {
        const sk_sweep_job *j = &w->two.jobs.v[i];
        models[1 + i] = model_of(w, j);
        names[1 + i] = j->name;
    }
    names[n - 1] = sk_print(w->arena, "average-%d", w->workers);
    models[n - 1] = sk_print(w->arena, "%s/%s", w->real, names[n - 1]);
    sk_swap_phase(w, &w->three, 3);
    vary(w, &w->three, "model", models, names, n);
    return run(w, &w->three, 3, "validations");
}

/* ---- all */

/* "average-4.tmp-NONCE", a directory, or "average-4.models.tmp-PID". */
static bool is_of_average(const char *s)
{
    if (strncmp(s, "average-", 8) != 0) return false;
    s += 8 + strspn(s + 8, "0123456789");
    if (sk_file_is_temporary(s, ".models")) return true;
    return !strncmp(s, ".tmp-", 5) && strspn(s + 5, "0123456789abcdef") == 16 && !s[5 + 16];
}

/* What a swap was writing when it was killed; by the holder of the lock. */
static void remove_leftovers(const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!is_of_average(e->d_name) && !sk_file_is_temporary(e->d_name, "swap.json")) continue;
        if (unlinkat(dirfd(d), e->d_name, 0)) sk_folder_sweep(dirfd(d), e->d_name);
    }
    if (d) closedir(d);
}

static sk_status run_phases(sk_swap *w)
{
    char *path = realpath(w->dir, NULL);
    if (!path) return sk_fail(SK_EIO, "swap: the real path of %s: %s", w->dir, strerror(errno));
    w->real = sk_strdup(w->arena, path);
    free(path);
    SK_TRY(sk_swap_recall_start(w, &(sk_text){0}));
    SK_TRY(run_large(w));
    SK_TRY(run_workers(w));
    SK_TRY(average(w));
    return validate(w);
}

/* A directory that is there is locked first: whoever is at work in it is told at once. */
sk_status sk_swap_run(sk_swap *w)
{
    int lock = -1;
    bool there = sk_is_dir(w->dir);
    if (!there) SK_TRY(sk_swap_check(w));
    SK_TRY(sk_sweep_lock(w->arena, "swap", w->dir, w->progress, &lock));
    remove_leftovers(w->dir);
    sk_status st = there ? sk_swap_check(w) : SK_OK;
    if (!st) st = run_phases(w);
    close(lock);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}
