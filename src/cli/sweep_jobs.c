/* sweep_jobs.c - from axes to jobs: every combination, or some that are drawn. */
#include "cli/sweep.h"
#include "base/file_io.h"
#include "base/hash.h"
#include "base/rng.h"
#include "train/setup.h"

#include <string.h>

enum { MOST_JOBS = 10000, LONGEST_NAME = 120, TRIES = 50 };

static const char seed_key[] = "train.seed";

int sk_sweep_axis(const sk_sweep *s, const char *key)
{
    for (int i = 0; i < s->axes.n; i++)
        if (!strcmp(s->axes.v[i].key, key)) return i;
    return -1;
}

/* ---- names */

/* The last part of the key, if no other axis has it. */
const char *sk_sweep_short(const sk_sweep *s, int axis)
{
    const char *key = s->axes.v[axis].key, *dot = strrchr(key, '.');
    const char *last = dot ? dot + 1 : key;
    for (int i = 0; i < s->axes.n; i++) {
        const char *other = s->axes.v[i].key, *at = strrchr(other, '.');
        if (i != axis && !strcmp(at ? at + 1 : other, last)) return key;
    }
    return last;
}

static const char *name_of_value(const sk_axis *x, const char *value)
{
    for (int i = 0; x->names && i < x->n; i++)
        if (!strcmp(x->values[i], value)) return x->names[i];
    return value;
}

/* "lr=0.001,batch=8": a directory's name that people can read.  What is no name, and what would be
 * too long, is replaced, and a hash of all keeps such names apart. */
static const char *name_of(const sk_sweep *s, const char *const *values)
{
    sk_out o = {.arena = s->arena};
    uint64_t hash = SK_HASH_SEED;
    bool changed = false;
    for (int i = 0; i < s->axes.n; i++) {
        const char *value = name_of_value(&s->axes.v[i], values[i]);
        sk_out_add(&o, "%s%s=%s", i ? "," : "", sk_sweep_short(s, i), value);
        hash = sk_hash(hash, value, strlen(value) + 1);
    }
    if (!o.n) return "job";
    for (char *c = o.s; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,=+-_", *c))
            *c = '_', changed = true;
    if (!changed && o.n <= LONGEST_NAME) return o.s;
    return sk_print(s->arena, "%.*s-%08x", LONGEST_NAME - 10, o.s, (unsigned)(hash >> 32));
}

/* ---- words to a job */

sk_status sk_sweep_load(sk_sweep *s, const char *const *values, int n_more, char **more,
                        sk_job *out)
{
    sk_arena *a = s->arena;
    char **words = sk_many(a, char *, 1 + s->n_words + s->axes.n + n_more + 1);
    int n = 0;
    if (s->file) words[n++] = sk_strdup(a, s->file);
    for (int i = 0; i < s->n_words; i++) words[n++] = sk_strdup(a, s->words[i]);
    for (int i = 0; i < s->axes.n; i++)
        words[n++] = sk_print(a, "%s=%s", s->axes.v[i].key, values[i]);
    for (int i = 0; i < n_more; i++) words[n++] = more[i];
    return sk_conf_load(a, n, words, out, NULL);
}

/* Values that do not go together in one job are a row of the table. */
static sk_status add_job(sk_sweep *s, const char **values)
{
    sk_sweep_job *j = sk_push(s->arena, &s->jobs);
    sk_job *job = sk_new(s->arena, sk_job);
    j->values = values;
    j->name = name_of(s, values);
    j->dir = sk_print(s->arena, "%s/%s", s->dir, j->name);
    j->why = "";
    sk_status st = sk_sweep_load(s, values, 0, NULL, job);
    if (st == SK_ECONF || st == SK_EUSAGE) {
        j->ended = true;
        j->code = st;
        j->why = sk_strdup(s->arena, sk_error_line());
        sk_error_set("");
        return SK_OK;
    }
    SK_TRY(st);
    if (*job->resume) /* on the command line: sk_sweep_key */
        return sk_fail(
            SK_ECONF,
            "%s: resume is \"%s\", and jobs of a sweep or swap are resumed by themselves; "
            "leave it out",
            s->file, job->resume);
    if (strlen(j->dir) >= sizeof job->run) return sk_fail(SK_ECREATE, "%s: name too long", j->dir);
    if (job->sample_every < 0) job->sample_every = 0; /* nobody reads them */
    j->job = job;
    return SK_OK;
}

/* ---- grid and random */

static sk_status too_many(void)
{
    return sk_fail(SK_EUSAGE, "command line: more than %d jobs; --random N draws some of them",
                   MOST_JOBS);
}

/* The last key changes fastest. */
static sk_status expand_grid(sk_sweep *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->axes.n; i++)
        if ((n *= s->axes.v[i].n) > MOST_JOBS) return too_many();
    for (int64_t k = 0; k < n; k++) {
        const char **values = sk_many(s->arena, const char *, s->axes.n + 1);
        int64_t rest = k;
        for (int i = s->axes.n; i-- > 0; rest /= s->axes.v[i].n)
            values[i] = s->axes.v[i].values[rest % s->axes.v[i].n];
        SK_TRY(add_job(s, values));
    }
    return SK_OK;
}

/* A draw depends on the seed, the key and its number: more draws leave the first as they were. */
static const char *draw(const sk_sweep *s, const sk_axis *x, uint64_t k)
{
    double u = sk_rng_uniform(s->seed, sk_hash_text(x->key), k);
    if (x->range) return sk_axis_at(s->arena, x, u);
    return x->values[(int)(u * x->n)];
}

static bool drawn_before(const sk_sweep *s, const char *const *values, int seeds)
{
    for (int i = 0; i < s->jobs.n; i++) {
        int k = 0;
        while (k < s->axes.n && (k == seeds || !strcmp(s->jobs.v[i].values[k], values[k]))) k++;
        if (k == s->axes.n) return true;
    }
    return false;
}

/* Each draw is run with every seed of train.seed: that is what its spread is taken over. */
static sk_status expand_random(sk_sweep *s)
{
    int seeds = sk_sweep_axis(s, seed_key), each = seeds < 0 ? 1 : s->axes.v[seeds].n;
    int64_t made = 0;
    if (s->random * each > MOST_JOBS) return too_many();
    for (uint64_t k = 0; made < s->random && k < (uint64_t)s->random * TRIES; k++) {
        const char **values = sk_many(s->arena, const char *, s->axes.n + 1);
        for (int i = 0; i < s->axes.n; i++)
            if (i != seeds) values[i] = draw(s, &s->axes.v[i], k);
        if (drawn_before(s, values, seeds)) continue;
        made++;
        for (int q = 0; q < each; q++) {
            const char **own = sk_many(s->arena, const char *, s->axes.n + 1);
            memcpy(own, values, (size_t)s->axes.n * sizeof *own);
            if (seeds >= 0) own[seeds] = s->axes.v[seeds].values[q];
            SK_TRY(add_job(s, own));
        }
    }
    return SK_OK;
}

/* ---- values that are mistakes */

/* Can the axis never have this job's value, whatever stands beside it?  Then no job with it loads,
 * and the word alone is refused as well.  Asked of the first job that has the value. */
static bool is_mistake(sk_sweep *s, int axis, int job)
{
    const char *value = s->jobs.v[job].values[axis];
    for (int i = 0; i < s->jobs.n; i++) {
        const sk_sweep_job *j = &s->jobs.v[i];
        if (!strcmp(j->values[axis], value) && (i < job || j->code != SK_EUSAGE)) return false;
    }
    char *word = sk_print(s->arena, "%s=%s", s->axes.v[axis].key, value);
    sk_status st = sk_conf_load(s->arena, 1, &word, sk_new(s->arena, sk_job), NULL);
    sk_error_set("");
    return st == SK_EUSAGE;
}

/* A mistake of the command line ends the sweep before the first job. */
static sk_status check_values(sk_sweep *s)
{
    for (int x = 0; x < s->axes.n; x++)
        for (int i = 0; i < s->jobs.n; i++)
            if (s->jobs.v[i].code == SK_EUSAGE && is_mistake(s, x, i))
                return sk_fail(SK_EUSAGE, "%s", s->jobs.v[i].why);
    return SK_OK;
}

/* Names of optimizers, and layouts: what a job would be refused for behind hours of others. */
static sk_status check_names(sk_sweep *s)
{
    for (int x = 0; x < s->axes.n; x++) {
        const sk_axis *axis = &s->axes.v[x];
        bool layout = !strcmp(axis->key, "layout"), optim = !strcmp(axis->key, "optim.name");
        for (int i = 0; (layout || optim) && i < axis->n; i++) {
            const char *value = axis->values[i];
            sk_layout *l = sk_new(s->arena, sk_layout);
            if (optim) SK_TRY(sk_setup_optim(value, &(const sk_optim *){NULL}));
            else if (!sk_is_there(value)) SK_TRY(sk_layout_read(value, 0, l));
        }
    }
    return SK_OK;
}

/* Values may be spelled in many ways: jobs whose whole configs are the same are one job. */
static sk_status no_twins(sk_sweep *s)
{
    uint64_t *sum = sk_many(s->arena, uint64_t, s->jobs.n + 1);
    for (int i = 0; i < s->jobs.n; i++) {
        const sk_sweep_job *x = &s->jobs.v[i];
        if (!x->job) continue;
        sum[i] = sk_hash_text(x->config);
        for (int k = 0; k < i; k++) {
            const sk_sweep_job *y = &s->jobs.v[k];
            if (sum[k] != sum[i] || !y->job || strcmp(x->config, y->config) != 0) continue;
            int axis = 0;
            while (!strcmp(x->values[axis], y->values[axis])) axis++;
            return sk_fail(SK_EUSAGE,
                           "command line: %s has one value twice, as %.80s and as %.80s: %s and %s "
                           "would be the same job; leave one out",
                           s->axes.v[axis].key, y->values[axis], x->values[axis], y->name, x->name);
        }
    }
    return SK_OK;
}

/* Do the jobs differ in no axis but this one? */
static bool same_but(const sk_sweep *s, int axis, const sk_sweep_job *x, const sk_sweep_job *y)
{
    int k = 0;
    while (k < s->axes.n && (k == axis || !strcmp(x->values[k], y->values[k]))) k++;
    return k == s->axes.n;
}

/* As far as keys tell: may all parameters be in groups with rates of their own? */
static bool says_all_rates(const sk_job *job)
{
    int i = 0;
    while (i < job->n_groups && job->group[i].says_lr) i++;
    return i && i == job->n_groups;
}

/* What the job would be refused for is said when it runs. */
static bool uses_lr(const sk_job *job)
{
    sk_arena a = {0};
    sk_setup *s = sk_new(&a, sk_setup);
    bool uses = sk_setup_layout(&a, job, s) || sk_setup_uses_lr(s);
    sk_arena_end(&a);
    sk_error_set("");
    return uses;
}

/* Values of optim.lr that no parameter's rate follows: their jobs are one job. */
static sk_status no_idle_rates(sk_sweep *s)
{
    int axis = sk_sweep_axis(s, "optim.lr");
    for (int i = 0; axis >= 0 && i < s->jobs.n; i++) {
        const sk_sweep_job *x = &s->jobs.v[i];
        for (int k = 0; k < i && x->job && says_all_rates(x->job); k++) {
            const sk_sweep_job *y = &s->jobs.v[k];
            if (!y->job || !same_but(s, axis, x, y) || uses_lr(x->job) || uses_lr(y->job)) continue;
            return sk_fail(SK_EUSAGE,
                           "command line: optim.lr has several values and no effect: every group "
                           "of optim.groups has a rate of its own, so %s and %s would be the same "
                           "job; leave it out, or give optim.groups several values",
                           y->name, x->name);
        }
    }
    return SK_OK;
}

/* ---- validation */

/* By default a validation is up to 8 batches: with several batch sizes jobs would be compared on
 * different samples.  Here all take the same number of sequences. */
static void same_validation(sk_sweep *s)
{
    int64_t least = INT64_MAX, most = 0;
    for (int i = 0; i < s->jobs.n; i++) {
        const sk_job *job = s->jobs.v[i].job;
        if (job && job->batch < least) least = job->batch;
        if (job && job->batch > most) most = job->batch;
    }
    if (least >= most) return;
    int64_t sequences = 8 * least > most ? 8 * least : most;
    for (int i = 0; i < s->jobs.n; i++) {
        sk_job *job = s->jobs.v[i].job;
        if (job && job->val_batches < 0)
            job->val_batches = (sequences + job->batch - 1) / job->batch;
    }
}

sk_status sk_sweep_expand(sk_sweep *s)
{
    int seeds = sk_sweep_axis(s, seed_key);
    for (int i = 0; i < s->axes.n; i++)
        if (!s->axes.v[i].n && (!s->random || i == seeds))
            return sk_fail(SK_EUSAGE,
                           "command line: the range of %s has no number of values; log:LOW:HIGH:N "
                           "is needed%s",
                           s->axes.v[i].key, i == seeds ? "" : ", or --random N");
    SK_TRY(check_names(s));
    SK_TRY(s->random ? expand_random(s) : expand_grid(s));
    SK_TRY(check_values(s));
    same_validation(s);
    const sk_sweep_job *bad = NULL;
    bool any = false;
    for (int i = 0; i < s->jobs.n; i++) {
        sk_sweep_job *j = &s->jobs.v[i];
        any |= j->job != NULL;
        if (j->job) j->config = sk_conf_print(s->arena, j->job);
        else if (!bad) bad = j;
    }
    if (!any)
        return sk_fail(bad ? bad->code : SK_ECONF, "%s",
                       bad ? bad->why : "sweep: there are no jobs");
    SK_TRY(no_twins(s));
    return no_idle_rates(s);
}
