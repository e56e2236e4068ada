/* default_layout.c - dp=RANKS, or what a bounded search finds instead. */
#include "train/default_layout.h"
#include "base/strings.h"
#include "train/auto_layout.h"
#include "train/setup.h"

#include <stdio.h>
#include <string.h>

enum { MOST_LAYOUTS = 96, MOST_INSTS = 400000 };

static const double SHORT_STEP = 0.05, GAIN = 1.1;

/* Says the job something that goes with its replicas, or with one layout? */
static bool says_more(const sk_job *j)
{
    bool algorithm = *j->algorithm && strcmp(j->algorithm, "auto") != 0;
    bool order = *j->order && strcmp(j->order, "fast") != 0;
    bool network = j->host_of && !sk_setup_on_gpu(j);
    return network || j->build || j->budget || *j->relayout || *j->batch_schedule || j->noise ||
           j->adascale || *j->backward || j->dropless || *j->links || algorithm || order ||
           *j->replay;
}

/* The plain layout; seconds 0: it is refused. */
static sk_priced_layout plain_of(const sk_auto_in *in)
{
    sk_priced_layout x = {.seconds = 0};
    if (sk_auto_price(in, in->job->layout, &x)) x.seconds = 0;
    return x;
}

static bool fits(const sk_auto_in *in, const sk_priced_layout *x)
{
    return x->seconds > 0 && (!in->memory || x->bytes <= in->memory);
}

/* Why it is taken instead of the plain one. */
static const char *reason(sk_arena *a, const sk_auto_in *in, const sk_priced_layout *plain,
                          const sk_priced_layout *best)
{
    const char *of = in->job->layout;
    if (plain->seconds <= 0) return sk_print(a, "%s does not go with this job", of);
    if (!fits(in, plain))
        return sk_print(a, "%s needs %s of %s a rank", of, sk_bytes(a, plain->bytes),
                        sk_bytes(a, in->memory));
    return sk_print(a, "%.3g s a step, %s %.3g s", best->seconds, of, plain->seconds);
}

/* NULL: the plain one stays.  Where that fits no other may take more memory: that of the machine
 * may be a preset's. */
static const char *choose(sk_arena *a, sk_auto_in *in, char *to, size_t room)
{
    sk_search_out *found = sk_new(a, sk_search_out);
    sk_priced_layout plain = plain_of(in);
    bool good = fits(in, &plain);
    if (good && plain.seconds < SHORT_STEP) return NULL;
    const char *why = good ? NULL : reason(a, in, &plain, &plain);
    if (good) in->memory = plain.bytes;
    if (sk_auto_layout(in, found) || !found->n_best) return NULL;
    const sk_priced_layout *best = &found->best[0];
    if (good && plain.seconds < GAIN * best->seconds) return NULL;
    snprintf(to, room, "%s", best->text);
    return sk_print(
        a, "none was said, and this is the fastest of %d on %s (%s); layout=\"%s\" pins it",
        found->n_priced, in->machine->name, why ? why : reason(a, in, &plain, best), best->text);
}

/* A job for which nothing is found has the plain layout, and the error report that this gets. */
static const char *chosen(sk_arena *a, const sk_job *job, char *to, size_t room)
{
    sk_machine m;
    const char *line = NULL;
    if (!sk_auto_machine(a, job, &m)) {
        sk_auto_in in = {.job = job,
                         .machine = &m,
                         .ranks = (int)job->ranks,
                         .memory = m.memory,
                         .most = MOST_LAYOUTS,
                         .insts = MOST_INSTS};
        line = choose(a, &in, to, room);
    }
    sk_error_set("");
    return line;
}

typedef struct told { /* from rank 0 to the others */
    char layout[SK_SEARCH_TEXT], line[1024];
} told;

sk_status sk_default_layout(sk_arena *a, sk_job *job, sk_boot *boot, const char **line)
{
    told *t = sk_new(a, told);
    *line = NULL;
    if (!job->layout_unsaid || job->ranks < 2 || says_more(job)) return SK_OK;
    snprintf(job->layout, sizeof job->layout, "dp=%lld", (long long)job->ranks);
    if (!boot || boot->rank == 0) {
        const char *said = chosen(a, job, t->layout, sizeof t->layout);
        if (said) snprintf(t->line, sizeof t->line, "%s", said);
    }
    if (boot) SK_TRY(sk_boot_bcast(boot, t, sizeof *t));
    if (!*t->line) return SK_OK;
    snprintf(job->layout, sizeof job->layout, "%s", t->layout);
    *line = t->line;
    return SK_OK;
}
