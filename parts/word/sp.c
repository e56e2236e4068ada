/* sp.c - sequence parallelism (Korthikanti et al. 2022): tp splits time in what it splits nothing
 * else of, such as norms and residuals. */
#include "layout/word.h"

#include <stdio.h>
#include <string.h>

static sk_status set(sk_reading *r, const char *value)
{
    int axis = sk_mesh_axis(&r->l->mesh, "tp");
    if (value && strcmp(value, "none") != 0)
        return sk_fail(SK_ECONF, "layout: \"sp\" takes no value");
    if (value) return SK_OK;
    if (axis < r->first)
        return sk_fail(SK_ECONF, "layout: \"sp\" splits time over tp, and there is no tp; add tp=2 "
                                 "or leave sp out");
    return sk_axis_split(r->l, axis, "t");
}

/* An axis that splits heads first, and time as well. */
static int find(const sk_layout *l, bool time)
{
    for (int a = 0; a < l->mesh.n; a++)
        if (l->split[a][0] == 'h' && !strchr(l->split[a], 't') == !time) return a;
    return -1;
}

static bool on(const sk_layout *l) { return find(l, true) >= 0; }

static void clear(sk_layout *l)
{
    for (int a; (a = find(l, true)) >= 0;) {
        char *t = strchr(l->split[a], 't');
        memmove(t, t + 1, strlen(t));
    }
}

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    int a = find(l, false);
    if (a < 0 || !sk_dice_one_in(d, 2)) return false;
    bool brief = !strcmp(l->mesh.name[a], "tp") && sk_dice_one_in(d, 2);
    snprintf(phrase, SK_WORD_TEXT, brief ? "sp" : "split t over %s", l->mesh.name[a]);
    return true;
}

/* Time that another axis splits too leaves shards of a few uneven rows. */
static bool claims(const sk_word_ask *ask)
{
    const sk_layout *l = ask->layout;
    int axis = find(l, true);
    for (int a = 0; a < l->mesh.n; a++)
        if (a != axis && l->mesh.size[a] > 1 && strchr(l->split[a], 't')) return false;
    return l->mesh.size[axis] > 1 && sk_words_letter(ask->graph, 't') && !l->partition &&
           !l->home[SK_KEPT];
}

static void idle(const sk_layout *l, sk_out *o)
{
    if (l->mesh.size[find(l, true)] < 2) sk_out_add(o, "sp has nothing to do: tp is one rank");
}

const sk_word sk_word_sp = {
    .name = "sp",
    .doc = "sequence parallel: tp splits time where it splits nothing else (split h f v t over tp)",
    .example = "tp=2 sp",
    .alias = {{"sequence_parallel sequence_parallelism", "sp beside tp, as in \"tp=4 sp\""}},
    .kind = SK_WORD_OTHER,
    .place = 21,
    .set = set,
    .on = on,
    .clear = clear,
    .brief = "sp",
    .idle = idle,
    .lowers = SK_LOWERS_SAVED,
    .claims = claims,
    .draw = draw,
    .tries = "yes",
};
