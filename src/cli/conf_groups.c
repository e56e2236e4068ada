/* conf_groups.c - optim.groups: parameters with an optimizer and numbers of their own.
 *
 *     optim.groups="matrix: sgd lr=0.02 momentum=0.95, h.0.*: adamw betas=[0.9, 0.99], rest: lamb"
 *
 * A group is a class of parameters or a pattern of names, an optimizer, and numbers of it; what is
 * not said of the optimizer of the job is as its keys say, of others as their parts do.  Rates
 * follow the schedule of optim.lr, times their part of it. */
#include "cli/setting.h"
#include "base/strings.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    sk_arena *arena;
    const sk_setting *s;
    sk_job *job;
    sk_param_group *g;
    const char *text;              /* of the group, for messages */
    const char *said[SK_MAX_KNOB]; /* values of the numbers so far, by the first knob of a key */
    bool rate;                     /* lr is said */
} reader;

static sk_status wrong(const reader *r, const char *what)
{
    return sk_fail(sk_setting_code(r->s), "%s: optim.groups: \"%.80s\" %s",
                   sk_setting_where(r->arena, r->s, true), r->text, what);
}

static char *trim(char *s)
{
    while (isspace((unsigned char)*s)) s++;
    size_t n = strlen(s);
    while (n && isspace((unsigned char)s[n - 1])) s[--n] = 0;
    return s;
}

/* The part of *rest before the next separator that is not in brackets; NULL behind the last. */
static char *next_part(char **rest, const char *separators)
{
    char *from = *rest;
    int depth = 0;
    if (!from) return NULL;
    for (char *p = from; *p; p++) {
        depth += (*p == '[') - (*p == ']');
        if (depth > 0 || !strchr(separators, *p)) continue;
        *p = 0;
        *rest = p + 1;
        return from;
    }
    *rest = NULL;
    return from;
}

static sk_status read_optim(reader *r, const char *name)
{
    const char *names[64];
    int n = 0;
    r->g->optim = sk_optim_find(name);
    if (r->g->optim) return SK_OK;
    while (n < 64 && sk_optim_parts[n]) names[n] = sk_optim_parts[n]->name, n++;
    const char *near = sk_nearest(name, names, n);
    return wrong(r, sk_print(r->arena,
                             "names the optimizer '%.40s', which is unknown%s%s%s; skein "
                             "list optim shows them",
                             name, near ? " (did you mean '" : "", near ? near : "",
                             near ? "'?)" : ""));
}

/* What is not said: as the job says of its optimizer, as the part says of another. */
static double usual_numbers(const reader *r)
{
    const sk_optim *o = r->g->optim;
    double lr = r->job->lr;
    bool own = !strcmp(o->name, r->job->optim_name);
    for (int i = 0; o->knobs[i].name; i++) {
        r->g->knob[i] = own ? r->job->knob[i] : o->knobs[i].usual;
        if (o->knobs[i].role == SK_KNOB_LR && !own) lr = o->knobs[i].usual;
    }
    return lr;
}

static sk_status read_number(reader *r, char *word, double *lr)
{
    static const sk_knob rate[2] = {
        {.name = "lr", .most = 1e6}}; /* one that is empty ends a list */
    char *value = strchr(word, '=');
    if (!value || value == word || !value[1])
        return wrong(r, sk_print(r->arena, "has \"%.40s\"; KEY=VALUE is needed", word));
    *value++ = 0;
    sk_setting s = *r->s;
    s.key = sk_print(r->arena, "optim.groups: %s: %s", r->g->match, word);
    s.value = value;
    bool is_rate = !strcmp(word, "lr");
    const sk_knob *k = sk_optim_key(r->g->optim, word);
    const char **said = k ? &r->said[k - r->g->optim->knobs] : NULL;
    if (is_rate ? r->rate : said && *said)
        return wrong(r, sk_print(r->arena, "says %.40s twice; once is needed", word));
    r->rate |= is_rate;
    if (is_rate) return sk_conf_knob_read(r->arena, rate, &s, lr);
    if (k) {
        *said = value;
        r->g->says_decay |= !strcmp(k->name, "decay");
        return sk_conf_knob_read(r->arena, k, &s, r->g->knob + (k - r->g->optim->knobs));
    }
    sk_out own = {.arena = r->arena};
    for (const sk_knob *p = r->g->optim->knobs; p->name; p += sk_knob_list(p))
        sk_out_add(&own, "%s%s", own.s ? ", " : "", sk_knob_key(p));
    return wrong(r, sk_print(r->arena, "says %.40s of %s, which has %s", word, r->g->optim->name,
                             own.s ? own.s : "no numbers"));
}

/* Numbers that are used only beside a word of another. */
static sk_status check_used(reader *r)
{
    const sk_knob *knobs = r->g->optim->knobs;
    for (int i = 0; knobs[i].name; i++) {
        if (!r->said[i] || sk_knob_used(knobs, &knobs[i], r->g->knob)) continue;
        sk_setting s = *r->s;
        s.key = sk_print(r->arena, "optim.groups: %s: %s", r->g->match, sk_knob_key(&knobs[i]));
        s.value = r->said[i];
        return sk_conf_unused(r->arena, &knobs[i], &s);
    }
    return SK_OK;
}

static sk_status closed(reader *r)
{
    int depth = 0;
    for (const char *p = r->text; *p && depth >= 0; p++) depth += (*p == '[') - (*p == ']');
    if (!depth) return SK_OK;
    return wrong(r, depth > 0 ? "has a [ without a ]; a list is [0.9, 0.99]"
                              : "has a ] without a [; a list is [0.9, 0.99]");
}

static sk_status read_group(reader *r, char *text)
{
    SK_TRY(closed(r));
    char *rest = strchr(text, ':');
    if (!rest) return wrong(r, "has no ':'; GROUP: OPTIMIZER KEY=VALUE ... is needed");
    *rest++ = 0;
    const char *match = trim(text);
    if (!*match || strlen(match) >= SK_GROUP_MATCH)
        return wrong(r, "has no name of a class, or pattern of names, of usual length before ':'");
    snprintf(r->g->match, SK_GROUP_MATCH, "%s", match);
    char *word = NULL;
    do word = next_part(&rest, " \t\n");
    while (word && !*word);
    bool named = word && !strchr(word, '=');
    SK_TRY(read_optim(r, named ? word : r->job->optim_name));
    double lr = usual_numbers(r);
    if (named || !word) word = next_part(&rest, " \t\n");
    for (; word; word = next_part(&rest, " \t\n"))
        if (*word) SK_TRY(read_number(r, word, &lr));
    SK_TRY(check_used(r));
    if (r->job->lr <= 0 && lr > 0)
        return wrong(r, "has a rate of its own, and optim.lr is 0: rates follow its schedule, so "
                        "it must be above 0");
    r->g->rate = r->job->lr > 0 ? lr / r->job->lr : 1;
    return SK_OK;
}

/* --- what nobody says --- */

static bool has_group(const sk_job *job, const char *match)
{
    for (int i = 0; i < job->n_groups; i++)
        if (!strcmp(job->group[i].match, match)) return true;
    return false;
}

static sk_param_group *add_group(sk_job *job, const char *match, const sk_optim *o)
{
    if (has_group(job, match) || job->n_groups == SK_MAX_PARAM_GROUPS - 1) return NULL;
    sk_param_group *g = &job->group[job->n_groups++];
    *g = (sk_param_group){.optim = o, .rate = 1};
    snprintf(g->match, sizeof g->match, "%s", match);
    return g;
}

/* Both declare the same numbers, as adafactor and adafactor-vector: one method for two kinds of
 * parameters. */
static bool same_numbers(const sk_optim *a, const sk_optim *b)
{
    int i = 0;
    while (a->knobs[i].name && b->knobs[i].name && !strcmp(a->knobs[i].name, b->knobs[i].name)) i++;
    return !a->knobs[i].name && !b->knobs[i].name;
}

/* An optimizer for matrices has matrices; what is left has the optimizer that it names, with the
 * same rate and decay, and with all numbers if they are the same. */
static void complete_groups(sk_job *job)
{
    const sk_optim *o = sk_optim_find(job->optim_name), *rest;
    if (!o->matrix) return;
    sk_assert(o->rest && sk_optim_find(o->rest)); /* kernel/optim.h: needed with whole */
    sk_param_group *g = add_group(job, "matrix", o);
    if (g) memcpy(g->knob, job->knob, sizeof g->knob);
    rest = sk_optim_find(o->rest);
    g = add_group(job, "rest", rest);
    int decay = sk_optim_knob(o, "decay");
    bool same = same_numbers(o, rest);
    for (int i = 0; g && rest->knobs[i].name; i++) {
        g->knob[i] = same ? job->knob[i] : rest->knobs[i].usual;
        if (rest->knobs[i].role == SK_KNOB_DECAY && decay >= 0) g->knob[i] = job->knob[decay];
    }
}

sk_status sk_conf_groups(sk_arena *a, const sk_settings *s, sk_job *job)
{
    static const sk_setting none = {.key = "optim.groups", .file = ""};
    const sk_setting *said = sk_setting_find(s, "optim.groups");
    reader r = {.arena = a, .s = said ? said : &none, .job = job};
    char *rest = sk_strdup(a, job->groups), *part;
    job->n_groups = 0;
    if (!sk_optim_find(job->optim_name)) return SK_OK; /* refused later */
    while ((part = next_part(&rest, ",;\n"))) {
        r.text = sk_strdup(a, trim(part));
        if (!*r.text) continue;
        if (job->n_groups == SK_MAX_PARAM_GROUPS - 1)
            return wrong(&r, sk_print(a, "is one too many: %d groups are possible",
                                      SK_MAX_PARAM_GROUPS - 1));
        memset(r.said, 0, sizeof r.said);
        r.rate = false;
        r.g = &job->group[job->n_groups++];
        *r.g = (sk_param_group){.rate = 1};
        SK_TRY(read_group(&r, part));
    }
    r.text = job->groups;
    if (!job->n_groups && *job->groups)
        return wrong(&r, "has no group; GROUP: OPTIMIZER KEY=VALUE ... is needed");
    job->n_groups_said = job->n_groups;
    complete_groups(job);
    return SK_OK;
}
