/* swap.c - `skein swap`: large batches, workers with small ones, the mean of their weights. */
#include "base/file_io.h"
#include "base/strings.h"
#include "cli/cmd.h"
#include "cli/setting.h"
#include "cli/swap.h"

#include <string.h>
#include <time.h>

static const char usage[] =
    "usage: skein swap [FILE.yaml] [key=value ...] --large \"KEYS\" --small \"KEYS\" [--workers "
    "K]\n"
    "                  [--jobs N] [run=DIR] [-o csv|json|md]\n\n"
    "Stochastic weight averaging in parallel (Gupta et al. 2020).  Phase 1 trains with the keys\n"
    "of --large; phase 2 trains K workers from its weights with the keys of --small, each with a\n"
    "seed of its own; phase 3 averages them, and validates every model on all of data.val.\n"
    "Keys of a phase are separated by blanks; 'quotes' hold a value with blanks together.\n"
    "The same command, or skein swap run=DIR alone, goes on with a swap that was stopped or\n"
    "killed: what is done is skipped.\n"
    "    skein swap model=mlp data.train=fashion-mnist run=runs/swap --workers 4 --jobs 4 \\\n"
    "        --large \"train.batch=4096 train.steps=150 optim.lr=4e-3 val.stop_accuracy=0.87\" \\\n"
    "        --small \"train.batch=128 train.steps=400 optim.lr=5e-4\"\n";

static const sk_option options[] = {
    {"large", "keys of phase 1; val.stop_loss and val.stop_accuracy end it early", true},
    {"small", "keys of phase 2, of each worker", true},
    {"workers", "models that phase 2 trains and phase 3 averages (4)", true},
    {"jobs", "workers at once, which share the cores evenly (1)", true},
    {"o", "csv, json or md: print the table so", true},
    {0},
};

enum { MOST_WORKERS = 1000, MOST_AT_ONCE = 1024, MOST_WORDS = 256 };

typedef struct ask {
    sk_arena *arena;
    sk_conf_rest rest;
    sk_settings said;
    const char *file, *format, *large, *small;
    int64_t workers, at_once;
} ask;

/* ---- the command line */

static sk_status read_count(const ask *q, const char *name, int64_t most, int64_t *out)
{
    const char *text = sk_conf_option(&q->rest, name);
    if (!text) return SK_OK;
    if (!sk_read_int(text, out) || *out < 1 || *out > most)
        return sk_fail(SK_EUSAGE,
                       "command line: --%s is \"%.40s\"; a whole number from 1 to %lld is needed",
                       name, text, (long long)most);
    return SK_OK;
}

static sk_status read_words(ask *q, int argc, char **argv)
{
    q->rest = (sk_conf_rest){.options = options};
    q->said = (sk_settings){0};
    q->workers = 4;
    q->at_once = 1;
    SK_TRY(sk_conf_args(q->arena, argc, argv, &q->said, &q->rest, &q->file));
    if (q->rest.help) return SK_OK;
    if (q->rest.n_words)
        return sk_fail(SK_EUSAGE, "command line: \"%.80s\" is no key=value and no FILE.yaml",
                       q->rest.words[0]);
    q->large = sk_conf_option(&q->rest, "large");
    q->small = sk_conf_option(&q->rest, "small");
    q->format = sk_conf_option(&q->rest, "o");
    SK_TRY(read_count(q, "workers", MOST_WORKERS, &q->workers));
    SK_TRY(read_count(q, "jobs", MOST_AT_ONCE, &q->at_once));
    if (q->format && !sk_conf_among("csv json md", q->format))
        return sk_fail(SK_EUSAGE, "command line: -o %s is unknown; there are csv, json and md",
                       q->format);
    return SK_OK;
}

static const char *dir_of(const ask *q)
{
    const sk_setting *run = sk_setting_find(&q->said, "run");
    if (!run || !*run->value) return NULL;
    size_t n = strlen(run->value);
    while (n > 1 && run->value[n - 1] == '/') n--;
    return sk_print(q->arena, "%.*s", (int)n, run->value);
}

static const char *fresh_dir(sk_arena *a)
{
    char stamp[32];
    time_t now = time(NULL);
    struct tm tm;
    strftime(stamp, sizeof stamp, "%m%d-%H%M", localtime_r(&now, &tm));
    const char *path = sk_print(a, "runs/%s-swap", stamp);
    for (int i = 2; sk_is_there(path); i++) path = sk_print(a, "runs/%s-swap-%d", stamp, i);
    return path;
}

/* Nothing but the directory: the words that made it stand in front of these. */
static sk_status recall(ask *q, int argc, char **argv)
{
    char **old = NULL;
    int n = 0;
    bool alone = !q->file && !q->large && !q->small;
    for (int i = 0; i < q->said.n; i++) alone &= !strcmp(q->said.v[i].key, "run");
    if (!alone || !dir_of(q)) return SK_OK;
    SK_TRY(sk_sweep_recall(q->arena, "swap", dir_of(q), &old, &n));
    char **words = sk_many(q->arena, char *, n + argc + 1);
    memcpy(words, old, (size_t)n * sizeof *words);
    memcpy(words + n, argv, (size_t)argc * sizeof *words);
    return read_words(q, n + argc, words);
}

/* ---- keys of a phase */

/* The next word of *text, its 'quotes' taken away; "": none is left.  NULL: a quote is open. */
static char *next_word(sk_arena *a, const char **text)
{
    const char *s = *text + strspn(*text, " \t\n");
    char *out = sk_many(a, char, strlen(s) + 1), *to = out;
    bool quoted = false;
    for (; *s && (quoted || !strchr(" \t\n", *s)); s++) {
        if (*s == '\'') quoted = !quoted;
        else *to++ = *s;
    }
    *text = s;
    return quoted ? NULL : out;
}

static sk_status check_key(const char *phase, const char *key)
{
    static const struct {
        const char *key, *why;
    } not_here[] = {{"run", "phases lie below run=DIR of the swap"},
                    {"resume", "a swap resumes its phases by itself"},
                    {"train.seed", "it is said once for all: workers have those that follow it"},
                    {"model", "phase 2 goes on from the model of phase 1"}};
    for (int i = 0; i < 4; i++)
        if (!strcmp(key, not_here[i].key))
            return sk_fail(SK_EUSAGE, "command line: %s is no key of --%s: %s", key, phase,
                           not_here[i].why);
    return SK_OK;
}

static sk_status read_phase(sk_arena *a, const char *phase, const char *text, const char ***out,
                            int *n)
{
    char *words[MOST_WORDS], *word;
    const char *file = NULL;
    sk_settings s = {0};
    int k = 0;
    if (!text)
        return sk_fail(SK_EUSAGE,
                       "swap: --%s is missing: the keys of that phase, as \"train.batch=%s "
                       "train.steps=200\"",
                       phase, !strcmp(phase, "large") ? "4096" : "128");
    while ((word = next_word(a, &text)) && *word)
        if (k < MOST_WORDS) words[k++] = word;
    if (!word) return sk_fail(SK_EUSAGE, "command line: a quote of --%s is not closed", phase);
    SK_TRY(sk_conf_args(a, k, words, &s, &(sk_conf_rest){0}, &file));
    if (file || s.n != k)
        return sk_fail(SK_EUSAGE, "command line: --%s takes key=value words alone", phase);
    for (int i = 0; i < s.n; i++) SK_TRY(check_key(phase, s.v[i].key));
    *out = sk_many(a, const char *, k + 1);
    for (int i = 0; i < k; i++) (*out)[i] = sk_print(a, "%s=%s", s.v[i].key, s.v[i].value);
    *n = k;
    return SK_OK;
}

/* ---- the swap they mean */

static sk_status add_keys(const ask *q, sk_swap *w)
{
    for (int i = 0; i < q->said.n; i++) {
        const sk_setting *k = &q->said.v[i];
        if (sk_setting_find(&q->said, k->key) != k || !strcmp(k->key, "run")) continue;
        if (!strcmp(k->key, "resume"))
            return sk_fail(SK_EUSAGE, "command line: a swap resumes its phases by itself; leave "
                                      "out resume");
        w->words[w->n_words] = sk_print(q->arena, "%s=%s", k->key, k->value);
        w->said[w->n_said++] = w->words[w->n_words++];
    }
    return SK_OK;
}

static sk_status make(const ask *q, sk_swap *w)
{
    sk_arena *a = q->arena;
    *w = (sk_swap){.arena = a,
                   .dir = dir_of(q),
                   .file = q->file,
                   .words = sk_many(a, const char *, q->said.n + 1),
                   .said = sk_many(a, const char *, q->said.n + 5),
                   .workers = (int)q->workers,
                   .at_once = (int)q->at_once,
                   .progress = q->format ? stderr : stdout};
    if (!w->dir) w->dir = fresh_dir(a);
    SK_TRY(read_phase(a, "large", q->large, &w->large, &w->n_large));
    SK_TRY(read_phase(a, "small", q->small, &w->small, &w->n_small));
    if (q->file) w->said[w->n_said++] = q->file;
    SK_TRY(add_keys(q, w));
    w->said[w->n_said++] = sk_print(a, "--large=%s", q->large);
    w->said[w->n_said++] = sk_print(a, "--small=%s", q->small);
    w->said[w->n_said++] = sk_print(a, "--workers=%d", w->workers);
    return SK_OK;
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    ask *q = sk_new(a, ask);
    sk_swap *w = sk_new(a, sk_swap);
    q->arena = a;
    SK_TRY(read_words(q, argc, argv));
    if (q->rest.help) {
        printf("%s\n%s", usage, sk_conf_help(a, options));
        return SK_OK;
    }
    SK_TRY(recall(q, argc, argv));
    SK_TRY(make(q, w));
    SK_TRY(sk_sweep_alone(a, "swap"));
    SK_TRY(sk_swap_run(w));
    sk_table t = sk_swap_table(w);
    SK_TRY(sk_swap_save(w, &t));
    if (!q->format) printf("\n");
    SK_TRY(sk_table_print(&t, q->format, stdout));
    if (!q->format) sk_swap_tell(w, stdout);
    return SK_OK;
}

const sk_cmd sk_cmd_swap = {
    .name = "swap",
    .doc = "large batches, workers with small ones, the mean of their weights",
    .run = run,
};
