/* sweep_rehearse.c - would `train` start this job?  All that it asks before its first step. */
#include "cli/sweep.h"
#include "train/fits.h"

static sk_status set_up(sk_arena *a, const sk_job *job)
{
    sk_setup *s = sk_new(a, sk_setup);
    SK_TRY(sk_setup_run(a, job, s));
    SK_TRY(sk_fits_host(s, false));
    SK_TRY(sk_setup_data(s));
    return sk_setup_check(s);
}

sk_status sk_sweep_rehearse(const sk_job *job)
{
    sk_arena a = {0};
    sk_job *own = sk_new(&a, sk_job);
    *own = *job;
    if (own->ranks == 1) own->ranks = 0; /* as many as the layout has: sk_argv_job */
    sk_status st = set_up(&a, own);
    sk_arena_end(&a);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}
