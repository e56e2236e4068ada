/* conf_axis.c - many values of one key, as `skein sweep` reads them.
 *
 *     optim.lr=1e-3,3e-3                       values
 *     optim.lr=log:1e-4:1e-1:4                 four values of equal ratio; lin: of equal distance
 *     train.seed=1..5                          whole numbers
 *     optim.betas=[0.9,0.95],[0.9,0.99]        values that hold commas themselves
 *
 * Commas separate the values of a key that is one number or one word.  Other keys (texts, layouts,
 * lists of numbers) may hold commas, and what is meant is never guessed: there a comma outside of
 * brackets is refused.  Brackets around a value are not part of it. */
#include "cli/conf_key.h"
#include "cli/sweep.h"
#include "kernel/optim.h"

#include <math.h>
#include <string.h>

enum { MOST_VALUES = 1000 };

typedef enum kind { TEXT, WORD, WHOLE, REAL } kind;

static kind kind_of_model(const char *field)
{
    const sk_field *f = sk_hyper_field(field);
    if (!f) return sk_conf_among("arch preset name weights", field) ? WORD : REAL;
    return f->kind == SK_FIELD_INT ? WHOLE : f->kind == SK_FIELD_REAL ? REAL : WORD;
}

static kind kind_of(const char *key)
{
    const sk_conf_key *k = sk_conf_find(key);
    const sk_knob *own = k ? NULL : sk_conf_knob(key);
    if (!strncmp(key, "model.", 6)) return kind_of_model(key + 6);
    if (own && sk_knob_list(own) == 1) return own->whole ? WHOLE : REAL;
    if (sk_conf_among("model optim.name device comm.algorithm", key)) return WORD;
    if (!k || k->kind == SK_KEY_LAYOUT ||
        (k->kind == SK_KEY_TEXT && !k->one_of && !k->one_of_parts))
        return TEXT;
    return k->kind == SK_KEY_INT ? WHOLE : k->kind == SK_KEY_REAL ? REAL : WORD;
}

/* ---- cutting */

static const char *cut(sk_arena *a, const char *from, const char *to)
{
    while (from < to && *from == ' ') from++;
    while (to > from && to[-1] == ' ') to--;
    return sk_print(a, "%.*s", (int)(to - from), from);
}

/* The end of a value: a comma outside of brackets, or the end of the text.  NULL: a bracket is not
 * closed. */
static const char *value_end(const char *s)
{
    int depth = 0;
    for (; *s && (depth || *s != ','); s++) {
        depth += (*s == '[') - (*s == ']');
        if (depth < 0) return NULL;
    }
    return depth ? NULL : s;
}

/* Is it one pair of brackets from end to end? */
static bool bracketed(const char *s)
{
    int depth = 0;
    if (*s != '[') return false;
    for (; *s; s++) {
        depth += (*s == '[') - (*s == ']');
        if (!depth) return !s[1];
    }
    return false;
}

typedef struct items {
    const char **v;
    int n, cap;
} items;

/* False: brackets do not pair, so that commas cannot be told. */
static bool split(sk_arena *a, const char *text, items *out)
{
    for (const char *s = text, *end;; s = end + 1) {
        end = value_end(s);
        if (!end) return false;
        *(const char **)sk_push(a, out) = cut(a, s, end);
        if (!*end) return true;
    }
}

/* ---- ranges */

static sk_status bad_range(const char *key, const char *item, const char *need)
{
    return sk_fail(SK_EUSAGE, "command line: %s is %.80s; %s", key, item, need);
}

static void add(sk_arena *a, items *to, const char *value)
{
    if (to->n && !strcmp(to->v[to->n - 1], value)) return; /* whole numbers that round alike */
    *(const char **)sk_push(a, to) = value;
}

/* log:LOW:HIGH:N or lin:LOW:HIGH:N; N may be missing, for --random. */
static sk_status read_range(sk_arena *a, sk_axis *x, const char *item, bool alone, items *to)
{
    char *rest = sk_strdup(a, item), *kind_word = strsep(&rest, ":");
    const char *low = strsep(&rest, ":"), *high = rest ? strsep(&rest, ":") : NULL;
    int64_t n = 0;
    x->range = true;
    x->logarithmic = !strcmp(kind_word, "log");
    if (!low || !high || !sk_read_real(low, &x->low) || !sk_read_real(high, &x->high) ||
        (rest && (!sk_read_int(rest, &n) || n < 2 || n > MOST_VALUES)))
        return bad_range(x->key, item,
                         "log:LOW:HIGH:N or lin:LOW:HIGH:N is needed, N from 2 to 1000");
    if (x->high <= x->low || (x->logarithmic && x->low <= 0))
        return bad_range(x->key, item,
                         x->logarithmic ? "a range upwards from above 0 is needed"
                                        : "a range upwards is needed");
    if (!n && !alone)
        return bad_range(x->key, item, "a range among other values needs its number of them, N");
    for (int64_t i = 0; i < n; i++) add(a, to, sk_axis_at(a, x, (double)i / (double)(n - 1)));
    return SK_OK;
}

/* 1..5 */
static sk_status read_count(sk_arena *a, const char *key, const char *item, const char *dots,
                            items *to)
{
    int64_t low = 0, high = 0;
    if (!sk_read_int(sk_print(a, "%.*s", (int)(dots - item), item), &low) ||
        !sk_read_int(dots + 2, &high) || high < low || high - low >= MOST_VALUES)
        return bad_range(key, item, "FIRST..LAST is needed, at most 1000 whole numbers");
    for (int64_t i = low; i <= high; i++) add(a, to, sk_print(a, "%lld", (long long)i));
    return SK_OK;
}

const char *sk_axis_at(sk_arena *a, const sk_axis *x, double u)
{
    double v = x->logarithmic ? x->low * pow(x->high / x->low, u) : x->low + (x->high - x->low) * u;
    if (x->whole) return sk_print(a, "%.0f", round(v));
    return sk_print(a, "%.5g", v); /* enough to tell values apart, short enough for a name */
}

/* ---- an axis */

static sk_status read_item(sk_arena *a, sk_axis *x, kind k, const char *item, bool alone, items *to)
{
    const char *dots = strstr(item, "..");
    bool range = !strncmp(item, "log:", 4) || !strncmp(item, "lin:", 4);
    if (!*item) return sk_fail(SK_EUSAGE, "command line: one of the values of %s is empty", x->key);
    if (k >= WHOLE && range) return read_range(a, x, item, alone, to);
    if (k >= WHOLE && !range && strchr(item, ':') && *item != '[')
        return bad_range(x->key, item,
                         "a range is log:LOW:HIGH:N (equal ratios) or lin:LOW:HIGH:N (equal "
                         "distances)");
    if (k == WHOLE && dots) return read_count(a, x->key, item, dots, to);
    if (k > WHOLE && dots)
        return bad_range(x->key, item,
                         sk_print(a,
                                  "FIRST..LAST is for whole numbers; log:%.*s:%s:4 has four "
                                  "values of equal ratio, lin:%.*s:%s:4 of equal distance",
                                  (int)(dots - item), item, dots + 2, (int)(dots - item), item,
                                  dots + 2));
    if (bracketed(item)) item = sk_print(a, "%.*s", (int)strlen(item) - 2, item + 1);
    *(const char **)sk_push(a, to) = item;
    return SK_OK;
}

static sk_status no_twins(const sk_axis *x)
{
    for (int i = 0; i < x->n; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(x->values[i], x->values[k]))
                return sk_fail(SK_EUSAGE, "command line: %s has the value %.80s twice", x->key,
                               x->values[i]);
    return SK_OK;
}

/* "[matrix: muon, rest: adamw]" is one value; which of the two is meant is not guessed. */
static sk_status no_comma(const char *key, const char *text, const items *cut)
{
    for (int i = 0; i < cut->n && cut->n > 1; i++)
        if (!bracketed(cut->v[i]))
            return sk_fail(SK_EUSAGE,
                           "command line: a value of %s may hold commas itself; write "
                           "\"%s=[%.120s]\" for one value, and %s=[...],[...] for several",
                           key, key, text, key);
    return SK_OK;
}

sk_status sk_conf_axis(sk_arena *a, const char *key, const char *text, sk_axis *out)
{
    kind k = kind_of(key);
    items cut = {0}, values = {0};
    sk_axis x = {.key = key, .whole = k == WHOLE};
    if (!*text || !split(a, text, &cut)) { /* "" is a value, and so is a text with odd brackets */
        cut = (items){0};
        *(const char **)sk_push(a, &values) = text;
    }
    if (k == TEXT) SK_TRY(no_comma(key, text, &cut));
    for (int i = 0; i < cut.n; i++) {
        SK_TRY(read_item(a, &x, k, cut.v[i], cut.n == 1, &values));
        if (values.n > MOST_VALUES)
            return sk_fail(SK_EUSAGE, "command line: %s has more than %d values", key, MOST_VALUES);
    }
    if (cut.n > 1) x.range = false; /* a list, some of it written as a range */
    x.values = values.v;
    x.n = values.n;
    SK_TRY(no_twins(&x));
    *out = x;
    return SK_OK;
}
