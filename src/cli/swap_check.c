/* swap_check.c - the settings of all phases of a swap, before phase 1 trains for hours.
 *
 * Phases 2 and 3 start from weights that are not there yet.  Everything else of them is: keys,
 * model sizes, layout, data.  Each phase is compiled and verified as `train` would do it, its
 * memory is compared with this host's, and its data are opened. */
#include "base/file_io.h"
#include "cli/swap.h"

#include <string.h>

static sk_status check(sk_swap *w, int phase)
{
    sk_sweep s;
    sk_job *job = sk_new(w->arena, sk_job);
    sk_swap_phase(w, &s, phase);
    SK_TRY(sk_sweep_load(&s, NULL, 0, NULL, job));
    if (*job->resume)
        return sk_fail(SK_ECONF,
                       "%s: resume is \"%s\", and a swap resumes its phases by itself; "
                       "leave it out",
                       s.file, job->resume);
    if (phase < 3 && sk_job_validates_only(job))
        return sk_fail(SK_EUSAGE, "train.steps is 0, and the phase trains; 1 or more are needed");
    if (phase == 2 && w->workers > 1 && !strcmp(job->data_order, "sequential"))
        return sk_fail(SK_ECONF, "data.order is sequential, so that all workers read the same "
                                 "samples in the same order and end alike; data.order=shuffle is "
                                 "needed");
    return sk_sweep_rehearse(job);
}

sk_status sk_swap_check(sk_swap *w)
{
    if (sk_is_there(sk_print(w->arena, "%s/large/job/outcome", w->dir))) return SK_OK;
    for (int phase = 1; phase <= 3; phase++) {
        sk_status st = check(w, phase);
        if (st == SK_EBUG) return sk_trail(st, SK_HERE);
        if (st)
            return sk_fail(st, "swap: phase %d: %s", phase, sk_strdup(w->arena, sk_error_line()));
    }
    return SK_OK;
}
