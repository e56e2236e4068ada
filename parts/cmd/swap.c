/* swap.c - `skein swap`: large batches, workers with small ones, the mean of their weights. */
#include "base/file_io.h"
#include "base/strings.h"
#include "cli/cmd.h"
#include "cli/swap.h"
#include "cli/sweep_words.h"

#include <string.h>

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

enum { MOST_WORKERS = 1000, MOST_WORDS = 256 };

typedef struct ask {
    sk_sweep_words w;
    const char *large, *small;
    int64_t workers;
} ask;

/* ---- the command line */

static sk_status read_options(ask *q)
{
    q->large = sk_conf_option(&q->w.rest, "large");
    q->small = sk_conf_option(&q->w.rest, "small");
    q->workers = 4;
    return sk_sweep_count(&q->w, "workers", 1, MOST_WORKERS, &q->workers);
}

/* A phase that is not said is that of the swap in the directory. */
static bool leaves_out_phases(const ask *q)
{
    if (!q->w.dir || q->w.file || (q->large && q->small)) return false;
    if (!q->large && !q->small) return sk_sweep_says_dir_alone(&q->w);
    return sk_is_there(sk_print(q->w.arena, "%s/swap.json", q->w.dir));
}

/* The words that made the swap stand in front of these. */
static sk_status read_words(ask *q, int argc, char **argv)
{
    SK_TRY(sk_sweep_read(&q->w, argc, argv));
    if (q->w.rest.help) return SK_OK;
    SK_TRY(read_options(q));
    if (!leaves_out_phases(q)) return SK_OK;
    SK_TRY(sk_sweep_read_again(&q->w, argc, argv));
    return read_options(q);
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
                    {"model", "phase 2 goes on from the model of phase 1; give it once for all"}};
    for (int i = 0; i < 4; i++) {
        size_t n = strlen(not_here[i].key);
        if (!strncmp(key, not_here[i].key, n) && (!key[n] || key[n] == '.')) /* model.* too */
            return sk_fail(SK_EUSAGE, "command line: %s is no key of --%s: %s", key, phase,
                           not_here[i].why);
    }
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
    while ((word = next_word(a, &text)) && *word && k < MOST_WORDS) words[k++] = word;
    if (k == MOST_WORDS)
        return sk_fail(SK_EUSAGE,
                       "command line: --%s has %d words or more; fewer are needed, or a "
                       "FILE.yaml for all phases",
                       phase, MOST_WORDS);
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
    for (int i = 0; i < q->w.said.n; i++) {
        const sk_setting *k;
        SK_TRY(sk_sweep_key(&q->w, i, &k));
        if (!k) continue;
        w->words[w->n_words] = sk_print(w->arena, "%s=%s", k->key, k->value);
        w->said[w->n_said++] = w->words[w->n_words++];
    }
    return SK_OK;
}

static sk_status make(const ask *q, sk_swap *w)
{
    sk_arena *a = q->w.arena;
    *w = (sk_swap){.arena = a,
                   .dir = sk_sweep_dir(&q->w),
                   .file = q->w.file,
                   .words = sk_many(a, const char *, q->w.said.n + 1),
                   .said = sk_many(a, const char *, q->w.said.n + 5),
                   .workers = (int)q->workers,
                   .at_once = (int)q->w.at_once,
                   .progress = q->w.format ? stderr : stdout};
    SK_TRY(read_phase(a, "large", q->large, &w->large, &w->n_large));
    SK_TRY(read_phase(a, "small", q->small, &w->small, &w->n_small));
    if (w->file) w->said[w->n_said++] = w->file;
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
    q->w = (sk_sweep_words){.arena = a, .command = "swap", .options = options};
    SK_TRY(read_words(q, argc, argv));
    if (q->w.rest.help) {
        printf("%s\n%s", usage, sk_conf_help(a, options));
        return SK_OK;
    }
    SK_TRY(make(q, w));
    SK_TRY(sk_sweep_alone(a, "swap"));
    SK_TRY(sk_swap_run(w));
    sk_table t = sk_swap_table(w);
    SK_TRY(sk_swap_save(w, &t));
    if (!q->w.format) printf("\n");
    SK_TRY(sk_table_print(&t, q->w.format, stdout));
    if (!q->w.format) sk_swap_tell(w, stdout);
    return SK_OK;
}

const sk_cmd sk_cmd_swap = {
    .name = "swap",
    .doc = "large batches, workers with small ones, the mean of their weights",
    .run = run,
};
