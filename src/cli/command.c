/* command.c - include/skein.h: finds a command's part and runs it.
 *
 * `skein COMMAND ...` is main.c around sk_command(): what belongs to a process
 * of its own (signals, printing the error report) is there, all else is here. */
#include "skein.h"
#include "base/entry.h"
#include "base/proc.h"
#include "base/strings.h"
#include "base/version.h"
#include "cli/cmd.h"
#include "cli/part_help.h"
#include "cli/setting.h"
#include "layout/layout.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

const char *sk_version(void) { return SK_VERSION; }

static void usage(FILE *to)
{
    fprintf(to, "skein " SK_VERSION " trains one model on many processors\n\n"
                "usage: skein COMMAND [arguments]      skein help COMMAND|KEY|PART\n\n");
    for (const sk_cmd *const *c = sk_cmd_parts; *c; c++)
        fprintf(to, "  %-10s %s\n", (*c)->name, sk_or_empty((*c)->doc));
    fprintf(to,
            "\nTo begin: skein train.  skein list shows the parts: optimizers, schedules, words of "
            "layouts ...,\nand skein help adamw all about one of them.\n");
}

static const sk_cmd *find(const char *name)
{
    for (const sk_cmd *const *c = sk_cmd_parts; *c; c++)
        if (!strcmp((*c)->name, name)) return *c;
    return NULL;
}

static int near(sk_arena *a, const char *name, const char *out[2])
{
    int n = 0;
    while (sk_cmd_parts[n]) n++;
    const char **names = sk_many(a, const char *, n);
    for (int i = 0; i < n; i++) names[i] = sk_cmd_parts[i]->name;
    return sk_nearest_all(name, names, n, out, 2);
}

static sk_status unknown(sk_arena *a, const char *name)
{
    const char *meant[2];
    int n = near(a, name, meant);
    if (n > 0)
        return sk_fail(SK_EUSAGE, "there is no command '%s' (did you mean '%s'%s%s%s?)", name,
                       meant[0], n > 1 ? " or '" : "", n > 1 ? meant[1] : "", n > 1 ? "'" : "");
    return sk_fail(SK_EUSAGE, "there is no command '%s'; skein --help lists them", name);
}

static bool wants_help(int n, char **words)
{
    for (int i = 0; i < n; i++) {
        if (!strcmp(words[i], "--")) return false;
        if (!strcmp(words[i], "--help") || !strcmp(words[i], "-h")) return true;
    }
    return false;
}

static sk_status dispatch(sk_arena *a, int n, char **words);

static bool has_option(sk_arena *a, const sk_cmd *c, const char *name)
{
    const char *option = sk_print(a, "--%s", name);
    size_t n = strlen(option);
    for (const char *p = sk_or_empty(c->help); (p = strstr(p, option)); p += n)
        if (p[n] != '-' && p[n] != '_' && !isalnum((unsigned char)p[n])) return true;
    for (const sk_option *o = c->options; o && o->name; o++)
        if (!strcmp(o->name, name)) return true;
    return false;
}

/* The first command with the option --NAME; NULL: none has it. */
static const char *with_option(sk_arena *a, const char *name)
{
    for (const sk_cmd *const *c = sk_cmd_parts; *c; c++)
        if (has_option(a, *c, name + strspn(name, "-"))) return (*c)->name;
    return NULL;
}

/* Keys have a dot, and other programs' names for them are known; what else is near is a part, of
 * which commands are a kind. */
static sk_status no_help(sk_arena *a, const char *name)
{
    const char *meant[2], *hint = sk_conf_hint(a, name, NULL);
    bool key = strchr(name, '.') || sk_conf_known_as(a, name);
    const char *of = key ? NULL : with_option(a, name);
    if (of) return sk_fail(SK_EUSAGE, "help: '%.80s' is an option: skein help %s has it", name, of);
    int n = key ? 0 : sk_part_near(a, name, meant);
    if (n)
        return sk_fail(SK_EUSAGE,
                       "help: nothing is called '%.80s' (did you mean '%s'%s%s%s?); skein --help "
                       "lists commands, skein list all parts",
                       name, meant[0], n > 1 ? " or '" : "", n > 1 ? meant[1] : "",
                       n > 1 ? "'" : "");
    if (key || *hint) return sk_fail(SK_EUSAGE, "help: there is no key '%.80s'%s", name, hint);
    return sk_fail(SK_EUSAGE,
                   "help: nothing is called '%.80s'; skein --help lists commands, skein list all "
                   "parts, skein train --help all keys",
                   name);
}

/* `help`, `help train`, `help bench step`, `help optim.lr`, `help zero`, `help adamw`: the words
 * after it. */
static sk_status help(sk_arena *a, int n, char **words)
{
    if (!n) {
        usage(stdout);
        return SK_OK;
    }
    if (find(words[0])) {
        char **asked = sk_many(a, char *, n + 1);
        memcpy(asked, words, (size_t)n * sizeof *words);
        asked[n] = sk_strdup(a, "--help");
        return dispatch(a, n + 1, asked);
    }
    const char *keys = sk_conf_help_on(a, words[0]), *say = sk_layout_alias(words[0]);
    const char *parts = sk_part_help_on(a, words[0], keys ? "word" : ""); /* keys has words */
    bool any = keys || parts;
    if (!any && !say) say = sk_layout_value(a, words[0]);
    if (!any && say)
        return sk_fail(SK_EUSAGE, "help: \"%.80s\" is written as %s here", words[0], say);
    if (!any) return no_help(a, words[0]);
    if (n > 1) return sk_fail(SK_EUSAGE, "help: \"%.80s\" is one word too many", words[1]);
    fputs(sk_or_empty(keys), stdout);
    fputs(sk_or_empty(parts), stdout);
    if (say && !keys)
        printf("  in a layout          %s\n", say); /* a word that is called otherwise */
    return SK_OK;
}

static sk_status dispatch(sk_arena *a, int n, char **words)
{
    if (n < 1) {
        usage(stderr);
        return sk_fail(SK_EUSAGE, "a command is needed");
    }
    const char *name = words[0];
    const sk_cmd *c = find(name);
    if (!strcmp(name, "--version") || !strcmp(name, "version")) {
        if (n > 1) return sk_fail(SK_EUSAGE, "version: \"%.80s\" is one word too many", words[1]);
        puts("skein " SK_VERSION);
        return SK_OK;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help"))
        return help(a, n - 1, words + 1);
    if (!c) return unknown(a, name);
    if (c->help && wants_help(n - 1, words + 1)) { /* without, the command tells itself */
        printf("skein %s: %s\n\n%s", c->name, sk_or_empty(c->doc), c->help);
        return SK_OK;
    }
    return c->run(a, n - 1, words + 1);
}

int sk_command(int n_words, const char *const words[])
{
    SK_ENTER;
    sk_arena a = {0};
    int n = n_words > 0 ? n_words : 0, given = 0;
    while (words && given < n && words[given]) given++;
    if (given < n && !words) return (int)sk_fail(SK_EUSAGE, "sk_command: words is NULL");
    if (given < n)
        return (int)sk_fail(SK_EUSAGE, "sk_command: word %d of %d is NULL", given + 1, n);
    char **copy = sk_many(&a, char *, n + 1); /* commands may change their words */
    for (int i = 0; i < n; i++) copy[i] = sk_strdup(&a, words[i]);
    sk_error_set("");
    sk_proc_streams();
    bool before = ferror(stdout); /* the caller's own */
    sk_status st = dispatch(&a, n, copy);
    bool lost = fflush(stdout) || (ferror(stdout) && !before); /* now, or on the way */
    if (lost && !st) st = sk_fail(SK_EIO, "cannot write to standard output");
    if (lost && !before) clearerr(stdout); /* it is told */
    if (!st) sk_error_set("");             /* of something that was tried on the way */
    sk_arena_end(&a);
    return (int)st;
}
