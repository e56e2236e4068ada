/* batch_schedule.c - sizes of the batch: read, and chosen by the gradient noise scale. */
#include "train/batch_schedule.h"
#include "base/strings.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

enum { TIMES = 16 };   /* the largest batch by noise, where none is said */
#define KNOWN      0.6 /* weight that averages need: about 20 steps */
#define MOST_BATCH 1000000000

static const char by_noise[] = "noise";

static const char *blanks(const char *s) { return s + strspn(s, " \t\n"); }

/* A whole number; NULL: there is none. */
static const char *number(const char *s, int64_t *to)
{
    *to = 0;
    s = blanks(s);
    if (!isdigit((unsigned char)*s)) return NULL;
    for (; isdigit((unsigned char)*s); s++) {
        if (*to > INT64_MAX / 100) return NULL;
        *to = 10 * *to + (*s - '0');
    }
    return blanks(s);
}

bool sk_batch_by_noise(const sk_job *job)
{
    return !strncmp(job->batch_schedule, by_noise, sizeof by_noise - 1);
}

static sk_status no_range(const sk_job *job)
{
    return sk_fail(SK_ECONF,
                   "train.batch_schedule is \"%.60s\"; needed is noise, or noise:LEAST-MOST as in "
                   "noise:8-512, with LEAST from 1 on and MOST at least twice of it",
                   job->batch_schedule);
}

static sk_status read_noise(const sk_job *job, sk_batch_list *out)
{
    const char *s = blanks(job->batch_schedule + sizeof by_noise - 1);
    int64_t least = job->batch, most = TIMES * job->batch;
    if (*s) {
        s = *s == ':' ? number(s + 1, &least) : NULL;
        s = s && *s == '-' ? number(s + 1, &most) : NULL;
        if (!s || *s) return no_range(job);
    }
    if (least < 1 || most < 2 * least || most > MOST_BATCH) return no_range(job);
    for (int64_t b = least; b <= most; b *= 2) out->v[out->n++] = (sk_batch_change){0, b};
    return SK_OK;
}

static sk_status not_a_change(const char *text)
{
    return sk_fail(SK_ECONF,
                   "train.batch_schedule: \"%.60s\" is no STEP: BATCH; needed are such pairs with "
                   "commas between them, as in \"0: 32, 100: 64\", or noise",
                   text);
}

static sk_status read_change(const char **text, sk_batch_list *out)
{
    sk_batch_change c;
    const char *s = number(*text, &c.from);
    s = s && *s == ':' ? number(s + 1, &c.batch) : NULL;
    if (!s || (*s && *s != ',')) return not_a_change(*text);
    if (out->n && c.from <= out->v[out->n - 1].from)
        return sk_fail(SK_ECONF,
                       "train.batch_schedule: step %lld comes after step %lld; steps must rise",
                       (long long)c.from, (long long)out->v[out->n - 1].from);
    if (c.batch < 1 || c.batch > MOST_BATCH)
        return sk_fail(SK_ECONF,
                       "train.batch_schedule: the batch from step %lld on is %lld; 1 to %d are "
                       "needed",
                       (long long)c.from, (long long)c.batch, MOST_BATCH);
    if (out->n && out->v[out->n - 1].batch == c.batch)
        return sk_fail(
            SK_ECONF,
            "train.batch_schedule: the batch from step %lld on is %lld, as before; leave "
            "it out",
            (long long)c.from, (long long)c.batch);
    if (out->n == SK_BATCH_CHANGES)
        return sk_fail(SK_ECONF, "train.batch_schedule has more than %d changes", SK_BATCH_CHANGES);
    out->v[out->n++] = c;
    *text = blanks(s + (*s == ','));
    return SK_OK;
}

sk_status sk_batch_schedule_read(const sk_job *job, sk_batch_list *out)
{
    *out = (sk_batch_list){0};
    if (sk_batch_by_noise(job)) return read_noise(job, out);
    for (const char *s = blanks(job->batch_schedule); *s;) SK_TRY(read_change(&s, out));
    return SK_OK;
}

static bool scales(const sk_job *job)
{
    return *job->batch_scaling && strcmp(job->batch_scaling, "none") != 0;
}

sk_status sk_batch_schedule_begin(sk_job *job)
{
    sk_batch_list l;
    if (!*job->batch_schedule && scales(job))
        return sk_fail(SK_ECONF,
                       "optim.batch_scaling is %s, and without train.batch_schedule the batch "
                       "never changes; leave it out, or set one",
                       job->batch_scaling);
    SK_TRY(sk_batch_schedule_read(job, &l));
    if (sk_batch_by_noise(job)) job->noise = 1;
    if (l.n && !l.v[0].from) job->batch = l.v[0].batch;
    return SK_OK;
}

int sk_batch_next(const sk_noise_scale *x, int64_t batch, int64_t since, int phase, int n)
{
    double scale = sk_noise_ratio(x);
    if (since < SK_BATCH_STEPS || x->weight < KNOWN || !isfinite(scale)) return phase;
    if (scale >= 2 * (double)batch && phase + 1 < n) return phase + 1;
    return scale <= 0.5 * (double)batch && phase ? phase - 1 : phase;
}

double sk_batch_rate(const sk_job *job, int64_t batch)
{
    double ratio = (double)batch / (double)job->batch;
    if (!scales(job)) return 1;
    return strcmp(job->batch_scaling, "sqrt") ? ratio : sqrt(ratio);
}
