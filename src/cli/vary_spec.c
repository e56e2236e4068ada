/* vary_spec.c - reading --vary NAME=LIST,NAME=LIST. */
#include "cli/vary.h"
#include "base/strings.h"
#include "cli/setting.h"
#include "layout/word.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *said, *key;
} aliases[] = {{"nic", "rate_between"},
               {"mbs", "train.micro_batch"},
               {"batch", "train.batch"},
               {"seq", "train.seq"}};
enum { N_ALIASES = sizeof aliases / sizeof *aliases };

/* --- names --- */

static bool is_number(const char *name)
{
    for (int i = 0; sk_machine_number_name(i); i++)
        if (!strcmp(sk_machine_number_name(i), name)) return true;
    return false;
}

/* The nearest of all names. */
static sk_status unknown(sk_arena *a, const char *name)
{
    struct {
        const char **v;
        int n, cap;
    } all = {0};
    for (const sk_word *const *w = sk_word_parts; *w; w++)
        if (!(*w)->no_short) *(const char **)sk_push(a, &all) = (*w)->name;
    for (int i = 0; sk_machine_number_name(i); i++)
        *(const char **)sk_push(a, &all) = sk_machine_number_name(i);
    for (int i = 0; sk_conf_name(a, i); i++) *(const char **)sk_push(a, &all) = sk_conf_name(a, i);
    const char *near = sk_nearest(name, all.v, all.n);
    return sk_fail(
        SK_EUSAGE,
        "command line: --vary %.60s: neither a word of a layout nor a key of the job nor "
        "a number of a machine%s%s%s",
        name, near ? " - did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static sk_status find_kind(sk_arena *a, sk_variable *x)
{
    const sk_word *word = sk_word_find(x->name);
    x->key = x->name;
    for (int i = 0; i < N_ALIASES; i++)
        if (!strcmp(aliases[i].said, x->name)) x->key = aliases[i].key;
    if (!strcmp(x->key, "layout"))
        return sk_fail(SK_EUSAGE, "command line: --vary takes words of a layout one by one, as in "
                                  "--vary tp=1..8,zero=0,1,3");
    if (!strcmp(x->key, "ranks")) x->kind = SK_VARY_RANKS;
    else if (word && !word->no_short) x->kind = SK_VARY_WORD;
    else if (is_number(x->key)) x->kind = SK_VARY_NUMBER;
    else if (sk_conf_is_key(x->key)) x->kind = SK_VARY_KEY;
    else return unknown(a, x->name);
    return SK_OK;
}

/* --- values --- */

static sk_status add(sk_variable *x, const char *value)
{
    if (!*value)
        return sk_fail(SK_EUSAGE,
                       "command line: --vary %.60s: a value is empty; NAME=1,2,4 or "
                       "NAME=1..8 is needed",
                       x->name);
    if (x->n == SK_VARY_VALUES)
        return sk_fail(SK_EUSAGE, "command line: --vary %.60s has more than %d values", x->name,
                       SK_VARY_VALUES);
    x->values[x->n++] = value;
    return SK_OK;
}

/* "48e9", or "0.5x" of what there is. */
static bool read_end(sk_arena *a, const char *text, double *out, bool *factor)
{
    size_t n = strlen(text);
    *factor = n && text[n - 1] == 'x';
    return sk_read_real(*factor ? sk_print(a, "%.*s", (int)n - 1, text) : text, out) && *out > 0 &&
           isfinite(*out);
}

static sk_status add_range(sk_arena *a, sk_variable *x, const char *text, const char *dots)
{
    double from, to;
    bool factor, other;
    const char *low = sk_print(a, "%.*s", (int)(dots - text), text);
    if (!read_end(a, low, &from, &factor) || !read_end(a, dots + 2, &to, &other) ||
        factor != other || from > to)
        return sk_fail(SK_EUSAGE,
                       "command line: --vary %.60s=%.60s: FROM..TO is needed, above 0 and upwards, "
                       "as 1..8 or 0.5x..2x",
                       x->name, text);
    for (double at = from; at < to * (1 - 1e-9); at *= 2)
        SK_TRY(add(x, sk_print(a, "%.12g%s", at, factor ? "x" : "")));
    return add(x, sk_print(a, "%.12g%s", to, factor ? "x" : ""));
}

static sk_status add_values(sk_arena *a, sk_variable *x, const char *text)
{
    const char *dots = strstr(text, "..");
    double factor;
    bool times;
    if (dots) SK_TRY(add_range(a, x, text, dots));
    else SK_TRY(add(x, text));
    if (x->kind == SK_VARY_NUMBER && !dots && !read_end(a, text, &factor, &times) &&
        (times || !sk_read_real(text, &factor)))
        return sk_fail(SK_EUSAGE,
                       "command line: --vary %.60s=%.60s: a number is needed, or a factor such as "
                       "2x",
                       x->name, text);
    if (x->kind != SK_VARY_NUMBER && read_end(a, text, &factor, &times) && times)
        return sk_fail(SK_EUSAGE,
                       "command line: --vary %.60s=%.60s: factors are for numbers of a machine, "
                       "such as flops and nic",
                       x->name, text);
    return SK_OK;
}

/* --- the whole --- */

static sk_status begin(sk_vary *v, const char *name)
{
    for (int i = 0; i < v->n; i++)
        if (!strcmp(v->v[i].name, name))
            return sk_fail(SK_EUSAGE, "command line: --vary has %.60s twice", name);
    if (v->n == SK_VARY_NAMES)
        return sk_fail(SK_EUSAGE, "command line: --vary has more than %d names", SK_VARY_NAMES);
    v->v[v->n].name = name;
    return find_kind(v->arena, &v->v[v->n++]);
}

/* A comma goes to the next value, or to the next name if there is a '=' before the next comma. */
sk_status sk_vary_read(sk_vary *v, const char *spec)
{
    int before = v->n;
    for (const char *s = spec;; s++) {
        size_t n = strcspn(s, ",");
        const char *equals = memchr(s, '=', n), *value = equals ? equals + 1 : s;
        if (!equals && v->n == before)
            return sk_fail(SK_EUSAGE, "command line: --vary %.60s: NAME=LIST is needed, as tp=1..8",
                           spec);
        if (equals) SK_TRY(begin(v, sk_print(v->arena, "%.*s", (int)(equals - s), s)));
        SK_TRY(add_values(v->arena, &v->v[v->n - 1],
                          sk_print(v->arena, "%.*s", (int)(s + n - value), value)));
        s += n;
        if (!*s) return SK_OK;
    }
}
