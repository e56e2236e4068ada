/* sweep_words.c - the words of a command that starts many jobs: `skein sweep` and `skein swap` read
 * theirs alike. */
#include "cli/sweep_words.h"
#include "base/file_io.h"
#include "cli/sweep.h"

#include <string.h>
#include <time.h>

enum { MOST_AT_ONCE = 1024 };

sk_status sk_sweep_count(const sk_sweep_words *w, const char *name, int64_t least, int64_t most,
                         int64_t *out)
{
    const char *text = sk_conf_option(&w->rest, name);
    if (!text) return SK_OK;
    if (!sk_read_int(text, out) || *out < least || *out > most)
        return sk_fail(
            SK_EUSAGE,
            "command line: --%s is \"%.40s\"; a whole number from %lld to %lld is needed", name,
            text, (long long)least, (long long)most);
    return SK_OK;
}

/* Of a directory without the slashes at its end; NULL: none is said. */
static const char *said_dir(const sk_sweep_words *w)
{
    const sk_setting *run = sk_setting_find(&w->said, "run");
    if (!run || !*run->value) return NULL;
    size_t n = strlen(run->value);
    while (n > 1 && run->value[n - 1] == '/') n--;
    return sk_print(w->arena, "%.*s", (int)n, run->value);
}

sk_status sk_sweep_read(sk_sweep_words *w, int argc, char **argv)
{
    w->rest = (sk_conf_rest){.options = w->options};
    w->said = (sk_settings){0};
    w->file = NULL;
    w->at_once = 1;
    SK_TRY(sk_conf_args(w->arena, argc, argv, &w->said, &w->rest, &w->file));
    if (w->rest.help) return SK_OK;
    if (w->rest.n_words)
        return sk_fail(SK_EUSAGE, "command line: \"%.80s\" is no key=value and no FILE.yaml",
                       w->rest.words[0]);
    w->dir = said_dir(w);
    w->format = sk_conf_option(&w->rest, "o");
    SK_TRY(sk_sweep_count(w, "jobs", 1, MOST_AT_ONCE, &w->at_once));
    if (w->format && !sk_conf_among("csv json md", w->format)) /* now, not after hours of jobs */
        return sk_fail(SK_EUSAGE, "command line: -o %s is unknown; there are csv, json and md",
                       w->format);
    return SK_OK;
}

bool sk_sweep_says_dir_alone(const sk_sweep_words *w)
{
    bool alone = !w->file;
    for (int i = 0; i < w->said.n; i++) alone &= !strcmp(w->said.v[i].key, "run");
    return alone;
}

sk_status sk_sweep_read_again(sk_sweep_words *w, int argc, char **argv)
{
    char **old = NULL;
    int n = 0;
    SK_TRY(sk_sweep_recall(w->arena, w->command, w->dir, &old, &n));
    char **words = sk_many(w->arena, char *, n + argc + 1);
    memcpy(words, old, (size_t)n * sizeof *words);
    memcpy(words + n, argv, (size_t)argc * sizeof *words);
    return sk_sweep_read(w, n + argc, words);
}

static const char *fresh_dir(sk_arena *a, const char *command)
{
    char stamp[32];
    time_t now = time(NULL);
    struct tm tm;
    strftime(stamp, sizeof stamp, "%m%d-%H%M", localtime_r(&now, &tm));
    const char *path = sk_print(a, "runs/%s-%s", stamp, command);
    for (int i = 2; sk_is_there(path); i++) path = sk_print(a, "runs/%s-%s-%d", stamp, command, i);
    return path;
}

const char *sk_sweep_dir(const sk_sweep_words *w)
{
    return w->dir ? w->dir : fresh_dir(w->arena, w->command);
}

sk_status sk_sweep_key(const sk_sweep_words *w, int i, const sk_setting **out)
{
    const sk_setting *k = &w->said.v[i];
    *out = NULL;
    if (sk_setting_find(&w->said, k->key) != k || !strcmp(k->key, "run")) return SK_OK;
    if (!strcmp(k->key, "resume"))
        return sk_fail(SK_EUSAGE, "command line: a %s resumes its %s by itself; leave out resume",
                       w->command, strcmp(w->command, "swap") ? "jobs" : "phases");
    *out = k;
    return SK_OK;
}
