/* swap_start.c - all workers of a swap begin with one model: that of phase 1.
 *
 * small/start has the step of phase 1 and the checksums of its model, written before the first
 * worker begins.  When a swap is continued, phase 1 is compared with it: a run that was trained
 * further, or files that were replaced, would give the remaining workers another start.  It is
 * older than small/sweep.json: a kill leaves none of these without it. */
#include "base/file_io.h"
#include "cli/swap.h"
#include "train/checksums.h"

#include <stdlib.h>
#include <string.h>

static sk_status changed(sk_swap *w, const char *what)
{
    return sk_fail(
        SK_EDATA,
        "swap: %s; all workers need one start: name another run=DIR, or remove %s/small, "
        "%s/val and the averages, and the workers begin with the model of now",
        what, w->dir, w->dir);
}

/* The same step and the same checksums, and files that have them. */
static sk_status same_start(sk_swap *w, const char *was, const char *is)
{
    const char *run = w->one.jobs.v[0].dir, *model = sk_print(w->arena, "%s/final", run);
    long before = strtol(was, NULL, 10), now = strtol(is, NULL, 10);
    if (before != now)
        return changed(w, sk_print(w->arena, "%s is at step %ld, and workers began with step %ld",
                                   run, now, before));
    if (strcmp(was, is) != 0)
        return changed(w, sk_print(w->arena, "%s is not the model that workers began with", model));
    return SK_OK; /* its files have these sums: sk_swap_trained */
}

/* A step, and nothing or checksums behind it. */
static bool is_start(const char *path, sk_text t)
{
    size_t n = strspn(t.s, "0123456789");
    if (!n || n > 18 || t.s[n] != '\n') return false;
    sk_text sums = {.s = t.s + n + 1, .n = t.n - n - 1};
    bool good = !sums.n || !sk_manifest_sealed(path, sums);
    sk_error_set("");
    return good;
}

sk_status sk_swap_recall_start(sk_swap *w, sk_text *was)
{
    const char *path = sk_print(w->arena, "%s/small/start", w->dir), *why = "damaged";
    *was = (sk_text){.s = "", .n = 0};
    if (sk_is_there(path)) {
        SK_TRY(sk_file_read(w->arena, path, was));
        if (is_start(path, *was)) return SK_OK;
    } else {
        if (!sk_is_there(sk_print(w->arena, "%s/small/sweep.json", w->dir))) return SK_OK;
        why = "lost";
    }
    return changed(
        w, sk_print(w->arena, "%s is %s: which model workers began with is not known", path, why));
}

sk_status sk_swap_start(sk_swap *w)
{
    const sk_sweep_job *one = &w->one.jobs.v[0];
    const char *path = sk_print(w->arena, "%s/small/start", w->dir);
    const char *sums = sk_print(w->arena, "%s/final/" SK_CHECKSUMS_FILE, one->dir);
    sk_text files = {.s = "", .n = 0}, was;
    int64_t step = one->curve.train.n ? one->curve.train.v[one->curve.train.n - 1].step : 0;
    if (sk_is_there(sums)) SK_TRY(sk_file_read(w->arena, sums, &files));
    const char *is = sk_print(w->arena, "%lld\n%s", (long long)step, files.s);
    SK_TRY(sk_swap_recall_start(w, &was));
    if (was.n) return same_start(w, was.s, is);
    SK_TRY(sk_dir_make(sk_print(w->arena, "%s/small", w->dir)));
    return sk_file_replace(path, is, strlen(is));
}
