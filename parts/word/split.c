/* split.c - which letters an axis splits: all of parallelism but stages and sharded state. */
#include "layout/word.h"

#include <string.h>

/* A short word, as dp=2, implies letters, and they may be said again. */
static sk_status not_again(const sk_reading *r, const char *letters)
{
    bool implied = r->first >= 0 && r->axis >= r->first;
    for (const char *p = letters; *p && !implied; p++)
        if (sk_layout_splits(r->l, r->axis, *p) || strchr(p + 1, *p))
            return sk_fail(SK_ECONF, "layout: letter '%c' is split over '%s' twice", *p,
                           r->l->mesh.name[r->axis]);
    return SK_OK;
}

static sk_status say(sk_reading *r, const sk_phrase *s)
{
    SK_TRY(sk_axis_find(r->l, s->v[0], &r->axis));
    for (int i = 0; i < s->n_many; i++) {
        SK_TRY(not_again(r, s->many[i]));
        SK_TRY(sk_axis_split(r->l, r->axis, s->many[i]));
    }
    return SK_OK;
}

static bool on(const sk_layout *l)
{
    for (int i = 0; i < l->mesh.n; i++)
        if (l->split[i][0]) return true;
    return false;
}

static void print(const sk_layout *l, sk_out *o)
{
    static const char *const by[] = {"", " by exchange", " by ring"};
    for (int i = 0; i < l->mesh.n; i++) {
        if (!l->split[i][0]) continue;
        sk_out_add(o, "%ssplit", o->n ? "\n" : "");
        for (const char *p = l->split[i]; *p; p++) sk_out_add(o, " %c", *p);
        sk_out_add(o, " over %s%s", l->mesh.name[i], by[l->by[i]]);
    }
}

const sk_word sk_word_split = {
    .name = "split",
    .doc = "each of the letters is split over the axis",
    .sentence = {"split LETTERS ... over AXIS"},
    .no_short = true,
    .example = "mesh a=2; split h f v over a",
    .alias = {{"hsdp hybrid_shard",
               "two axes, as in \"mesh r=2 s=4; split b over r; split b over s; shard params over "
               "s\""}},
    .kind = SK_WORD_OTHER,
    .again = true,
    .place = 20,
    .say = say,
    .on = on,
    .print = print,
};
