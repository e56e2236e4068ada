/* heads.c - every part begins with a name and one line about it, which lists, help and errors
 * print. */
#include "lib/check.h"

#include "cli/cmd.h"

#include <stdio.h>
#include <string.h>

typedef struct head {
    const char *name, *doc;
} head;

static void needs(const char *kind, int i, const head *h, bool there, const char *what)
{
    if (!there)
        printf("parts/%s: %s %s (part %d of its kind)\n", kind, h->name ? h->name : "one part",
               what, i + 1);
    check(there);
}

static void one_kind(const sk_part_kind *k)
{
    for (int i = 0; k->parts[i]; i++) {
        const head *h = k->parts[i];
        needs(k->kind, i, h, h->name && *h->name, "has no .name");
        needs(k->kind, i, h, h->doc && *h->doc, "has no .doc, the line that skein list prints");
        needs(k->kind, i, h, !h->doc || !strchr(h->doc, '\n'), "has a .doc of several lines");
    }
}

int main(void)
{
    int n = 0;
    for (const sk_part_kind *k = sk_kinds; k->kind; k++, n++) one_kind(k);
    check(n > 5);
    printf("heads: %d kinds of parts, %d checks, %d failed\n", n, checks, bad);
    return bad != 0;
}
