/* mesh.c - the axes of the mesh, by names of one's own. */
#include "layout/word.h"

#include <stdio.h>
#include <string.h>

static sk_status say(sk_reading *r, const sk_phrase *s)
{
    for (int i = 0; i < s->n_many; i++) {
        char name[SK_WORD_TEXT], *eq;
        int size = 0;
        snprintf(name, sizeof name, "%s", s->many[i]);
        if (!(eq = strchr(name, '=')))
            return sk_fail(SK_ECONF, "layout: \"mesh\" takes name=size, found \"%s\"", name);
        *eq = 0;
        SK_TRY(sk_word_int(name, eq + 1, 1, 0, &size));
        SK_TRY(sk_axis_add(&r->l->mesh, name, size));
    }
    return SK_OK;
}

static bool on(const sk_layout *l) { return l->mesh.n > 0; }

static void print(const sk_layout *l, sk_out *o)
{
    sk_out_add(o, "mesh");
    for (int i = 0; i < l->mesh.n; i++) sk_out_add(o, " %s=%d", l->mesh.name[i], l->mesh.size[i]);
}

const sk_word sk_word_mesh = {
    .name = "mesh",
    .doc = "the axes of the mesh, slowest first",
    .sentence = {"mesh NAME=SIZE ..."},
    .no_short = true,
    .example = "mesh dp=2 tp=4; split b over dp; split h f v over tp",
    .alias = {{"world num_gpus ngpus nproc_per_node",
               "-n N on the command line, or the product of the axes"}},
    .kind = SK_WORD_OTHER,
    .again = true,
    .place = 10,
    .say = say,
    .on = on,
    .print = print,
};
