/* resume_state.c - is the optimizer state of a checkpoint what this run keeps?
 *
 * State is read by name (h.0.fc.w.adamw.m).  With another optimizer, other groups, or a number that
 * decides which state there is (optim.max_dim), names are missing in the checkpoint, or nobody
 * reads them.  Ranks would find only the first, each one tensor; here the keys that differ are
 * told, before any rank starts.  So are numbers by which steps have kinds (kernel/optim.h): state
 * is what steps of another kind made it. */
#include "program/param_groups.h"
#include "run/run.h"
#include "train/rundir_resume.h"

#include <stdlib.h>
#include <string.h>

/* State of an optimizer that updates the parameter in this run: PARAM.OPTIMIZER.STATE.  Gradients
 * of optim.late are told elsewhere. */
static bool is_state(const sk_setup *s, const char *name)
{
    for (int i = 0; i < s->graph.tensors.n; i++) {
        const sk_tensor *t = s->graph.tensors.v[i];
        size_t n = strlen(t->name);
        if (t->role != SK_PARAM || strncmp(t->name, name, n) || name[n] != '.') continue;
        int group = sk_param_group_of(&s->graph, t, s->job->group, s->job->n_groups);
        const char *optim = group ? s->job->group[group - 1].optim->name : s->optim->name;
        size_t m = strlen(optim);
        if (strncmp(name + n + 1, optim, m) || name[n + 1 + m] != '.') continue;
        return strcmp(name + n + m + 2, "pending") != 0;
    }
    return false;
}

/* Marks the tensors of the checkpoint that a rank reads; returns the first state that is not there.
 */
static const char *mark_read(sk_arena *a, const sk_setup *s, const sk_ckpt *c, int rank, bool *read)
{
    sk_tensor_shard *v;
    const char *missing = NULL;
    int n = 0;
    sk_program_shards(s->programs[rank], a, NULL, &v, &n);
    for (int i = 0; i < n; i++) {
        const sk_ckpt_tensor *t = sk_ckpt_source(a, c, &v[i]);
        const char *name = v[i].each ? v[i].each : v[i].name;
        if (t) read[t - c->tensors.v] = true;
        else if (!missing && !v[i].may_lack && sk_shard_count(&v[i]) && is_state(s, name))
            missing = name;
    }
    return missing;
}

/* The first state that the checkpoint lacks, or else, *left, that nothing reads; NULL: none. */
static const char *find_other(sk_arena *a, const sk_setup *s, const sk_ckpt *c, bool *left)
{
    bool *read = sk_many(a, bool, c->tensors.n + 1);
    *left = false;
    for (int r = 0; r < s->n_ranks; r++) {
        sk_arena one = {0};
        const char *missing = mark_read(&one, s, c, r, read);
        if (missing) missing = sk_strdup(a, missing);
        sk_arena_end(&one);
        if (missing) return missing;
    }
    *left = true;
    for (int i = 0; i < c->tensors.n; i++)
        if (!read[i] && is_state(s, c->tensors.v[i].name)) return c->tensors.v[i].name;
    return NULL;
}

/* ---- keys that differ, by the texts of both jobs */

const char *sk_resume_value(sk_arena *a, const char *config, const char *section, const char *key)
{
    size_t n = strlen(key);
    const char *line = strstr(config, sk_print(a, "\n%s:\n", section));
    for (line = line ? strchr(line + 1, '\n') : NULL; line && !strncmp(line, "\n  ", 3);
         line = strchr(line + 1, '\n')) {
        const char *from = line + 3;
        if (strncmp(from, key, n) || from[n] != ':') continue;
        from += n + 1 + strspn(from + n + 1, " ");
        return sk_print(a, "%.*s", (int)strcspn(from, "\n"), from);
    }
    return NULL;
}

bool sk_resume_change(sk_out *o, const char *was, const char *is, const char *section,
                      const char *key)
{
    const char *x = sk_resume_value(o->arena, was, section, key);
    const char *y = sk_resume_value(o->arena, is, section, key);
    if (!x || !y || !strcmp(x, y)) return false;
    sk_out_add(o, "%s%s.%s was %s and is %s", o->n ? "; " : "", section, key, x, y);
    return true;
}

/* What decides which state there is: the optimizer, groups, else numbers of the optimizer. */
static const char *changes(sk_arena *a, const sk_setup *s, const char *was, const char *is)
{
    sk_out o = {.arena = a};
    bool other = sk_resume_change(&o, was, is, "optim", "name");
    if (sk_resume_change(&o, was, is, "optim", "groups") || other) return o.s;
    for (const sk_knob *k = s->optim->knobs; k->name; k += sk_knob_list(k))
        if (k->role == SK_KNOB_PLAIN) sk_resume_change(&o, was, is, "optim", sk_knob_key(k));
    return o.s;
}

/* Groups under which the state is what an earlier version kept: there, an optimizer of every matrix
 * had hidden ones alone (sk_optim.every_matrix).  NULL: the state is not of that. */
static const char *earlier_groups(sk_arena *a, const sk_setup *s, const sk_ckpt *c,
                                  const char *name)
{
    for (int i = 0; i < s->graph.tensors.n; i++) {
        const sk_tensor *t = s->graph.tensors.v[i];
        size_t n = strlen(t->name);
        if (t->role != SK_PARAM || strncmp(t->name, name, n) || name[n] != '.') continue;
        int group = sk_param_group_of(&s->graph, t, s->job->group, s->job->n_groups);
        const sk_optim *o = group ? s->job->group[group - 1].optim : s->optim;
        if (!o->every_matrix) continue;
        const char *was = sk_print(a, "%s.%s.", t->name, o->rest);
        for (int k = 0; k < c->tensors.n; k++)
            if (!strncmp(c->tensors.v[k].name, was, strlen(was)))
                return sk_print(a, "%s%smatrix: %s, rest: %s", s->job->groups,
                                *s->job->groups ? ", " : "", o->name, o->rest);
    }
    return NULL;
}

/* ---- state of the same name that means another thing (sk_knob.base) */

/* The words "KEY=VALUE" of optim.groups, with blanks between. */
static const char *words_of(sk_arena *a, const char *groups, const char *key)
{
    sk_out o = {.arena = a};
    const char *word = sk_print(a, " %s=", key);
    sk_out_add(&o, "%s", "");
    for (; groups && (groups = strstr(groups, word)); groups += strlen(word))
        sk_out_add(&o, "%.*s", (int)strcspn(groups + 1, " ,;\"") + 1, groups);
    return o.s;
}

/* The key that changes who takes the steps of an optimizer; NULL: none does. */
static const char *other_base(sk_arena *a, const sk_setup *s, const char *was, const char *is)
{
    sk_out o = {.arena = a};
    const char *x = sk_resume_value(a, was, "optim", "groups");
    const char *y = sk_resume_value(a, is, "optim", "groups");
    for (int g = 0; g <= s->job->n_groups; g++) {
        const sk_optim *optim = g ? s->job->group[g - 1].optim : s->optim;
        for (const sk_knob *k = optim->knobs; k->name; k++) {
            if (!k->base) continue;
            if (sk_resume_change(&o, was, is, "optim", sk_knob_key(k))) return o.s;
            if (!strcmp(words_of(a, x, sk_knob_key(k)), words_of(a, y, sk_knob_key(k)))) continue;
            sk_resume_change(&o, was, is, "optim", "groups");
            return o.s;
        }
    }
    return NULL;
}

/* An average without its updates would be of another training if it came back later. */
static sk_status same_average(sk_arena *a, const sk_job *job, const sk_training *t,
                              const sk_ckpt *c)
{
    const char *was = sk_resume_value(a, c->state.config, "optim", "ema");
    if (!was || strtod(was, NULL) <= 0 || job->ema > 0) return SK_OK;
    return sk_fail(SK_ECONF,
                   "%s has an average of the weights (optim.ema=%s) that this run would drop: "
                   "optim.ema is 0; resume with optim.ema=%s, or begin a run from its weights "
                   "(skein export --training-weights)",
                   t->from, was, was);
}

/* ---- numbers by which steps have kinds */

/* The number that the run of the checkpoint had. */
static double number_was(sk_arena *a, const sk_setup *s, const char *was, int knob)
{
    const char *key = sk_knob_key(&s->optim->knobs[knob]);
    const char *x = sk_resume_value(a, was, "optim", key);
    return x ? strtod(x, NULL) : s->job->knob[knob];
}

/* The second moment had an update in each of the first steps, and is corrected for that many.  So
 * their number can only be changed while it is still to come. */
static sk_status same_first(sk_arena *a, const sk_setup *s, const sk_ckpt *c, const char *from)
{
    int k = s->optim->first_steps - 1;
    double was = number_was(a, s, c->state.config, k), is = s->job->knob[k];
    int64_t step = c->state.step;
    if (was == is || (was >= (double)step && is >= (double)step)) return SK_OK;
    const char *key = sk_knob_key(&s->optim->knobs[k]);
    if (was < (double)step)
        return sk_fail(SK_ECONF,
                       "%s: optim.%s was %.0f and is %.0f, and the second moment is that of %.0f "
                       "steps: it was frozen before step %lld; resume with optim.%s=%.0f, or an "
                       "earlier checkpoint, or begin a run from its weights (skein export)",
                       from, key, was, is, was, (long long)step, key, was);
    return sk_fail(SK_ECONF,
                   "%s: optim.%s was %.0f and is %.0f, and the second moment has %lld steps "
                   "already; resume with optim.%s=%lld, which sends momentum from the next step "
                   "on, or with more",
                   from, key, was, is, (long long)step, key, (long long)step);
}

/* Behind a step in which each rank went on alone, ranks have to send what they have added up before
 * a gradient of all can change weights that they have in common. */
static sk_status sent_before_dense(sk_arena *a, const sk_setup *s, const sk_ckpt *c,
                                   const char *from)
{
    double was[SK_MAX_KNOB] = {0};
    const double *is = s->job->knob;
    for (int k = 0; s->optim->knobs[k].name; k++)
        was[k] = s->optim->knobs[k].whole ? number_was(a, s, c->state.config, k) : is[k];
    int64_t step = c->state.step;
    int kind = step > 0 ? s->optim->step_kind(was, step) : SK_STEP_DENSE;
    while (kind == SK_STEP_LOCAL) kind = s->optim->step_kind(is, ++step);
    if (step == c->state.step || kind == SK_STEP_SENT) return SK_OK;
    sk_out o = {.arena = a};
    for (int k = 0; s->optim->knobs[k].name; k++)
        if (was[k] != is[k])
            sk_out_add(&o, "%soptim.%s was %.0f and is %.0f", o.n ? "; " : "",
                       sk_knob_key(&s->optim->knobs[k]), was[k], is[k]);
    return sk_fail(SK_ECONF,
                   "%s: %s: so step %lld takes the gradient of all ranks, and what each has added "
                   "up by itself was not sent; resume with the former numbers, or a checkpoint of "
                   "a step in which ranks sent",
                   from, o.s, (long long)step);
}

static sk_status same_kinds(sk_arena *a, const sk_setup *s, const sk_ckpt *c, const char *from)
{
    if (s->optim->step_kind) return sent_before_dense(a, s, c, from);
    return s->optim->first_steps ? same_first(a, s, c, from) : SK_OK;
}

sk_status sk_resume_state(sk_arena *a, const sk_setup *s, const sk_training *t)
{
    sk_ckpt c;
    bool left;
    SK_TRY(sk_ckpt_read(a, t->from, &c));
    SK_TRY(same_average(a, s->job, t, &c));
    const char *base = other_base(a, s, c.state.config, t->config);
    if (base)
        return sk_fail(SK_ECONF,
                       "%s: %s, whose state has the same names and another meaning; resume with "
                       "the former, or begin a run from its weights (skein export)",
                       t->from, base);
    const char *name = find_other(a, s, &c, &left);
    if (!name) return same_kinds(a, s, &c, t->from);
    const char *why = changes(a, s, c.state.config, t->config);
    const char *groups = why ? NULL : earlier_groups(a, s, &c, name);
    if (groups)
        return sk_fail(SK_ECONF,
                       "%s has no '%s': it was saved by an earlier version, in which %s had hidden "
                       "matrices alone; resume with optim.groups=\"%s\", which goes on with the "
                       "state as it is, or begin a run from its weights (skein export)",
                       t->from, name, s->optim->name, groups);
    return sk_fail(
        why ? SK_ECONF : SK_EDATA,
        "%s %s '%s': %s; resume with the optimizer, groups and numbers that it was saved "
        "with, or begin a run from its weights (skein export)",
        t->from, left ? "has state that this run would drop," : "has no", name,
        why ? why : "it was saved with another optimizer");
}
