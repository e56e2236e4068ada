/* list.c - the parts on the shelves, one line each, from their own words. */
#include "base/text.h"
#include "cli/cmd.h"
#include "comm/coll.h"
#include "program/schedule.h"

#include <stdio.h>
#include <string.h>

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

/* What is chosen by numbers shows them. */
static void show_cost(const sk_coll *c, size_t wide)
{
    const char *order = c->order == SK_ORDER_TREE ? "order of the tree" : "an order of its own";
    printf("  %*s  %s; %s\n", (int)wide, "", order, c->cost ? c->cost : "cost unknown");
}

static void show_schedule(const sk_schedule *s, int wide)
{
    printf("  %-*s  %s", wide, s->name, s->doc);
    if (s->bubble) printf("; bubble %s, %s micro-batches in flight", s->bubble, s->memory);
    puts("");
}

static void show_part(const char *kind, const void *part, size_t wide)
{
    const head *h = part;
    if (!strcmp(kind, "schedule")) {
        show_schedule(part, (int)wide);
        return;
    }
    printf("  %-*s  %s\n", (int)wide, h->name, h->doc);
    if (!strcmp(kind, "coll")) show_cost(part, wide);
}

static void show(const sk_part_kind *k)
{
    size_t wide = 0;
    for (const void *const *p = k->parts; *p; p++) {
        size_t n = strlen(((const head *)*p)->name);
        if (n > wide) wide = n;
    }
    for (const void *const *p = k->parts; *p; p++) show_part(k->kind, *p, wide);
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

static sk_status run(sk_arena *a, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        const sk_part_kind *k = sk_kinds;
        while (k->kind && strcmp(k->kind, argv[i])) k++;
        if (!k->kind) return unknown(a, argv[i]);
        show(k);
    }
    if (argc) return SK_OK;
    for (const sk_part_kind *k = sk_kinds; k->kind; k++) {
        printf("%s (%d)\n", k->kind, count(k));
        show(k);
    }
    return SK_OK;
}

const sk_cmd sk_cmd_list = {
    .name = "list",
    .doc = "the parts: ops, models, optimizers, sources, commands ...",
    .help = "usage: skein list [KIND ...]\n\n"
            "Prints the parts of each kind with one line about each; without a kind, all of them.\n"
            "    skein list op\n",
    .run = run,
};
