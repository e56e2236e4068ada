/* layout_read.c - reading layouts: sentences and one line of short words, by the table of word.h.
 *
 * A line whose first word begins a sentence of the table is a sentence, with clauses behind it,
 * unless that word is a flag too and short words follow; any other is the line of short words.  Of
 * these the axes are made first, in their order, since other words speak of them. */
#include "layout/layout_private.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef struct tokens {
    char w[SK_WORDS_A_LINE][SK_WORD_TEXT];
    int n;
} tokens;

static sk_status take_tokens(const char *line, size_t len, tokens *out)
{
    *out = (tokens){0};
    for (size_t i = 0; i < len;) {
        size_t from = i;
        while (i < len && !isspace((unsigned char)line[i]) && line[i] != ',') i++;
        if (i - from >= SK_WORD_TEXT)
            return sk_fail(SK_ECONF, "layout: a word of %zu characters at \"%.20s...\"", i - from,
                           line + from);
        if (i > from) {
            if (out->n == SK_WORDS_A_LINE)
                return sk_fail(SK_ECONF, "layout: more than %d words in one line", SK_WORDS_A_LINE);
            memcpy(out->w[out->n++], line + from, i - from);
        }
        while (i < len && (isspace((unsigned char)line[i]) || line[i] == ',')) i++;
    }
    return SK_OK;
}

/* --- values --- */

sk_status sk_word_int(const char *name, const char *text, int least, int most, int *out)
{
    int64_t n = 0;
    if (!most) most = SK_MOST_RANKS;
    if (!sk_read_int(text, &n) || n < least || n > most)
        return sk_fail(SK_ECONF, "layout: '%s' needs a whole number from %d to %d, found \"%s\"",
                       name, least, most, text);
    *out = (int)n;
    return SK_OK;
}

sk_status sk_word_codec(const char *text, char to[SK_CODEC_NAME])
{
    sk_dtype type;
    if (!strcmp(text, "none")) return SK_OK;
    if (sk_dtype_find(text, &type)) text = sk_dtype_name(type); /* bfloat16: bf16 */
    if (!strcmp(text, sk_dtype_name(SK_F32)))
        return sk_fail(SK_ECONF,
                       "layout: \"%s\" is no codec: numbers travel as they are without "
                       "one; say none, or leave it out",
                       text);
    if (!*text || strlen(text) >= SK_CODEC_NAME)
        return sk_fail(SK_ECONF, "layout: \"%.40s\" is no name for a codec (1 to %d characters)",
                       text, SK_CODEC_NAME - 1);
    snprintf(to, SK_CODEC_NAME, "%s", text);
    return SK_OK;
}

/* Of a word that is said twice one would change nothing. */
sk_status sk_word_twice(const sk_word *w)
{
    const char *s = w->sentence[0];
    bool same = !s || !strncmp(s, w->name, strlen(w->name));
    return sk_fail(SK_ECONF, "layout: '%s' is said twice%s%s%s", w->name, same ? "" : " (\"",
                   same ? "" : s, same ? "" : "\" says it, too)");
}

static sk_status once(sk_reading *r, const sk_word *w)
{
    int i = 0;
    while (sk_word_parts[i] != w) i++;
    if (r->said[i] && !w->again) return sk_word_twice(w);
    r->said[i] = true;
    return SK_OK;
}

static sk_status set(sk_reading *r, const sk_word *w, const char *value)
{
    int n = 0;
    SK_TRY(once(r, w));
    if (w->set) return w->set(r, value);
    sk_assert(w->kind == SK_WORD_FLAG || w->kind == SK_WORD_INT);
    if (w->kind == SK_WORD_INT) SK_TRY(sk_word_int(w->name, value, w->least, w->most, &n));
    else if (value && strcmp(value, "none") != 0)
        return sk_fail(SK_ECONF, "layout: \"%s\" takes no value", w->name);
    sk_word_put(w, r->l, w->kind == SK_WORD_INT ? n : !value);
    return SK_OK;
}

/* --- axes --- */

sk_status sk_axis_add(sk_mesh *m, const char *name, int size)
{
    if (sk_mesh_axis(m, name) >= 0)
        return sk_fail(SK_ECONF, "layout: the axis '%s' is named twice", name);
    if (m->n == SK_MAX_AXES) return sk_fail(SK_ECONF, "layout: more than %d axes", SK_MAX_AXES);
    if (!*name || strlen(name) >= SK_AXIS_NAME)
        return sk_fail(SK_ECONF, "layout: \"%s\" is no name for an axis (1 to %d characters)", name,
                       SK_AXIS_NAME - 1);
    snprintf(m->name[m->n], SK_AXIS_NAME, "%s", name);
    m->size[m->n++] = size;
    return SK_OK;
}

sk_status sk_axis_find(const sk_layout *l, const char *name, int *out)
{
    const char *all[SK_MAX_AXES];
    *out = sk_mesh_axis(&l->mesh, name);
    if (*out >= 0) return SK_OK;
    for (int i = 0; i < l->mesh.n; i++) all[i] = l->mesh.name[i];
    const char *near = sk_nearest(name, all, l->mesh.n);
    return sk_fail(SK_ECONF, "layout: the mesh has no axis '%s'%s%s%s", name,
                   near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

sk_status sk_axis_split(sk_layout *l, int axis, const char *letters)
{
    for (const char *p = letters; *p; p++) {
        if (!isalpha((unsigned char)*p))
            return sk_fail(SK_ECONF, "layout: '%c' in \"%s\" is no letter", *p, letters);
        size_t n = strlen(l->split[axis]);
        if (!sk_layout_splits(l, axis, *p) && n + 1 < sizeof l->split[axis]) l->split[axis][n] = *p;
    }
    return SK_OK;
}

/* --- sentences --- */

static bool is_slot(const char *token, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (isupper((unsigned char)token[i]) || token[i] == '|') return true;
    return false;
}

static bool is_word(const char *token, size_t n, const char *word)
{
    return strlen(word) == n && !strncmp(token, word, n);
}

/* The next token of a pattern: its length. */
static size_t next(const char **p)
{
    *p += strspn(*p, " ");
    return strcspn(*p, " ");
}

/* How many words, from t->w[at] on, a pattern matches; 0: it does not. */
static int match(const char *pattern, const tokens *t, int at, sk_phrase *s)
{
    int i = at;
    *s = (sk_phrase){0};
    for (const char *p = pattern;;) {
        size_t n = next(&p);
        if (!n) return i - at;
        if (i == t->n) return 0;
        const char *behind = p + n;
        size_t m = next(&behind);
        if (is_slot(p, n) && is_word(behind, m, "...")) {
            p = behind += m;
            m = next(&behind); /* the word that ends the list */
            int from = i;
            while (i < t->n && (!m || !is_word(behind, m, t->w[i])))
                s->many[s->n_many++] = t->w[i++];
            if (i == from) return 0;
            continue;
        }
        sk_assert(s->n < 4);
        if (is_slot(p, n)) s->v[s->n++] = t->w[i];
        else if (!is_word(p, n, t->w[i])) return 0;
        p += n;
        i++;
    }
}

static size_t verb_of(const char *sentence) { return strcspn(sentence, " "); }

/* Does a sentence begin so?  Clauses begin none, unless they may stand alone. */
static bool is_verb(const char *word)
{
    for (const sk_word *const *w = sk_word_parts; *w; w++)
        for (int i = 0; i < 3 && (*w)->sentence[i]; i++)
            if ((!(*w)->clause_of || (*w)->alone) &&
                is_word((*w)->sentence[i], verb_of((*w)->sentence[i]), word))
                return true;
    return false;
}

/* The longest match of a sentence (verb NULL) or of a clause of `verb`; returns its length. */
static int find(const tokens *t, int at, const char *verb, const sk_word **word, sk_phrase *s)
{
    int most = 0;
    for (const sk_word *const *w = sk_word_parts; *w; w++) {
        bool wanted = verb ? (*w)->clause_of && !strcmp((*w)->clause_of, verb)
                           : !(*w)->clause_of || (*w)->alone;
        for (int i = 0; wanted && i < 3 && (*w)->sentence[i]; i++) {
            sk_phrase said;
            int n = match((*w)->sentence[i], t, at, &said);
            if (n <= most) continue;
            most = n;
            *word = *w;
            *s = said;
        }
    }
    return most;
}

static void put_on(char to[1024], const char *a, const char *b, const char *c)
{
    size_t n = strlen(to);
    snprintf(to + n, 1024 - n, "%s%s%s", a, b, c);
}

/* Every sentence of the table that begins so, with its clauses. */
static void list_sentences(const char *verb, char to[1024])
{
    const sk_word *words[SK_MOST_WORDS + 1];
    sk_words_in_order(false, words);
    for (int k = 0; words[k]; k++)
        for (int i = 0; i < 3 && words[k]->sentence[i]; i++) {
            const char *s = words[k]->sentence[i];
            if ((words[k]->clause_of && !words[k]->alone) || !is_word(s, verb_of(s), verb))
                continue;
            put_on(to, *to ? ", \"" : "\"", s, "");
            for (int c = 0; words[c]; c++)
                if (words[c]->clause_of &&
                    !strncmp(s, words[c]->clause_of, strlen(words[c]->clause_of)))
                    put_on(to, " [", words[c]->sentence[0], "]");
            put_on(to, "\"", "", "");
        }
}

static sk_status no_sentence(const tokens *t, int at)
{
    char reads[1024] = "", found[1024] = "";
    list_sentences(t->w[0], reads);
    for (int i = 0; i < t->n; i++) put_on(found, i ? " " : "", t->w[i], "");
    if (at)
        return sk_fail(SK_ECONF, "layout: \"%s\" knows no \"%s\"; it reads %.800s", t->w[0],
                       t->w[at], reads);
    return sk_fail(SK_ECONF, "layout: \"%s\" reads %.800s; found \"%.200s\"", t->w[0], reads,
                   found);
}

static sk_status say(sk_reading *r, const sk_word *w, const sk_phrase *s)
{
    if (!w->say) return set(r, w, s->n ? s->v[0] : NULL);
    SK_TRY(once(r, w));
    return w->say(r, s);
}

/* The first words of a sentence that clauses are of: "stages", "encode gradients". */
static const char *clauses_of(const tokens *t)
{
    static const char *const none = "";
    sk_phrase s;
    for (const sk_word *const *w = sk_word_parts; *w; w++)
        if ((*w)->clause_of && match((*w)->clause_of, t, 0, &s)) return (*w)->clause_of;
    return none;
}

static sk_status read_sentence(sk_reading *r, const tokens *t)
{
    const sk_word *w = NULL;
    const char *verb = clauses_of(t);
    sk_phrase s;
    r->axis = -1;
    int n = find(t, 0, NULL, &w, &s);
    if (!n) return no_sentence(t, 0);
    SK_TRY(say(r, w, &s));
    for (int at = n; at < t->n; at += n) {
        n = find(t, at, verb, &w, &s);
        if (!n) return no_sentence(t, at);
        SK_TRY(say(r, w, &s));
    }
    return SK_OK;
}

/* --- short words --- */

typedef struct shorts { /* a line of them */
    struct {
        const sk_word *word;
        char *value; /* NULL: there is no '=' */
    } v[SK_WORDS_A_LINE];
    int n;
    const sk_word *ordered; /* the word that says the order of the axes */
    const char *order[SK_WORDS_A_LINE];
    int n_order;
} shorts;

static sk_status unknown(const char *word)
{
    const char *all[SK_MOST_WORDS], *near[2];
    sk_arena tmp = {0};
    const char *say = sk_layout_alias(word);
    int n = 0;
    if (!say) say = sk_layout_value(&tmp, word);
    for (const sk_word *const *w = sk_word_parts; *w; w++)
        if (!(*w)->no_short) all[n++] = (*w)->name;
    if (say) sk_fail(SK_ECONF, "layout: \"%s\" is said here with %s", word, say);
    sk_arena_end(&tmp);
    if (say) return SK_ECONF;
    n = sk_nearest_all(word, all, n, near, 2);
    return sk_fail(SK_ECONF, "layout: unknown word \"%s\"%s%s%s%s%s", word,
                   n ? " (did you mean \"" : "", n ? near[0] : "", n > 1 ? "\" or \"" : "",
                   n > 1 ? near[1] : "", n ? "\"?)" : "");
}

/* Two words may have one name, of which one takes a value and the other does not. */
static const sk_word *find_short(const char *name, bool value)
{
    const sk_word *found = NULL;
    for (const sk_word *const *w = sk_word_parts; *w; w++)
        if (!(*w)->no_short && !strcmp((*w)->name, name) && (!found || value == !!(*w)->value))
            found = *w;
    return found;
}

/* A word that is no short word as it stands. */
static sk_status no_value(const char *word)
{
    const sk_word *w = find_short(word, true);
    if (!is_verb(word) && !w) return unknown(word);
    if (!is_verb(word))
        return sk_fail(SK_ECONF, "layout: \"%s\" needs a value, %s=%s, as in \"%s\"", word, word,
                       w->value, sk_or_empty(w->example));
    return sk_fail(SK_ECONF,
                   "layout: \"%s\" begins a sentence; put it on a line of its own, or behind a "
                   "';'%s%s%s",
                   word, w ? ", or give it a value, as in \"" : "",
                   w ? sk_or_empty(w->example) : "", w ? "\"" : "");
}

static bool needs_value(const sk_word *w)
{
    return w->value && w->kind != SK_WORD_ORDER && *w->value != '[';
}

static sk_status collect(tokens *t, shorts *s)
{
    for (int i = 0; i < t->n; i++) {
        char *eq = strchr(t->w[i], '=');
        if (eq) *eq = 0;
        const sk_word *w = find_short(t->w[i], eq != NULL);
        if (!eq && (!w || needs_value(w))) return no_value(t->w[i]);
        if (!w) return unknown(t->w[i]);
        s->v[s->n].word = w;
        s->v[s->n++].value = eq ? eq + 1 : NULL;
        if (w->kind != SK_WORD_ORDER) continue;
        s->ordered = s->v[--s->n].word;
        while (++i < t->n) s->order[s->n_order++] = t->w[i];
        if (!s->n_order)
            return sk_fail(SK_ECONF, "layout: no axes are behind \"%s\"; %s is needed", w->name,
                           w->value);
    }
    return SK_OK;
}

static sk_status make_axis(sk_reading *r, const shorts *s, const sk_word *w)
{
    int size = 0;
    for (int i = 0; i < s->n; i++) {
        if (s->v[i].word != w) continue;
        if (size) return sk_fail(SK_ECONF, "layout: '%s' is named twice", w->name);
        SK_TRY(sk_word_int(w->name, s->v[i].value, 1, 0, &size));
    }
    if (!size) return SK_OK;
    SK_TRY(sk_axis_add(&r->l->mesh, w->name, size));
    r->axis = r->l->mesh.n - 1;
    SK_TRY(sk_axis_split(r->l, r->axis, w->letters));
    return w->set ? w->set(r, NULL) : SK_OK;
}

/* Letters are implied for the axes that short words make, not for those of a "mesh" line. */
static sk_status make_axes(sk_reading *r, const shorts *s)
{
    const sk_word *words[SK_MOST_WORDS + 1];
    int axes = 0;
    sk_words_in_order(false, words);
    for (int i = 0; words[i]; i++) axes += words[i]->kind == SK_WORD_AXIS;
    if (s->n_order > axes)
        return sk_fail(SK_ECONF, "layout: over %d words behind \"%s\"", axes, s->ordered->name);
    for (int i = 0; i < s->n_order; i++) {
        const sk_word *w = sk_word_find(s->order[i]);
        if (!w || w->kind != SK_WORD_AXIS)
            return sk_fail(SK_ECONF, "layout: \"%s\" names no axis \"%s\"", s->ordered->name,
                           s->order[i]);
        for (int k = 0; k < i; k++)
            if (!strcmp(s->order[i], s->order[k])) return sk_word_twice(w);
        int before = r->l->mesh.n;
        SK_TRY(make_axis(r, s, w));
        if (r->l->mesh.n == before)
            return sk_fail(SK_ECONF,
                           "layout: \"%s\" names '%s', and the line has no %s=N; leave it out",
                           s->ordered->name, w->name, w->name);
    }
    for (int i = 0; words[i]; i++) {
        bool done = words[i]->kind != SK_WORD_AXIS;
        for (int k = 0; k < s->n_order; k++) done |= !strcmp(s->order[k], words[i]->name);
        if (!done) SK_TRY(make_axis(r, s, words[i]));
    }
    return SK_OK;
}

static sk_status read_shorts(sk_reading *r, tokens *t)
{
    shorts s = {0};
    SK_TRY(collect(t, &s));
    r->first = r->l->mesh.n;
    SK_TRY(make_axes(r, &s));
    r->axis = -1;
    for (int i = 0; i < s.n; i++) {
        if (s.v[i].word->kind == SK_WORD_AXIS) continue;
        r->repeated = false;
        for (int k = 0; k < i; k++) r->repeated |= s.v[k].word == s.v[i].word;
        SK_TRY(set(r, s.v[i].word, s.v[i].value));
    }
    for (const sk_word *const *w = sk_word_parts; *w; w++)
        if ((*w)->finish) SK_TRY((*w)->finish(r));
    return SK_OK;
}

/* --- both --- */

/* "keep" begins sentences and is a short word too: what is behind it tells which. */
static bool is_sentence(const tokens *t)
{
    const sk_word *flag = find_short(t->w[0], false), *w;
    sk_phrase s;
    if (!is_verb(t->w[0])) return false;
    if (!flag || needs_value(flag)) return true;
    for (int i = 1; i < t->n; i++) {
        const sk_word *next = find_short(t->w[i], false);
        if (strchr(t->w[i], '=') || (next && !needs_value(next))) return false;
    }
    return t->n > 1 || find(t, 0, NULL, &w, &s);
}

static sk_status read_text(sk_reading *r, const char *text)
{
    bool shorted = false;
    for (const char *p = text; *p;) {
        size_t said = strcspn(p, "\n;#"), len = said;
        tokens t;
        if (p[said] == '#')
            len += strcspn(p + said, "\n"); /* a comment reaches to the line's end */
        SK_TRY(take_tokens(p, said, &t));
        if (t.n && is_sentence(&t)) SK_TRY(read_sentence(r, &t));
        else if (t.n && shorted)
            return sk_fail(SK_ECONF, "layout: two lines of short words; put them in one");
        else if (t.n) {
            SK_TRY(read_shorts(r, &t));
            shorted = true;
        }
        p += len + (p[len] != 0);
    }
    return SK_OK;
}

sk_status sk_layout_read(const char *text, int n_ranks, sk_layout *out)
{
    sk_layout l = {.shard_axis = -1, .stage_axis = -1};
    sk_reading r = {.l = &l, .first = -1, .axis = -1};
    if (strlen(text) > 4000) return sk_fail(SK_ECONF, "layout: more than 4000 characters");
    SK_TRY(read_text(&r, text));
    for (const sk_word *const *w = sk_word_parts; *w; w++)
        if ((*w)->complete) SK_TRY((*w)->complete(&r));
    sk_assert(l.mesh.n > 0 && *l.schedule); /* the words that have a default complete it */
    SK_TRY(sk_layout_validate(&l, n_ranks));
    *out = l;
    return SK_OK;
}
