/* conf_help.c - help on keys and words of a layout. */
#include "cli/conf_key.h"
#include "base/strings.h"
#include "cli/conf.h"
#include "cli/setting.h"
#include "layout/word.h"

#include <stdio.h>
#include <string.h>

static void help_line(sk_out *o, const sk_conf_key *k)
{
    sk_conf_help_line(o, k->name, k->doc,
                      k->knob ? sk_conf_knob_default(o->arena, k->knob) : k->default_text);
}

static bool is_below(const char *name, const char *section)
{
    size_t n = strlen(section);
    return !strncmp(name, section, n) && (!name[n] || name[n] == '.' || !n);
}

/* Of a key, of a section, or ("") of all. */
static void help_lines(sk_out *o, const char *name)
{
    for (int i = 0; i < sk_n_conf_keys; i++) {
        sk_knob_owners of = sk_conf_table[i].after_knobs;
        for (int k = 0; of && sk_conf_knob_name(o->arena, k); k++)
            if (sk_conf_knob_owners(k) == of && is_below(sk_conf_knob_name(o->arena, k), name))
                sk_conf_knob_help(o, k);
        if (is_below(sk_conf_table[i].name, name)) help_line(o, &sk_conf_table[i]);
    }
}

static const char model_help[] =
    "  model                a preset, a directory with config.json (preset:X or ./X where\n"
    "                       both exist), or sizes such as\n"
    "                       model.hidden_size=128 (nano)\n";

static void word_lines(sk_out *o, const sk_word *w)
{
    const char *spell = sk_word_spell(o->arena, w);
    bool wide = strlen(spell) > 20;
    sk_out_add(o, "  %-*s%s%-*s%s\n", wide ? 0 : 21, spell, wide ? "\n" : "", wide ? 23 : 0, "",
               sk_or_empty(w->doc));
    sk_out_add(o, "%-23s%s\n", "", sk_word_about(o->arena, w));
    sk_out_add(o, "%-23sas in layout=\"%s\"\n", "", sk_or_empty(w->example));
}

/* A word of a layout, or all of them. */
static void layout_help(sk_out *o, const char *name)
{
    bool all = !strcmp(name, "layout");
    size_t n = strcspn(name, "="); /* zero=3: zero */
    for (const sk_word *const *w = sk_word_parts; *w; w++)
        if (all || (!strncmp((*w)->name, name, n) && !(*w)->name[n])) word_lines(o, *w);
    if (all) sk_out_add(o, "Long forms and exclusions: doc/layout.md\n");
}

/* Of one key that a line cannot explain. */
static void more_lines(sk_out *o, const char *name)
{
    const sk_conf_key *k = sk_conf_find(name);
    if (k && k->more) sk_out_add(o, "%s", k->more);
}

char *sk_conf_help_on(sk_arena *a, const char *name)
{
    sk_out o = {.arena = a};
    bool model = !strncmp(name, "model", 5) && (!name[5] || name[5] == '.');
    if (model) sk_out_add(&o, "%s", model_help);
    if (model && !name[5]) sk_conf_model_help(&o);
    help_lines(&o, name);
    more_lines(&o, name);
    layout_help(&o, name);
    return o.s;
}

char *sk_conf_help(sk_arena *a, const sk_option *options)
{
    sk_out o = {.arena = a};
    if (options && options->name) sk_out_add(&o, "options:\n");
    for (const sk_option *p = options; p && p->name; p++)
        sk_out_add(&o, "  %s%-20s %s\n", p->name[1] ? "--" : "-", p->name, p->doc);
    sk_out_add(&o, "keys (key=value, --key=value, or in FILE.yaml):\n%s", model_help);
    help_lines(&o, "");
    return o.s;
}
