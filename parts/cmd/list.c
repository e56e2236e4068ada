/* list.c - `skein list`: the parts of each kind, with their one-line documentation. */
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/cmd.h"
#include "coll/algorithm.h"
#include "layout/word.h"
#include "kernel/optim.h"
#include "program/pipeline_schedule.h"
#include "train/lr_schedule.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 64 };

/* Every part begins with these two. */
typedef struct head {
    const char *name, *doc;
} head;

static int count(const sk_part_kind *k)
{
    int n = 0;
    while (k->parts[n]) n++;
    return n;
}

/* The default of a number, or its word. */
static const char *default_of(sk_arena *a, const sk_knob *k)
{
    const char *w = k->words;
    if (!w) return sk_print(a, "%.9g", k->usual);
    for (int i = (int)k->usual; i > 0; i--) w += strcspn(w, " ") + 1;
    return sk_print(a, "%.*s", (int)strcspn(w, " "), w);
}

/* The defaults of an optimizer or of a schedule, under the names of the keys. */
static const char *knobs_of(sk_arena *a, const sk_knob *knobs)
{
    sk_out text = {.arena = a};
    for (const sk_knob *k = knobs; k->name; k += sk_knob_list(k))
        for (int i = 0; i < sk_knob_list(k) && !(i && k[i].fewer); i++)
            sk_out_add(&text, "%s%s%s %s", k == knobs || i ? "" : ", ", i ? "" : sk_knob_key(k),
                       i ? " and" : "", default_of(a, &k[i]));
    return text.s ? text.s : "";
}

/* The forms of a word, and what it is for. */
static const char *forms_of(sk_arena *a, const sk_word *w)
{
    const char *about = sk_word_about(a, w);
    if (w->no_short) return about;
    return sk_print(a, "%s%s%s", sk_word_spell(a, w), *about ? "; " : "", about);
}

/* What is chosen by numbers shows them. */
static const char *cost_of(sk_arena *a, const char *kind, const void *part)
{
    if (!strcmp(kind, "schedule")) {
        const sk_schedule *s = part;
        if (!s->bubble) return "";
        return sk_print(a, "bubble %s, %s micro-batches in flight", s->bubble, s->memory);
    }
    if (!strcmp(kind, "optim")) return knobs_of(a, ((const sk_optim *)part)->knobs);
    if (!strcmp(kind, "lr")) return knobs_of(a, ((const sk_lr *)part)->knobs);
    if (!strcmp(kind, "word")) return forms_of(a, part);
    if (strcmp(kind, "coll")) return "";
    const sk_coll *c = part;
    const char *order = c->order == SK_ORDER_TREE ? "order of the tree" : "an order of its own";
    return sk_print(a, "%s; %s", order, c->cost ? c->cost : "cost unknown");
}

/* Numbers of an algorithm and forms of a word stand in a line of their own, those of a schedule
 * behind its words. */
static void show_part(sk_arena *a, const char *kind, const void *part, int wide)
{
    const head *h = part;
    const char *cost = cost_of(a, kind, part);
    printf("  %-*s  %s", wide, h->name, sk_or_empty(h->doc));
    bool below = !strcmp(kind, "coll") || !strcmp(kind, "word");
    if (*cost && below) printf("\n  %*s  %s", wide, "", cost);
    else if (*cost) printf("; %s", cost);
    puts("");
}

static void show(sk_arena *a, const sk_part_kind *k)
{
    size_t wide = 0;
    for (const void *const *p = k->parts; *p; p++) {
        size_t n = strlen(((const head *)*p)->name);
        if (n > wide) wide = n;
    }
    for (const void *const *p = k->parts; *p; p++) show_part(a, k->kind, *p, (int)wide);
}

static sk_status unknown(sk_arena *a, const char *name)
{
    sk_out o = {.arena = a};
    const char *names[64];
    int n = 0;
    for (const sk_part_kind *k = sk_kinds; k->kind; k++) {
        sk_out_add(&o, "%s%s", n ? ", " : "", k->kind);
        if (n < 64) names[n++] = k->kind;
    }
    const char *near = sk_nearest(name, names, n);
    return sk_fail(SK_EUSAGE, "there are no parts of kind '%s'%s%s%s; kinds are: %s", name,
                   near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "",
                   o.s ? o.s : "none");
}

static void add_rows(sk_table *t, const sk_part_kind *k)
{
    for (const void *const *p = k->parts; *p; p++) {
        const head *h = *p;
        const char *cells[] = {k->kind, h->name, sk_or_empty(h->doc),
                               cost_of(t->arena, k->kind, h)};
        sk_table_add(t, cells);
    }
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    static const char *const columns[] = {"kind", "name", "doc", "cost"};
    const char *words[MOST], *format = NULL;
    const sk_argv_option options[] = {{"-o", &format, false}, {0}};
    sk_table t = {.arena = a, .head = columns, .n_cols = 4};
    int n = 0;
    SK_TRY(sk_argv_words(a, argc, argv, options, words, MOST, &n));
    for (int i = 0; i < n; i++) {
        const sk_part_kind *k = sk_kinds;
        while (k->kind && strcmp(k->kind, words[i])) k++;
        if (!k->kind) return unknown(a, words[i]);
        if (format) add_rows(&t, k);
        else show(a, k);
    }
    for (const sk_part_kind *k = sk_kinds; !n && k->kind; k++) {
        if (format) add_rows(&t, k);
        else {
            printf("%s (%d)\n", k->kind, count(k));
            show(a, k);
        }
    }
    return format ? sk_table_print(&t, format, stdout) : SK_OK;
}

const sk_cmd sk_cmd_list = {
    .name = "list",
    .doc = "the parts: ops, models, optimizers, sources, commands ...",
    .help = "usage: skein list [KIND ...] [-o csv|json|md]\n\n"
            "Prints the parts of each kind with one line about each; without a kind, all of them.\n"
            "    skein list op\n",
    .run = run,
};
