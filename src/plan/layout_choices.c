/* layout_choices.c - candidates and moves, from the table of words. */
#include "plan/layout_choices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VALUES = 32, MOST_TEXT = 1024, PLANNED = 4096 };

/* --- words and values --- */

static int add_value(sk_choices *c, int w, const char *text)
{
    for (int i = 0; i < c->n_values[w]; i++)
        if (!strcmp(c->values[w][i], text)) return i;
    if (c->n_values[w] == MOST_VALUES) return MOST_VALUES - 1;
    c->values[w][c->n_values[w]] = sk_print(c->arena, "%s", text);
    return c->n_values[w]++;
}

static int add_word(sk_choices *c, const sk_word *word)
{
    char tries[MOST_TEXT], *at = tries, *one;
    int w = c->n++;
    c->words[w] = word;
    c->values[w] = sk_many(c->arena, const char *, MOST_VALUES);
    if (word->kind == SK_WORD_INT && word->at == offsetof(sk_layout, n_micro)) c->micro = w;
    if (word->kind == SK_WORD_AXIS || !word->tries) return w;
    snprintf(tries, sizeof tries, "%s", word->tries);
    while ((one = strtok_r(at, " ", &at))) add_value(c, w, one);
    return w;
}

/* The word and value that a word is tried with. */
static void find_with(sk_choices *c, int w)
{
    char text[MOST_TEXT];
    c->with[w] = -1;
    if (!c->words[w]->tries_with) return;
    snprintf(text, sizeof text, "%s", c->words[w]->tries_with);
    char *value = strchr(text, '=');
    if (value) *value++ = 0;
    for (int i = 0; i < c->n; i++)
        if (c->words[i] == sk_word_find(text)) {
            c->with[w] = i;
            c->with_value[w] = 1 + add_value(c, i, value ? value : c->words[i]->name);
        }
}

void sk_choices_init(sk_choices *c, sk_arena *a, int ranks, bool lossy)
{
    *c = (sk_choices){.arena = a, .ranks = ranks, .micro = -1};
    for (const sk_word *const *w = sk_word_parts; *w; w++)
        if ((*w)->tries && (lossy || !(*w)->lossy)) add_word(c, *w);
    for (int w = 0; w < c->n; w++) find_with(c, w);
}

static int find_word(sk_choices *c, const sk_word *word)
{
    for (int w = 0; w < c->n; w++)
        if (c->words[w] == word) return w;
    int w = add_word(c, word);
    c->with[w] = -1;
    return w;
}

/* --- texts --- */

static sk_status read_word(sk_choices *c, char *text, sk_choice *x)
{
    char *value = strchr(text, '=');
    if (value) *value++ = 0;
    const sk_word *word = sk_word_find(text);
    if (!word || word->no_short)
        return sk_fail(SK_ECONF,
                       "layout: '%s' is no short word, and a search begins at such; leave "
                       "it out",
                       text);
    int w = find_word(c, word), number = value ? atoi(value) : 1;
    bool counts = word->kind == SK_WORD_AXIS || word->kind == SK_WORD_INT;
    x->v[w] = counts ? number : 1 + add_value(c, w, value ? value : word->name);
    return SK_OK;
}

static void sizes_of_one(const sk_choices *c, sk_choice *x)
{
    for (int w = 0; w < c->n; w++)
        if (c->words[w]->kind == SK_WORD_AXIS && !x->v[w]) x->v[w] = 1;
}

sk_status sk_choice_read(sk_choices *c, const char *text, sk_choice *out)
{
    char copy[MOST_TEXT], *at = copy, *one;
    memset(out, 0, sizeof *out);
    snprintf(copy, sizeof copy, "%s", text);
    while ((one = strtok_r(at, " ", &at))) SK_TRY(read_word(c, one, out));
    sizes_of_one(c, out);
    return SK_OK;
}

/* One word as it is said; empty: nothing is. */
static void say(const sk_choices *c, const sk_choice *x, int w, sk_out *o)
{
    const sk_word *word = c->words[w];
    int v = x->v[w];
    const char *gap = o->n ? " " : "";
    if (word->kind == SK_WORD_AXIS && v > 1) sk_out_add(o, "%s%s=%d", gap, word->name, v);
    if (word->kind == SK_WORD_AXIS || !v) return;
    if (word->kind == SK_WORD_INT) sk_out_add(o, "%s%s=%d", gap, word->name, v);
    else if (!word->value) sk_out_add(o, "%s%s", gap, word->name);
    else sk_out_add(o, "%s%s=%s", gap, word->name, c->values[w][v - 1]);
}

bool sk_choice_print(const sk_choices *c, const sk_choice *x, char *text, size_t room)
{
    sk_arena tmp = {0};
    sk_out o = {.arena = &tmp};
    for (int pass = 0; pass < 2; pass++)
        for (int w = 0; w < c->n; w++)
            if ((c->words[w]->kind == SK_WORD_AXIS) == !pass) say(c, x, w, &o);
    bool fits = snprintf(text, room, "%s", o.n ? o.s : "dp=1") < (int)room;
    sk_arena_end(&tmp);
    return fits;
}

/* --- moves --- */

typedef struct moves {
    const sk_choices *c;
    const sk_choice *x;
    sk_move *v;
    int n, most;
} moves;

static void add(moves *m, sk_move v)
{
    if (m->n < m->most) m->v[m->n++] = v;
}

static bool splits_batch(const sk_word *w) { return w->letters && strchr(w->letters, 'b'); }

/* A factor goes from axis to axis.  Where that changes over how many ranks a batch is split, also
 * with micro-batches of the size that they had. */
static void give(moves *m, int from, int to, int factor)
{
    const sk_choices *c = m->c;
    bool less = splits_batch(c->words[from]), more = splits_batch(c->words[to]);
    add(m, (sk_move){from, to, factor, -1, 0, -1, 0});
    if (c->micro < 0 || less == more) return;
    int micro = m->x->v[c->micro] ? m->x->v[c->micro] : 1;
    int same = less ? micro * factor : micro / factor;
    if (same >= 1 && same <= PLANNED && same != micro)
        add(m, (sk_move){from, to, factor, c->micro, same, -1, 0});
}

static void give_factors(moves *m, int from, int to)
{
    int left = m->x->v[from];
    for (int p = 2; p <= left; p++) {
        if (left % p) continue;
        give(m, from, to, p);
        while (left % p == 0) left /= p;
    }
}

static void set(moves *m, int w, int value)
{
    int with = m->c->with[w];
    bool none = with >= 0 && !value;
    add(m, (sk_move){-1, -1, 1, w, value, with, with < 0 || none ? 0 : m->c->with_value[w]});
}

/* The next larger and the next smaller number, none, and twice the largest that is tried. */
static void numbers(moves *m, int w)
{
    int now = m->x->v[w], up = 0, down = 0;
    const sk_word *word = m->c->words[w];
    for (int i = 0; i < m->c->n_values[w]; i++) {
        int k = atoi(m->c->values[w][i]);
        if (k > now && (!up || k < up)) up = k;
        if (k < now && k > down) down = k;
    }
    if (!up && now && now <= PLANNED / 2 && (!word->most || 2 * now <= word->most)) up = 2 * now;
    if (up) set(m, w, up);
    if (now > 1 && now / 2 > down) down = now / 2;
    if (down) set(m, w, down);
    if (now) set(m, w, 0);
}

/* Not one that is there for another word alone. */
static bool tried(const sk_choices *c, int w, int value)
{
    for (int i = 0; i < c->n; i++)
        if (c->with[i] == w && c->with_value[i] == value) return false;
    return true;
}

static void texts(moves *m, int w)
{
    for (int k = 0; k <= m->c->n_values[w]; k++)
        if (k != m->x->v[w] && tried(m->c, w, k)) set(m, w, k);
}

int sk_choice_moves(const sk_choices *c, const sk_choice *x, sk_move *to, int most)
{
    moves m = {c, x, to, 0, most};
    for (int from = 0; from < c->n; from++)
        for (int at = 0; at < c->n; at++)
            if (from != at && c->words[from]->kind == SK_WORD_AXIS &&
                c->words[at]->kind == SK_WORD_AXIS)
                give_factors(&m, from, at);
    for (int w = 0; w < c->n; w++) {
        if (c->words[w]->kind == SK_WORD_INT) numbers(&m, w);
        else if (c->words[w]->kind != SK_WORD_AXIS) texts(&m, w);
    }
    return m.n;
}

void sk_choice_move(const sk_move *m, sk_choice *x)
{
    if (m->from >= 0) {
        x->v[m->from] /= m->factor;
        x->v[m->to] *= m->factor;
    }
    if (m->word >= 0) x->v[m->word] = m->value;
    if (m->word >= 0 && m->with >= 0) x->v[m->with] = m->with_value;
}
