/* list.c - `skein list`: the parts of each kind with a line about each, or all about one part. */
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/cmd.h"
#include "cli/part_help.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 64 };

typedef sk_part_head head;

static int count(const sk_part_kind *k)
{
    int n = 0;
    while (k->parts[n]) n++;
    return n;
}

/* Numbers of an algorithm and forms of a word stand in a line of their own, those of a schedule
 * behind its words. */
static void show_part(sk_arena *a, const char *kind, const void *part, int wide)
{
    const head *h = part;
    const char *cost = sk_part_cost(a, kind, part);
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

static sk_status unknown_part(sk_arena *a, const sk_part_kind *k, const char *name)
{
    int n = count(k);
    const char **names = sk_many(a, const char *, n + 1);
    for (int i = 0; i < n; i++) names[i] = ((const head *)k->parts[i])->name;
    const char *near = sk_nearest(name, names, n);
    return sk_fail(SK_EUSAGE,
                   "there is no %s '%.80s'%s%s%s, and no kind of parts; skein list %s shows them",
                   k->kind, name, near ? " (did you mean '" : "", near ? near : "",
                   near ? "'?)" : "", k->kind);
}

static sk_status show_one(sk_arena *a, const sk_part_kind *k, const char *name)
{
    const head *h = sk_part_find(k, name);
    if (!h) return unknown_part(a, k, name);
    fputs(sk_part_help(a, k->kind, h), stdout);
    return SK_OK;
}

static void add_rows(sk_table *t, const sk_part_kind *k)
{
    for (const void *const *p = k->parts; *p; p++) {
        const head *h = *p;
        const char *cells[] = {k->kind, h->name, sk_or_empty(h->doc),
                               sk_part_cost(t->arena, k->kind, h)};
        sk_table_add(t, cells);
    }
}

static const sk_part_kind *find_kind(const char *name)
{
    for (const sk_part_kind *k = sk_kinds; k->kind; k++)
        if (!strcmp(k->kind, name)) return k;
    return NULL;
}

/* All of a kind, or behind it the parts that are named. */
static sk_status show_named(sk_arena *a, const char *const *words, int n, sk_table *table)
{
    const sk_part_kind *in = NULL;
    for (int i = 0; i < n; i++) {
        const sk_part_kind *k = find_kind(words[i]),
                           *next = i + 1 < n ? find_kind(words[i + 1]) : k;
        if (!k && !in) return unknown(a, words[i]);
        if (!k) SK_TRY(show_one(a, in, words[i]));
        if (!k) continue;
        in = k;
        if (table) add_rows(table, k);
        else if (next || i + 1 == n) show(a, k);
    }
    return SK_OK;
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    static const char *const columns[] = {"kind", "name", "doc", "cost"};
    const char *words[MOST], *format = NULL;
    const sk_argv_option options[] = {{"-o", &format, false}, {0}};
    sk_table t = {.arena = a, .head = columns, .n_cols = 4};
    int n = 0;
    SK_TRY(sk_argv_words(a, argc, argv, options, words, MOST, &n));
    for (int i = 0; format && i < n; i++)
        if (!find_kind(words[i])) return unknown(a, words[i]); /* tables are of whole kinds */
    SK_TRY(show_named(a, words, n, format ? &t : NULL));
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
    .help = "usage: skein list [KIND ...] [-o csv|json|md]\n"
            "       skein list KIND PART ...\n\n"
            "Prints the parts of each kind with one line about each; without a kind, all of them.\n"
            "With the name of a part, all about it: each key with its help, range and default.\n"
            "skein help PART does the same; so it does where a kind has the name of the part.\n"
            "    skein list op\n"
            "    skein list optim adamw\n",
    .run = run,
};
