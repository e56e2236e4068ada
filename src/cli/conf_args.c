/* conf_args.c - the words of a command line as settings, options and the rest. */
#include "cli/setting.h"
#include "data/data_files.h"

#include <string.h>

typedef struct line {
    sk_arena *arena;
    int argc, at; /* the next word is argv[at] */
    char **argv;
    sk_settings *out;
    sk_conf_rest *rest;
    struct {
        struct sk_given *v;
        int n, cap;
    } given;
    struct {
        const char **v;
        int n, cap;
    } words;
    const char *file;
} line;

static const sk_option *option(const line *l, const char *name)
{
    const sk_option *o = l->rest ? l->rest->options : NULL;
    while (o && o->name && strcmp(o->name, name)) o++;
    return o && o->name ? o : NULL;
}

static sk_status unknown(line *l, const char *what, const char *name)
{
    return sk_fail(SK_EUSAGE, "command line: unknown %s \"%.80s\"%s", what, name,
                   sk_conf_hint(l->arena, name, l->rest ? l->rest->options : NULL));
}

static void set(line *l, const char *key, const char *value)
{
    *sk_push(l->arena, l->out) = (sk_setting){.key = key, .value = value};
}

static void give(line *l, const char *name, const char *value)
{
    *(struct sk_given *)sk_push(l->arena, &l->given) = (struct sk_given){name, value};
}

/* The word after an option that needs one. */
static sk_status follow(line *l, const char *name, const char **value)
{
    if (l->at >= l->argc)
        return sk_fail(SK_EUSAGE, "command line: %s%s needs a value after it",
                       *name == '-' ? "" : "--", name);
    *value = l->argv[l->at++];
    return SK_OK;
}

/* --no-x: a flag of the command, or a key that can be turned off. */
static sk_status turn_off(line *l, const char *name)
{
    const sk_option *o = option(l, name);
    if (o && !o->takes_value) {
        give(l, o->name, "no");
        return SK_OK;
    }
    if (!sk_conf_is_key(name)) return unknown(l, "option", name);
    if (!sk_conf_off(name))
        return sk_fail(SK_EUSAGE, "command line: \"%s\" cannot be turned off; give it a value",
                       name);
    set(l, name, sk_conf_off(name));
    return SK_OK;
}

/* --name, --name=value, --name value */
static sk_status long_option(line *l, const char *word)
{
    const char *equals = strchr(word, '='), *value = equals ? equals + 1 : NULL;
    const char *name = equals ? sk_print(l->arena, "%.*s", (int)(equals - word), word) : word;
    const sk_option *o = option(l, name);
    if (o) {
        if (!o->takes_value && value)
            return sk_fail(SK_EUSAGE, "command line: --%s takes no value", name);
        if (o->takes_value && !value) SK_TRY(follow(l, name, &value));
        give(l, o->name, value ? value : "yes");
        return SK_OK;
    }
    if (!sk_conf_is_key(name)) {
        if (!value && !strncmp(name, "no-", 3)) return turn_off(l, name + 3);
        return unknown(l, "option", name);
    }
    if (!value) value = sk_conf_on(name);
    if (!value) SK_TRY(follow(l, name, &value));
    set(l, name, value);
    return SK_OK;
}

/* -n 4, -n4, -o csv */
static sk_status short_option(line *l, const char *word)
{
    char name[2] = {word[1], 0};
    const char *value = word[2] ? word + 2 : NULL;
    const sk_option *o = option(l, name);
    bool ranks = !o && name[0] == 'n';
    if (!o && !ranks) return unknown(l, "option", word);
    if (o && !o->takes_value) {
        if (value) return unknown(l, "option", word);
        give(l, o->name, "yes");
        return SK_OK;
    }
    if (!value) SK_TRY(follow(l, word, &value));
    if (ranks) set(l, "ranks", value);
    else give(l, o->name, value);
    return SK_OK;
}

static bool is_file_name(const char *s)
{
    return sk_ends_with(s, ".yaml") || sk_ends_with(s, ".yml") || sk_ends_with(s, ".json");
}

/* key=value, a config file, or a word for the command */
static sk_status plain(line *l, const char *word)
{
    const char *equals = strchr(word, '=');
    size_t n = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    if (equals && n && word + n == equals) {
        const char *key = sk_print(l->arena, "%.*s", (int)n, word);
        if (!sk_conf_is_key(key)) return unknown(l, "key", key);
        set(l, key, equals + 1);
        return SK_OK;
    }
    if (is_file_name(word)) {
        if (l->file)
            return sk_fail(SK_EUSAGE, "command line: two config files, %s and %s; one is read",
                           l->file, word);
        l->file = word;
        return SK_OK;
    }
    if (!l->rest)
        return sk_fail(SK_EUSAGE, "command line: \"%.80s\" is no key=value and no FILE.yaml", word);
    *(const char **)sk_push(l->arena, &l->words) = word;
    return SK_OK;
}

static sk_status one(line *l, const char *word, bool *plain_only)
{
    if (*plain_only || word[0] != '-' || !word[1]) return plain(l, word);
    if (!strcmp(word, "--")) {
        *plain_only = true;
        return SK_OK;
    }
    return word[1] == '-' ? long_option(l, word + 2) : short_option(l, word);
}

sk_status sk_conf_args(sk_arena *a, int argc, char **argv, sk_settings *out, sk_conf_rest *rest,
                       const char **file)
{
    line l = {.arena = a, .argc = argc, .argv = argv, .out = out, .rest = rest};
    bool plain_only = false;
    while (l.at < argc) {
        const char *word = argv[l.at++];
        if (!plain_only && rest && (!strcmp(word, "--help") || !strcmp(word, "-h"))) {
            rest->help = true;
            return SK_OK;
        }
        if (sk_utf8_span(word, strlen(word)) != strlen(word))
            return sk_fail(SK_EUSAGE, "command line: word %d is not UTF-8", l.at);
        SK_TRY(one(&l, word, &plain_only));
    }
    if (rest) {
        rest->given = l.given.v, rest->n_given = l.given.n;
        rest->words = l.words.v, rest->n_words = l.words.n;
    }
    *file = l.file;
    return SK_OK;
}
