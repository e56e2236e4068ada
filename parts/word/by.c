/* by.c - how an op that needs all of a split letter of one operand comes to it: attention under
 * cp needs all keys (doc/context.md). */
#include "layout/word.h"

#include <stdio.h>
#include <string.h>

extern const sk_word sk_word_by;
static const char *const ways[] = {"gather", "exchange", "ring"};

static sk_status set_way(sk_layout *l, int axis, const char *value)
{
    int i = 0;
    while (i < 3 && strcmp(value, ways[i]) != 0) i++;
    if (i == 3)
        return sk_fail(SK_ECONF,
                       "layout: a letter is split by gather, exchange or ring, not by \"%s\"",
                       value);
    if (l->by[axis]) return sk_word_twice(&sk_word_by);
    l->by[axis] = (sk_by)i;
    return SK_OK;
}

/* Behind "split t over AXIS" it is of that axis, as a short word of cp. */
static sk_status set(sk_reading *r, const char *value)
{
    if (r->axis >= 0) return set_way(r->l, r->axis, value);
    int axis = sk_mesh_axis(&r->l->mesh, "cp");
    if (r->repeated) return sk_word_twice(&sk_word_by);
    if (axis < r->first)
        return sk_fail(SK_ECONF,
                       "layout: \"by=%s\" says how cp splits time, and there is no cp; add cp=2 or "
                       "leave by out",
                       value);
    return set_way(r->l, axis, value);
}

static bool on(const sk_layout *l)
{
    for (int a = 0; a < l->mesh.n; a++)
        if (l->by[a]) return true;
    return false;
}

static void print_brief(const sk_layout *l, sk_out *o)
{
    for (int a = 0; a < l->mesh.n; a++)
        if (l->by[a]) sk_out_add(o, "%sby %s", o->n ? " · " : "", ways[l->by[a]]);
}

static void clear(sk_layout *l) { memset(l->by, 0, sizeof l->by); }

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    for (int a = 0; a < l->mesh.n; a++) {
        if (l->split[a][0] != 't' || l->by[a]) continue;
        const char *way = ways[sk_dice_pick(d, 0, 2)];
        bool brief = !strcmp(l->mesh.name[a], "cp") && sk_dice_one_in(d, 2);
        if (brief) snprintf(phrase, SK_WORD_TEXT, "by=%s", way);
        else snprintf(phrase, SK_WORD_TEXT, "split t over %s by %s", l->mesh.name[a], way);
        return true;
    }
    return false;
}

const sk_word sk_word_by = {
    .name = "by",
    .doc = "how attention under cp comes to all keys: gathered (default), by all-to-all, in a ring",
    .value = "gather|exchange|ring",
    .sentence = {"by gather|exchange|ring"},
    .print_brief = print_brief,
    .clause_of = "split",
    .example = "cp=2 by=ring",
    .kind = SK_WORD_OTHER,
    .again = true,
    .place = 22,
    .set = set,
    .on = on,
    .clear = clear,
    .draw = draw,
    .tries = "exchange ring",
};
