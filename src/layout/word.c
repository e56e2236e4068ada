/* word.c - the table of words: finding one, its value in a layout, its spelling, a random value. */
#include "layout/word.h"
#include "base/rng.h"

#include <stdio.h>
#include <string.h>

const char *const sk_lowers_names[SK_N_LOWERS] = {"",
                                                  "stored weights",
                                                  "gradients and optimizer state",
                                                  "saved activations",
                                                  "device memory",
                                                  "bytes on the wire",
                                                  "flops of a rank",
                                                  "waiting time"};

const sk_word *sk_word_find(const char *name)
{
    for (const sk_word *const *w = sk_word_parts; *w; w++)
        if (!strcmp((*w)->name, name)) return *w;
    return NULL;
}

static int index_of(const sk_word *w)
{
    int i = 0;
    while (sk_word_parts[i] && sk_word_parts[i] != w) i++;
    sk_assert(sk_word_parts[i] && i < SK_MOST_WORDS);
    return i;
}

/* --- its value --- */

static void *member(const sk_word *w, sk_layout *l)
{
    sk_assert(w->kind == SK_WORD_FLAG || w->kind == SK_WORD_INT);
    return w->at ? (char *)l + w->at : (char *)&l->own[index_of(w)];
}

int sk_word_value(const sk_word *w, const sk_layout *l)
{
    sk_layout *from = (sk_layout *)(uintptr_t)l; /* only read */
    bool flag = w->at && w->kind == SK_WORD_FLAG;
    return flag ? *(const bool *)member(w, from) : *(const int *)member(w, from);
}

void sk_word_put(const sk_word *w, sk_layout *l, int value)
{
    if (w->at && w->kind == SK_WORD_FLAG) *(bool *)member(w, l) = value != 0;
    else *(int *)member(w, l) = value;
}

bool sk_word_on(const sk_word *w, const sk_layout *l)
{
    if (w->on) return w->on(l);
    if (w->kind == SK_WORD_AXIS) return sk_mesh_axis(&l->mesh, w->name) >= 0;
    if (w->kind == SK_WORD_FLAG || w->kind == SK_WORD_INT) return sk_word_value(w, l) > w->off;
    return false;
}

void sk_word_clear(const sk_word *w, sk_layout *l)
{
    int axis = w->kind == SK_WORD_AXIS ? sk_mesh_axis(&l->mesh, w->name) : -1;
    if (axis >= 0) l->mesh.size[axis] = 1;
    else if (w->clear) w->clear(l);
    else if (w->kind == SK_WORD_FLAG || w->kind == SK_WORD_INT) sk_word_put(w, l, 0);
}

bool sk_word_said(const sk_reading *r, const char *name)
{
    for (int i = 0; sk_word_parts[i]; i++)
        if (r->said[i] && !strcmp(sk_word_parts[i]->name, name)) return true;
    return false;
}

static bool names(const sk_word *w, const sk_word *other)
{
    for (int i = 0; w->excludes[i].word; i++)
        if (!strcmp(w->excludes[i].word, other->name)) return true;
    return false;
}

bool sk_word_excludes(const sk_word *w, const sk_word *other)
{
    return names(w, other) || names(other, w);
}

/* --- lists --- */

char *sk_word_spell(sk_arena *a, const sk_word *w)
{
    if (w->no_short) return sk_strdup(a, w->sentence[0]);
    bool bare = !w->value || *w->value == '[';
    const char *gap = bare ? "" : w->kind == SK_WORD_ORDER ? " " : "=";
    return sk_print(a, "%s%s%s", w->name, gap, w->value ? w->value : "");
}

char *sk_word_about(sk_arena *a, const sk_word *w)
{
    sk_out o = {.arena = a};
    for (int i = 0; i < 3 && w->sentence[i]; i++)
        sk_out_add(&o, "%s\"%s\"", o.n ? ", " : "", w->sentence[i]);
    if (w->clause_of) sk_out_add(&o, " behind \"%s\"%s", w->clause_of, w->alone ? " or alone" : "");
    if (w->lowers) sk_out_add(&o, "%slowers %s", o.n ? "; " : "", sk_lowers_names[w->lowers]);
    bool any = false;
    for (const sk_word *const *x = sk_word_parts; *x; x++) {
        if (!sk_word_excludes(w, *x)) continue;
        sk_out_add(&o, "%s%s", any ? ", " : o.n ? "; not with " : "not with ", (*x)->name);
        for (int i = 0; w->excludes[i].word; i++)
            if (w->excludes[i].from && !strcmp(w->excludes[i].word, (*x)->name))
                sk_out_add(&o, "=%d", w->excludes[i].from);
        any = true;
    }
    return o.s ? o.s : sk_strdup(a, "");
}

static int place_of(const sk_word *w, bool brief)
{
    return brief && w->brief_place ? w->brief_place : w->place;
}

void sk_words_in_order(bool brief, const sk_word *to[SK_MOST_WORDS + 1])
{
    int n = 0;
    for (; sk_word_parts[n]; n++) {
        sk_assert(n < SK_MOST_WORDS);
        int at = n;
        for (; at && place_of(to[at - 1], brief) > place_of(sk_word_parts[n], brief); at--)
            to[at] = to[at - 1];
        to[at] = sk_word_parts[n];
    }
    to[n] = NULL;
}

/* --- words of other programs --- */

const char *sk_layout_alias(const char *word)
{
    for (const sk_word *const *w = sk_word_parts; *w; w++) {
        const char *ours = sk_alias_find((*w)->alias, SK_WORD_ALIASES, word);
        if (ours) return ours;
    }
    return NULL;
}

const char *sk_layout_value(sk_arena *a, const char *word)
{
    sk_out o = {.arena = a};
    const char *name = sk_print(a, "%.*s", (int)strcspn(word, ":="), word); /* local:8 */
    for (const sk_word *const *w = sk_word_parts; *w && !o.n; w++)
        if ((*w)->value_named) (*w)->value_named(name, &o);
    return o.s;
}

/* --- random phrases --- */

int sk_dice_pick(sk_dice *d, int from, int to)
{
    return from + (int)(sk_rng(d->seed, d->number, d->drawn++).a % (uint64_t)(to - from + 1));
}

bool sk_dice_one_in(sk_dice *d, int n) { return sk_dice_pick(d, 1, n) == 1; }

bool sk_word_draw(const sk_word *w, sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    if (w->draw) return w->draw(d, l, phrase);
    if (w->works && !w->works(l)) return false;
    int most = w->most && w->most < 9 ? w->most : 9;
    if (w->kind == SK_WORD_INT && sk_dice_one_in(d, 3))
        snprintf(phrase, SK_WORD_TEXT, "%s=%d", w->name, sk_dice_pick(d, w->least, most));
    else if (w->kind == SK_WORD_FLAG && sk_dice_one_in(d, 3))
        snprintf(phrase, SK_WORD_TEXT, "%s", w->no_short ? w->sentence[0] : w->name);
    else return false;
    return true;
}

/* --- what several words are about --- */

int sk_axis_size(const sk_layout *l, int axis) { return axis < 0 ? 1 : l->mesh.size[axis]; }

bool sk_words_letter(const sk_graph *g, char letter)
{
    for (int i = 0; i < g->tensors.n; i++)
        if (strchr(g->tensors.v[i]->letters, letter)) return true;
    return false;
}

/* Places of a letter, in the smallest micro-batch. */
static int64_t places(const sk_word_ask *ask, char letter)
{
    int64_t n = ask->graph->size[(int)letter & 127];
    return letter == ask->graph->batch && ask->layout->n_micro ? n / ask->layout->n_micro : n;
}

bool sk_axis_claims(const sk_word_ask *ask, const char *name)
{
    const sk_mesh *m = &ask->layout->mesh;
    int axis = sk_mesh_axis(m, name);
    if (axis < 0) return false;
    int chunks = ask->layout->chunks ? ask->layout->chunks : 2; /* the most of a schedule */
    bool cuts =
        axis == ask->layout->stage_axis && ask->graph->n_layers - 2 >= m->size[axis] * chunks;
    for (int i = 0; i < m->n; i++)
        if (i != axis && m->size[i] > 1) return false;
    for (const char *p = ask->layout->split[axis]; *p; p++)
        cuts |= sk_words_letter(ask->graph, *p) && places(ask, *p) > 1;
    return m->size[axis] > 1 && cuts;
}

bool sk_words_gathered(const sk_layout *l) { return l->shard == SK_SHARD_PARAMS; }

/* A product that is split along the batch, time or experts needs no communication. */
static bool repeats(const sk_layout *l, int axis)
{
    const char free[] = {SK_LETTER_BATCH, SK_LETTER_TIME, SK_LETTER_EXPERTS, 0};
    return l->split[axis][strspn(l->split[axis], free)];
}

bool sk_words_repeated(const sk_layout *l)
{
    for (int a = 0; a < l->mesh.n; a++)
        if (repeats(l, a)) return true;
    return false;
}

int sk_words_repeats(const sk_layout *l)
{
    int n = 1;
    for (int a = 0; a < l->mesh.n; a++)
        if (repeats(l, a)) n *= l->mesh.size[a];
    return n;
}
