/* conf_replayed.c - is a replay (`skein train --replay RUN`) the job that the run was?
 *
 * What time decided belongs to steps of one job.  Imposed on another, it would make a run that
 * nobody asked for, so keys that change the result must be those of the run.  A shorter replay
 * may be asked for: train.steps is held against the recording (train/loop_timed.c), like ranks.
 * Where ranks had not met, what ckpt, val and sample ask for is left out there. */
#include "base/strings.h"
#include "cli/setting.h"

#include <string.h>

enum { MOST_TOLD = 6 };

/* They change what is told, saved and looked at, not what steps compute. */
static bool is_free(const char *key)
{
    static const char *const sections[] = {"ckpt.", "log.", "val.", "sample."};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (!strncmp(key, sections[i], strlen(sections[i]))) return true;
    return sk_conf_among("run resume ranks train.steps comm.timeout", key);
}

/* The next "key: value" of a job's text, as sk_conf_print writes it; a list is one value. */
typedef struct line {
    const char *key, *value;
} line;

static bool next(sk_arena *a, const char **at, const char **section, line *to)
{
    const char *s = *at, *colon = strchr(s, ':');
    if (!*s || !colon) return false;
    size_t n = strcspn(colon, "\n");
    const char *name =
        sk_print(a, "%.*s", (int)(colon - s - (*s == ' ' ? 2 : 0)), s + (*s == ' ' ? 2 : 0));
    to->key = *s == ' ' ? sk_print(a, "%s.%s", *section, name) : name;
    if (*s != ' ') *section = name;
    *at = colon + n + (colon[n] == '\n');
    while (!strncmp(*at, "  - ", 4)) {
        n = (size_t)(*at - colon) + strcspn(*at, "\n");
        *at = colon + n + (colon[n] == '\n');
    }
    const char *from = colon + 1 + strspn(colon + 1, " \n");
    bool empty = from >= colon + n;
    to->value = empty ? "" : sk_print(a, "%.*s", (int)(colon + n - from), from);
    return true;
}

/* NULL: the text has no such key. */
static const char *value_of(sk_arena *a, const char *text, const char *key)
{
    const char *section = "";
    line x;
    while (next(a, &text, &section, &x))
        if (!strcmp(x.key, key)) return x.value;
    return NULL;
}

/* Keys of `is` that `was` has with another value, or (with_new) lacks. */
static int find_changes(sk_out *o, const char *was, const char *is, bool with_new)
{
    const char *section = "";
    int n = 0;
    line x;
    while (next(o->arena, &is, &section, &x)) {
        const char *old = value_of(o->arena, was, x.key);
        if (is_free(x.key) || (!old && !with_new) || (old && !strcmp(old, x.value))) continue;
        if (n++ >= MOST_TOLD) continue;
        sk_out_add(o, "%s%s was %s and is %s", o->n ? ", " : "", x.key, old ? old : "not there",
                   *x.value ? x.value : "others");
    }
    return n;
}

sk_status sk_conf_replayed(sk_arena *a, const char *run, const sk_job *was, const sk_job *is)
{
    const char *x = sk_conf_print(a, was), *y = sk_conf_print(a, is);
    sk_out o = {.arena = a};
    int n = find_changes(&o, x, y, false);
    if (!n) n = find_changes(&o, x, y, true);
    if (!n) return SK_OK;
    if (n > MOST_TOLD) sk_out_add(&o, ", and %d more", n - MOST_TOLD);
    return sk_fail(SK_ECONF,
                   "--replay %s: %s; steps of another job would not be those that are recorded: "
                   "leave out what differs (run, resume, train.steps, comm.timeout and keys of "
                   "ckpt, log, val and sample may)",
                   run, o.s);
}
