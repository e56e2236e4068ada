/* validate.c - does a layout make sense: alone, for a model, for a schedule and a device?
 *
 * The words of the table decide (word.h).  A letter that no tensor has would silently change
 * nothing, so it is refused.  "tp=2" implies more letters than some models have; an axis that finds
 * none of its letters is refused all the same. */
#include "layout/layout_private.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

bool sk_layout_offloads(const sk_layout *l)
{
    for (int i = 0; i < SK_N_OFFLOAD_KINDS; i++)
        if (l->home[i]) return true;
    return false;
}

/* --- words --- */

static void spell(const sk_word *w, const sk_layout *l, char to[SK_WORD_TEXT])
{
    if (w->no_short) snprintf(to, SK_WORD_TEXT, "%s", w->sentence[0]);
    else if (w->kind == SK_WORD_INT)
        snprintf(to, SK_WORD_TEXT, "%s=%d", w->name, sk_word_value(w, l));
    else snprintf(to, SK_WORD_TEXT, "%s", w->name);
}

static sk_status check_pairs(const sk_word *w, const sk_layout *l)
{
    for (int i = 0; w->excludes[i].word; i++) {
        const sk_word *x = sk_word_find(w->excludes[i].word);
        if (!x || !sk_word_on(x, l)) continue;
        if (w->excludes[i].from && sk_word_value(x, l) < w->excludes[i].from) continue;
        char a[SK_WORD_TEXT], b[SK_WORD_TEXT];
        spell(w, l, a);
        spell(x, l, b);
        return sk_fail(SK_ECONF, "layout: %s with %s: %s; leave one of the two out", a, b,
                       w->excludes[i].why);
    }
    return SK_OK;
}

static sk_status check_words(const sk_layout *l)
{
    for (const sk_word *const *p = sk_word_parts; *p; p++) {
        const sk_word *w = *p;
        if (!sk_word_on(w, l)) continue;
        SK_TRY(check_pairs(w, l));
        if (w->works && !w->works(l))
            return sk_fail(SK_ECONF, "layout: %s is about %s; use %s or leave it out", w->name,
                           w->about, w->cure);
        if (w->check) SK_TRY(w->check(l));
    }
    return SK_OK;
}

sk_status sk_layout_validate(const sk_layout *l, int n_ranks)
{
    int64_t ranks = 1;
    for (int a = 0; a < l->mesh.n; a++) {
        ranks *= l->mesh.size[a];
        if (ranks > SK_MOST_RANKS)
            return sk_fail(SK_ECONF, "layout: the mesh has over %d ranks", SK_MOST_RANKS);
        if (a == l->stage_axis && l->split[a][0])
            return sk_fail(SK_ECONF,
                           "layout: the axis '%s' holds stages and cannot split letters too",
                           l->mesh.name[a]);
    }
    if (l->stage_axis >= 0 && sk_layout_shards(l, l->stage_axis))
        return sk_fail(SK_ECONF, "layout: cannot shard over '%s', which holds stages",
                       l->mesh.name[l->stage_axis]);
    SK_TRY(check_words(l));
    if (n_ranks > 1 && ranks == 1)
        return sk_fail(SK_ECONF,
                       "layout: the mesh has 1 ranks, %d were given; dp=%d in the layout makes as "
                       "many, or start it with -n 1",
                       n_ranks, n_ranks);
    if (n_ranks > 0 && ranks != n_ranks)
        return sk_fail(SK_ECONF,
                       "layout: the mesh has %lld ranks, %d were given; start it with -n %lld or "
                       "change the sizes of the axes",
                       (long long)ranks, n_ranks, (long long)ranks);
    return SK_OK;
}

sk_status sk_layout_fits(const sk_word_ask *ask)
{
    for (const sk_word *const *w = sk_word_parts; *w; w++) {
        if (sk_word_on(*w, ask->layout)) SK_TRY(check_pairs(*w, ask->layout));
        if ((*w)->fits) SK_TRY((*w)->fits(ask));
    }
    return SK_OK;
}

char *sk_layout_idle(sk_arena *a, const sk_layout *l)
{
    const sk_word *words[SK_MOST_WORDS + 1];
    sk_out o = {.arena = a};
    sk_words_in_order(true, words);
    for (int i = 0; words[i]; i++) {
        sk_out why = {.arena = a};
        bool plain = words[i]->plain && words[i]->plain(l);
        if (words[i]->idle && (plain || sk_word_on(words[i], l))) words[i]->idle(l, &why);
        if (why.n) sk_out_add(&o, "%s%s", o.n ? "; " : "", why.s);
    }
    return o.s;
}

/* --- letters --- */

typedef struct letters {
    bool has[128];
} letters;

static letters letters_of(const sk_graph *g)
{
    letters in = {0};
    for (int i = 0; i < g->nodes.n; i++)
        for (const char *p = g->nodes.v[i]->dims; *p; p++) in.has[(int)*p & 127] = true;
    for (int i = 0; i < g->tensors.n; i++)
        for (const char *p = g->tensors.v[i]->letters; *p; p++) in.has[(int)*p & 127] = true;
    return in;
}

static sk_status missing(const sk_layout *l, const letters *in, int axis, char letter)
{
    char list[3 * 52 + 1] = "", near[] = {letter, 0};
    size_t n = 0;
    for (int c = 'A'; c <= 'z'; c++) {
        if (!isalpha(c) || !in->has[c]) continue;
        list[n++] = ' ';
        list[n++] = (char)c;
    }
    near[0] = (char)(isupper((unsigned char)letter) ? tolower(letter) : toupper(letter));
    bool hint = in->has[(int)near[0] & 127];
    return sk_fail(SK_ECONF,
                   "layout: '%c' is split over '%s', and no tensor of the model has that "
                   "letter%s%s%s; its letters are%s",
                   letter, l->mesh.name[axis], hint ? " (did you mean '" : "", hint ? near : "",
                   hint ? "'?)" : "", list);
}

/* Is the letter one that a short word implies? */
static bool implied(char letter)
{
    for (const sk_word *const *w = sk_word_parts; *w; w++)
        if ((*w)->letters && strchr((*w)->letters, letter)) return true;
    return false;
}

sk_status sk_layout_suits_model(const sk_layout *l, const sk_graph *g)
{
    letters in = letters_of(g);
    sk_word_ask ask = {.layout = l, .graph = g};
    SK_TRY(sk_layout_fits(&ask));
    for (int a = 0; a < l->mesh.n; a++) {
        char first = 0;
        bool works = l->mesh.size[a] == 1 || sk_layout_shards(l, a);
        for (const char *p = l->split[a]; *p; p++) {
            if (in.has[(int)*p & 127]) works = true;
            else if (!implied(*p)) return missing(l, &in, a, *p);
            else if (!first) first = *p;
        }
        if (first && !works) return missing(l, &in, a, first);
    }
    return SK_OK;
}
