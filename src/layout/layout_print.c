/* layout_print.c - a layout as text: the long form, which reads back, and a few words for people.
 */
#include "layout/layout_private.h"

#include <ctype.h>
#include <string.h>

const char *const sk_placement_names[SK_N_PLACEMENTS] = {"device", "host", "file"};
const char *const sk_offload_kind_names[SK_N_OFFLOAD_KINDS] = {"state", "weights", "grads", "acts"};

/* A pattern of an integer or a flag, with the number instead of its placeholder. */
static void fill(const sk_word *w, const sk_layout *l, const char *pattern, sk_out *o)
{
    for (const char *p = pattern; *p;) {
        size_t n = strcspn(p, " ");
        if (isupper((unsigned char)*p)) sk_out_add(o, "%d", sk_word_value(w, l));
        else sk_out_add(o, "%.*s", (int)n, p);
        p += n + strspn(p + n, " ");
        if (*p) sk_out_add(o, " ");
    }
}

static bool plain(const sk_word *w) { return w->kind == SK_WORD_FLAG || w->kind == SK_WORD_INT; }

/* The sentences of a word; nothing if it is not said. */
static void print_word(const sk_word *w, const sk_layout *l, sk_out *o)
{
    if (w->print) w->print(l, o);
    else if (plain(w) && w->sentence[0] && sk_word_on(w, l)) fill(w, l, w->sentence[0], o);
}

static bool begins(const char *sentence, const char *verb)
{
    size_t n = strlen(verb);
    return !strncmp(sentence, verb, n) && (sentence[n] == ' ' || !sentence[n]);
}

char *sk_layout_print(sk_arena *a, const sk_layout *l)
{
    const sk_word *words[SK_MOST_WORDS + 1];
    sk_out o = {.arena = a};
    size_t last = 0; /* where the last sentence begins */
    sk_words_in_order(false, words);
    for (int i = 0; words[i]; i++) {
        const sk_word *w = words[i];
        sk_out line = {.arena = a};
        print_word(w, l, &line);
        if (!line.n) continue;
        bool clause = w->clause_of && o.n && begins(o.s + last, w->clause_of);
        if (w->clause_of && !clause && !w->alone) continue;
        if (o.n) sk_out_add(&o, clause ? " " : "\n");
        if (!clause) last = o.n;
        sk_out_add(&o, "%s", line.s);
    }
    sk_out_add(&o, "\n");
    return o.s;
}

/* A word for people: its own form, or its name and number. */
static void print_brief(const sk_word *w, const sk_layout *l, sk_out *o)
{
    if (w->print_brief) w->print_brief(l, o);
    else if (w->brief && sk_word_on(w, l)) fill(w, l, w->brief, o);
    else if (plain(w) && !w->no_short && sk_word_on(w, l))
        sk_out_add(o, w->kind == SK_WORD_INT ? "%s %d" : "%s", w->name, sk_word_value(w, l));
}

char *sk_layout_short(sk_arena *a, const sk_layout *l)
{
    const sk_word *words[SK_MOST_WORDS + 1];
    sk_out o = {.arena = a};
    for (int i = 0; i < l->mesh.n; i++)
        if (l->mesh.size[i] > 1)
            sk_out_add(&o, "%s%s %d", o.n ? " · " : "", l->mesh.name[i], l->mesh.size[i]);
    sk_words_in_order(true, words);
    for (int i = 0; words[i]; i++) {
        sk_out part = {.arena = a};
        print_brief(words[i], l, &part);
        if (part.n) sk_out_add(&o, "%s%s", o.n ? " · " : "", part.s);
    }
    return o.s ? o.s : sk_strdup(a, "1 rank");
}

char *sk_layout_title(sk_arena *a, const sk_layout *l)
{
    int n = sk_mesh_ranks(&l->mesh);
    char *words = sk_layout_short(a, l);
    if (n == 1 && !strcmp(words, "1 rank")) return words;
    return sk_print(a, "%d rank%s = %s", n, sk_plural(n), words);
}
