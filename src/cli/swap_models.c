/* swap_models.c - models of a swap are still what they were when they were trained, averaged and
 * validated.
 *
 * A swap that goes on shows the rows of models that it does not make again.  So each model is held
 * to its checksums.json, and that file to what is on record:
 *
 *     of a worker                the outcome of its job (sweep_outcome.c): the model that it left
 *     of the average             average-4.models: the models that it is the mean of
 *     of a row of the table      the outcome of its validation: the model that it began with */
#include "base/file_io.h"
#include "cli/swap.h"
#include "train/checksums.h"

#include <inttypes.h>
#include <string.h>

/* Every byte: a validation that is skipped has not read it. */
static sk_status intact(const char *model, const char *remedy)
{
    bool summed;
    sk_status st = sk_checksums_verify(model, NULL, &summed);
    if (!st) return SK_OK;
    return sk_fail(st, "swap: %s; bring the file back, or %s", sk_error_line(), remedy);
}

static const char *anew(sk_swap *w, const char *dir)
{
    return sk_print(w->arena, "remove %s, %s/val and the averages to make them anew", dir, w->dir);
}

sk_status sk_swap_trained(sk_swap *w, const sk_sweep *s)
{
    for (int i = 0; i < s->jobs.n; i++) {
        const sk_sweep_job *j = &s->jobs.v[i];
        const char *model = sk_print(w->arena, "%s/final", j->dir);
        SK_TRY(intact(model, anew(w, j->dir)));
        if (s != &w->two || !j->final_sum) continue; /* phase 1 is that of its workers: start */
        if (j->final_sum != sk_sweep_model_sum(w->arena, model))
            return sk_fail(SK_EDATA,
                           "swap: %s is not the model that the worker left; bring that one back, "
                           "or %s",
                           model, anew(w, j->dir));
    }
    return SK_OK;
}

/* ---- the average */

static const char *record_path(sk_swap *w) { return sk_print(w->arena, "%s.models", w->average); }

/* "seed=2 0123456789abcdef", a line each. */
static const char *list_workers(sk_swap *w)
{
    sk_out o = {.arena = w->arena};
    for (int i = 0; i < w->workers; i++) {
        const sk_sweep_job *j = &w->two.jobs.v[i];
        const char *model = sk_print(w->arena, "%s/final", j->dir);
        sk_out_add(&o, "%s %016" PRIx64 "\n", j->name, sk_sweep_model_sum(w->arena, model));
    }
    return o.s;
}

sk_status sk_swap_note_average(sk_swap *w)
{
    const char *list = list_workers(w);
    return sk_file_replace(record_path(w), list, strlen(list));
}

sk_status sk_swap_averaged(sk_swap *w)
{
    const char *path = record_path(w);
    sk_text was = {.s = "", .n = 0};
    bool there = sk_is_there(path);
    SK_TRY(intact(w->average, sk_print(w->arena, "remove %s and %s/val to make them anew",
                                       w->average, w->dir)));
    if (there) SK_TRY(sk_file_read(w->arena, path, &was));
    if (!strcmp(was.s, list_workers(w))) return SK_OK;
    return sk_fail(SK_EDATA,
                   "swap: %s is not %sthe mean of the workers of now: %s %s back, or remove %s and "
                   "%s/val to make them anew",
                   w->average, there ? "" : "known to be ", path,
                   there ? "lists other models; bring those" : "is lost; bring it", w->average,
                   w->dir);
}

/* ---- rows */

sk_status sk_swap_validated(sk_swap *w)
{
    for (int i = 0; i < w->three.jobs.n; i++) {
        const sk_sweep_job *j = &w->three.jobs.v[i];
        const char *model = j->values[0];
        if (!j->model_sum || j->model_sum == sk_sweep_model_sum(w->arena, model)) continue;
        return sk_fail(SK_EDATA,
                       "swap: %s%s is not the model that was validated in %s; bring that one back, "
                       "or remove %s/val to validate all models anew",
                       w->dir, model + strlen(w->real), j->dir, w->dir);
    }
    return SK_OK;
}
