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

/* The short form of a word whose values are no numbers, if a word of the sentence, or one of
 * .tries, is the value that says the same; else NULL.  */
static const char *short_form(sk_arena *a, const sk_word *w, const sk_layout *l)
{
    const char *said = sentence(a, w, l);
    const char *values = sk_print(a, "%s %s", said, sk_or_empty(w->tries));
    for (const char *at = values; *at; at += strspn(at, " ")) {
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

/* The first word, among axes or among others, without which it does not hold; NULL: there is none.
 */
static const sk_word *needed(const sk_layout *l, sk_layout_condition *holds, bool axes)
{
    for (const sk_word *const *w = sk_word_parts; *w; w++) {
        sk_layout without = *l;
        if (!sk_word_on(*w, l) || axes != ((*w)->kind == SK_WORD_AXIS)) continue;
        sk_word_clear(*w, &without);
        if (!holds(&without)) return *w;
    }
    return NULL;
}

/* An axis of one rank ends many a condition, and is seldom what it is about. */
const char *sk_layout_cause(sk_arena *a, const sk_layout *l, sk_layout_condition *holds)
{
    sk_assert(holds(l));
    const sk_word *w = needed(l, holds, false);
    if (!w) w = needed(l, holds, true);
    return w ? phrase(a, w, l) : "layout";
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
