/* layout_cause.c - see layout_cause.h. */
#include "train/layout_cause.h"
#include "layout/word.h"

#include <string.h>

/* On one line, as messages are: a word may print several sentences, each on a line of its own. */
static const char *sentence(sk_arena *a, const sk_word *w, const sk_layout *l)
{
    sk_out o = {.arena = a}, line = {.arena = a};
    w->print(l, &o);
    for (const char *s = o.s ? o.s : ""; *s; s += *s == '\n') {
        int n = (int)strcspn(s, "\n");
        sk_out_add(&line, "%s%.*s", line.n ? "; " : "", n, s);
        s += n;
    }
    return line.s ? line.s : "";
}

/* The short form of a word whose values are no numbers, if one of .tries says the same; else NULL.
 */
static const char *short_form(sk_arena *a, const sk_word *w, const sk_layout *l)
{
    const char *said = sentence(a, w, l);
    for (const char *at = w->tries ? w->tries : ""; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        const char *value = sk_print(a, "%.*s", (int)n, at);
        sk_layout other = *l;
        sk_reading r = {.l = &other, .first = -1, .axis = -1};
        sk_word_clear(w, &other);
        if (w->set && !w->set(&r, value) && !strcmp(said, sentence(a, w, &other)))
            return sk_print(a, "%s=%s", w->name, value);
        at += n;
    }
    return NULL;
}

/* A word as the layout says it: in its short form, or as a sentence. */
static const char *phrase(sk_arena *a, const sk_word *w, const sk_layout *l)
{
    if (w->kind == SK_WORD_INT) return sk_print(a, "%s=%d", w->name, sk_word_value(w, l));
    if (w->kind == SK_WORD_FLAG || !w->print) return w->name;
    const char *brief = short_form(a, w, l);
    return brief ? brief : sentence(a, w, l);
}

/* An axis is a cause only if no other word is: without its ranks hardly a condition holds. */
const char *sk_layout_cause(sk_arena *a, const sk_layout *l, sk_layout_condition *holds)
{
    sk_assert(holds(l));
    for (int axes = 0; axes < 2; axes++)
        for (const sk_word *const *w = sk_word_parts; *w; w++) {
            sk_layout without = *l;
            if (((*w)->kind == SK_WORD_AXIS) != axes || !sk_word_on(*w, l)) continue;
            sk_word_clear(*w, &without);
            if (!holds(&without)) return phrase(a, *w, l);
        }
    return "layout";
}

const char *sk_layout_added(sk_arena *a, const sk_layout *before, const sk_layout *after)
{
    sk_out o = {.arena = a};
    for (const sk_word *const *w = sk_word_parts; *w; w++) {
        if (!sk_word_on(*w, after)) continue;
        const char *now = phrase(a, *w, after);
        if (sk_word_on(*w, before) && !strcmp(now, phrase(a, *w, before))) continue;
        sk_out_add(&o, "%s%s", o.n ? " " : "", now);
    }
    return o.s ? o.s : "";
}
