/* conf_groups.c - optim.groups: parameters with an optimizer and numbers of their own.
 *
 *     optim.groups="matrix: sgd lr=0.02 momentum=0.95, h.0.*: adamw betas=[0.9, 0.99], rest: lamb"
 *
 * A group is a class of parameters or a pattern of names, an optimizer, and numbers of it.  What is
 * not said:
 *
 *     the optimizer          the one that a parameter has without the group; where these are two,
 *                            one for matrices and one for the rest, the group becomes two
 *     lr, weight_decay       optim.lr and optim.weight_decay where they are said, else the
 *                            optimizer's defaults
 *     other numbers          as the job says of its own optimizer, as the part says of another
 *
 * Rates follow the schedule of optim.lr, times their part of it. */
#include "cli/setting.h"
#include "base/strings.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* One of the groups that a text becomes. */
typedef struct half {
    sk_param_group *g;
    const char *said[SK_MAX_KNOB]; /* values of the numbers so far, by the first knob of a key */
} half;

typedef struct reader {
    sk_arena *arena;
    const sk_setting *s;
    sk_job *job;
    const char *text;   /* of the group, for messages */
    const char *behind; /* what follows the group; NULL: nothing */
    half half[2];
    int n;
    double lr; /* as it is said; -1: not */
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

const char *sk_conf_group_with(sk_arena *a, const char *groups, const char *key)
{
    char *rest = sk_strdup(a, groups), *part;
    while ((part = next_part(&rest, ",;\n"))) {
        char *of = strchr(part, ':');
        if (!of) continue;
        *of++ = 0;
        while (isspace((unsigned char)*of)) of++;
        of[strcspn(of, " \t")] = 0;
        const sk_optim *o = sk_optim_find(of);
        if (o && sk_optim_key(o, key)) return sk_print(a, "%s: %s", trim(part), of);
    }
    return NULL;
}

static sk_status find_optim(const reader *r, const char *name, const sk_optim **out)
{
    const char *names[64];
    int n = 0;
    if ((*out = sk_optim_find(name))) return SK_OK;
    while (n < 64 && sk_optim_parts[n]) names[n] = sk_optim_parts[n]->name, n++;
    const char *near = sk_nearest(name, names, n);
    return wrong(r, sk_print(r->arena,
                             "names the optimizer '%.40s', which is unknown%s%s%s; skein "
                             "list optim shows them",
                             name, near ? " (did you mean '" : "", near ? near : "",
                             near ? "'?)" : ""));
}

/* --- numbers that are not said --- */

/* Both declare the same numbers, as adafactor and adafactor-vector: one method for two kinds of
 * parameters. */
static bool same_numbers(const sk_optim *a, const sk_optim *b)
{
    int i = 0;
    while (a->knobs[i].name && b->knobs[i].name && !strcmp(a->knobs[i].name, b->knobs[i].name)) i++;
    return !a->knobs[i].name && !b->knobs[i].name;
}

static const sk_optim *rest_of(const sk_optim *o)
{
    const sk_optim *rest = o->matrix ? sk_optim_find(o->rest) : NULL;
    sk_assert(!o->matrix || rest); /* kernel/optim.h: needed with matrix */
    return rest;
}

/* Is a number that decides defaults of others said, and not as the job has it? */
static bool other_base(const sk_job *job, const half *h)
{
    const sk_knob *k = h->g->optim->knobs;
    for (int i = 0; k[i].name; i++)
        if (k[i].base && h->said[i] && h->g->knob[i] != job->knob[i]) return true;
    return false;
}

/* The job's optimizer has the job's numbers; the one that it names for the rest has its rate and
 * decay, and all numbers if they are the same; others have their defaults.  Returns the rate. */
static double usual_numbers(const sk_job *job, half *h)
{
    const sk_optim *own = sk_optim_find(job->optim_name), *o = h->g->optim;
    bool pair = o == own ? !other_base(job, h) : o == rest_of(own);
    bool all = pair && (o == own || same_numbers(own, o));
    int decay = sk_optim_knob(own, "decay");
    double lr = job->lr;
    for (int n = 0, i = 0; o->knobs[i].name; i += n) {
        n = sk_knob_list(&o->knobs[i]);
        for (int k = i; k < i + n && !h->said[i]; k++) {
            double usual = sk_knob_usual(o, k, h->g->knob);
            h->g->knob[k] = all ? job->knob[k] : usual;
            if (!strcmp(o->knobs[k].name, "decay") && decay >= 0 && (pair || job->decay_said))
                h->g->knob[k] = job->knob[decay];
            if (o->knobs[k].role == SK_KNOB_LR && !pair && !job->lr_said) lr = usual;
        }
    }
    return lr;
}

/* --- numbers that are said --- */

static sk_status no_such_number(const reader *r, const char *word)
{
    sk_out own = {.arena = r->arena}, who = {.arena = r->arena};
    for (int i = 0; i < r->n; i++) {
        const sk_optim *o = r->half[i].g->optim;
        sk_out_add(&who, "%s%s", i ? " and " : "", o->name);
        for (const sk_knob *p = o->knobs; p->name; p += sk_knob_list(p))
            if (!i || !sk_optim_key(r->half[0].g->optim, sk_knob_key(p)))
                sk_out_add(&own, "%s%s", own.s ? ", " : "", sk_knob_key(p));
    }
    return wrong(r, sk_print(r->arena, "says %.40s of %s, which %s %s", word, who.s,
                             r->n > 1 ? "have" : "has", own.s ? own.s : "no numbers"));
}

static bool may_be(const sk_knob *k, const char *word)
{
    double x;
    return sk_read_plain(word, &x) && x >= k->least && x <= k->most;
}

/* A list without brackets was cut at its comma: what to write. */
static sk_status cut_list(const reader *r, const sk_knob *k, const char *word, const char *value,
                          sk_status status)
{
    int n = sk_knob_list(k);
    sk_out o = {.arena = r->arena};
    if (n == 1 || !may_be(k, value)) return status;
    sk_out_add(&o, "%s", value);
    const char *at = r->behind ? r->behind : "";
    for (int i = 1; i < n; i++) {
        at += strspn(at, " \t\n");
        size_t bytes = strcspn(at, ", \t\n;");
        const char *next = sk_print(r->arena, "%.*s", (int)bytes, at);
        if (!may_be(&k[i], next)) return status;
        sk_out_add(&o, ",%s", next);
        at += bytes + (at[bytes] == ',');
    }
    return sk_fail(status, "%s; write %s=[%s]", sk_strdup(r->arena, sk_error_line()), word, o.s);
}

static sk_status read_number(reader *r, char *word)
{
    static const sk_knob rate[2] = {
        {.name = "lr", .most = 1e6}}; /* one that is empty ends a list */
    char *value = strchr(word, '=');
    if (!value || value == word || !value[1])
        return wrong(r, sk_print(r->arena, "has \"%.40s\"; KEY=VALUE is needed", word));
    *value++ = 0;
    sk_setting s = *r->s;
    s.key = sk_print(r->arena, "optim.groups: %s: %s", r->half[0].g->match, word);
    s.value = value;
    bool is_rate = !strcmp(word, "lr"), twice = is_rate && r->lr >= 0;
    int known = 0;
    for (int i = 0; i < r->n && !is_rate; i++) {
        half *h = &r->half[i];
        const sk_knob *k = sk_optim_key(h->g->optim, word);
        if (!k) continue;
        twice |= h->said[k - h->g->optim->knobs] != NULL;
        h->said[k - h->g->optim->knobs] = value;
        h->g->says_decay |= !strcmp(k->name, "decay");
        sk_status st = sk_conf_knob_read(r->arena, k, &s, h->g->knob + (k - h->g->optim->knobs));
        if (st) return cut_list(r, k, word, value, st);
        known++;
        if (r->n > 1 && !sk_optim_key(r->half[!i].g->optim, word))
            snprintf(h->g->alone, sizeof h->g->alone, "%s", word);
    }
    if (twice) return wrong(r, sk_print(r->arena, "says %.40s twice; once is needed", word));
    if (is_rate) return sk_conf_knob_read(r->arena, rate, &s, &r->lr);
    return known ? SK_OK : no_such_number(r, word);
}

/* Numbers that are used only beside a word of another. */
static sk_status check_used(const reader *r, const half *h)
{
    const sk_knob *knobs = h->g->optim->knobs;
    for (int i = 0; knobs[i].name; i++) {
        if (!h->said[i] || sk_knob_used(knobs, &knobs[i], h->g->knob)) continue;
        sk_setting s = *r->s;
        s.key = sk_print(r->arena, "optim.groups: %s: %s", h->g->match, sk_knob_key(&knobs[i]));
        s.value = h->said[i];
        return sk_conf_unused(r->arena, &knobs[i], &s);
    }
    return SK_OK;
}

static sk_status finish(const reader *r, half *h)
{
    double lr = usual_numbers(r->job, h);
    h->g->says_lr = r->lr >= 0;
    if (h->g->says_lr) lr = r->lr;
    SK_TRY(check_used(r, h));
    if (r->job->lr <= 0 && lr > 0)
        return wrong(r, "has a rate of its own, and optim.lr is 0: rates follow its schedule, so "
                        "it must be above 0");
    h->g->rate = r->job->lr > 0 ? lr / r->job->lr : 1;
    return SK_OK;
}

/* --- a group --- */

static sk_status add_half(reader *r, const char *match, const sk_optim *o)
{
    sk_job *job = r->job;
    if (job->n_groups == SK_MAX_PARAM_GROUPS - 1)
        return wrong(r, sk_print(r->arena,
                                 "is one too many: %d groups are possible, and one without an "
                                 "optimizer may be two, of matrices and the rest",
                                 SK_MAX_PARAM_GROUPS - 1));
    sk_param_group *g = &job->group[job->n_groups++];
    *g = (sk_param_group){.optim = o, .rate = 1, .half = r->n > 0};
    snprintf(g->match, sizeof g->match, "%s", match);
    for (int i = 0; o->knobs[i].name; i++) g->knob[i] = o->knobs[i].usual; /* sk_knob_usual */
    r->half[r->n++] = (half){.g = g};
    return SK_OK;
}

/* Without an optimizer: the job's, or of one for matrices that and the one for the rest.  Matrices
 * without Kronecker factors are of the rest (program/param_groups.c). */
static sk_status add_halves(reader *r, const char *match, const sk_optim *own)
{
    const sk_optim *rest = rest_of(own);
    bool matrix = sk_conf_among(own->every_matrix ? "matrix head embedding" : "matrix", match);
    bool other = rest && !matrix && sk_conf_among("head embedding vector", match);
    if (!other) SK_TRY(add_half(r, match, own));
    if (!other) r->half[0].g->matrices = rest != NULL;
    if (!rest || (matrix && !own->factors)) return SK_OK;
    return add_half(r, match, rest);
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
    const sk_optim *own = sk_optim_find(r->job->optim_name);
    SK_TRY(closed(r));
    char *rest = strchr(text, ':');
    if (!rest) return wrong(r, "has no ':'; GROUP: OPTIMIZER KEY=VALUE ... is needed");
    *rest++ = 0;
    const char *match = trim(text);
    if (!*match || strlen(match) >= SK_GROUP_MATCH)
        return wrong(r, "has no name of a class, or pattern of names, of usual length before ':'");
    char *word = NULL;
    do word = next_part(&rest, " \t\n");
    while (word && !*word);
    bool named = word && !strchr(word, '=');
    if (named) {
        const sk_optim *o;
        SK_TRY(find_optim(r, word, &o));
        SK_TRY(add_half(r, match, o));
    } else SK_TRY(add_halves(r, match, own));
    if (named || !word) word = next_part(&rest, " \t\n");
    for (; word; word = next_part(&rest, " \t\n"))
        if (*word) SK_TRY(read_number(r, word));
    for (int i = 0; i < r->n; i++) SK_TRY(finish(r, &r->half[i]));
    return SK_OK;
}

/* --- what nobody says --- */

static bool has_group(const sk_job *job, const char *match)
{
    for (int i = 0; i < job->n_groups; i++)
        if (!strcmp(job->group[i].match, match)) return true;
    return false;
}

static void add_group(sk_job *job, const char *match, const sk_optim *o, bool matrices)
{
    if (job->n_groups == SK_MAX_PARAM_GROUPS - 1) return;
    half h = {.g = &job->group[job->n_groups++]};
    *h.g = (sk_param_group){.optim = o, .rate = 1, .matrices = matrices};
    snprintf(h.g->match, sizeof h.g->match, "%s", match);
    usual_numbers(job, &h);
}

/* An optimizer for matrices has matrices, or every matrix; what is left has the optimizer that it
 * names. */
static void complete_groups(sk_job *job)
{
    const sk_optim *o = sk_optim_find(job->optim_name);
    if (!o->matrix) return;
    bool rest = has_group(job, "rest");
    if (o->every_matrix && !rest) add_group(job, "rest", o, true);
    else if (!has_group(job, "matrix")) add_group(job, "matrix", o, false);
    if (!rest) add_group(job, "rest", rest_of(o), false);
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
        r.n = 0;
        r.lr = -1;
        r.behind = rest;
        SK_TRY(read_group(&r, part));
    }
    r.text = job->groups;
    if (!job->n_groups && *job->groups)
        return wrong(&r, "has no group; GROUP: OPTIMIZER KEY=VALUE ... is needed");
    job->n_groups_said = job->n_groups;
    complete_groups(job);
    return SK_OK;
}
