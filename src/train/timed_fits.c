/* timed_fits.c - what a job cannot have where time decides whose gradients count (sync=backup:B,
 * sync=ssp:S). */
#include "train/layout_cause.h"
#include "train/setup.h"

#include <string.h>

/* The key, and why it cannot be. */
typedef struct conflict {
    bool asked;
    const char *key, *why, *cure;
} conflict;

sk_status sk_setup_check_timed(const sk_setup *s)
{
    const sk_job *job = s->job;
    if (*job->replay && !sk_layout_timed(&s->layout))
        return sk_fail(SK_EDATA,
                       "replay: time made no choices in run %s, which any run of its config.yaml "
                       "repeats; one in which time decides is needed: with backup workers or "
                       "bounded staleness (skein list sync)",
                       job->replay);
    if (!sk_layout_timed(&s->layout)) return SK_OK;
    const conflict all[] = {
        {!strcmp(job->nonfinite, "rollback"), "train.nonfinite=rollback",
         "all ranks go back together", "stop or skip"},
        {sk_layout_stale(&s->layout) >= 0 && !strcmp(job->nonfinite, "skip"),
         "train.nonfinite=skip", "all ranks skip a step together", "stop"},
        {job->time_limit > 0, "train.time", "the number of steps must not depend on the clock too",
         "train.steps=N"},
        {*job->relayout, "train.relayout", "all ranks change the layout between two steps",
         "no train.relayout"},
        {*job->batch_schedule, "train.batch_schedule", "all ranks change the batch together",
         "no train.batch_schedule"},
        {job->noise != 0, "train.noise", "it compares the gradients of all ranks", "train.noise=0"},
        {*job->backward, "train.backward", "it is told of the batch of all ranks",
         "no train.backward"},
        {job->dropless != 0, "train.dropless", "all ranks run a step again together",
         "train.dropless=0"},
        {sk_layout_may_fill(&s->layout), "the layout",
         "all ranks run a step again that had no room", "gist=100, with which none is"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].asked)
            return sk_fail(SK_ECONF, "%s: %s, and with '%s' each rank goes by itself; take %s",
                           all[i].key, all[i].why,
                           sk_layout_cause(s->arena, &s->layout, sk_layout_timed), all[i].cure);
    return SK_OK;
}
