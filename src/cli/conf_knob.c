/* conf_knob.c - the keys that optimizers declare: `optim.betas`, `optim.momentum` ...
 *
 * The keys are those of all optimizers together.  A job has the numbers of its own optimizer: the
 * defaults of the part, and what is said of them.  A file may say numbers of other optimizers,
 * since optim.name can be changed on the command line: they must be possible, and are left out.  On
 * the command line they are a mistake. */
#include "cli/setting.h"

#include <string.h>

enum { COLUMNS = 100, INDENT = 23 };
static const char section[] = "optim.";

/* ---- the keys */

/* The i-th key, by the first knob under it of the first optimizer that has it. */
static const sk_knob *knob_at(int i)
{
    for (int o = 0; sk_optim_parts[o]; o++)
        for (const sk_knob *k = sk_optim_parts[o]->knobs; k->name; k += sk_knob_list(k)) {
            bool seen = k->role == SK_KNOB_LR; /* a key of conf.c */
            for (int p = 0; p < o && !seen; p++)
                seen = sk_optim_key(sk_optim_parts[p], sk_knob_key(k)) != NULL;
            if (!seen && !i--) return k;
        }
    return NULL;
}

const sk_knob *sk_conf_knob(const char *name)
{
    const sk_knob *k = NULL;
    size_t n = sizeof section - 1;
    if (strncmp(name, section, n)) return NULL;
    for (int i = 0; (k = knob_at(i)); i++)
        if (!strcmp(sk_knob_key(k), name + n)) return k;
    return NULL;
}

const char *sk_conf_knob_name(sk_arena *a, int i)
{
    const sk_knob *k = knob_at(i);
    return k ? sk_print(a, "%s%s", section, sk_knob_key(k)) : NULL;
}

static bool is_switch(const sk_knob *k) { return k->whole && k->least == 0 && k->most == 1; }

const char *sk_conf_knob_on(const sk_knob *k) { return is_switch(k) ? "1" : NULL; }

const char *sk_conf_knob_off(const sk_knob *k)
{
    return k->least == 0 && sk_knob_list(k) == 1 ? "0" : NULL;
}

/* ---- values */

static bool read_one(const sk_knob *k, const char *word, double *to)
{
    int64_t whole = 0;
    double x = 0;
    if (k->whole ? !sk_read_int(word, &whole) : !sk_read_plain(word, &x)) return false;
    if (k->whole) x = (double)whole;
    *to = x;
    return x >= k->least && x <= k->most;
}

/* "0.9, 0.95", "[0.9, 0.95]", or a list */
static bool read_list(const sk_knob *k, const char *value, double *to)
{
    static const char gap[] = " ,[]\n\t";
    char word[64];
    for (int i = 0, n = sk_knob_list(k); i < n; i++) {
        value += strspn(value, gap);
        size_t bytes = strcspn(value, gap);
        if (bytes >= sizeof word) return false;
        memcpy(word, value, bytes);
        word[bytes] = 0;
        value += bytes;
        if (!read_one(&k[i], word, &to[i])) return false;
    }
    return !value[strspn(value, gap)];
}

sk_status sk_conf_knob_read(sk_arena *a, const sk_knob *k, const sk_setting *s, double *to)
{
    const char *value = s->value, *on = sk_conf_knob_on(k), *off = sk_conf_knob_off(k);
    int n = sk_knob_list(k);
    if (on && sk_conf_among("yes on true", value)) value = on;
    if (off && sk_conf_among("no off false", value)) value = off;
    if (read_list(k, value, to)) return SK_OK;
    const char *what = n > 2      ? sk_print(a, "%d numbers", n)
                       : n == 2   ? "two numbers"
                       : k->whole ? "a whole number"
                                  : "a number";
    return sk_fail(sk_setting_code(s), "%s: %s is \"%.80s\"; %s %s is needed%s",
                   sk_setting_where(a, s, true), s->key, s->value, what,
                   sk_conf_range(a, k->least, k->most),
                   !k->whole && sk_conf_has_unit(s->value) ? sk_conf_no_units : "");
}

/* A number of other optimizers: possible, and in a file. */
static sk_status of_others(sk_arena *a, const sk_optim *o, const sk_setting *s, const sk_knob *k)
{
    double x[SK_MAX_KNOB];
    sk_out own = {.arena = a};
    SK_TRY(sk_conf_knob_read(a, k, s, x));
    if (s->file || !o) return SK_OK;
    for (const sk_knob *p = o->knobs; p->name; p += sk_knob_list(p))
        sk_out_add(&own, "%s%s%s", own.s ? ", " : "", section, sk_knob_key(p));
    return sk_fail(SK_EUSAGE,
                   "command line: %s is for other optimizers: %s has no such key; it has %s",
                   s->key, o->name, own.s ? own.s : "none");
}

sk_status sk_conf_knobs(sk_arena *a, const sk_settings *s, sk_job *job)
{
    const sk_optim *o = sk_optim_find(job->optim_name); /* an unknown name is refused later */
    for (int i = 0; o && o->knobs[i].name; i++) {
        job->knob[i] = o->knobs[i].role == SK_KNOB_LR ? 0 : o->knobs[i].usual;
        if (o->knobs[i].role == SK_KNOB_LR && !sk_setting_find(s, "optim.lr"))
            job->lr = o->knobs[i].usual;
    }
    for (int i = 0; i < s->n; i++) { /* in the order of saying: the last one wins */
        const sk_knob *any = sk_conf_knob(s->v[i].key);
        const sk_knob *own = any && o ? sk_optim_key(o, sk_knob_key(any)) : NULL;
        if (own) SK_TRY(sk_conf_knob_read(a, own, &s->v[i], job->knob + (own - o->knobs)));
        else if (any) SK_TRY(of_others(a, o, &s->v[i], any));
    }
    return SK_OK;
}

/* ---- printing */

static void add_list(sk_out *o, const double *x, int n)
{
    for (int i = 0; i < n; i++) sk_out_add(o, "%s%s", i ? ", " : "", sk_conf_real(o->arena, x[i]));
}

void sk_conf_knobs_print(sk_out *to, const sk_job *job)
{
    const sk_optim *o = sk_optim_find(job->optim_name);
    for (const sk_knob *k = o ? o->knobs : NULL; k && k->name; k += sk_knob_list(k)) {
        int n = sk_knob_list(k);
        if (k->role == SK_KNOB_LR) continue;
        sk_out_add(to, "  %s: %s", sk_knob_key(k), n > 1 ? "[" : "");
        add_list(to, job->knob + (k - o->knobs), n);
        sk_out_add(to, "%s\n", n > 1 ? "]" : "");
    }
}

const char *sk_conf_knob_default(sk_arena *a, const char *key)
{
    sk_out o = {.arena = a};
    for (const sk_optim *const *part = sk_optim_parts; *part; part++) {
        const sk_knob *k = sk_optim_key(*part, key);
        double usual[SK_MAX_KNOB];
        if (!k) continue;
        for (int i = 0; i < sk_knob_list(k); i++) usual[i] = k[i].usual;
        sk_out_add(&o, "%s%s ", o.s ? "; " : "", (*part)->name);
        add_list(&o, usual, sk_knob_list(k));
    }
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
    const sk_knob *k = knob_at(i);
    sk_conf_help_line(o, sk_conf_knob_name(o->arena, i), k->doc ? k->doc : "",
                      sk_conf_knob_default(o->arena, sk_knob_key(k)));
}
