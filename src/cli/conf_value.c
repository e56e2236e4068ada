/* conf_value.c - from the text of a value to a field of the job, checked against its key. */
#include "cli/conf_key.h"
#include "base/strings.h"
#include "cli/setting.h"
#include "data/data_files.h"
#include "layout/word.h"

#include <string.h>

const char *sk_conf_range(sk_arena *a, double least, double most)
{
    if (most == SK_BELOW_ONE) return sk_print(a, "from %.10g to below 1", least);
    return sk_print(a, "from %.10g to %.10g", least, most);
}

bool sk_conf_has_unit(const char *s)
{
    while (*s && !(*s >= '0' && *s <= '9' && s[1] && strchr("kmgtKMGTB", s[1]))) s++;
    return *s;
}

static sk_status wrong(sk_arena *a, const sk_conf_key *k, const sk_setting *s)
{
    static const char *const what[] = {"a whole number", "a number", "a time (90, 90s, 2m, 1h)",
                                       "bytes (8GiB, 500M)",
                                       "a time (90s, 10m, 1h) or a number of steps"};
    return sk_fail(sk_setting_code(s), "%s: %s is \"%.80s\"; %s %s is needed%s (%s)",
                   sk_setting_where(a, s, true), k->name, s->value, what[k->kind],
                   sk_conf_range(a, k->least, k->most),
                   k->kind == SK_KEY_REAL && sk_conf_has_unit(s->value) ? sk_conf_no_units : "",
                   k->doc);
}

static bool inside(const sk_conf_key *k, double x) { return x >= k->least && x <= k->most; }

static bool set_int(const sk_conf_key *k, const char *value, void *to)
{
    int64_t x = 0;
    if (!sk_read_int(value, &x) || !inside(k, (double)x)) return false;
    memcpy(to, &x, sizeof x); /* seed is unsigned, but never negative */
    return true;
}

static bool set_real(const sk_conf_key *k, const char *value, double *to)
{
    double x = 0;
    if (!sk_read_plain(value, &x) || !inside(k, x)) return false;
    *to = x;
    return true;
}

/* "8GiB", "500MB", "64Mi", "1e9" */
static bool set_bytes(const sk_conf_key *k, const char *value, void *to)
{
    char number[64];
    size_t n = strlen(value);
    if (n >= sizeof number) return false;
    memcpy(number, value, n + 1);
    if (n > 1 && number[n - 1] == 'B') number[n - 1] = 0;
    return set_int(k, number, to);
}

static bool set_seconds(const sk_conf_key *k, const char *value, double *to)
{
    char word[32];
    size_t n = strlen(value);
    double unit = 1, x = 0;
    if (!n || n >= sizeof word) return false;
    memcpy(word, value, n + 1);
    if (strchr("smh", word[n - 1])) {
        unit = word[n - 1] == 's' ? 1 : word[n - 1] == 'm' ? 60 : 3600;
        word[n - 1] = 0;
    }
    if (!sk_read_plain(word, &x) || !inside(k, x * unit)) return false;
    *to = x * unit;
    return true;
}

/* "10m" is a time, "10" are steps. */
static bool set_every(const sk_conf_key *k, const char *value, sk_every *to)
{
    size_t n = strlen(value);
    *to = (sk_every){0};
    if (n && strchr("smh", value[n - 1])) return set_seconds(k, value, &to->seconds);
    return set_int(k, value, &to->steps);
}

bool sk_conf_among(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = words; (p = strstr(p, word)) && n; p += n)
        if ((p == words || p[-1] == ' ') && (!p[n] || p[n] == ' ')) return true;
    return false;
}

static sk_status not_among(sk_arena *a, const sk_conf_key *k, const sk_setting *s,
                           const char *value, const char *one_of)
{
    const char *words[64];
    int n = 0;
    for (const char *p = one_of; *p && n < 64; p += strspn(p, " ")) {
        words[n++] = sk_print(a, "%.*s", (int)strcspn(p, " "), p);
        p += strcspn(p, " ");
    }
    const char *near = sk_nearest(value, words, n);
    return sk_fail(sk_setting_code(s), "%s: %s is \"%.80s\"; needed is one of: %s%s",
                   sk_setting_where(a, s, true), k->name, value, one_of,
                   near ? sk_print(a, " (did you mean '%s'?)", near) : "");
}

static sk_status set_text(sk_arena *a, const sk_conf_key *k, const sk_setting *s, const char *value,
                          char *to)
{
    const char *one_of = k->one_of_parts ? k->one_of_parts(a) : k->one_of;
    if (one_of && !sk_conf_among(one_of, value)) return not_among(a, k, s, value, one_of);
    if (strlen(value) >= k->size)
        return sk_fail(sk_setting_code(s), "%s: %s has %zu bytes, at most %zu fit",
                       sk_setting_where(a, s, true), k->name, strlen(value), k->size - 1);
    memset(to, 0, k->size);
    memcpy(to, value, strlen(value));
    return SK_OK;
}

/* A layout that is one word and a file means the lines of the file. */
static sk_status set_layout(sk_arena *a, const sk_conf_key *k, const sk_setting *s, char *to)
{
    sk_text text = {0};
    if (strpbrk(s->value, " =\n") || !sk_is_file(s->value)) return set_text(a, k, s, s->value, to);
    SK_TRY(sk_data_read(a, s->value, SK_LAYOUT_TEXT, &text));
    if (sk_utf8_span(text.s, text.n) != text.n || memchr(text.s, 0, text.n))
        return sk_fail(SK_ECONF, "%s: a layout is plain text", s->value);
    while (text.n && text.s[text.n - 1] == '\n') text.n--;
    return set_text(a, k, s, sk_print(a, "%.*s", (int)text.n, text.s), to);
}

static sk_status set_dtype(sk_arena *a, const sk_conf_key *k, const sk_setting *s, sk_dtype *to)
{
    sk_dtype t = SK_F32;
    bool state = k->kind == SK_KEY_STATE;
    bool known = state ? sk_state_type_find(s->value, &t) : sk_dtype_find(s->value, &t);
    if (!known || !sk_conf_among(k->one_of, state ? sk_state_type_name(t) : sk_dtype_name(t)))
        return not_among(a, k, s, s->value, k->one_of);
    *to = t;
    return SK_OK;
}

/* "resume: no" and "optim.clip: off", as YAML users write it. */
static const char *switched(const sk_conf_key *k, const char *value)
{
    if (k->off && sk_conf_among("no off false", value)) return k->off;
    if (k->on && sk_conf_among("yes on true", value)) return k->on;
    return value;
}

sk_status sk_conf_set(sk_arena *a, const sk_conf_key *k, sk_setting s, sk_job *job)
{
    void *to = (char *)job + k->at;
    bool ok = true;
    sk_assert(k->at + k->size <= sizeof *job);
    sk_assert(k->kind > SK_KEY_BYTES || k->size == 8); /* int64_t, double */
    s.value = switched(k, s.value);
    switch (k->kind) {
    case SK_KEY_INT:
        ok = set_int(k, s.value, to);
        break;
    case SK_KEY_REAL:
        ok = set_real(k, s.value, to);
        break;
    case SK_KEY_SECONDS:
        ok = set_seconds(k, s.value, to);
        break;
    case SK_KEY_BYTES:
        ok = set_bytes(k, s.value, to);
        break;
    case SK_KEY_EVERY:
        ok = set_every(k, s.value, to);
        break;
    case SK_KEY_TEXT:
        return set_text(a, k, &s, s.value, to);
    case SK_KEY_LAYOUT:
        return set_layout(a, k, &s, to);
    case SK_KEY_DTYPE:
    case SK_KEY_STATE:
        return set_dtype(a, k, &s, to);
    }
    return ok ? SK_OK : sk_trail(wrong(a, k, &s), SK_HERE);
}
