/* conf_knob.c - the keys that parts declare: `optim.betas` of optimizers, `optim.schedule_decay` of
 * schedules of the learning rate.
 *
 * The keys are those of all optimizers and schedules together.  A job has the numbers of its own
 * two: the defaults of the part, and what is said of them.  Numbers of other parts are a mistake,
 * but for those of a file whose optim.name or optim.schedule the command line changes: they must
 * be possible, and are left out. */
#include "cli/conf_key.h"
#include "cli/setting.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS = 100, INDENT = 23 };
static const char section[] = "optim.";

/* ---- the keys */

/* A part with knobs. */
typedef struct owner {
    const char *name;
    const sk_knob *knobs;
    sk_knob_owners of;
} owner;

/* The i-th: optimizers, then schedules; name NULL past the end. */
static owner owner_at(int i)
{
    int n = 0;
    while (sk_optim_parts[n]) n++;
    if (i < n) return (owner){sk_optim_parts[i]->name, sk_optim_parts[i]->knobs, SK_KNOBS_OPTIM};
    for (const sk_lr *const *p = sk_lr_parts; *p; p++)
        if (n++ == i) return (owner){(*p)->name, (*p)->knobs, SK_KNOBS_LR};
    return (owner){0};
}

/* Its first knob under a key; NULL: it has none. */
static const sk_knob *under(const owner *o, const char *key)
{
    for (const sk_knob *k = o->knobs; k && k->name; k++)
        if (!strcmp(sk_knob_key(k), key)) return k;
    return NULL;
}

/* The i-th key, by the first knob under it of the first part that has it. */
static const sk_knob *knob_at(int i, owner *by)
{
    for (int n = 0; (*by = owner_at(n)).name; n++)
        for (const sk_knob *k = by->knobs; k->name; k += sk_knob_list(k)) {
            bool seen = k->role == SK_KNOB_LR; /* a key of conf_keys.c */
            for (int p = 0; p < n && !seen; p++) {
                owner before = owner_at(p);
                seen = under(&before, sk_knob_key(k)) != NULL;
            }
            if (!seen && !i--) return k;
        }
    return NULL;
}

/* The first knob under the key of this name, and who declares it. */
static const sk_knob *find_knob(const char *name, owner *by)
{
    size_t n = sizeof section - 1;
    if (strncmp(name, section, n)) return NULL;
    for (int i = 0; (*by = owner_at(i)).name; i++) {
        const sk_knob *k = under(by, name + n);
        if (k && k->role != SK_KNOB_LR) return k;
    }
    return NULL;
}

const sk_knob *sk_conf_knob(const char *name)
{
    owner by;
    return find_knob(name, &by);
}

sk_knob_owners sk_conf_knob_owners(int i)
{
    owner by;
    return knob_at(i, &by) ? by.of : SK_KNOBS_NONE;
}

const char *sk_conf_knob_name(sk_arena *a, int i)
{
    owner by;
    const sk_knob *k = knob_at(i, &by);
    return k ? sk_print(a, "%s%s", section, sk_knob_key(k)) : NULL;
}

static bool is_switch(const sk_knob *k) { return k->whole && k->least == 0 && k->most == 1; }

const char *sk_conf_knob_on(const sk_knob *k) { return is_switch(k) ? "1" : NULL; }

const char *sk_conf_knob_off(const sk_knob *k)
{
    return k->least == 0 && sk_knob_list(k) == 1 ? "0" : NULL;
}

/* ---- values */

/* Which of the words it is. */
static bool read_word(const char *words, const char *word, double *to)
{
    if (!sk_conf_among(words, word)) return false;
    for (*to = 0; strcspn(words, " ") != strlen(word) || strncmp(words, word, strlen(word)); ++*to)
        words += strcspn(words, " ") + 1;
    return true;
}

static bool read_one(const sk_knob *k, const char *word, double *to)
{
    int64_t whole = 0;
    double x = 0;
    if (k->words) return read_word(k->words, word, to);
    if (k->whole ? !sk_read_int(word, &whole) : !sk_read_plain(word, &x)) return false;
    if (k->whole) x = (double)whole;
    *to = x;
    return x >= k->least && x <= k->most;
}

static const char blanks[] = " \t\n";

/* What is between the brackets of "[0.9, 0.95]", or all of a text without any. */
static const char *inside(sk_arena *a, const char *value)
{
    value += strspn(value, blanks);
    size_t n = strlen(value);
    while (n && strchr(blanks, value[n - 1])) n--;
    bool list = n > 1 && *value == '[' && value[n - 1] == ']';
    return sk_print(a, "%.*s", (int)(list ? n - 2 : n), value + list);
}

/* The next number of "0.9, 0.95", "0.9 0.95" or of lines; its length in *n, 0 at the end or where a
 * comma has none on one side. */
static const char *next_number(const char *at, bool first, size_t *n)
{
    at += strspn(at, blanks);
    bool comma = *at == ',';
    if (comma && !first) at += 1 + strspn(at + 1, blanks);
    *n = strcspn(at, " ,\t\n");
    return comma && (first || !*n) ? NULL : at;
}

/* "0.9, 0.95", "[0.9, 0.95]", or lines, as of a list of a file */
static bool read_list(sk_arena *a, const sk_knob *k, const char *value, double *to)
{
    char word[64];
    size_t bytes;
    int n = sk_knob_list(k);
    if (n > 1) value = inside(a, value);
    for (int i = 0; i < n; i++) {
        value = next_number(value, !i, &bytes);
        if (!value) return false;
        if (!bytes && i && k[i].fewer) {
            to[i] = 0;
            continue;
        }
        if (bytes >= sizeof word) return false;
        memcpy(word, value, bytes);
        word[bytes] = 0;
        value += bytes;
        if (!read_one(&k[i], word, &to[i])) return false;
    }
    return !value[strspn(value, blanks)];
}

/* Optimizers compute in f32, where a number just below 1 is 1: averages would never begin.  And a
 * tiny one is 0, with numbers below the normal ones: it would be no eps. */
static sk_status fits_f32(sk_arena *a, const sk_knob *k, const sk_setting *s, const double *x)
{
    for (int i = 0; i < sk_knob_list(k); i++) {
        if (x[i] > 0 && x[i] < FLT_MIN)
            return sk_fail(sk_setting_code(s),
                           "%s: %s is \"%.80s\", and %.15g is 0 in f32, in which optimizers "
                           "compute; 0, or at least 1.2e-38, is needed",
                           sk_setting_where(a, s, true), s->key, s->value, x[i]);
        if (k[i].most == SK_BELOW_ONE && (float)x[i] >= 1)
            return sk_fail(sk_setting_code(s),
                           "%s: %s is \"%.80s\", and %.15g is 1 in f32, in which optimizers "
                           "compute; at most 0.99999997 is needed",
                           sk_setting_where(a, s, true), s->key, s->value, x[i]);
    }
    return SK_OK;
}

/* "two numbers from 0 to 1", "one of linear, cosine" */
static const char *wanted(sk_arena *a, const sk_knob *k)
{
    int n = sk_knob_list(k);
    if (k->words) return sk_print(a, "one of: %s", k->words);
    const char *range = sk_conf_range(a, k->least, k->most);
    if (n > 1 && k[1].fewer) return sk_print(a, "up to %d numbers %s", n, range);
    if (n > 2) return sk_print(a, "%d numbers %s", n, range);
    return sk_print(a, "%s %s",
                    n == 2     ? "two numbers"
                    : k->whole ? "a whole number"
                               : "a number",
                    range);
}

sk_status sk_conf_knob_read(sk_arena *a, const sk_knob *k, const sk_setting *s, double *to)
{
    const char *value = s->value, *on = sk_conf_knob_on(k), *off = sk_conf_knob_off(k);
    if (on && sk_conf_among("yes on true", value)) value = on;
    if (off && sk_conf_among("no off false", value)) value = off;
    if (read_list(a, k, value, to)) return fits_f32(a, k, s, to);
    return sk_fail(sk_setting_code(s), "%s: %s is \"%.80s\"; %s %s needed%s%s",
                   sk_setting_where(a, s, true), s->key, s->value, wanted(a, k),
                   sk_knob_list(k) > 1 ? "are" : "is",
                   !k->whole && sk_conf_has_unit(s->value) ? sk_conf_no_units : "",
                   k->doc && *k->doc ? sk_print(a, " (%s)", k->doc) : "");
}

/* The job's part of this kind; name NULL: the job names none that there is, which is refused later.
 */
static owner own_part(const sk_job *job, sk_knob_owners of)
{
    const char *name = of == SK_KNOBS_OPTIM ? job->optim_name : job->schedule;
    owner o;
    for (int i = 0; (o = owner_at(i)).name; i++)
        if (o.of == of && !strcmp(o.name, name)) break;
    return o;
}

/* The value in brackets, if it is a list, as optim.groups takes it. */
static const char *in_group(sk_arena *a, const sk_knob *k, const sk_setting *s)
{
    bool list = sk_knob_list(k) > 1;
    sk_out o = {.arena = a};
    sk_out_add(&o, "%s=%s", sk_knob_key(k), list ? "[" : "");
    for (const char *p = inside(a, s->value); *p; p++)
        sk_out_add(&o, "%s", *p == '\n' ? ", " : (char[]){*p, 0});
    sk_out_add(&o, "%s", list ? "]" : "");
    return o.s;
}

/* Where another optimizer of the job has the number, how it gets it: that of a group, or the one
 * that an optimizer for matrices names for the rest; "": none of them has. */
static const char *for_group(sk_arena *a, const owner *o, const sk_knob *k, const sk_setting *s,
                             const char *groups)
{
    const sk_optim *own = o->of == SK_KNOBS_OPTIM ? sk_optim_find(o->name) : NULL;
    const sk_optim *rest = own && own->rest ? sk_optim_find(own->rest) : NULL;
    const char *group = own ? sk_conf_group_with(a, groups, sk_knob_key(k)) : NULL;
    if (group)
        return sk_print(a, "; optim.groups=\"%s %s, ...\" gives it to that group", group,
                        in_group(a, k, s));
    if (!rest || !sk_optim_key(rest, sk_knob_key(k))) return "";
    return sk_print(a, "; optim.groups=\"rest: %s %s\" gives it to %s, which has the rest",
                    rest->name, in_group(a, k, s), rest->name);
}

/* Is it the default of the part that the file itself names, as config.yaml of a run has it? */
static bool is_default_of_file(sk_arena *a, const sk_settings *all, const sk_setting *s,
                               sk_knob_owners of)
{
    const char *key = of == SK_KNOBS_OPTIM ? "optim.name" : "optim.schedule";
    const char *name = sk_conf_find(key)->default_text;
    double x[SK_MAX_KNOB];
    owner o;
    for (int i = 0; i < all->n; i++)
        if (all->v[i].file && !strcmp(all->v[i].key, key)) name = all->v[i].value;
    for (int i = 0; (o = owner_at(i)).name; i++)
        if (o.of == of && !strcmp(o.name, name)) break;
    const sk_knob *k = o.name ? under(&o, s->key + sizeof section - 1) : NULL;
    if (!k || sk_conf_knob_read(a, k, s, x)) return false;
    for (int i = 0; i < sk_knob_list(k); i++)
        if (x[i] != k[i].usual) return false;
    return true;
}

/* A sentence about a key that is left out.  One that has no room is counted with the others. */
static void add_left_out(sk_job *job, const char *line)
{
    static const char more[] = "other numbers of the file are left out, too";
    size_t n = strlen(job->left_out), room = sizeof job->left_out - sizeof more - 1;
    if (n >= sizeof more && !strcmp(job->left_out + n - sizeof more + 1, more)) return;
    if (n + strlen(line) + 1 > room) line = more;
    snprintf(job->left_out + n, sizeof job->left_out - n, "%s%s", n ? "\n" : "", line);
}

/* A number of other parts: possible, and of a file whose part the command line replaces. */
static sk_status of_others(sk_arena *a, const owner *o, const sk_settings *all, const sk_setting *s,
                           const sk_knob *k, sk_job *job)
{
    bool optim = o->of == SK_KNOBS_OPTIM;
    const sk_setting *name = sk_setting_find(all, optim ? "optim.name" : "optim.schedule");
    double x[SK_MAX_KNOB];
    sk_out own = {.arena = a};
    SK_TRY(sk_conf_knob_read(a, k, s, x));
    if (!o->name) return SK_OK;
    if (s->file && name && !name->file) {
        if (!is_default_of_file(a, all, s, o->of))
            add_left_out(job, sk_print(a, "%s of %s: %s has no such key%s", s->key, s->file,
                                       o->name, for_group(a, o, k, s, job->groups)));
        return SK_OK;
    }
    for (const sk_knob *p = o->knobs; p->name; p += sk_knob_list(p))
        sk_out_add(&own, "%s%s%s", own.s ? ", " : "", section, sk_knob_key(p));
    return sk_fail(sk_setting_code(s), "%s: %s is for other %s: %s has no such key; it has %s%s",
                   sk_setting_where(a, s, false), s->key, optim ? "optimizers" : "schedules",
                   o->name, own.s ? own.s : "none", for_group(a, o, k, s, job->groups));
}

/* The rise of a schedule that rises by itself is its own: no warmup is added to it. */
static sk_status no_warmup(const owner *schedule, const sk_settings *s, sk_job *job)
{
    const sk_lr *part = schedule->name ? sk_lr_named(schedule->name) : NULL;
    const sk_setting *said = sk_setting_find(s, "optim.warmup");
    if (!part || !part->rises) return SK_OK;
    if (said && !said->file && job->warmup)
        return sk_fail(SK_EUSAGE,
                       "command line: optim.warmup is %s, but the schedule %s rises by itself; "
                       "leave one of them out",
                       said->value, part->name);
    job->warmup = 0;
    return SK_OK;
}

static void set_defaults(const owner *o, const sk_settings *s, sk_job *job)
{
    double *to = o->of == SK_KNOBS_LR ? job->lr_knob : job->knob;
    for (const sk_knob *k = o->knobs; k && k->name; k++) {
        bool lr = k->role == SK_KNOB_LR;
        to[k - o->knobs] = lr ? 0 : k->usual;
        if (lr && !sk_setting_find(s, "optim.lr")) job->lr = k->usual;
    }
}

/* Defaults of the optimizer that a knob names, where nothing is said. */
static void base_defaults(sk_arena *a, const sk_settings *s, sk_job *job)
{
    const sk_optim *o = sk_optim_find(job->optim_name);
    for (int i = 0; o && o->knobs[i].name; i++) {
        const sk_knob *k = &o->knobs[i];
        if (sk_setting_find(s, sk_print(a, "%s%s", section, sk_knob_key(k)))) continue;
        if (k->role == SK_KNOB_LR) job->lr = sk_knob_usual(o, i, job->knob);
        else job->knob[i] = sk_knob_usual(o, i, job->knob);
    }
}

/* An optimizer that takes only one schedule has it by default. */
static void own_schedule(const sk_settings *s, sk_job *job)
{
    const sk_optim *o = sk_optim_find(job->optim_name);
    if (o && o->schedule && !sk_setting_find(s, "optim.schedule"))
        snprintf(job->schedule, sizeof job->schedule, "%s", o->schedule);
}

/* What is said of the job's optimizer beside groups, where it may have no effect.  A file may have
 * been written by a run, with every default.  optim.weight_decay is for groups, too. */
static void note_own(sk_arena *a, const sk_settings *all, const owner *optim, sk_job *job)
{
    const sk_setting *s = sk_setting_find(all, "optim.name");
    sk_out o = {.arena = a};
    job->own_said[0] = 0;
    if (!*job->groups || !optim->name) return;
    if (s && (!s->file || strcmp(s->value, sk_conf_find(s->key)->default_text)))
        sk_out_add(&o, "optim.name");
    for (const sk_knob *k = optim->knobs; k->name; k += sk_knob_list(k)) {
        const double *x = job->knob + (k - optim->knobs);
        int same = 0;
        s = sk_setting_find(all, sk_print(a, "%s%s", section, sk_knob_key(k)));
        if (!s || k->role == SK_KNOB_LR || !strcmp(k->name, "decay")) continue;
        while (same < sk_knob_list(k) && x[same] == k[same].usual) same++;
        if (!s->file || same < sk_knob_list(k)) sk_out_add(&o, "%s%s", o.n ? ", " : "", s->key);
    }
    if (o.n < (int64_t)sizeof job->own_said)
        snprintf(job->own_said, sizeof job->own_said, "%s", o.n ? o.s : "");
}

sk_status sk_conf_knobs(sk_arena *a, const sk_settings *s, sk_job *job)
{
    own_schedule(s, job);
    _Static_assert((int)SK_MAX_LR_KNOB <= (int)SK_MAX_KNOB, "of_others() has room for either");
    const owner optim = own_part(job, SK_KNOBS_OPTIM), schedule = own_part(job, SK_KNOBS_LR);
    job->left_out[0] = 0;
    set_defaults(&optim, s, job);
    set_defaults(&schedule, s, job);
    for (int i = 0; i < s->n; i++) { /* in the order of saying: the last one wins */
        owner by = {0};
        const sk_knob *any = find_knob(s->v[i].key, &by);
        if (!any) continue;
        const owner *o = by.of == SK_KNOBS_LR ? &schedule : &optim;
        double *to = by.of == SK_KNOBS_LR ? job->lr_knob : job->knob;
        const sk_knob *own = under(o, sk_knob_key(any));
        if (own) SK_TRY(sk_conf_knob_read(a, own, &s->v[i], to + (own - o->knobs)));
        else SK_TRY(of_others(a, o, s, &s->v[i], any, job));
    }
    base_defaults(a, s, job);
    note_own(a, s, &optim, job);
    job->lr_said = *job->groups && sk_setting_find(s, "optim.lr");
    job->decay_said = *job->groups && sk_setting_find(s, "optim.weight_decay");
    return no_warmup(&schedule, s, job);
}

/* ---- printing */

static const char *value_text(sk_arena *a, const sk_knob *k, double x)
{
    const char *w = k->words;
    if (!w) return sk_real_print(a, x);
    for (int i = (int)x; i > 0 && *w; i--) w += strcspn(w, " ") + 1;
    return sk_print(a, "%.*s", (int)strcspn(w, " "), w);
}

/* The values of a list; zeros that may be left out at its end are. */
static void add_list(sk_out *o, const sk_knob *k, const double *x)
{
    int n = sk_knob_list(k);
    while (n > 1 && k[n - 1].fewer && x[n - 1] == 0) n--;
    for (int i = 0; i < n; i++)
        sk_out_add(o, "%s%s", i ? ", " : "", value_text(o->arena, &k[i], x[i]));
}

void sk_conf_knobs_print(sk_out *to, sk_knob_owners of, const sk_job *job)
{
    if (!of) return;
    const owner o = own_part(job, of);
    const double *values = of == SK_KNOBS_LR ? job->lr_knob : job->knob;
    for (const sk_knob *k = o.knobs; k && k->name; k += sk_knob_list(k)) {
        bool list = sk_knob_list(k) > 1;
        if (k->role == SK_KNOB_LR || !sk_knob_used(o.knobs, k, values)) continue;
        if (of == SK_KNOBS_OPTIM && *job->groups && !job->decay_said && !strcmp(k->name, "decay"))
            continue; /* not said: optimizers of groups have their own */
        sk_out_add(to, "  %s: %s", sk_knob_key(k), list ? "[" : "");
        add_list(to, k, values + (k - o.knobs));
        sk_out_add(to, "%s\n", list ? "]" : "");
    }
}

const char *sk_conf_knob_default(sk_arena *a, const char *key)
{
    sk_out text = {.arena = a};
    owner o;
    for (int n = 0; (o = owner_at(n)).name; n++) {
        const sk_knob *k = under(&o, key);
        double usual[SK_MAX_KNOB];
        if (!k) continue;
        for (int i = 0; i < sk_knob_list(k); i++) usual[i] = k[i].usual;
        sk_out_add(&text, "%s%s ", text.s ? "; " : "", o.name);
        add_list(&text, k, usual);
    }
    return text.s ? text.s : "";
}

const char *sk_conf_schedules(sk_arena *a)
{
    sk_out o = {.arena = a};
    for (const sk_lr *const *p = sk_lr_parts; *p; p++)
        sk_out_add(&o, "%s%s", o.s ? " " : "", (*p)->name);
    return o.s ? o.s : "";
}

void sk_conf_help_line(sk_out *o, const char *name, const char *doc, const char *usual)
{
    const char *text = *usual ? sk_print(o->arena, "%s (%s)", doc, usual) : doc;
    sk_out_add(o, "  %-20s ", name);
    for (int from = (int)strlen(name) > 20 ? (int)strlen(name) + 3 : INDENT; *text;) {
        const char *end = text + strlen(text), *cut = end;
        if (end - text > COLUMNS - from) /* the last default that fits ends the line */
            for (cut = text + COLUMNS - from; cut > text && strncmp(cut - 2, "; ", 2); cut--)
                continue;
        if (cut == text) cut = end;
        int n = (int)(cut - text);
        sk_out_add(o, "%.*s\n", cut < end ? n - 1 : n, text);
        if (cut < end) sk_out_add(o, "%*s", from = INDENT, "");
        text = cut;
    }
}

void sk_conf_knob_help(sk_out *o, int i)
{
    owner by;
    const sk_knob *k = knob_at(i, &by);
    sk_conf_help_line(o, sk_conf_knob_name(o->arena, i), k->doc ? k->doc : "",
                      sk_conf_knob_default(o->arena, sk_knob_key(k)));
}

const char *sk_conf_knob_text(sk_arena *a, const sk_knob *k)
{
    const char *doc = sk_or_empty(k->doc), *only = k->only ? ", with " : "";
    return sk_print(a, "%s%s%s%s%s", doc, *doc ? "; " : "", wanted(a, k), only,
                    sk_or_empty(k->only));
}

void sk_conf_knobs_help(sk_out *o, const sk_knob *knobs)
{
    for (const sk_knob *k = knobs; k->name; k += sk_knob_list(k)) {
        const char *name = sk_print(o->arena, "%s%s", section, sk_knob_key(k));
        const sk_conf_key *key = k->role == SK_KNOB_LR ? sk_conf_find(name) : NULL;
        sk_out usual = {.arena = o->arena};
        double x[SK_MAX_KNOB];
        for (int i = 0; i < sk_knob_list(k); i++) x[i] = k[i].usual;
        add_list(&usual, k, x);
        sk_conf_help_line(o, name, key ? key->doc : sk_conf_knob_text(o->arena, k), usual.s);
    }
}
