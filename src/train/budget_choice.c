/* budget_choice.c - the fastest layout of a job that fits into its budget. */
#include "train/budget_choice.h"
#include "base/strings.h"
#include "train/auto_layout.h"
#include "train/relayout.h"

/* A run that changes its program keeps all buffers in the memory of the device. */
static bool may_offload(const sk_setup *s)
{
    const sk_layout *l = &s->layout;
    return !l->home_said && !l->replica && !sk_layout_may_fill(l) && !sk_relayout_asked(s->job) &&
           !s->job->stays_here;
}

static sk_budget_in budget_of(const sk_setup *s, const sk_compile_opts *o, const sk_machine *m,
                              int64_t bytes)
{
    return (sk_budget_in){.graph = &s->graph,
                          .layout = &s->layout,
                          .opts = o,
                          .machine = m,
                          .bytes = bytes,
                          .may_offload = may_offload(s)};
}

static sk_compile_opts listed(const sk_setup *s)
{
    sk_compile_opts o = sk_setup_opts(s);
    o.listed = true;
    return o;
}

sk_status sk_setup_options(sk_setup *s, const sk_machine *m, int64_t bytes,
                           sk_budget_option **options, int *n)
{
    sk_compile_opts o = listed(s);
    sk_budget_in in = budget_of(s, &o, m, bytes);
    return sk_budget_options(s->arena, &in, options, n);
}

static sk_status nothing_fits(const sk_setup *s, const sk_machine *m, sk_budget_option *v, int n)
{
    sk_compile_opts o = listed(s);
    sk_budget_in in = budget_of(s, &o, m, s->job->budget);
    const sk_budget_option *least;
    SK_TRY(sk_budget_least(&in, v, n, &least));
    return sk_fail(
        SK_ECONF,
        "budget is %s per rank, and the smallest of %d options needs %s (%s); more ranks, more "
        "micro-batches or a smaller train.batch would help",
        sk_bytes(s->arena, s->job->budget), n, sk_bytes(s->arena, least->bytes),
        sk_layout_short(s->arena, &least->layout));
}

/* A dropless run has a fallback program of the same layout (fallback.h), which needs more memory:
 * the layout is chosen for that one. */
static sk_status choose_for_fallback(sk_setup *s)
{
    sk_job *job = sk_new(s->arena, sk_job);
    sk_setup *fallback = sk_new(s->arena, sk_setup);
    *job = *s->job;
    job->hyper.capacity_factor = 0;
    job->dropless = 0;
    job->stays_here = true;
    SK_TRY(sk_setup_layout(s->arena, job, fallback));
    s->layout = fallback->layout;
    return SK_OK;
}

sk_status sk_budget_choose(sk_setup *s)
{
    if (s->job->dropless) return choose_for_fallback(s);
    sk_machine m;
    sk_budget_option *options = NULL;
    int n = 0;
    SK_TRY(sk_auto_machine(s->arena, s->job, &m));
    SK_TRY(sk_setup_options(s, &m, s->job->budget, &options, &n));
    for (int i = 0; i < n; i++)
        if (options[i].bytes <= s->job->budget) {
            s->layout = options[i].layout;
            return SK_OK;
        }
    return nothing_fits(s, &m, options, n);
}
